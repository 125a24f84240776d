// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func lease(renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		LeaseDurationSeconds: ptr.To(int32(40)),
		RenewTime:            ptr.To(metav1.NewMicroTime(renewed)),
	}}
}

func TestFeel(t *testing.T) {
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	// Looked at 0 and heard a renewal of 5 s before.
	alive := feel(pulse{}, lease(at(-5)), false, at(0))
	tests := []struct {
		name   string
		last   pulse
		lease  *coordinationv1.Lease
		said   bool
		now    int
		silent bool
		due    int // Seconds, as now.
	}{
		{"a renewal is due when it runs out", pulse{}, lease(at(-5)), false, 0, false, 35},
		{"no lease is silence", pulse{}, nil, false, 0, true, 10},
		{"a new operator gives a stale lease its time, as clocks differ", pulse{}, lease(at(-60)), false, 0, false, 40},
		{"a new operator does not revive a silent agent", pulse{}, lease(at(-60)), true, 0, true, 10},
		{"a fresh lease revives a silent agent", pulse{}, lease(at(-1)), true, 0, false, 39},
		{"still until it ran out", alive, lease(at(-5)), false, 35, true, 45},
		{"not a moment earlier", alive, lease(at(-5)), false, 34, false, 35},
		{"renewed between the looks", alive, lease(at(25)), false, 35, false, 65},
		{"renewed between two late looks, and still since", alive, lease(at(5)), false, 50, true, 60},
		{"a clock behind ours is heard by its moving", alive, lease(at(-4)), false, 35, false, 75},
		{"a clock ahead of ours is not believed longer", alive, lease(at(500)), false, 35, false, 75},
		{"a silent agent is listened for", feel(alive, lease(at(-5)), false, at(35)), lease(at(-5)), true, 45, true, 55},
		{"and heard again", feel(alive, lease(at(-5)), false, at(35)), lease(at(44)), true, 45, false, 84},
		{"a lease taken away is silence", alive, nil, false, 35, true, 45},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := feel(tt.last, tt.lease, tt.said, at(tt.now))
			if got.silent != tt.silent {
				t.Errorf("silent = %v, want %v", got.silent, tt.silent)
			}
			if due := got.due().Sub(now); due != time.Duration(tt.due)*time.Second {
				t.Errorf("due = %v, want %d s", due, tt.due)
			}
		})
	}
}
