// SPDX-License-Identifier: Apache-2.0

package ha_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
)

func TestAQuietHostReportsLittle(t *testing.T) {
	w := healthy(t)
	first := w.service.reports[0]
	w.want("the first report is full", first.Full, false)
	w.want("instances known", len(w.service.view["a"]), 2)
	web := w.service.view["a"][uuidOf("web")]
	w.want("web", web.GetState()+" "+web.GetName(), "running web")
	w.want("web is protected", web.GetProtected(), true)
	w.want("watchdog armed", w.watchdog("a").Armed, true)
	w.want("permit", w.permitted("a"), true)
	r := w.service.last("a")
	w.want("valid", r.Lease.Valid, true)
	w.want("armed", r.Watchdog.Armed, true)
	w.want("writable", r.Storage[0].Writable, true)
	w.want("answers", r.Virtualisation.Answers, true)

	clear(w.calls)
	before := len(w.service.reports)
	w.run(10 * time.Minute)
	reports := w.service.reports[before:]
	if n := len(reports); n < 118 || n > 130 {
		t.Errorf("%d reports in ten minutes", n)
	}
	for _, r := range reports {
		if size := proto.Size(r); size > 160 || r.Full || len(r.Instances) > 0 {
			t.Fatalf("%d bytes of a quiet host: %v", size, r)
		}
	}
	if n := w.calls["Domains"]; n > 2 {
		t.Errorf("the domains were listed %d times", n)
	}
	w.want("permit after ten minutes", w.permitted("a"), true)
	w.want("bites", w.bites("a"), 0)
	w.want("resyncs", w.service.resyncs, 1)
}

const (
	allRun   = "batch running, scratch running, web running"
	noneLeft = "batch running, scratch running, web shut off"
)

// cut takes from a host both that renews its lease.
func (w *world) cut(host string) {
	w.service.down = true
	w.inject("storage.lost pool=beats on=" + host)
}

// TestALeaseStandsOnTwoLegs takes from a host what renews its lease, for ten
// minutes.
func TestALeaseStandsOnTwoLegs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		strike func(w *world)
		want   string
		permit bool
	}{
		{"the service is silent, storage works", func(w *world) { w.service.down = true }, allRun, true},
		{"no replica leads, storage works", func(w *world) { w.service.follow = true }, allRun, true},
		{"the service refuses, storage works", func(w *world) { w.service.refuse = true }, allRun, true},
		{"storage hangs, the service answers", func(w *world) { w.inject("storage.hang pool=beats") }, allRun, true},
		{"storage is lost, the service answers", func(w *world) { w.inject("storage.lost pool=beats on=a") }, allRun, true},
		{"the service is slow", func(w *world) { w.service.slow = 4 * time.Second }, allRun, true},
		{"the service is silent and storage lost", func(w *world) { w.cut("a") }, noneLeft, false},
		{"the service refuses and storage hangs", func(w *world) { w.service.refuse = true; w.inject("storage.hang pool=beats") }, noneLeft, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := healthy(t)
			tt.strike(w)
			w.run(10 * time.Minute)
			w.want("domains", w.domains("a"), tt.want)
			w.want("permit", w.permitted("a"), tt.permit)
			w.want("bites", w.bites("a"), 0)
			w.want("armed", w.watchdog("a").Armed, true)
			w.sound()
		})
	}
}

