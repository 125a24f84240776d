// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"strings"
)

// RowType is what a field of a row holds.
type RowType int

// The types of rows' fields.
const (
	Text RowType = iota
	Truth
	Number // a whole one
	Texts
)

// ViewRows are the fields of the rows of each list in ViewLists, so that an
// expression over one that no row has is found before it is run.
var ViewRows = map[string]map[string]RowType{
	"vms": row4(
		"name group phase reason host power origin migration readyReason message",
		"running deleting ready paused migratable placeable protected", "moves starts evacuated recovery", "on copies"),
	"hosts": row4(
		"name zone rack readyReason readyMessage libvirtReason disabledReason disabledMessage evictingReason evictingMessage maintenance version serial alive aliveMessage haReason",
		"up ready libvirt disabled evicting evicted identity known ha", "vms domains instances cpus memory allocated capacity fences offs", "ids"),
	"migrations":  row4("name vm phase eviction reason source target", "", "created", ""),
	"evacuations": row4("name host phase proof message", "", "total running waiting ended orders", "vms"),
	"evictions":   row4("name host state message", "dryRun", "total moved failed running", "waiting stuck would"),
	"records":     row4("name vm type operation origin destination error elapsed downtime", "", "", ""),
}

func row4(texts, truths, numbers, lists string) map[string]RowType {
	fields := map[string]RowType{}
	for t, names := range []string{texts, truths, numbers, lists} {
		for _, n := range strings.Fields(names) {
			fields[n] = RowType(t)
		}
	}
	return fields
}

// CheckKey says whether one of ViewMaps can ever have a row of that name.
func (s Spec) CheckKey(in, key string) error {
	if strings.ContainsAny(key, "*?[,@") {
		return fmt.Errorf("%s[%q] is one row, and a pattern names none", in, key)
	}
	if in == "vm" {
		return s.checkVMs(key)
	}
	return s.checkHosts(key)
}
