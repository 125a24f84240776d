// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"
)

func turnOf(vm, source string, priority int, age time.Duration) turn {
	return turn{vm: types.UID(vm), key: types.NamespacedName{Name: vm}, uid: types.UID("m-" + vm), priority: priority, created: now.Add(-age), source: source}
}

func TestSlots(t *testing.T) {
	take := func(t *testing.T, s *slots, u turn, want bool) {
		t.Helper()
		if got := s.take(u, "1"); got != want {
			t.Errorf("slot for %s: %t, want %t", u.vm, got, want)
		}
	}
	t.Run("a host has its own limit, and does not use up the fleet's", func(t *testing.T) {
		s := newSlots(3, 2)
		take(t, s, turnOf("1", "a", 50, 4), true)
		take(t, s, turnOf("2", "a", 50, 3), true)
		take(t, s, turnOf("3", "a", 50, 2), false)
		take(t, s, turnOf("4", "b", 50, 1), true)
		take(t, s, turnOf("5", "c", 50, 0), false)
	})
	t.Run("the highest priority that waits goes first, then the oldest", func(t *testing.T) {
		s := newSlots(1, 1)
		take(t, s, turnOf("1", "a", 50, 9), true)
		take(t, s, turnOf("young", "b", 50, 1), false)
		take(t, s, turnOf("old", "b", 50, 2), false)
		take(t, s, turnOf("high", "b", 100, 0), false)
		s.give(turnOf("1", "a", 50, 9), true)
		take(t, s, turnOf("old", "b", 50, 2), false)
		take(t, s, turnOf("high", "b", 100, 0), true)
	})
	t.Run("one that no host takes holds nobody up, and tries again itself", func(t *testing.T) {
		s := newSlots(1, 1)
		take(t, s, turnOf("stuck", "a", 100, 9), true)
		s.give(turnOf("stuck", "a", 100, 9), true)
		take(t, s, turnOf("1", "b", 50, 1), true)
		take(t, s, turnOf("stuck", "a", 100, 9), false)
	})
	t.Run("one that leaves the queue holds nobody up", func(t *testing.T) {
		s := newSlots(1, 1)
		take(t, s, turnOf("1", "a", 50, 9), true)
		take(t, s, turnOf("gone", "b", 100, 1), false)
		take(t, s, turnOf("next", "b", 50, 1), false)
		s.leave("gone")
		s.give(turnOf("1", "a", 50, 9), true)
		take(t, s, turnOf("next", "b", 50, 1), true)
	})
	t.Run("a restart finds them on the VMIs, and an end wakes the next", func(t *testing.T) {
		s := newSlots(1, 1)
		moving := vm(to("b", "m", running))
		s.observe(moving)
		take(t, s, turnOf("next", "c", 50, 1), false)
		over := vm(to("b", "m", running), arrived)
		over.ResourceVersion = "2"
		if keys := s.observe(over); fmt.Sprint(keys) != "[/next]" {
			t.Errorf("woke %v, want next", keys)
		}
		take(t, s, turnOf("next", "c", 50, 1), true)
	})
	t.Run("a hand-off whose end is unknown holds until the VMI moves on", func(t *testing.T) {
		s := newSlots(1, 1)
		mine := turnOf("uid-v", "a", 50, 1)
		take(t, s, mine, true)
		s.observe(vm()) // The version it was decided on.
		take(t, s, turnOf("2", "b", 50, 1), false)
		take(t, s, mine, true) // Tried again, and a conflict:
		s.give(mine, false)
		take(t, s, turnOf("2", "b", 50, 1), false)
		later := vm()
		later.ResourceVersion = "2"
		s.observe(later)
		take(t, s, turnOf("2", "b", 50, 1), true)
	})
}

// TestSlotsHoldUnderAnyOrderOfEvents drives hand-offs whose events come late
// and whose writes may be lost.
func TestSlotsHoldUnderAnyOrderOfEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const perFleet, perHost = 3, 2
		s := newSlots(perFleet, perHost)
		version := 1
		truth, cached := map[string]*kubevirtv1.VirtualMachineInstance{}, map[string]*kubevirtv1.VirtualMachineInstance{}
		var names []string
		sources := map[string]string{}
		for i := range 8 {
			name := fmt.Sprint("v", i)
			names = append(names, name)
			sources[name] = string(rune('a' + i%3))
			truth[name] = vm(func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.UID = types.UID(name) })
			cached[name] = truth[name]
		}
		commit := func(name string, vmi *kubevirtv1.VirtualMachineInstance) {
			version++
			vmi.ResourceVersion = strconv.Itoa(version)
			truth[name] = vmi
		}
		pick := func(t *rapid.T) string { return rapid.SampledFrom(names).Draw(t, "vm") }
		handOff := func(t *rapid.T, name string) {
			seen := cached[name]
			u := turnOf(name, sources[name], rapid.SampledFrom([]int{20, 50, 100}).Draw(t, "priority"), 0)
			if isLive(seen) || s.moving[seen.UID].version > seen.ResourceVersion && len(s.moving[seen.UID].version) >= len(seen.ResourceVersion) || !s.take(u, seen.ResourceVersion) {
				return
			}
			after := seen.DeepCopy()
			to("z", "m-"+name)(after)
			after.Status.MigrationState.SourceNode = sources[name]
			end := rapid.SampledFrom([]string{"done", "not heard", "lost"}).Draw(t, "write")
			switch {
			case end == "lost":
			case truth[name].ResourceVersion != seen.ResourceVersion:
				if end == "done" {
					s.give(u, false)
				}
			default:
				commit(name, after)
				if end == "done" {
					s.observe(after)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"hand off": func(t *rapid.T) { handOff(t, pick(t)) },
			"deliver":  func(t *rapid.T) { name := pick(t); cached[name] = truth[name]; s.observe(truth[name]) },
			"resync":   func(t *rapid.T) { s.observe(cached[pick(t)]) },
			"end": func(t *rapid.T) {
				if name := pick(t); isLive(truth[name]) {
					after := truth[name].DeepCopy()
					after.Status.MigrationState.Failed = true
					commit(name, after)
				}
			},
			"touch": func(t *rapid.T) { name := pick(t); commit(name, truth[name].DeepCopy()) },
			"": func(t *rapid.T) {
				all, out := 0, map[string]int{}
				for _, name := range names {
					if isLive(truth[name]) {
						all++
						out[sources[name]]++
					}
				}
				if all > perFleet || out["a"] > perHost || out["b"] > perHost || out["c"] > perHost {
					t.Fatalf("%d under way, by source %v", all, out)
				}
			},
		})
		// No slot is lost: once all is over and seen, all can be had again.
		for _, name := range names {
			after := truth[name].DeepCopy()
			if after.Status.MigrationState != nil {
				after.Status.MigrationState.Failed = true
			}
			commit(name, after)
			s.observe(after)
			s.leave(after.UID)
		}
		if len(s.out) != 0 || len(s.queue) != 0 {
			t.Fatalf("still held: %v, %d wait", s.out, len(s.queue))
		}
	})
}
