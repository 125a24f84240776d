// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// slots is the ledger of migrations under way and of those that wait for their
// turn. What is under way is read off VMIs, so it survives a restart; a hand-off
// that no event has shown yet is assumed, by the rule of compute.Fleet.
type slots struct {
	mu       sync.Mutex
	perFleet int
	perHost  int

	moving  map[types.UID]move  // By VMI.
	out     map[string]int      // By source.
	waiting map[types.UID]*turn // By VMI.
	queue   []*turn             // The same, in the order in which they are served.
}

type move struct {
	source  string
	base    string // Assumed: the VMI's version it was decided on. Else "".
	retried bool   // An earlier write of the same may have succeeded.
	version string
	live    bool
}

// turn is a migration that waits.
type turn struct {
	vm       types.UID
	key      types.NamespacedName // Of the VMI.
	uid      types.UID            // Of the migration.
	priority int
	created  time.Time
	source   string
	stuck    bool // No host takes its VM: it holds nobody up.
}

func newSlots(perFleet, perHost int) *slots {
	return &slots{
		perFleet: perFleet, perHost: perHost,
		moving: map[types.UID]move{}, out: map[string]int{}, waiting: map[types.UID]*turn{},
	}
}

// order puts the highest priority first, then the oldest.
func order(a, b *turn) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), a.created.Compare(b.created), cmp.Compare(a.uid, b.uid))
}

// take gives a migration a slot if one is free that nobody before it could use.
// It holds until observe shows the hand-off, or give returns it.
func (s *slots) take(t turn, base string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, has := s.moving[t.vm]; has && have.live {
		if have.base != base {
			return false // The VM moves already.
		}
		have.retried = true
		s.moving[t.vm] = have
		return true
	}
	t.stuck = false
	s.enqueue(t)
	if !slices.ContainsFunc(s.next(), func(n *turn) bool { return n.vm == t.vm }) {
		return false
	}
	s.dequeue(t.vm)
	s.moving[t.vm] = move{source: t.source, base: base, live: true, version: s.moving[t.vm].version}
	s.out[t.source]++
	return true
}

// give returns a slot whose hand-off surely was not written. With stuck it was
// for want of a host: the migration waits on and holds nobody up until its next
// try.
func (s *slots) give(t turn, stuck bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, has := s.moving[t.vm]
	if !has || have.base == "" || have.retried {
		return
	}
	s.end(t.vm)
	t.stuck = stuck
	s.enqueue(t)
}

// next are the waiting ones that may have a slot now, in order.
func (s *slots) next() (able []*turn) {
	free := s.perFleet
	for _, n := range s.out { // In any order: a sum.
		free -= n
	}
	var out map[string]int
	for _, t := range s.queue {
		if free <= 0 {
			break
		}
		if t.stuck || s.out[t.source]+out[t.source] >= s.perHost {
			continue
		}
		if out == nil {
			out = map[string]int{}
		}
		out[t.source]++
		free--
		able = append(able, t)
	}
	return able
}

// leave takes a VM's migration out of the queue.
func (s *slots) leave(vm types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dequeue(vm)
}

// observe takes over what a VMI shows, and returns the VMIs whose turn it is if
// a slot became free.
func (s *slots) observe(vmi *kubevirtv1.VirtualMachineInstance) (turns []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, had := s.moving[vmi.UID]
	if had && have.version != vmi.ResourceVersion && !newer(vmi.ResourceVersion, have.version) {
		return nil
	}
	live := isLive(vmi)
	if had && have.base != "" && !live && (vmi.ResourceVersion == have.base || !newer(vmi.ResourceVersion, have.base)) {
		return nil // The assumption is younger than this.
	}
	was := had && have.live
	if was {
		s.end(vmi.UID)
	}
	if !live {
		if had {
			s.moving[vmi.UID] = move{version: vmi.ResourceVersion}
		}
		if was {
			return s.turns()
		}
		return nil
	}
	source := vmi.Status.MigrationState.SourceNode
	s.moving[vmi.UID] = move{source: source, version: vmi.ResourceVersion, live: true}
	s.out[source]++
	s.dequeue(vmi.UID)
	return nil
}

// forget takes out a VMI that is gone.
func (s *slots) forget(vm types.UID) (turns []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dequeue(vm)
	was := s.moving[vm].live
	if was {
		s.end(vm)
	}
	delete(s.moving, vm)
	if was {
		return s.turns()
	}
	return nil
}

func (s *slots) turns() (keys []types.NamespacedName) {
	for _, t := range s.next() {
		keys = append(keys, t.key)
	}
	return keys
}

func (s *slots) end(vm types.UID) {
	m := s.moving[vm]
	if s.out[m.source]--; s.out[m.source] == 0 {
		delete(s.out, m.source)
	}
	s.moving[vm] = move{version: m.version}
}

func (s *slots) enqueue(t turn) {
	if have := s.waiting[t.vm]; have != nil {
		if *have == t {
			return
		}
		s.dequeue(t.vm)
	}
	s.waiting[t.vm] = &t
	i, _ := slices.BinarySearchFunc(s.queue, &t, order)
	s.queue = slices.Insert(s.queue, i, &t)
}

func (s *slots) dequeue(vm types.UID) {
	have := s.waiting[vm]
	if have == nil {
		return
	}
	delete(s.waiting, vm)
	s.queue = slices.DeleteFunc(s.queue, func(t *turn) bool { return t == have })
}

// isLive says whether a VMI is being moved: handed off and neither there nor
// given up. One that has ended moves no more.
func isLive(vmi *kubevirtv1.VirtualMachineInstance) bool {
	m := vmi.Status.MigrationState
	return m != nil && m.MigrationUID != "" && !m.Completed && !m.Failed && !vmi.IsFinal()
}

// newer says whether version a is later than b; see compute.
func newer(a, b string) bool {
	if b == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return order > 0
}

// waits says whether a VM's migration is in the queue.
func (s *slots) waits(vm types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting[vm] != nil
}
