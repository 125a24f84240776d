// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"slices"
	"time"
)

type daemonState string

const (
	daemonDown     daemonState = "down"
	daemonStarting daemonState = "starting"
	daemonUp       daemonState = "up"
	daemonHung     daemonState = "hung"
)

// keepalive is how long a peer to peer migration outlives a silent link or
// libvirtd: an interval of 2 s, three times unanswered (qemu.conf), as measured.
const keepalive = 7300 * time.Millisecond

// clientKeepalive is how long a subscriber holds a silent connection.
const clientKeepalive = 15 * time.Second

// libvirtdUnit is the unit under which libvirtd runs.
const libvirtdUnit = "libvirtd.service"

// hold begins or ends a fault that keeps libvirtd from working: "crash",
// "stop" or "hang".
func (h *Host) hold(what string, begin bool) {
	if begin {
		h.daemonHolds[what]++
		switch {
		case what == "hang":
			h.daemonHangs()
		case what == "crash":
			h.daemonDies("end of file while reading data")
		default:
			h.daemonDies("the daemon is stopping")
		}
		return
	}
	h.daemonHolds[what]--
	if what == "hang" {
		h.daemonGoesOn()
		return
	}
	if what == "crash" {
		h.unit(libvirtdUnit).Restarts++ // systemd's Restart=on-failure got it up again
	}
	h.daemonStarts()
}

// daemonMayRun reports whether nothing keeps libvirtd down.
func (h *Host) daemonMayRun() bool {
	return h.running() && h.daemonHolds["crash"] == 0 && h.daemonHolds["stop"] == 0 && h.daemonHolds["stopped"] == 0 && h.unitHolds[libvirtdUnit] == 0
}

// daemonSettle puts libvirtd where boot and faults want it, without delay.
func (h *Host) daemonSettle() {
	if !h.daemonMayRun() {
		h.daemon = daemonDown
		h.daemonUnit()
		return
	}
	h.daemonIsUp()
}

// daemonStarts lets libvirtd come up; it takes as long as it takes to read the
// domains there are: 0.29 s idle, 0.43 s with a guest, as measured.
func (h *Host) daemonStarts() {
	if h.daemon != daemonDown || !h.daemonMayRun() {
		h.daemonUnit()
		return
	}
	h.daemon = daemonStarting
	h.daemonUnit()
	h.daemonTimer = h.f.s.After(between(h.rand, 290*time.Millisecond, 430*time.Millisecond), func() {
		if h.daemonMayRun() {
			h.daemonIsUp()
			h.recoverJobs()
		}
	})
}

func (h *Host) daemonIsUp() {
	h.daemon = daemonUp
	h.daemonUnit()
	h.f.note(h.name, "libvirtd", "up", "", "")
	if h.daemonHolds["hang"] > 0 || h.state == HostHung {
		h.daemonHangs()
	}
	for _, sub := range h.subs {
		h.reconnect(sub)
	}
}

// daemonDies ends libvirtd. Guests survive, calls and events do not.
func (h *Host) daemonDies(why string) {
	h.daemonTimer.Stop()
	was := h.daemon
	h.daemon = daemonDown
	h.daemonUnit()
	if was != daemonUp && was != daemonHung {
		return
	}
	h.f.note(h.name, "libvirtd", "down", "", why)
	h.held = nil
	clear(h.completed)
	for _, sub := range h.subs {
		h.disconnect(sub)
	}
	h.drop(true, why)
	for _, d := range slices.Clone(h.sorted) {
		if d.q != nil && d.q.move != nil {
			d.q.move.daemonLost(h)
		}
	}
	h.sweep()
}

// daemonHangs lets libvirtd stand still: no answers, no events, no keepalive.
func (h *Host) daemonHangs() {
	if h.daemon != daemonUp {
		return
	}
	h.daemon = daemonHung
	h.f.note(h.name, "libvirtd", "hangs", "", "")
	h.daemonTimer = h.f.s.After(keepalive, func() {
		for _, d := range slices.Clone(h.sorted) {
			if d.q != nil && d.q.move != nil {
				d.q.move.peerSilent(h)
			}
		}
		h.sweep()
		h.daemonTimer = h.f.s.After(clientKeepalive-keepalive, func() {
			h.held = nil
			for _, sub := range h.subs {
				h.disconnect(sub)
			}
		})
	})
}

func (h *Host) daemonGoesOn() {
	if h.daemon != daemonHung || h.daemonHolds["hang"] > 0 || h.state == HostHung {
		return
	}
	h.daemonTimer.Stop()
	h.daemon = daemonUp
	h.f.note(h.name, "libvirtd", "goes on", "", "")
	held := h.held
	h.held = nil
	for _, e := range held {
		h.publish(e)
	}
	for _, sub := range h.subs {
		h.reconnect(sub)
	}
	h.recoverJobs()
	h.goOn()
}

// daemonUnit keeps systemd's view of libvirtd in step.
func (h *Host) daemonUnit() {
	u := h.unit(libvirtdUnit)
	switch {
	case h.daemon == daemonUp || h.daemon == daemonHung:
		u.Active, u.Sub, u.Result = "active", "running", "success"
	case h.daemon == daemonStarting:
		u.Active, u.Sub, u.Result = "activating", "start", "success"
	case h.daemonHolds["crash"] > 0:
		u.Active, u.Sub, u.Result = "activating", "auto-restart", "signal"
	case h.unitHolds[libvirtdUnit] > 0:
		u.Active, u.Sub, u.Result = "failed", "failed", "exit-code"
	default:
		u.Active, u.Sub, u.Result = "inactive", "dead", "success"
	}
	u.ChangedAt = h.f.s.Now()
}

// sweep removes domains whose last trace went: a transient one without QEMU.
func (h *Host) sweep() {
	for i := len(h.sorted) - 1; i >= 0; i-- {
		if d := h.sorted[i]; d.def == nil && d.q == nil {
			h.remove(d)
		}
	}
}
