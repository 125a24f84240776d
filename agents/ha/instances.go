// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"maps"
	"slices"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/hardware"
)

// instance is what the service hears of one domain of ours.
type instance struct {
	namespace, name     string
	token               int64
	state               hardware.State
	detail              hardware.Detail
	incoming, protected bool
}

// table holds the host's instances and when each changed, so that a report can
// leave out what the service knows.
type table struct {
	known   bool // the domains were listed once
	version uint64
	here    map[string]instance // by UUID
	changed map[string]uint64   // version of the last change
	gone    map[string]uint64   // version in which one went
	foreign map[string]bool     // domains that are not ours
}

func newTable() table {
	return table{here: map[string]instance{}, changed: map[string]uint64{}, gone: map[string]uint64{}, foreign: map[string]bool{}}
}

// take takes in a list of all domains and says whether anything changed.
func (t *table) take(domains []hardware.Domain) bool {
	next, before := t.version+1, t.here
	here := make(map[string]instance, len(domains))
	changed := !t.known
	clear(t.foreign)
	for _, d := range domains {
		if d.Foreign || d.Spec.Owner == nil {
			t.foreign[d.UUID] = true
			continue
		}
		o := d.Spec.Owner
		i := instance{
			namespace: o.Namespace, name: o.Name, token: o.Generation,
			state: d.State, detail: d.Detail, incoming: d.Incoming, protected: o.Protected,
		}
		here[d.UUID] = i
		if was, known := before[d.UUID]; !known || was != i {
			t.changed[d.UUID] = next
			delete(t.gone, d.UUID)
			changed = true
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(before)) {
		if _, still := here[uuid]; !still {
			delete(t.changed, uuid)
			t.gone[uuid] = next
			changed = true
		}
	}
	t.known, t.here = true, here
	if changed {
		t.version = next
	}
	return changed
}

// since returns the instances that changed after a version, and those that went.
func (t *table) since(version uint64) (instances []*hav1.Instance, gone []string) {
	for _, uuid := range slices.Sorted(maps.Keys(t.here)) {
		if t.changed[uuid] > version {
			instances = append(instances, t.here[uuid].message(uuid))
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(t.gone)) {
		if t.gone[uuid] > version {
			gone = append(gone, uuid)
		}
	}
	return instances, gone
}

// forget drops what the service has been told of those that went.
func (t *table) forget(version uint64) {
	maps.DeleteFunc(t.gone, func(_ string, went uint64) bool { return went <= version })
}

func (i instance) message(uuid string) *hav1.Instance {
	return &hav1.Instance{
		Uuid: uuid, Namespace: i.namespace, Name: i.name, Token: i.token,
		State: string(i.state), Detail: string(i.detail), Incoming: i.incoming, Protected: i.protected,
	}
}
