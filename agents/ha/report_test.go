// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"slices"
	"testing"
	"time"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/hardware"
)

// listed is an agent of a host with two domains, that has begun.
func listed() *agent {
	a := newAgent(Options{Host: "a", Times: times})
	a.boot, a.epoch, a.begun = "b1", 3, true
	a.table.take([]hardware.Domain{ours("u1", hardware.StateRunning), ours("u2", hardware.StateRunning)})
	return a
}

func ours(uuid string, state hardware.State) hardware.Domain {
	return hardware.Domain{UUID: uuid, State: state, Spec: hardware.DomainSpec{Owner: &hardware.Owner{Namespace: "vms", Name: uuid, Generation: 7, Protected: true}}}
}

// say composes a report, and hear answers it.
func (a *agent) say() *hav1.ReportRequest { return a.compose(100 * s) }

func (a *agent) hear(r *hav1.ReportRequest, answer *hav1.ReportResponse) (more bool) {
	return a.take(r, answer, 100*s, 101*s)
}

func lost(a *agent, r *hav1.ReportRequest) { // as report does
	a.talk.failures++
	a.talk.full = a.talk.full || r.Full
}

func shape(r *hav1.ReportRequest) [4]int {
	full := 0
	if r.Full {
		full = 1
	}
	return [4]int{full, int(r.Base), len(r.Instances), len(r.Gone)}
}

func wantShape(t *testing.T, what string, r *hav1.ReportRequest, full, base, instances, gone int) {
	t.Helper()
	if got, want := shape(r), [4]int{full, base, instances, gone}; got != want {
		t.Errorf("%s: full, base, instances, gone %v, want %v", what, got, want)
	}
}

func TestAReportSaysWhatTheServiceDoesNotKnow(t *testing.T) {
	fresh := newAgent(Options{Host: "a", Times: times})
	wantShape(t, "before the first list", fresh.say(), 0, 0, 0, 0)

	a := listed()
	first := a.say()
	wantShape(t, "first", first, 1, 0, 2, 0)
	lost(a, first)
	second := a.say()
	wantShape(t, "first, lost", second, 1, 0, 2, 0)
	a.hear(second, &hav1.ReportResponse{Leader: true})
	quiet := a.say()
	wantShape(t, "nothing new", quiet, 0, 2, 0, 0)
	a.hear(quiet, &hav1.ReportResponse{Leader: true})

	a.table.take([]hardware.Domain{ours("u1", hardware.StatePaused)})
	delta := a.say()
	wantShape(t, "one paused, one gone", delta, 0, 3, 1, 1)
	lost(a, delta)
	a.table.take([]hardware.Domain{ours("u1", hardware.StatePaused), ours("u3", hardware.StateRunning)})
	delta = a.say()
	wantShape(t, "lost, and one more", delta, 0, 3, 2, 1)
	if more := a.hear(delta, &hav1.ReportResponse{Leader: true, Resync: true}); !more {
		t.Error("the service asked for everything and waits for the next interval")
	}
	full := a.say()
	wantShape(t, "asked for everything", full, 1, 0, 2, 0)
	if more := a.hear(full, &hav1.ReportResponse{Leader: true, Resync: true}); more {
		t.Error("everything was asked for twice in a row: that turns without a pause")
	}
	a.hear(a.say(), &hav1.ReportResponse{Leader: true})
	a.talk.full = true // a gap in the events
	full = a.say()
	wantShape(t, "after a gap", full, 1, 0, 2, 0)
	if full.Seq != 8 || full.Epoch != 3 || full.Boot != "b1" {
		t.Errorf("report %d of epoch %d, boot %s", full.Seq, full.Epoch, full.Boot)
	}
}

func TestAGapWhileAFullReportIsUnderWayAsksForAnother(t *testing.T) {
	a := listed()
	r := a.say()
	a.talk.full = true
	a.hear(r, &hav1.ReportResponse{Leader: true})
	if r := a.say(); !r.Full {
		t.Error("the second is not full")
	}
}

func TestAnAnswerBelongsToItsReport(t *testing.T) {
	a := listed()
	a.hear(a.say(), &hav1.ReportResponse{Leader: true, Granted: true, Watch: []string{"b", "c", "a", ""}})
	if a.lease.until != 120*s {
		t.Errorf("the lease ends at %v", a.lease.until)
	}
	if w := a.watched(); len(w) != 2 || w[0] != "b" {
		t.Errorf("watches %v", w)
	}
	a.hear(a.say(), &hav1.ReportResponse{Leader: true, Refused: "fencing", Watch: []string{"c"}})
	if w := a.watched(); a.lease.until != 120*s || len(w) != 1 {
		t.Errorf("refused: the lease ends at %v, watches %v", a.lease.until, w)
	}
	a.hear(a.say(), &hav1.ReportResponse{Leader: true, Off: true})
	if r := a.say(); !r.Lease.Off || r.Lease.Valid || r.Lease.Lapsed {
		t.Errorf("off: %v", r.Lease)
	}
}

