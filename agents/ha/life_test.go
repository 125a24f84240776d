// SPDX-License-Identifier: Apache-2.0

package ha_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/sim"
)

func TestAHeartbeatCountsFromWhenItsWritingBegan(t *testing.T) {
	w := healthy(t)
	w.service.down = true
	w.run(30 * time.Second)
	before := w.heartbeat("a").Count
	w.inject("storage.hang pool=beats for=8500ms") // one write is given up, the next one lands in the end
	w.run(8600 * time.Millisecond)
	for w.heartbeat("a").Count == before {
		w.run(100 * time.Millisecond)
	}
	b := w.heartbeat("a")
	w.inject("storage.hang pool=beats")
	w.run(5 * time.Second) // the permit is written now and then
	took := w.fleet.Host("a").Steady().Elapsed() - time.Duration(b.Count)*time.Millisecond
	if left := w.permitLeft("a"); left > term-took+time.Millisecond {
		t.Errorf("the last writing began %v ago, and the permit lasts %v", took, left)
	}
	w.run(term - took - time.Second)
	w.want("permit before", w.permitted("a"), true)
	w.run(time.Second + time.Millisecond) // the heartbeat counts milliseconds
	w.want("permit after", w.permitted("a"), false)
}

func TestBeforeTheFirstGrantNothingIsWatchedOver(t *testing.T) {
	w := newWorld(t, 1, one("a"))
	defer w.cluster.Close()
	w.service.refuse = true
	w.boot("a", "web", true) // by a nova that asks for no permit
	w.run(5 * time.Minute)
	w.want("web", w.domains("a"), "web running")
	w.want("permit", w.permitted("a"), false)
	w.want("armed", w.watchdog("a").Armed, false)
	w.want("heartbeats are written", w.heartbeat("a").Count > 0, true)
	w.service.refuse = false
	w.run(7 * time.Second)
	w.want("permit after a grant", w.permitted("a"), true)
	w.want("armed after a grant", w.watchdog("a").Armed, true)
	w.want("web after a grant", w.domains("a"), "web running")
}

func TestABootEndsALease(t *testing.T) {
	w := healthy(t)
	boot := w.service.last("a").Boot
	w.service.refuse = true
	w.inject("host.reboot on=a")
	for w.fleet.Host("a").State() != hwsim.HostUp {
		w.run(time.Second)
	}
	w.run(time.Minute)
	r := w.service.last("a")
	w.want("another boot", r.Boot != boot, true)
	w.want("its first epoch", r.Epoch, uint64(1))
	w.want("its lease", [2]bool{r.Lease.Valid, r.Lease.Lapsed}, [2]bool{false, false})
	w.want("permit", w.permitted("a"), false)
	w.want("armed", w.watchdog("a").Armed, false)
	w.want("its heartbeat", w.heartbeat("a").Boot, r.Boot)
	w.service.refuse = false
	w.run(7 * time.Second)
	w.want("permit after a grant", w.permitted("a"), true)
}

func TestHighAvailabilityIsSwitchedOffAndOn(t *testing.T) {
	w := healthy(t)
	w.service.off = true
	w.run(7 * time.Second)
	w.want("armed", w.watchdog("a").Armed, false)
	w.want("permit", w.permitted("a"), true)
	r := w.service.last("a")
	w.want("said", r.Lease.Off && !r.Watchdog.Armed, true)
	w.cut("a")
	w.run(10 * time.Minute)
	w.want("cut off", w.domains("a"), allRun)
	w.want("permit without anybody", w.permitted("a"), true)
	w.agents["a"].Crash()
	w.run(time.Minute)
	w.agents["a"].Start()
	w.run(time.Minute)
	w.want("permit after a restart", w.permitted("a"), true)
	w.want("bites", w.bites("a"), 0)

	w.service.down, w.service.off = false, false
	w.run(10 * time.Second)
	w.want("on again: armed", w.watchdog("a").Armed, true)
	w.service.down = true // and storage is away
	w.run(time.Minute)
	w.want("on again: a lapse stops VMs", w.domains("a"), noneLeft)
}

