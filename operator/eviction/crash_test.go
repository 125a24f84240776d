// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"fmt"
	"testing"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/kubesim"
)

// TestAnOperatorThatDiesAnywhereMovesEachVMOnce kills the operator at each of
// its API calls in turn, every third of them, with the call's effect and without it.
func TestAnOperatorThatDiesAnywhereMovesEachVMOnce(t *testing.T) {
	for n := 1; n <= 40; n += 3 {
		for _, when := range []kubesim.Moment{kubesim.Before, kubesim.After} {
			t.Run(fmt.Sprint(n, " ", when), func(t *testing.T) {
				h := newHouse(t, uint64(n))
				h.run(10)
				for i := range 3 {
					h.vm(fmt.Sprintf("vm-%d", i))
				}
				h.operator.CrashAt(n, when)
				h.maintain("a", kvmv1.MaintenanceTermination)
				for range 90 {
					h.run(1)
					if !h.operator.Alive() {
						h.operator.Start()
					}
				}
				h.want("a", "Evicting", "False/Succeeded")
				if h.left() != 0 || h.moves != 3 {
					t.Errorf("%d left, %d moves", h.left(), h.moves)
				}
			})
		}
	}
}

func TestLostAnswersAndConflictsAreLivedWith(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h := newHouse(t, seed)
			h.run(10)
			for i := range 4 {
				h.vm(fmt.Sprintf("vm-%d", i))
			}
			for _, kind := range []string{"api.409 p=0.2 on=operator verbs=update,patch", "api.timeout p=0.2 phase=after on=operator", "api.5xx p=0.1 on=operator"} {
				f, err := kubesim.ParseFault(kind)
				h.must(err)
				end := h.cluster.Inject(f)
				defer end()
			}
			h.maintain("a", kvmv1.MaintenanceManual)
			h.run(400)
			h.want("a", "Evicting", "False/Succeeded")
			if h.left() != 0 || h.moves != 4 {
				t.Errorf("%d left, %d moves", h.left(), h.moves)
			}
		})
	}
}

func TestADrainWritesItsStatusOnceForEachVM(t *testing.T) {
	h := newHouse(t, 1)
	h.run(10)
	const vms = 40
	for i := range vms {
		h.vm(fmt.Sprintf("vm-%02d", i))
	}
	h.maintain("a", kvmv1.MaintenanceManual)
	h.run(600)
	h.want("a", "Evicting", "False/Succeeded")
	writes := uint64(0)
	for _, c := range h.cluster.Counts() {
		if c.Client == "operator" && c.Resource == "evictions/status" {
			writes += c.N
		}
	}
	if writes > vms+5 {
		t.Errorf("%d status writes for %d VMs", writes, vms)
	}
}
