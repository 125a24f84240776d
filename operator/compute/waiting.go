// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// retryFirst and retryMost bound how long a VM that found no room waits
	// before it looks again unasked; it doubles between. Room that appears wakes
	// it, so this is only for what no single host's event tells (a zone's
	// anti-affinity, the end of an avoidance).
	retryFirst = 5 * time.Second
	retryMost  = time.Minute

	// wakeMost is how many VMs one host's news may wake, so that a full fleet's
	// queue is not run through for every VM that ends. More do not fit into what
	// one VM leaves, and a big host that comes back wakes the rest by its next
	// report or their own retry.
	wakeMost = 64
)

// waits notes that a VM found no room and says when to look again unasked.
func (f *Fleet) waits(uid types.UID) (again time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.vms[uid]
	if v == nil {
		return retryFirst
	}
	f.setWaiting(v, true)
	again = min(retryMost, retryFirst<<min(v.attempts, 8))
	v.attempts++
	return again
}

func (f *Fleet) setWaiting(v *vm, waiting bool) {
	if v.waiting == waiting {
		return
	}
	v.waiting = waiting
	if !waiting {
		v.attempts = 0
		f.waiting = without(f.waiting, v)
		return
	}
	i, _ := slices.BinarySearchFunc(f.waiting, v, before)
	f.waiting = slices.Insert(f.waiting, i, v)
}

// reorder changes what a VM's place among those that wait follows from.
func (f *Fleet) reorder(v *vm, change func()) {
	waiting, attempts := v.waiting, v.attempts
	f.setWaiting(v, false)
	change()
	f.setWaiting(v, waiting)
	v.attempts = attempts
}

// woken is a VM that may find room now.
type woken struct {
	key      types.NamespacedName
	priority int
}

// wake says which VMs that wait may fit a host, in the order in which they are
// to be served, as many as it has room for.
func (f *Fleet) wake(host string) (list []woken) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.byName[host]
	if h == nil || h.state != taking || len(f.waiting) == 0 {
		return nil
	}
	memory, cpus := h.free()
	now := f.clock.Now()
	for _, v := range f.waiting {
		if len(list) == wakeMost || memory <= 0 || cpus <= 0 {
			break
		}
		if v.memory > memory || v.cpus > cpus {
			continue
		}
		if f.refuse(h, &ask{now: now, vm: v, neighbours: f.neighboursOf(v)}) != fits {
			continue
		}
		memory -= v.memory
		cpus -= v.cpus
		list = append(list, woken{v.key, v.priority})
	}
	return list
}
