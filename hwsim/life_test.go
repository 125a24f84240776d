// SPDX-License-Identifier: Apache-2.0

package hwsim_test

import (
	"context"
	"testing"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/sim"
)

// feed feeds a host's watchdog each five seconds until stop.
func (w *world) feed(host string, timeout time.Duration) (stop func()) {
	hw := w.f.Host(host).Hardware("feeder")
	task := w.s.Go(func(t *sim.Task) {
		for {
			_ = hw.FeedWatchdog(context.Background(), timeout)
			t.Sleep(5 * time.Second)
		}
	})
	return func() { task.Kill() }
}

func (w *world) bootOf(host string) string {
	w.t.Helper()
	var id string
	w.must(w.do(host, func(ctx context.Context, h hardware.Host) error {
		b, err := h.Boot(ctx)
		id = b.ID
		return err
	}))
	return id
}

func (w *world) up(host string) bool { return w.f.Host(host).State() == hwsim.HostUp }

func TestAnArmedWatchdogResetsAMachineThatNobodyFeeds(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.boot("a", w.spec(vmA, "a", "shared/a")))
	boot := w.bootOf("a")
	stop := w.feed("a", 20*time.Second)
	w.pass(10 * time.Minute)
	if w.bootOf("a") != boot {
		t.Fatal("it was fed and bit")
	}
	stop()
	w.pass(14 * time.Second)
	if !w.up("a") {
		t.Fatal("it bit before its time")
	}
	w.pass(7 * time.Second)
	if w.up("a") || len(w.f.Ledger().Running(vmA)) != 0 {
		t.Fatal("it did not bite")
	}
	w.pass(time.Minute)
	if w.bootOf("a") == boot {
		t.Error("the machine did not boot anew")
	}
	w.pass(time.Hour)
	if n := w.count("watchdog", "bites"); n != 1 {
		t.Errorf("it bit %d times: a reset disarms it", n)
	}
}

func TestTheWatchdogBitesAHostThatHangs(t *testing.T) {
	w := newWorld(t, 1)
	boot := w.bootOf("a")
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.FeedWatchdog(ctx, 20*time.Second) }))
	w.inject("host.hang on=a for=10m")
	w.pass(2 * time.Minute)
	if w.bootOf("a") == boot {
		t.Error("the host hangs on")
	}
}

func TestADisarmedWatchdogAndOneOfAMachineThatIsOffStaySilent(t *testing.T) {
	w := newWorld(t, 1)
	for _, host := range []string{"a", "b"} {
		w.must(w.do(host, func(ctx context.Context, h hardware.Host) error { return h.FeedWatchdog(ctx, 20*time.Second) }))
	}
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.DisarmWatchdog(ctx) }))
	w.inject("host.power-off on=b for=10s")
	w.pass(time.Hour)
	if n := w.count("watchdog", "bites"); n != 0 {
		t.Errorf("%d bites", n)
	}
}

// count is how many notes of that kind the trace has.
func (w *world) count(component, what string) (n int) {
	for _, note := range w.s.Notes() {
		if note.Component == component && note.What == what {
			n++
		}
	}
	return n
}

func TestFeedingCostsNoEventsButTheTimersOwn(t *testing.T) {
	w := newWorld(t, 1)
	w.pass(time.Minute)
	w.feed("a", 20*time.Second)
	before := w.s.Events()
	w.pass(time.Hour)
	fed := uint64(time.Hour / (5 * time.Second))
	// The feeder's own sleep wakes once a feeding; the timer looks once in 20 s at most.
	if n := w.s.Events() - before; n > fed+fed/2 {
		t.Errorf("%d events for %d feedings", n, fed)
	}
}

func TestNotesOutliveTheirWritersAndEndWithTheBoot(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error {
		return h.SaveNote(ctx, "run-permit", []byte("until noon"))
	}))
	load := func() (data []byte) {
		w.must(w.do("a", func(ctx context.Context, h hardware.Host) (err error) {
			data, err = h.LoadNote(ctx, "run-permit")
			return err
		}))
		return data
	}
	w.inject("libvirtd.crash on=a for=5s")
	w.pass(time.Minute)
	if string(load()) != "until noon" {
		t.Errorf("%q", load())
	}
	w.inject("host.reboot on=a")
	w.pass(time.Minute)
	if load() != nil {
		t.Error("the note is still there after a boot")
	}
}

func TestTheSteadyClockDriftsAndBeginsAnewWithABoot(t *testing.T) {
	w := newWorld(t, 1)
	h, err := w.f.AddHost(hwsim.HostSpec{Name: "fast", Model: "lab", Drift: 200, ClockSkew: -time.Hour})
	w.must(err)
	steady, from := h.Steady(), h.Steady().Elapsed()
	w.pass(1000 * time.Second)
	if got := steady.Elapsed() - from; got != 1000*time.Second+200*time.Millisecond {
		t.Errorf("1000 s are %v", got)
	}
	if got := w.s.Now().Sub(h.Clock().Now()); got != time.Hour {
		t.Errorf("the wall clock is %v behind", got)
	}
	w.inject("host.reboot on=fast")
	w.pass(time.Minute)
	if up := steady.Elapsed(); up > 2*time.Minute {
		t.Errorf("%v after a boot", up)
	}
}
