// SPDX-License-Identifier: Apache-2.0

package ha_test

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/adit-hv/adit/kubesim"
)

// TestALeaderThatDiesAnywhereIsFollowed kills the leader at each of its API calls
// in turn from when a host hangs on, every third of them, with the call's effect
// and without it, and another one when the host is back. Each time the host is
// fenced by proof, its VMs are placed anew once, and it serves again.
func TestALeaderThatDiesAnywhereIsFollowed(t *testing.T) {
	for _, lacks := range []string{complete, noPower} {
		for n := 1; n <= 61; n += 3 {
			for _, when := range []kubesim.Moment{kubesim.Before, kubesim.After} {
				t.Run(fmt.Sprint(cmp.Or(lacks, "complete"), " ", n, " ", when), func(t *testing.T) {
					h := newHouse(t, uint64(n), lacks)
					h.hosts["a"].hung = true
					h.dies(n, when, 240)
					if h.story("a") != "Evacuated a-1:Evacuated:LeaseExpired maintenance=ha" {
						h.want("a", "Evacuated a-1:Evacuated:PowerOff maintenance=ha")
					}
					h.movedOnce()
					h.hosts["a"].begins()
					h.dies(n, when, 240)
					h.want("a", "Online a-1:Done:PowerOff", "Online a-1:Done:LeaseExpired")
					h.movedOnce()
				})
			}
		}
	}
}

// dies kills the replica that leads at its nth call from now, and lets it come
// back a second later, as one that follows.
func (h *house) dies(n int, when kubesim.Moment, seconds int) {
	for _, p := range h.replicas {
		if p.Leads() {
			p.CrashAt(n, when)
		}
	}
	for range seconds {
		h.run(1)
		for _, p := range h.replicas {
			if !p.Alive() {
				p.Start()
			}
		}
	}
}