func TestALapseIsSaidAndOnlyAGrantEndsIt(t *testing.T) {
	w := healthy(t)
	w.fleet.SetGuest(uuidOf("deaf"), hwsim.Guest{IgnoresShutdown: true})
	w.boot("a", "deaf", true)
	w.run(30 * time.Second)
	w.cut("a")
	w.run(term)
	w.want("permit", w.permitted("a"), false)
	w.want("asked", strings.Join(w.stopped("a"), " "), uuidOf("web")+" "+uuidOf("deaf"))
	w.run(stop/2 - 500*time.Millisecond)
	w.want("one listened", w.domains("a"), "batch running, deaf running, scratch running, web shut off")
	w.run(stop / 2)
	w.want("domains after stop", w.domains("a"), "batch running, deaf shut off, scratch running, web shut off")

	w.fleet.HealAll()
	w.run(time.Minute)
	w.want("the heartbeat says so", w.heartbeat("a").Lapsed, true)
	w.want("a heartbeat revives nothing", w.permitted("a"), false)

	w.service.down, w.service.refuse = false, true
	w.run(10 * time.Second)
	r := w.service.last("a")
	w.want("report", [3]bool{r.Lease.Valid, r.Lease.Lapsed, r.Lease.Stopped}, [3]bool{false, true, true})
	w.want("web as reported", w.service.view["a"][uuidOf("web")].State, "shut off")
	w.want("a refusal revives nothing", w.permitted("a"), false)

	w.service.refuse = false
	w.run(6 * time.Second)
	w.want("a grant does", w.permitted("a"), true)
	w.want("what was stopped is remembered", len(w.stopped("a")), 2)
	w.must(w.fleet.Host("a").Hardware("nova").Start(context.Background(), uuidOf("web"), hardware.StartOptions{}))
	w.run(5 * time.Second)
	w.want("until it runs again", strings.Join(w.stopped("a"), " "), uuidOf("deaf"))
	w.want("web", w.domains("a"), "batch running, deaf shut off, scratch running, web running")
	w.want("bites", w.bites("a"), 0)
	w.sound()
}

// TestWhenNobodyStopsTheVMsTheWatchdogBites leaves a host without a lease, and
// something keeps its agent from stopping the VMs.
func TestWhenNobodyStopsTheVMsTheWatchdogBites(t *testing.T) {
	for _, tt := range []struct {
		name   string
		strike func(w *world)
	}{
		{"libvirtd hangs", func(w *world) { w.inject("libvirtd.hang on=a") }},
		{"libvirtd is gone", func(w *world) { w.inject("libvirtd.crash on=a") }},
		{"the disks hang, no QEMU can be killed", func(w *world) { w.inject("storage.hang pool=disks") }},
		{"the agent is dead", func(w *world) { w.agents["a"].Crash() }},
		{"the agent stands still", func(w *world) { w.agents["a"].Pause() }},
		{"the host hangs", func(w *world) { w.inject("host.hang on=a") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := healthy(t)
			w.cut("a")
			tt.strike(w)
			w.run(safe)
			w.want("bites", w.bites("a"), 1)
			w.want("web runs", len(w.fleet.Ledger().Running(uuidOf("web"))), 0)
			w.sound()
		})
	}
}

// TestNoLapseNoHarm strikes a host whose lease is renewed.
func TestNoLapseNoHarm(t *testing.T) {
	for _, tt := range []struct {
		name   string
		strike func(w *world)
	}{
		{"libvirtd hangs", func(w *world) { w.inject("libvirtd.hang on=a for=5m") }},
		{"libvirtd is gone", func(w *world) { w.inject("libvirtd.crash on=a for=5m") }},
		{"the disks hang", func(w *world) { w.inject("storage.hang pool=disks for=5m") }},
		{"the agent crashes, and is back in five seconds", func(w *world) {
			w.agents["a"].Crash()
			w.run(5 * time.Second)
			w.agents["a"].Start()
		}},
		{"the agent crashes with both legs gone for a moment", func(w *world) {
			w.cut("a")
			w.agents["a"].Crash()
			w.run(5 * time.Second)
			w.agents["a"].Start()
			w.service.down = false
		}},
		{"the host hangs for ten seconds", func(w *world) { w.inject("host.hang on=a for=10s") }},
		{"events are lost", func(w *world) { w.inject("events.lost on=a for=5m") }},
		{"the wall clock jumps", func(w *world) { w.inject("clock.jump on=a by=24h for=1m") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := healthy(t)
			tt.strike(w)
			w.run(8 * time.Minute)
			w.want("bites", w.bites("a"), 0)
			w.want("domains", w.domains("a"), allRun)
			w.want("permit", w.permitted("a"), true)
			w.want("virtualisation answers", w.service.last("a").Virtualisation.Answers, true)
			w.sound()
		})
	}
}
