// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"cmp"
	"slices"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim/precopy"
	"github.com/adit-hv/adit/sim"
)

// guest is what runs inside a domain. It moves along with a migration, and its
// time passes only while its CPUs run.
type guest struct {
	at      *domain // where it runs, or would
	running bool
	booted  bool
	hung    bool
	dead    bool // its QEMU is gone
	agent   bool // connected
	frozen  bool
	doing   []*activity
}

// activity is something the guest will have done after some time of running.
type activity struct {
	g     *guest
	left  time.Duration
	since time.Duration
	timer *sim.Timer
	then  func(*domain)
}

// watchdogTimeout is i6300esb's default.
const watchdogTimeout = 30 * time.Second

func newGuest(d *domain) *guest { return &guest{at: d} }

// behaviour is how the VM behaves, defaults filled in.
func (g *guest) behaviour() Guest {
	b := g.at.h.f.guests[g.at.uuid]
	memory := g.at.live.MemoryKiB * 1024
	b.BootTime = cmp.Or(b.BootTime, 12*time.Second)
	b.ShutdownAfter = cmp.Or(b.ShutdownAfter, 3*time.Second)
	b.DetachAfter = cmp.Or(b.DetachAfter, 150*time.Millisecond)
	b.UsedMemoryBytes = min(cmp.Or(b.UsedMemoryBytes, memory/2), memory)
	b.WorkingSetBytes = min(cmp.Or(b.WorkingSetBytes, memory/16), b.UsedMemoryBytes)
	switch b.DirtyBytesPerSecond {
	case 0:
		b.DirtyBytesPerSecond = 1 << 20
	case DirtyNothing:
		b.DirtyBytesPerSecond = 0
	}
	return b
}

func (g *guest) workingSets() []precopy.WorkingSet {
	b := g.behaviour()
	if b.DirtyBytesPerSecond == 0 || b.WorkingSetBytes == 0 || g.hung {
		return nil
	}
	return []precopy.WorkingSet{{Bytes: b.WorkingSetBytes, DirtyBytesPerSecond: float64(b.DirtyBytesPerSecond)}}
}

// boot starts the guest from its first instruction.
func (g *guest) boot() {
	g.end()
	g.booted, g.hung, g.frozen = false, false, false
	g.after(g.behaviour().BootTime, func(d *domain) {
		g.booted = true
		if g.hasAgent() {
			g.connectAgent()
		}
	})
}

func (g *guest) hasAgent() bool { return g.at.live.GuestAgent && g.behaviour().Agent }

func (g *guest) connectAgent() {
	g.agent = true
	g.at.h.emit(g.at, hardware.Event{Kind: hardware.EventAgent, Detail: hardware.DetailConnected})
}

func (g *guest) disconnectAgent() {
	if g.agent {
		g.agent, g.frozen = false, false
		g.at.h.emit(g.at, hardware.Event{Kind: hardware.EventAgent, Detail: hardware.DetailDisconnected})
	}
}

// hang lets the guest stop answering; nobody is told. Its watchdog bites if it
// has one.
func (g *guest) hang() {
	g.end()
	g.hung = true
	if g.at.live.Watchdog != "" {
		g.after(watchdogTimeout, func(d *domain) { d.watchdogFires() })
	}
}

// unhang lets it go on.
func (g *guest) unhang() {
	if g.hung && !g.dead {
		g.end()
		g.hung = false
		if !g.booted {
			g.boot()
		}
	}
}

// listens reports whether the guest reacts to buttons and unplugs.
func (g *guest) listens() bool { return g.booted && !g.hung }

// after calls then once the guest has run for d.
func (g *guest) after(d time.Duration, then func(*domain)) {
	a := &activity{g: g, left: d, then: then}
	g.doing = append(g.doing, a)
	if g.running {
		a.run()
	}
}

func (a *activity) run() {
	s := a.g.at.h.f.s
	a.since = s.Elapsed()
	a.timer = s.After(a.left, func() {
		a.g.doing = slices.DeleteFunc(a.g.doing, func(o *activity) bool { return o == a })
		a.then(a.g.at)
	})
}

// setRunning stops or continues the guest's time.
func (g *guest) setRunning(running bool) {
	if g.running == running {
		return
	}
	g.running = running
	for _, a := range g.doing {
		if running {
			a.run()
			continue
		}
		a.timer.Stop()
		a.left = max(0, a.left-(g.at.h.f.s.Elapsed()-a.since))
	}
}

// end forgets all that the guest was about to do.
func (g *guest) end() {
	for _, a := range g.doing {
		a.timer.Stop()
	}
	g.doing = nil
}

// moveTo takes the guest along to a migration's target.
func (g *guest) moveTo(d *domain) {
	g.setRunning(false)
	g.at = d
	d.q.guest = g
}

// powerButton is an ACPI power-off: a guest that boots, hangs or does not care
// ignores it.
func (g *guest) powerButton() {
	b := g.behaviour()
	if g.listens() && !b.IgnoresShutdown {
		g.after(b.ShutdownAfter, func(d *domain) { d.guestGone(hardware.DetailGuest) })
	}
}

// rebootButton asks the guest to reboot.
func (g *guest) rebootButton() {
	b := g.behaviour()
	if g.listens() && !b.IgnoresShutdown {
		g.after(b.ShutdownAfter, func(d *domain) {
			g.disconnectAgent()
			d.resetEvents()
			g.boot()
		})
	}
}
