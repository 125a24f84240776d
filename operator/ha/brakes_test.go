// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
)

func TestHold(t *testing.T) {
	in := func(m kvmv1.Maintenance, evicting bool) *kvmv1.Hypervisor {
		h := &kvmv1.Hypervisor{Spec: kvmv1.HypervisorSpec{Maintenance: m}}
		if evicting {
			h.Status.Conditions = []metav1.Condition{{Type: kvmv1.ConditionEvicting, Status: metav1.ConditionTrue}}
		}
		return h
	}
	free := in("", false)
	for _, tt := range []struct {
		name      string
		b         brakes
		h         *kvmv1.Hypervisor
		confirmed bool
		want      string // part of why; "": nothing holds
	}{
		{"nothing", brakes{}, free, false, ""},
		{"it may lead no more", brakes{blind: true}, free, true, "not sure that it leads"},
		{"paused", brakes{paused: true}, free, false, "paused"},
		{"paused holds even a confirmed one", brakes{paused: true}, free, true, "paused"},
		{"dry run", brakes{dryRun: true}, free, false, "it would be fenced, but this is a dry run"},
		{"a dry run holds even a confirmed one", brakes{dryRun: true, storm: true}, free, true, "it would be fenced, but this is a dry run"},
		{"in a dry run a brake is a brake", brakes{dryRun: true, storm: true, zone: 40}, free, false, "storm"},
		{"its own network", brakes{observer: true}, free, false, "own network"},
		{"no API", brakes{outage: true}, free, false, "API"},
		{"a storm", brakes{storm: true, zone: 40}, free, false, "storm"},
		{"a storm, and a person knows", brakes{storm: true, observer: true, outage: true}, free, true, ""},
		{"a new leader, who has not heard half of the zone", brakes{zone: 8, unheard: 4}, free, false, "new"},
		{"a new leader, who has not heard one of the zone", brakes{zone: 8, unheard: 1}, free, false, ""},
		{"a new leader, and a person knows", brakes{zone: 8, unheard: 8}, free, true, ""},
		{"in maintenance", brakes{}, in(kvmv1.MaintenanceManual, false), false, "maintenance"},
		{"in maintenance, and being evicted", brakes{}, in(kvmv1.MaintenanceManual, true), false, ""},
		{"in our own maintenance", brakes{}, in(kvmv1.MaintenanceHA, false), false, ""},
		{"four of the zone are being fenced", brakes{fencing: 4, fencingZone: 4}, free, false, ""},
		{"five of the zone are", brakes{fencing: 5, fencingZone: 5}, free, false, "of the zone"},
		{"ten of all are", brakes{fencing: 10, fencingZone: 1}, free, false, "10 hosts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			why := hold(tt.b, tt.h, tt.confirmed, "it would be fenced", limits)
			if (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
				t.Errorf("%q, want %q in it", why, tt.want)
			}
		})
	}
}

func TestStorm(t *testing.T) {
	at := func(s int) time.Duration { return time.Duration(s) * seconds }
	for _, tt := range []struct {
		silent, hosts int
		closed        bool
	}{
		{1, 3, false}, {2, 3, false}, {2, 4, false}, {3, 8, true}, {10, 40, false}, {11, 40, true}, {40, 1000, false}, {300, 1000, true},
	} {
		s := &storm{}
		if s.see(tt.silent, tt.hosts, at(1), limits); s.closed != tt.closed {
			t.Errorf("%d of %d: closed %v", tt.silent, tt.hosts, s.closed)
		}
	}
	s := &storm{}
	s.see(12, 40, at(0), limits)
	s.see(2, 40, at(100), limits)
	if s.see(2, 40, at(159), limits); !s.closed {
		t.Error("it opens before it has been calm for 60 s")
	}
	s.see(12, 40, at(159), limits)
	s.see(2, 40, at(165), limits)
	if s.see(2, 40, at(220), limits); !s.closed {
		t.Error("the calm begins anew after another gust")
	}
	if s.see(2, 40, at(225), limits); s.closed {
		t.Error("it stays closed although it has been calm")
	}
}

func TestObserver(t *testing.T) {
	for _, tt := range []struct {
		heard, lost int
		holds       bool
	}{
		{0, 0, true}, {1, 0, false}, {1, 1, true}, {2, 1, false}, {2, 2, true}, {3, 1, false}, {3, 2, true}, {10, 5, false}, {10, 6, true},
	} {
		if observer(tt.heard, tt.lost, limits) != tt.holds {
			t.Errorf("%d of %d silent: want %v", tt.lost, tt.heard, tt.holds)
		}
	}
}

func TestOutage(t *testing.T) {
	at := func(s int) time.Duration { return time.Duration(s) * seconds }
	o := &outage{limits: limits}
	o.answered(true, at(1))
	o.answered(false, at(100))
	if o.holds(at(129)) {
		t.Error("a hiccup holds")
	}
	if !o.holds(at(130)) {
		t.Error("30 s without an answer do not hold")
	}
	o.answered(true, at(140))
	if !o.holds(at(199)) || o.holds(at(200)) {
		t.Error("it settles for 60 s after that")
	}
	o.answered(false, at(300))
	o.answered(true, at(301))
	if o.holds(at(302)) {
		t.Error("a hiccup needs no settling")
	}
}

func TestHoldDown(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	fenced := func(minutes ...int) (all []v1alpha1.Evacuation) {
		for _, m := range minutes {
			all = append(all, v1alpha1.Evacuation{
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(m) * time.Minute))},
				Status:     v1alpha1.EvacuationStatus{Proof: &v1alpha1.Proof{}},
			})
		}
		return all
	}
	cancelled := fenced(0, 5, 10)
	for i := range cancelled {
		cancelled[i].Status.Proof = nil
	}
	for _, tt := range []struct {
		name    string
		history []v1alpha1.Evacuation
		want    time.Duration
	}{
		{"never", nil, 0},
		{"once", fenced(0), 0},
		{"twice within the hour", fenced(0, 59), 10 * time.Minute},
		{"twice with more between", fenced(0, 61), 0},
		{"three times", fenced(0, 30, 60), 20 * time.Minute},
		{"its hold-down does not count against the hour", fenced(0, 30, 95), 20 * time.Minute},
		{"for ever", fenced(0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110), 24 * time.Hour},
		{"those that came to nothing do not count", cancelled, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := holdDown(tt.history, limits); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