// TestAnAgentThatDiesAnywhere kills the agent at each call it makes, before and
// after it takes effect, through a grant, a lapse and the next grant. It is back
// after five seconds, and all must come as if nobody had died, or safer.
func TestAnAgentThatDiesAnywhere(t *testing.T) {
	story := func(nth int, when kubesim.Moment) (calls int) {
		w := newWorld(t, 1, one("a"))
		defer w.cluster.Close()
		w.boot("a", "batch", false)
		p := w.agents["a"]
		back := func() {
			if !p.Alive() && w.fleet.Host("a").State() == hwsim.HostUp {
				w.s.After(5*time.Second, p.Start)
			}
		}
		pass := func(d time.Duration) {
			for end := w.s.Elapsed() + d; w.s.Elapsed() < end; w.run(time.Second) {
				back()
			}
		}
		if nth > 0 {
			p.CrashAt(nth, when)
		}
		name := fmt.Sprintf("call %d, %v", nth, when)
		pass(20 * time.Second)
		w.want(name+": permit", w.permitted("a"), true)
		w.want(name+": armed", w.watchdog("a").Armed, true)
		w.boot("a", "web", true)
		w.cut("a")
		cutAt := w.s.Elapsed()
		pass(safe)
		if last := w.service.granted["a"]; last > cutAt {
			t.Fatalf("granted at %v after the cut", last)
		}
		w.want(name+": web runs after its time", len(w.fleet.Ledger().Running(uuidOf("web"))), 0)
		w.want(name+": permit after the lapse", w.permitted("a"), false)
		w.want(name+": bites", w.bites("a"), 0)
		w.fleet.HealAll()
		w.service.down = false
		pass(20 * time.Second)
		w.want(name+": permit again", w.permitted("a"), true)
		w.want(name+": web is known to have been stopped", len(w.stopped("a")), 1)
		w.want(name+": domains", w.domains("a"), "batch running, web shut off")
		w.sound()
		return p.Calls()
	}
	calls := story(0, kubesim.Before)
	if calls < 60 {
		t.Fatalf("only %d calls were made", calls)
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	for n := 1; n <= calls; n += step {
		story(n, kubesim.Before)
		story(n, kubesim.After)
		if t.Failed() {
			return
		}
	}
}

func TestEachStartOfTheAgentIsAnEpoch(t *testing.T) {
	w := healthy(t)
	first := w.service.last("a")
	w.agents["a"].Crash()
	w.run(time.Second)
	w.agents["a"].Start()
	w.run(5 * time.Second)
	r := w.service.last("a")
	w.want("boot", r.Boot, first.Boot)
	w.want("epoch", r.Epoch, first.Epoch+1)
	w.want("permit", w.permitted("a"), true)
	full := 0
	for _, r := range w.service.reports {
		if r.Epoch == 2 && r.Full {
			full++
		}
	}
	w.want("full reports of the second", full, 1)
}

func TestEventsReachTheService(t *testing.T) {
	w := healthy(t)
	w.service.down = true
	w.must(w.fleet.Host("a").Hardware("virsh").Suspend(context.Background(), uuidOf("scratch")))
	w.inject("qemu.crash vm=web")
	w.inject("memory.failure on=a vm=batch")
	w.run(3 * time.Second)
	w.agents["a"].Crash() // what it knew is on the host
	w.run(3 * time.Second)
	w.agents["a"].Start()
	w.run(3 * time.Second)
	w.service.down = false
	w.run(8 * time.Second)
	kinds := map[string]*hav1.Event{}
	for _, e := range w.service.events { // in any order
		kinds[e.Kind+" "+e.Uuid] = e
	}
	for _, want := range []string{"stopped " + uuidOf("web"), "memory-failure " + uuidOf("batch"), "started " + uuidOf("web")} {
		if kinds[want] == nil {
			t.Errorf("nobody heard of %s: %v", want, kinds)
		}
	}
	if e := kinds["memory-failure "+uuidOf("batch")]; e != nil && (e.Age.AsDuration() < 8*time.Second || e.Age.AsDuration() > 20*time.Second) {
		t.Errorf("the age of %v", e)
	}
	if kinds["suspended "+uuidOf("scratch")] != nil {
		t.Error("somebody else's domain was told of")
	}
	w.want("web", w.service.view["a"][uuidOf("web")].GetState(), "shut off")
}

func TestAnEventIsToldAtOnce(t *testing.T) {
	w := healthy(t)
	w.run(2 * time.Second)
	before := w.s.Elapsed()
	w.inject("qemu.crash vm=web")
	heard := func() bool {
		for _, e := range w.service.events { // in any order
			if e.Kind == "stopped" && e.Uuid == uuidOf("web") {
				return w.service.view["a"][uuidOf("web")].GetState() != "running"
			}
		}
		return false
	}
	for !heard() {
		w.run(10 * time.Millisecond)
		if w.s.Elapsed()-before > time.Second {
			t.Fatal("nobody was told within a second")
		}
	}
}

func TestAStormIsToldInFewReports(t *testing.T) {
	w := healthy(t)
	before := len(w.service.reports)
	clear(w.service.events)
	hw := w.fleet.Host("a").Hardware("nova")
	for range 300 {
		w.must(hw.Suspend(context.Background(), uuidOf("web")))
		w.run(50 * time.Millisecond)
		w.must(hw.Resume(context.Background(), uuidOf("web")))
		w.run(50 * time.Millisecond)
	}
	w.run(5 * time.Second)
	reports, times := w.service.reports[before:], uint32(0)
	if len(reports) > 45 {
		t.Errorf("%d reports of a storm of half a minute", len(reports))
	}
	for _, e := range w.service.events { // in any order
		if e.Uuid == uuidOf("web") && (e.Kind == "suspended" || e.Kind == "resumed") {
			times += e.Times
		}
	}
	w.want("events told", times, uint32(600))
	w.want("dropped", w.service.last("a").EventsDropped, uint64(0))
	if n := len(w.service.events); n > 120 {
		t.Errorf("they were told as %d", n)
	}
}

func TestASilentHypervisorIsSaidToBe(t *testing.T) {
	for _, fault := range []string{"libvirtd.hang on=a for=2m", "libvirtd.crash on=a for=2m"} {
		w := healthy(t)
		w.inject(fault)
		w.run(90 * time.Second)
		v := w.service.last("a").Virtualisation
		if v.Answers || v.Since.AsDuration() < 50*time.Second || v.Since.AsDuration() > 91*time.Second {
			t.Errorf("%s: %v", fault, v)
		}
		w.want("instances known of before", len(w.service.view["a"]), 2)
		w.run(time.Minute)
		w.want(fault+": answers again", w.service.last("a").Virtualisation.Answers, true)
		full := 0
		for _, r := range w.service.reports {
			if r.Full {
				full++
			}
		}
		w.want(fault+": full reports, one of them after the gap", full, 2)
	}
}

func TestNeighboursAreWatched(t *testing.T) {
	w := healthy(t, one("a"), one("b"), one("c"))
	w.service.watch["a"] = []string{"b", "c"}
	w.run(30 * time.Second)
	seen := func(host string) *hav1.Witness {
		for _, x := range w.service.last("a").Witnesses {
			if x.Host == host {
				return x
			}
		}
		return &hav1.Witness{}
	}
	b := seen("b")
	w.want("b", [3]bool{b.Management, b.Migration, b.Storage}, [3]bool{true, true, true})
	w.want("b moves", b.Still.AsDuration() < 11*time.Second && b.Boot == w.heartbeat("b").Boot, true)

	w.inject("host.power-off on=b", "net.cut link=management on=c")
	w.run(40 * time.Second)
	b, c := seen("b"), seen("c")
	w.want("dead b", [3]bool{b.Management, b.Migration, b.Storage}, [3]bool{false, false, true})
	w.want("dead b stands still", b.Still.AsDuration() > 30*time.Second, true)
	w.want("cut off c", [3]bool{c.Management, c.Migration, c.Storage}, [3]bool{false, true, true})
	w.want("cut off c moves", c.Still.AsDuration() < 11*time.Second, true)

	w.inject("storage.hang pool=beats on=a")
	w.run(time.Minute)
	b, c = seen("b"), seen("c")
	w.want("nothing can be read", b.Storage || c.Storage, false)
	w.want("c does not seem to stand still", c.Still.AsDuration() < 11*time.Second, true)

	w.service.watch["a"] = nil
	w.run(11 * time.Second)
	w.want("nobody is watched any more", len(w.service.last("a").Witnesses), 0)
}

// moving starts a migration of a VM from a to b that takes some half a minute.
func moving(t *testing.T, o hardware.MigrateOptions) *world {
	w := healthy(t, one("a"), one("b"))
	w.fleet.SetGuest(uuidOf("web"), hwsim.Guest{UsedMemoryBytes: 900 << 20, DirtyBytesPerSecond: 1 << 20})
	o.ID, o.Target = "m1", "b"
	hw := w.fleet.Host("a").Hardware("nova")
	w.s.Go(func(*sim.Task) { w.must(hw.Migrate(context.Background(), uuidOf("web"), o)) })
	w.run(5 * time.Second)
	return w
}

func TestAMigrationToAHostWithoutALeaseIsTurnedAway(t *testing.T) {
	w := moving(t, hardware.MigrateOptions{BytesPerSecond: 20 << 20})
	w.service.silent = map[string]bool{"b": true}
	w.inject("storage.lost pool=beats on=b")
	w.run(term + 2*time.Second)
	w.want("source", w.domains("a"), allRun)
	w.want("target", w.domains("b"), "")
	w.sound()
}

func TestAMigrationFromAHostWithoutALeaseMayGetAway(t *testing.T) {
	w := moving(t, hardware.MigrateOptions{BytesPerSecond: 37 << 20}) // done 24 s after it began
	w.service.silent = map[string]bool{"a": true}
	w.inject("storage.lost pool=beats on=a")
	w.run(term + stop)
	w.want("source", w.domains("a"), "batch running, scratch running")
	w.want("target", w.domains("b"), "web running")
	w.sound()
}

func TestAMigrationThatDoesNotGetAwayInTimeIsEnded(t *testing.T) {
	w := moving(t, hardware.MigrateOptions{BytesPerSecond: 20 << 20})
	w.service.silent = map[string]bool{"a": true}
	w.inject("storage.lost pool=beats on=a")
	w.run(term + stop)
	w.want("source", w.domains("a"), noneLeft)
	w.want("target", w.domains("b"), "")
	w.sound()
}

func TestTheSourceOfAPostCopyIsSpared(t *testing.T) {
	w := moving(t, hardware.MigrateOptions{BytesPerSecond: 15 << 20, PostCopy: true})
	w.inject("net.slow link=migration on=a bandwidth=100Mbit") // its memory follows for a minute
	hw := w.fleet.Host("a").Hardware("nova")
	w.s.Go(func(*sim.Task) { w.must(hw.StartPostCopy(context.Background(), uuidOf("web"))) })
	w.run(time.Second)
	w.want("the guest is at the target", fmt.Sprint(w.fleet.Ledger().Running(uuidOf("web"))), "[b]")
	w.service.silent = map[string]bool{"a": true}
	w.inject("storage.lost pool=beats on=a")
	w.run(term + stop)
	w.want("source while the memory follows", w.domains("a"), "batch running, scratch running, web paused")
	w.run(2 * time.Minute)
	w.want("source", w.domains("a"), "batch running, scratch running")
	w.want("target", w.domains("b"), "web running")
	w.want("bites", w.bites("a"), 0)
	w.sound()
}
