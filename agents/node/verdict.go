// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"time"

	"github.com/adit-hv/adit/hardware"
)

// verdict is what a unit's state means for a host.
type verdict int

const (
	// keep: the words say nothing about health (a reload, or a word of a newer
	// systemd); what was true before is still the best guess.
	keep verdict = iota
	healthy
	waiting // under way, and not yet too long
	stopped // somebody stopped it
	failed  // not usable; systemd or a person must do something
	absent  // not installed: a mistake of set-up, no failure of the host
)

// judgement is a verdict, about which unit, and why, in words for an operator.
type judgement struct {
	verdict verdict
	unit    hardware.Unit
	why     string // "" when the states say all
	unknown bool   // a word we have never heard: worth one line of log
}

const (
	// jobTimeout is systemd's DefaultTimeoutStartSec and DefaultTimeoutStopSec
	// (systemd-system.conf(5)): starting or stopping longer is a failure.
	jobTimeout = 90 * time.Second

	// crashLoop is systemd's DefaultStartLimitBurst: a unit that waits for its
	// next automatic restart after more of them than that is not starting.
	crashLoop = 5
)

// judge says what a unit's state means at now.
func judge(u hardware.Unit, now time.Time) judgement {
	j := judgement{unit: u}
	switch u.Load {
	case "not-found":
		j.verdict, j.why = absent, "not installed on this host"
		return j
	case "masked":
		j.verdict, j.why = failed, "masked: unmask it, or run the modular daemons"
		return j
	case "bad-setting", "error":
		j.verdict, j.why = failed, "bad unit file"
		return j
	case "": // systemd did not answer
		return j
	case "loaded", "merged", "stub":
	default:
		j.verdict, j.unknown = keep, true
		return j
	}
	switch u.Active {
	case "active":
		j.verdict, j.why, j.unknown = judgeActive(u)
	case "reloading":
		j.verdict = keep
	case "activating":
		j.verdict, j.why = judgeStarting(u, now)
	case "deactivating":
		j.verdict = waiting
		if lasts := now.Sub(u.ChangedAt); lasts > jobTimeout && !u.ChangedAt.IsZero() {
			j.verdict, j.why = failed, fmt.Sprintf("stopping for longer than %s", jobTimeout)
		}
	case "inactive":
		j.verdict = stopped
	case "failed":
		j.verdict, j.why = failed, u.Result
		if u.Result == "start-limit-hit" {
			j.why = "start-limit-hit: mend the cause, then `systemctl reset-failed " + u.Name + "`"
		}
	default:
		j.verdict, j.unknown = keep, true
	}
	return j
}

func judgeActive(u hardware.Unit) (v verdict, why string, unknown bool) {
	switch u.Sub {
	case "running", "listening":
		return healthy, "", false
	case "exited":
		if u.Oneshot {
			return healthy, "", false
		}
		return failed, "the daemon has exited", false
	case "reload", "reload-signal", "reload-notify":
		return keep, "", false
	default:
		return keep, "", true
	}
}

func judgeStarting(u hardware.Unit, now time.Time) (verdict, string) {
	if u.Sub == "auto-restart" && u.Restarts > crashLoop {
		return failed, fmt.Sprintf("crash loop: restarted %d times", u.Restarts)
	}
	// A oneshot unit has no start time-out and does its work in this state.
	if lasts := now.Sub(u.ChangedAt); lasts > jobTimeout && !u.ChangedAt.IsZero() && !u.Oneshot {
		return failed, fmt.Sprintf("starting for longer than %s", jobTimeout)
	}
	return waiting, ""
}

// judgeDaemon judges a service together with the socket that starts it on
// demand: a service that idled out behind its socket is as good as running.
func judgeDaemon(service, socket hardware.Unit, now time.Time) judgement {
	j := judge(service, now)
	if j.verdict == stopped && judge(socket, now).verdict == healthy {
		j.verdict, j.why = healthy, "starts on demand by "+socket.Name
	}
	return j
}

// The units of libvirt: the one daemon for all, and the modular one for QEMU.
// Which of them a host runs is its distribution's choice.
const (
	unitLibvirtd     = "libvirtd.service"
	unitLibvirtdSock = "libvirtd.socket"
	unitVirtqemud    = "virtqemud.service"
	unitVirtqemudSk  = "virtqemud.socket"
)

// The units of Open vSwitch: Debian's umbrella, which has exited when all is
// well, and the daemon that forwards.
const (
	unitOpenvswitch = "openvswitch-switch.service"
	unitVswitchd    = "ovs-vswitchd.service"
)

// unitSet holds units by name; one that was not asked for is not found.
type unitSet map[string]hardware.Unit

func (s unitSet) get(name string) hardware.Unit {
	if u, ok := s[name]; ok {
		return u
	}
	return hardware.Unit{Name: name, Load: "not-found"}
}

// judgeLibvirt judges the virtualisation daemon: either of the two will do.
func judgeLibvirt(s unitSet, now time.Time) judgement {
	one := judgeDaemon(s.get(unitLibvirtd), s.get(unitLibvirtdSock), now)
	if one.verdict == healthy {
		return one
	}
	modular := judgeDaemon(s.get(unitVirtqemud), s.get(unitVirtqemudSk), now)
	switch {
	case modular.verdict == absent:
		return one
	case modular.verdict == healthy, one.verdict == absent, one.unit.Load == "masked":
		return modular
	}
	return one
}

// judgeOpenvswitch judges the virtual switch: of the units that are installed,
// the worst one counts.
func judgeOpenvswitch(s unitSet, now time.Time) judgement {
	umbrella, daemon := judge(s.get(unitOpenvswitch), now), judge(s.get(unitVswitchd), now)
	switch {
	case daemon.verdict == absent:
		return umbrella
	case umbrella.verdict == absent:
		return daemon
	case umbrella.verdict == healthy:
		return daemon
	}
	return umbrella
}
