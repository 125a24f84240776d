// SPDX-License-Identifier: Apache-2.0

package ha_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/sim"
)

// watched is a world with one host, a nova that starts a protected VM whenever it
// may, and somebody who looks that it does not run when it must not.
type watched struct {
	*world
	host    *hwsim.Host
	renewed time.Duration // the last renewal there can have been
	count   uint64
	margin  time.Duration
}

// look is done four times a second. A heartbeat renews only a lease that has not
// lapsed, which is what makes this stricter than what a service can see.
func (w *watched) look() {
	now := w.s.Elapsed()
	w.renewed = max(w.renewed, w.service.granted["a"])
	if b, err := w.host.Hardware("test").ReadHeartbeat(context.Background(), beats, "a"); err == nil && b.Count != w.count {
		w.count = b.Count
		if now < w.renewed+term+time.Second {
			w.renewed = now
		}
	}
	if w.renewed > 0 && now > w.renewed+safe+w.margin && slices.Contains(w.fleet.Ledger().Running(uuidOf("web")), "a") {
		w.Fatalf("at %v web runs; the lease was renewed last at %v", now, w.renewed)
	}
}

// nova starts web if it may, as agents/nova does.
func (w *watched) nova() {
	hw := w.host.Hardware("nova")
	left := func() time.Duration { return w.permitLeft("a") }
	w.s.Go(func(*sim.Task) {
		d, err := hw.Domain(context.Background(), uuidOf("web"))
		if err == nil && d.Detail == hardware.DetailIOError {
			_ = hw.Resume(context.Background(), uuidOf("web"))
		}
		if err != nil || d.Active() || left() < 3*time.Second {
			return
		}
		if hw.Start(context.Background(), uuidOf("web"), hardware.StartOptions{}) == nil && left() <= 0 {
			_ = hw.Destroy(context.Background(), uuidOf("web"))
		}
	})
}

func every(s *sim.Scheduler, d time.Duration, do func()) {
	s.After(d, func() { do(); every(s, d, do) })
}

// TestWhateverHappensNoProtectedVMOutlivesItsTime draws what goes wrong with the
// service, the storage, the hypervisor, the host, its clock, its guest and the
// agent itself, each for a while and all at once, and holds that a protected VM
// never runs past its time. Afterwards all is mended, and the host is as it was.
func TestWhateverHappensNoProtectedVMOutlivesItsTime(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		drift := rapid.SampledFrom([]int{-200, 0, 200}).Draw(t, "drift")
		w := &watched{
			world:  newWorld(t, rapid.Uint64().Draw(t, "seed"), hwsim.HostSpec{Name: "a", Drift: drift, BootTime: 40 * time.Second}),
			margin: 3*time.Second + safe/50,
		}
		defer w.cluster.Close()
		w.host = w.fleet.Host("a")
		if rapid.Bool().Draw(t, "deaf guest") {
			w.fleet.SetGuest(uuidOf("web"), hwsim.Guest{IgnoresShutdown: true})
		}
		w.run(10 * time.Second)
		w.boot("a", "web", true)
		every(w.s, 250*time.Millisecond, w.look)
		every(w.s, 2*time.Second, w.nova)
		for i := range rapid.IntRange(1, 6).Draw(t, "troubles") {
			w.trouble(t, i)
		}
		w.run(6 * time.Minute)
		seen["bites"] += w.bites("a")
		for _, note := range w.s.Notes() {
			if note.Component == "ha/a" {
				seen[note.What]++
			}
		}

		w.fleet.HealAll()
		w.service.down, w.service.refuse, w.service.slow = false, false, 0
		w.agents["a"].Resume()
		w.revive()
		w.run(5 * time.Minute)
		w.want("permit in the end", w.permitted("a"), true)
		w.want("web in the end", w.domains("a"), "web running")
		w.sound()
	})
	if seen["bites"]+seen["Shutdown"]+seen["Destroy"] == 0 {
		t.Errorf("no lease lapsed: %v", seen)
	}
	t.Logf("of the watchdog %d bites; of the agent %d shutdowns, %d destroys", seen["bites"], seen["Shutdown"], seen["Destroy"])
}

func (w *watched) revive() {
	if w.host.State() == hwsim.HostUp {
		w.agents["a"].Start()
	}
}

// trouble draws something that goes wrong, from when on, and for how long.
func (w *watched) trouble(t *rapid.T, i int) {
	seconds := func(what string, list ...int) time.Duration {
		return time.Duration(rapid.SampledFrom(list).Draw(t, what)) * time.Second
	}
	from, for_ := seconds("from", 0, 1, 7, 18, 30, 60), seconds("for", 1, 4, 9, 15, 22, 35, 50, 90, 200)
	// What takes a lease is drawn more often, else there is nothing to see.
	what := rapid.SampledFrom([]string{
		"service down", "service down", "cut off", "cut off", "service slow", "service refuses", "agent dies", "agent stands still",
		"storage.lost pool=beats on=a", "storage.hang pool=beats", "storage.hang pool=disks", "storage.lost pool=disks on=a",
		"libvirtd.hang on=a", "libvirtd.crash on=a", "host.hang on=a", "events.lost on=a", "events.dup on=a",
		"clock.jump on=a by=1h", "host.reboot on=a",
	}).Draw(t, "what")
	s := w.s
	during := func(begin, end func()) { s.After(from, begin); s.After(from+for_, end) }
	switch what {
	case "service down":
		during(func() { w.service.down = true }, func() { w.service.down = false })
	case "cut off":
		during(func() { w.service.refuse = true }, func() { w.service.refuse = false })
		w.strike(from, "storage.hang pool=beats", for_)
	case "service slow":
		during(func() { w.service.slow = 3 * time.Second }, func() { w.service.slow = 0 })
	case "service refuses":
		during(func() { w.service.refuse = true }, func() { w.service.refuse = false })
	case "agent dies":
		during(w.agents["a"].Crash, w.revive)
	case "agent stands still":
		during(w.agents["a"].Pause, w.agents["a"].Resume)
	case "host.reboot on=a":
		w.strike(from, what, 0)
	default:
		w.strike(from, what, for_)
	}
}

func (w *watched) strike(in time.Duration, fault string, for_ time.Duration) {
	if for_ > 0 {
		fault += fmt.Sprintf(" for=%s", for_)
	}
	w.s.After(in, func() { w.inject(fault) })
}

// BenchmarkQuietFleet is a minute of a thousand hosts whose agents have nothing
// to say, each watching two others.
func BenchmarkQuietFleet(b *testing.B) {
	const hosts = 1000
	name := func(i int) string { return fmt.Sprintf("h%04d", i%hosts) }
	var specs []hwsim.HostSpec
	for i := range hosts {
		specs = append(specs, one(name(i)))
	}
	w := newWorld(b, 1, specs...)
	defer w.cluster.Close()
	for i := range hosts {
		w.service.watch[name(i)] = []string{name(i + 1), name(i + 2)}
	}
	w.run(time.Minute)
	for b.Loop() {
		before := w.s.Events()
		w.run(time.Minute)
		b.ReportMetric(float64(w.s.Events()-before), "events/op")
	}
}
