// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"context"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/sim"
)

// watchdog is the timer in the host's hardware. It knows nothing of the host's
// state: it runs on while programs hang, and ends with the power.
type watchdog struct {
	armed   bool
	timeout time.Duration
	due     time.Duration // true time at which it bites
	timer   *sim.Timer    // looks at due, which feeding moves
	dead    int           // faults under which it does not bite
}

func (w *watchdog) stop() {
	w.armed = false
	w.timer.Stop()
	w.timer = nil
}

// feed sets the timer anew. Only the first feeding, and one that shortens the
// time, cost an event: else the timer that runs looks again when it is due.
func (h *Host) feed(timeout time.Duration) {
	w := &h.watchdog
	due := h.f.s.Elapsed() + h.undrifted(timeout)
	if !w.armed {
		h.f.note(h.name, "watchdog", "armed", "", timeout.String())
	}
	sooner := w.timer == nil || due < w.due
	w.armed, w.timeout, w.due = true, timeout, due
	if sooner {
		w.timer.Stop()
		w.timer = h.f.s.At(due, h.watchdogLooks)
	}
}

// watchdogLooks resets the machine if nobody has fed the timer meanwhile.
func (h *Host) watchdogLooks() {
	w := &h.watchdog
	if h.f.s.Elapsed() < w.due {
		w.timer = h.f.s.At(w.due, h.watchdogLooks)
		return
	}
	w.timer = nil
	if w.dead > 0 {
		h.f.note(h.name, "watchdog", "does not bite", "", "not fed for "+w.timeout.String())
		return
	}
	h.f.note(h.name, "watchdog", "bites", "", "not fed for "+w.timeout.String())
	h.reboot()
}

// watchdogCall is a call of the watchdog's driver.
func (v *view) watchdogCall(name, attempt string, mutating bool, work func() error) *call {
	return &call{name: name, attempt: attempt, on: "watchdog of " + v.h.name, mutating: mutating, instant: true, quiet: true, work: work}
}

// Watchdog implements hardware.Watchdog.
func (v *view) Watchdog(ctx context.Context) (s hardware.WatchdogState, err error) {
	err = v.do(ctx, v.watchdogCall("Watchdog", "read", false, func() error {
		w := &v.h.watchdog
		s = hardware.WatchdogState{Present: !v.h.spec.NoWatchdog, Armed: w.armed, Timeout: w.timeout}
		return nil
	}))
	return s, err
}

// FeedWatchdog implements hardware.Watchdog.
func (v *view) FeedWatchdog(ctx context.Context, timeout time.Duration) error {
	c := v.watchdogCall("FeedWatchdog", "feed", true, nil)
	c.work = func() error {
		switch {
		case v.h.spec.NoWatchdog:
			return hardware.Fail(hardware.Refused, hardware.ReasonUnsupported, c.attempt, c.on, "open /dev/watchdog: no such file or directory")
		case timeout < time.Second:
			return hardware.Fail(hardware.Refused, hardware.ReasonInvalidSpec, c.attempt, c.on, "a timeout of %v: it counts whole seconds", timeout)
		}
		v.h.feed(timeout.Truncate(time.Second))
		return nil
	}
	return v.do(ctx, c)
}

// DisarmWatchdog implements hardware.Watchdog.
func (v *view) DisarmWatchdog(ctx context.Context) error {
	return v.do(ctx, v.watchdogCall("DisarmWatchdog", "disarm", true, func() error {
		if v.h.watchdog.armed {
			v.h.f.note(v.h.name, "watchdog", "disarmed", "", "")
		}
		v.h.watchdog.stop()
		return nil
	}))
}
