// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"slices"
	"testing"
	"time"

	"github.com/adit-hv/adit/agents/permit"
	"github.com/adit-hv/adit/hardware"
)

func domain(state hardware.State, detail hardware.Detail, with ...func(*hardware.Domain)) hardware.Domain {
	d := hardware.Domain{UUID: "u1", State: state, Detail: detail, Spec: hardware.DomainSpec{Owner: &hardware.Owner{Protected: true}}}
	for _, w := range with {
		w(&d)
	}
	return d
}

func TestWhoIsStoppedAfterALapse(t *testing.T) {
	incoming := func(d *hardware.Domain) { d.Incoming = true }
	unprotected := func(d *hardware.Domain) { d.Spec.Owner.Protected = false }
	foreign := func(d *hardware.Domain) { d.Foreign = true }
	ownerless := func(d *hardware.Domain) { d.Spec.Owner = nil }
	const early, late = 4 * s, 5 * s
	for _, tt := range []struct {
		name  string
		d     hardware.Domain
		away  bool
		since time.Duration
		want  verdict
	}{
		{"runs: gently at first", domain(hardware.StateRunning, hardware.DetailBooted), false, early, shutDown},
		{"runs: and then not", domain(hardware.StateRunning, hardware.DetailBooted), false, late, destroy},
		{"started long after the lapse", domain(hardware.StateRunning, hardware.DetailBooted), false, time.Hour, destroy},
		{"shuts down already", domain(hardware.StateShuttingDown, hardware.DetailUser), false, early, shutDown},
		{"shuts down for too long", domain(hardware.StateShuttingDown, hardware.DetailUser), false, late, destroy},
		{"paused: hears no button", domain(hardware.StatePaused, hardware.DetailIOError), false, early, destroy},
		{"asleep: hears none either", domain(hardware.StatePMSuspended, hardware.DetailNone), false, early, destroy},
		{"panicked and kept: holds its disks", domain(hardware.StateCrashed, hardware.DetailPanicked), false, early, destroy},
		{"off", domain(hardware.StateShutOff, hardware.DetailShutdown), false, late, spare},
		{"not protected", domain(hardware.StateRunning, hardware.DetailBooted, unprotected), false, late, spare},
		{"not ours", domain(hardware.StateRunning, hardware.DetailBooted, foreign), false, late, spare},
		{"nobody's", domain(hardware.StateRunning, hardware.DetailBooted, ownerless), false, late, spare},
		{"half-made target", domain(hardware.StatePaused, hardware.DetailMigrating, incoming), false, early, destroy},
		{"in the switch-over: may get away", domain(hardware.StatePaused, hardware.DetailMigrating), false, early, shutDown},
		{"in the switch-over for too long", domain(hardware.StatePaused, hardware.DetailMigrating), false, late, destroy},
		{"source of a post-copy", domain(hardware.StatePaused, hardware.DetailPostCopy), true, late, spare},
		{"source of a broken one", domain(hardware.StatePaused, hardware.DetailPostCopyFailed), true, late, spare},
		{"target of a broken post-copy", domain(hardware.StatePaused, hardware.DetailPostCopyFailed), false, early, destroy},
		{"target of a post-copy", domain(hardware.StateRunning, hardware.DetailPostCopy), false, late, destroy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := judge(tt.d, tt.away, tt.since, times.Stop); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestWhatWasStoppedIsRemembered(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	run := func(uuid string, state hardware.State, at int) hardware.Domain {
		return hardware.Domain{UUID: uuid, State: state, StartedAt: start.Add(time.Duration(at) * s)}
	}
	uuids := func(s stops) (u []string) {
		for uuid := range s.asked {
			u = append(u, uuid)
		}
		slices.Sort(u)
		return u
	}
	st := newStops()
	a, b := run("a", hardware.StateRunning, 1), run("b", hardware.StatePaused, 1)
	if first := st.ask([]hardware.Domain{a}, []hardware.Domain{b}, 100*s, 100*s); len(first) != 1 {
		t.Errorf("pressed %v", first)
	}
	if again := st.ask([]hardware.Domain{a}, nil, 100*s, 101*s); len(again) != 0 {
		t.Errorf("the button was pressed twice: %v", again)
	}
	if again := st.ask([]hardware.Domain{a}, nil, 200*s, 201*s); len(again) != 1 {
		t.Error("the button was not pressed in the next lapse")
	}
	for _, tt := range []struct {
		name string
		now  time.Duration
		list []hardware.Domain
		want []string
	}{
		{"both are going down still", 210 * s, []hardware.Domain{a, b}, []string{"a", "b"}},
		{"both are off", 220 * s, []hardware.Domain{run("a", hardware.StateShutOff, 1), run("b", hardware.StateShutOff, 1)}, []string{"a", "b"}},
		{"a runs again", 230 * s, []hardware.Domain{run("a", hardware.StateRunning, 225), run("b", hardware.StateShutOff, 1)}, []string{"b"}},
		{"b is gone", 240 * s, []hardware.Domain{run("a", hardware.StateRunning, 225)}, nil},
	} {
		if st.forget(tt.list, tt.now); !slices.Equal(uuids(st), tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, uuids(st), tt.want)
		}
	}

	st = newStops()
	st.resume(permit.Stopped{Domains: []string{"a"}}, 300*s)
	st.forget([]hardware.Domain{a}, 301*s)
	if !slices.Equal(uuids(st), []string{"a"}) {
		t.Error("after the agent's restart: which run it was nobody knows, and it is forgotten")
	}
	if st.forget([]hardware.Domain{a}, 300*s+stopMemory); len(st.asked) != 0 {
		t.Error("a guest that never powered off is remembered for ever")
	}
}
