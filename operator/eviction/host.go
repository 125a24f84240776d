// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"slices"
	"strings"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
)

// HostsOf returns the hosts a VM concerns, sorted: where it is placed, where it
// goes, and where it was until that host is clean. A VM that has ended concerns
// none; its domain is undefined by then.
func HostsOf(vmi *kubevirtv1.VirtualMachineInstance) []string {
	if vmi.IsFinal() {
		return nil
	}
	var hosts []string
	add := func(host string) {
		if host != "" {
			hosts = append(hosts, host)
		}
	}
	for key := range vmi.Labels { // Sorted below.
		if host, ok := strings.CutPrefix(key, kubevirt.LabelHostPrefix); ok {
			add(host)
		}
	}
	add(vmi.Status.NodeName)
	add(vmi.Labels[kubevirt.LabelMigrationTargetNodeName])
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
