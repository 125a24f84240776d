// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/adit-hv/adit/agents/permit"
	"github.com/adit-hv/adit/hardware"
)

const s = time.Second

var times = Times{Interval: 5 * s, Term: 20 * s, Stop: 10 * s, Watchdog: 20 * s}

func TestWhatRenewsALease(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(l *lease)
		at   time.Duration
		want standing
	}{
		{"a boot has none", func(*lease) {}, 100 * s, none},
		{"a heartbeat gives none", func(l *lease) { l.beat(99*s, 100*s) }, 100 * s, none},
		{"a grant gives one", func(l *lease) { l.grant(99*s, 100*s) }, 118 * s, valid},
		{"counted from when the report was sent", func(l *lease) { l.grant(99*s, 110*s) }, 119 * s, lapsed},
		{"a grant that took longer than it lasts is none", func(l *lease) { l.grant(99*s, 119*s) }, 119 * s, none},
		{"a heartbeat renews it from when the write began", func(l *lease) { l.grant(99*s, 100*s); l.beat(110*s, 114*s) }, 129 * s, valid},
		{"and no longer", func(l *lease) { l.grant(99*s, 100*s); l.beat(110*s, 114*s) }, 130 * s, lapsed},
		{"a heartbeat revives nothing", func(l *lease) { l.grant(99*s, 100*s); l.beat(118*s, 119*s) }, 119 * s, lapsed},
		{"a grant does", func(l *lease) { l.grant(99*s, 100*s); l.grant(130*s, 131*s) }, 140 * s, valid},
		{"an answer that was overtaken takes nothing away", func(l *lease) { l.grant(104*s, 105*s); l.grant(99*s, 106*s) }, 123 * s, valid},
		{"off is off", func(l *lease) { l.grant(99*s, 100*s); l.switchOff(); l.beat(101*s, 102*s) }, 1000 * s, off},
		{"a grant ends it", func(l *lease) { l.switchOff(); l.grant(99*s, 100*s) }, 119 * s, lapsed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := lease{times: times}
			tt.do(&l)
			if got := l.standing(tt.at); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestALeaseOutlivesTheAgentAndNotTheBoot(t *testing.T) {
	held := permit.Permit{Until: 110 * s, Boot: "b1"}
	for _, tt := range []struct {
		name  string
		note  permit.Permit
		boot  string
		armed bool
		now   time.Duration
		want  standing
		fed   time.Duration
	}{
		{"it is still valid", held, "b1", true, 109 * s, valid, 120 * s},
		{"it lapsed while nobody looked", held, "b1", true, 111 * s, lapsed, 120 * s},
		{"another boot", held, "b2", false, 109 * s, none, 0},
		{"never granted", permit.Permit{}, "b1", false, 109 * s, none, 0},
		{"armed, and nothing written down: time is over", permit.Permit{}, "b1", true, 109 * s, lapsed, 109 * s},
		{"off", permit.Permit{Until: forever, Boot: "b1"}, "b1", false, 109 * s, off, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := resume(tt.note, times, tt.boot, tt.armed, tt.now)
			if got := l.standing(tt.now); got != tt.want || l.fedUntil() != tt.fed {
				t.Errorf("%s, fed until %v; want %s, %v", got, l.fedUntil(), tt.want, tt.fed)
			}
		})
	}
}

func TestWhenTheWatchdogIsFed(t *testing.T) {
	armed := hardware.WatchdogState{Present: true, Armed: true}
	idle := hardware.WatchdogState{Present: true}
	held := lease{times: times, until: 110 * s}
	for _, tt := range []struct {
		name string
		l    lease
		dog  hardware.WatchdogState
		now  time.Duration
		want care
	}{
		{"no watchdog", held, hardware.WatchdogState{}, 100 * s, leave},
		{"no lease in this boot", lease{times: times}, idle, 100 * s, leave},
		{"the first grant arms it", held, idle, 100 * s, feed},
		{"valid", held, armed, 100 * s, feed},
		{"lapsed, the VMs are being stopped", held, armed, 119 * s, feed},
		{"lapsed, time is over", held, armed, 120 * s, leave},
		{"lapsed, and nothing protected left of late", lease{times: times, until: 110 * s, clear: 115 * s}, armed, 124 * s, feed},
		{"but nobody has looked since", lease{times: times, until: 110 * s, clear: 115 * s}, armed, 125 * s, leave},
		{"off: disarm", lease{times: times, until: forever}, armed, 100 * s, disarm},
		{"off", lease{times: times, until: forever}, idle, 100 * s, leave},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := careFor(tt.l, tt.dog, tt.now); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestAFeedingThatWasHeldUpIsMended(t *testing.T) {
	l := lease{times: times, until: 110 * s}
	for fed, want := range map[time.Duration]time.Duration{100 * s: 0, 120 * s: 0, 121 * s: 19 * s, 125*s + 1: 14 * s, 139 * s: s, 150 * s: s} {
		if got := l.mend(fed); got != want {
			t.Errorf("fed at %v: %v, want %v", fed, got, want)
		}
	}
}

// machine is a host with a protected VM on it, as far as a lease goes: what its
// agent knows and wrote down, and the watchdog.
type machine struct {
	*rapid.T
	now   time.Duration
	l     lease
	alive bool // the agent
	note  permit.Permit
	kept  time.Duration
	dog   hardware.WatchdogState
	bites time.Duration

	renewed time.Duration // the latest renewal there can have been
	runs    bool          // a protected VM
	reset   bool
}

// pass lets time pass, and holds that no protected VM runs later than term, stop
// and watchdog after the last renewal where the watchdog is armed.
func (m *machine) pass(d time.Duration) {
	m.now += d
	over := m.renewed + times.Term + times.Stop + times.Watchdog
	if m.dog.Armed && m.runs && min(m.now, m.bites) > over {
		m.Fatalf("at %v a protected VM runs, last renewed at %v; the watchdog bites at %v", m.now, m.renewed, m.bites)
	}
	m.reset = m.dog.Armed && m.now >= m.bites
}

// keep does what agent.keep does; it is held up between deciding and doing.
func (m *machine) keep(heldUp time.Duration) {
	care := careFor(m.l, m.dog, m.now)
	if m.pass(heldUp); m.reset {
		return
	}
	if care == feed {
		timeout := times.Watchdog
		if left := m.l.mend(m.now); left > 0 {
			timeout = left
		}
		m.dog.Armed, m.bites = true, m.now+timeout
	}
	m.note, m.kept = m.l.permit("b"), m.now
}

// draw draws a twentieth of upTo, or several; of a range rapid would mostly draw
// next to nothing.
func (m *machine) draw(upTo time.Duration, what string) time.Duration {
	return upTo / 20 * time.Duration(rapid.SampledFrom([]int{1, 2, 4, 8, 12, 16, 20}).Draw(m.T, what))
}

// TestNoProtectedVMOutlivesItsTime draws schedules of grants and heartbeats that
// end, of calls that are long under way, of looks that find and stop or do not, of
// agents that die, come back, and are not scheduled.
func TestNoProtectedVMOutlivesItsTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{T: t, now: 30 * s, l: lease{times: times}, alive: true, dog: hardware.WatchdogState{Present: true}}
		stops := rapid.Bool().Draw(t, "the hypervisor stops VMs")
		stalls := rapid.Bool().Draw(t, "the agent is held up")
		answers := rapid.IntRange(1, 30).Draw(t, "steps in which the service answers")
		writes := rapid.IntRange(0, 30).Draw(t, "steps in which storage works")
		dies := rapid.IntRange(1, 60).Draw(t, "step in which the agent dies")
		returns := dies + rapid.IntRange(1, 8).Draw(t, "steps until it is back")
		for step := range answers + writes + 30 {
			began := m.now
			if m.pass(m.draw(4*s, "passes")); m.reset {
				return // nothing runs
			}
			what := []string{"look", "nova"}
			if step < answers {
				what = append(what, "answer", "answer")
			}
			if step < writes {
				what = append(what, "write", "write")
			}
			did := rapid.SampledFrom(what).Draw(t, "what")
			switch {
			case step == dies:
				m.alive = false
			case step == returns:
				m.alive, m.l = true, resume(m.note, times, "b", m.dog.Armed, m.now)
			case did == "nova": // starts a VM at once, if it may
				m.runs = m.runs || m.note.Valid(m.now, "b")
			case !m.alive:
			case did == "answer": // to a report sent at began
				m.renewed = max(m.renewed, began)
				m.l.grant(began, m.now)
			case did == "write":
				if m.l.standing(m.now) == valid {
					m.renewed = max(m.renewed, began)
				}
				m.l.beat(began, m.now)
			case did == "look": // the list is as it was when the look began
				if !m.runs {
					m.l.looked(began)
				}
				if m.l.standing(m.now) == lapsed && stops {
					m.runs = false
				}
			}
			if m.alive && m.now-m.kept >= 5*s {
				heldUp := time.Duration(0)
				if stalls && rapid.IntRange(0, 3).Draw(t, "held up") == 0 {
					heldUp = m.draw(19*s, "for")
				}
				if m.keep(heldUp); m.reset {
					return
				}
			}
		}
	})
}
