// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// TestEachHostIsWatched draws fleets: each host has its witnesses, none is its
// own, none is silent, and where another rack is heard they are from there.
func TestEachHostIsWatched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var fleet []kvmv1.Hypervisor
		silent, racks := map[string]bool{}, map[string]string{}
		for i := range rapid.IntRange(1, 30).Draw(t, "hosts") {
			name, rack := fmt.Sprintf("h%02d", i), rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "rack")
			fleet = append(fleet, kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{kvmv1.LabelZone: "a", kvmv1.LabelBuildingBlock: rack}}})
			racks[name], silent[name] = rack, rapid.IntRange(0, 4).Draw(t, "silent") == 0
		}
		watchers := map[string][]string{}
		watch := ring(fleet, silent)
		for _, w := range slices.Sorted(maps.Keys(watch)) {
			for _, h := range watch[w] {
				watchers[h] = append(watchers[h], w)
			}
		}
		for _, h := range fleet {
			others, elsewhere := 0, 0
			for _, o := range fleet {
				if o.Name != h.Name && !silent[o.Name] {
					others++
					if racks[o.Name] != racks[h.Name] {
						elsewhere++
					}
				}
			}
			got, far := watchers[h.Name], 0
			for _, w := range got {
				if w == h.Name || silent[w] {
					t.Fatalf("%s is watched by %s", h.Name, w)
				}
				if racks[w] != racks[h.Name] {
					far++
				}
			}
			if len(got) != min(witnesses, others) || far != min(witnesses, elsewhere) {
				t.Fatalf("%s is watched by %v: %d of %d others, %d of %d elsewhere", h.Name, got, len(got), others, far, elsewhere)
			}
		}
	})
}