func TestBackOffGrowsToAnIntervalAndSpreads(t *testing.T) {
	spread := map[time.Duration]bool{}
	for _, host := range []string{"a", "b", "c", "d"} {
		o := Options{Host: host, Times: times}
		for failures, about := range map[int]time.Duration{1: s, 2: 2 * s, 3: 4 * s, 4: 5 * s, 5: 5 * s, 100: 5 * s} { // in any order
			got := backOff(o, failures)
			if got < about*3/4 || got > about*5/4 {
				t.Errorf("%s after %d failures: %v", host, failures, got)
			}
			spread[got] = true
		}
	}
	if len(spread) < 20 {
		t.Errorf("24 back-offs are %d", len(spread))
	}
}

func TestAWitnessClaimsNoMoreThanItSaw(t *testing.T) {
	var n neighbour
	beat := hardware.Heartbeat{Boot: "b", Count: 1}
	read := func(at, took time.Duration, b hardware.Heartbeat, err error) bool {
		n.store.ask(at)
		return n.hear(at, at+took, b, err)
	}
	gone := hardware.Fail(hardware.Unavailable, hardware.ReasonOther, "read", "pool", "gone")
	read(10*s, s, beat, nil)
	for _, tt := range []struct {
		name     string
		do       func() bool
		now      time.Duration
		news     bool
		readable bool
		still    time.Duration
	}{
		{"as it was", func() bool { return read(15*s, s, beat, nil) }, 16 * s, false, true, 4 * s},
		{"a reading is under way", func() bool { n.store.ask(20 * s); return false }, 24 * s, false, true, 4 * s},
		{"and hangs", func() bool { return false }, 25 * s, false, false, 4 * s},
		{"it comes back as an error", func() bool { return n.hear(20*s, 50*s, hardware.Heartbeat{}, gone) }, 50 * s, true, false, 4 * s},
		{"as it was all the time", func() bool { return read(55*s, s, beat, nil) }, 56 * s, true, true, 44 * s},
		{"it moves", func() bool { return read(60*s, s, hardware.Heartbeat{Boot: "b", Count: 2}, nil) }, 61 * s, false, true, 0},
		{"lapsed", func() bool { return read(65*s, s, hardware.Heartbeat{Boot: "b", Count: 3, Lapsed: true}, nil) }, 66 * s, true, true, 0},
	} {
		if news := tt.do(); news != tt.news {
			t.Errorf("%s: news %v", tt.name, news)
		}
		m := n.message("x", tt.now, 5*s)
		if m.Storage != tt.readable || m.Still.AsDuration() != tt.still {
			t.Errorf("%s: readable %v, still for %v", tt.name, m.Storage, m.Still.AsDuration())
		}
	}
}

type nobody struct {
	Service
	hardware.Host
}

func (nobody) Elapsed() time.Duration { return 0 }

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for name, t2 := range map[string]Times{ // in any order
		"one report a term":   {Interval: 15 * s},
		"a quick watchdog":    {Watchdog: 2 * s},
		"an uneven watchdog":  {Watchdog: 20*s + 1},
		"stopping in no time": {Stop: -s},
	} {
		if _, err := (Options{Host: "a", Service: nobody{}, Hardware: nobody{}, Steady: nobody{}, Times: t2}).withDefaults(); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	o, err := (Options{Host: "a", Service: nobody{}, Hardware: nobody{}, Steady: nobody{}}).withDefaults()
	if err != nil || o.Times != times {
		t.Errorf("%v, times %+v", err, o.Times)
	}
	if _, err := (Options{Service: nobody{}, Hardware: nobody{}, Steady: nobody{}}).withDefaults(); err == nil {
		t.Error("an agent of no host was taken")
	}
}

// slow is a host on which feeding the watchdog takes a while, as when the agent
// is not scheduled.
type slow struct {
	nobody
	now  time.Duration
	took []time.Duration
	fed  []time.Duration
}

func (h *slow) Elapsed() time.Duration { return h.now }

func (h *slow) FeedWatchdog(_ context.Context, timeout time.Duration) error {
	h.fed = append(h.fed, timeout)
	if len(h.fed) <= len(h.took) {
		h.now += h.took[len(h.fed)-1]
	}
	return nil
}

func TestTheWatchdogIsSetShorterWhenFeedingWasHeldUp(t *testing.T) {
	for _, tt := range []struct {
		name string
		took time.Duration
		want []time.Duration
	}{
		{"in no time", 0, []time.Duration{20 * s}},
		{"held up", 15 * s, []time.Duration{20 * s, 6 * s}},
	} {
		h := &slow{now: 119 * s, took: []time.Duration{tt.took}}
		a := newAgent(Options{Host: "a", Hardware: h, Steady: h, Times: times})
		if err := a.feed(context.Background(), lease{times: times, until: 110 * s}); err != nil || !slices.Equal(h.fed, tt.want) {
			t.Errorf("%s: %v, set to %v, want %v", tt.name, err, h.fed, tt.want)
		}
	}
}
