// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"context"
	"slices"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/sim"
)

// call is one request under way between a process and its host.
type call struct {
	name     string
	object   string
	attempt  string // for errors, e.g. "start"
	on       string // for errors, e.g. "domain 7c…"
	mutating bool
	daemon   bool          // libvirtd answers it; otherwise the system does
	monitor  string        // UUID of the domain whose QEMU must answer
	storage  func() bool   // whether it waits for storage that hangs; nil: it needs none
	service  time.Duration // how long it takes before it is done

	// instant is a call into the host's own kernel: it takes no time worth an
	// event. whole is a mutating call whose effect and answer fall together.
	// quiet is one that repeats all day: only its failures are news.
	instant, whole, quiet bool

	// work takes effect and returns the answer, or, when it is nil, start
	// begins something that answers later.
	work  func() error
	start func(answer func(error))

	task   *sim.Task
	timer  *sim.Timer
	waits  bool // for a daemon or a QEMU that hangs
	gaveUp bool // the caller has its answer: a time-out
	done   bool
	err    error
}

func (c *call) fail(consequence hardware.Consequence, format string, args ...any) error {
	return hardware.Fail(consequence, hardware.ReasonOther, c.attempt, c.on, format, args...)
}

// lost is the error of a call that was sent and never answered.
func (c *call) lost(format string, args ...any) error {
	if c.mutating {
		return c.fail(hardware.Unknown, format, args...)
	}
	return c.fail(hardware.Unavailable, format, args...)
}

// do sends a call and waits for its answer.
func (v *view) do(ctx context.Context, c *call) error {
	h := v.h
	if err := ctx.Err(); err != nil {
		return c.fail(hardware.Unavailable, "%w", err)
	}
	point := Call{Host: h.name, Who: v.who, Name: c.name, Object: c.object, Mutating: c.mutating}
	if h.f.o.Step != nil {
		if err := h.f.o.Step(point); err != nil {
			return err
		}
	}
	c.task = h.f.s.Current()
	if c.task == nil || c.instant && h.state == HostUp {
		h.atOnce(c)
	} else {
		h.send(c)
		for !c.done {
			c.task.Park()
		}
	}
	if c.mutating && (!c.quiet || c.err != nil) {
		h.f.note(h.name, v.who, c.name, c.object, outcome(c.err))
	}
	if h.f.o.Step != nil {
		point.After = true
		if err := h.f.o.Step(point); err != nil {
			return err
		}
	}
	return c.err
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// atOnce answers a call that takes no time, or does not come from a task:
// nobody can wait.
func (h *Host) atOnce(c *call) {
	switch blocked, err := h.reach(c); {
	case err != nil:
		c.err = err
	case blocked:
		c.err = c.lost("no answer within %v", h.f.o.CallTimeout)
	case c.start != nil:
		c.err = c.lost("no answer at once")
		c.start(func(err error) { c.err = err })
	default:
		c.err = c.work()
	}
	c.done = true
}

// send lets a call travel to whoever answers it.
func (h *Host) send(c *call) {
	h.calls = append(h.calls, c)
	way := h.f.o.CallLatency(h.rand)
	if !c.mutating || c.whole {
		// A read has no effect that could part from its answer: one event does.
		c.timer = h.f.s.After(way+c.service, func() { h.serve(c, 0) })
		return
	}
	c.timer = h.f.s.After(way/2, func() {
		if blocked, err := h.reach(c); err != nil || blocked {
			h.serve(c, way/2)
			return
		}
		c.timer = h.f.s.After(c.service, func() { h.serve(c, way/2) })
	})
}

// reach says whether there is somebody to answer, and whether he hangs.
func (h *Host) reach(c *call) (blocked bool, err error) {
	switch {
	case h.state == HostOff || h.state == HostBooting:
		return false, c.fail(hardware.Unavailable, "the host is %s", h.state)
	case h.state == HostHung:
		return true, nil
	case !c.daemon:
		return false, nil
	case h.daemon != daemonUp && h.daemon != daemonHung:
		return false, c.fail(hardware.Unavailable, "connect to libvirtd: connection refused")
	case h.daemon == daemonHung:
		return true, nil
	}
	if c.monitor != "" {
		if d := h.domains[c.monitor]; d != nil && d.q != nil && d.q.hung > 0 {
			return true, nil
		}
	}
	return h.storageHolds > 0 && c.storage != nil && c.storage(), nil
}

// serve lets a call take effect, and sends the answer back, which takes back.
func (h *Host) serve(c *call, back time.Duration) {
	blocked, err := h.reach(c)
	if err != nil {
		h.finish(c, err)
		return
	}
	if blocked {
		c.waits = true
		c.timer = h.f.s.After(h.f.o.CallTimeout, func() { h.giveUp(c) })
		return
	}
	c.waits = false
	answer := func(err error) {
		if c.done {
			return
		}
		if back == 0 {
			h.finish(c, err)
			return
		}
		c.timer = h.f.s.After(back, func() { h.finish(c, err) })
	}
	if c.start != nil {
		c.start(answer)
		return
	}
	answer(c.work())
}

// giveUp answers a call that waited too long. What was sent stays sent.
func (h *Host) giveUp(c *call) {
	err := c.lost("no answer within %v", h.f.o.CallTimeout)
	if c.mutating {
		c.gaveUp = true // it may still be read when the daemon goes on
		c.answer(h.f.s, err)
		return
	}
	h.finish(c, err)
}

func (h *Host) finish(c *call, err error) {
	h.calls = slices.DeleteFunc(h.calls, func(o *call) bool { return o == c })
	c.answer(h.f.s, err)
}

func (c *call) answer(s *sim.Scheduler, err error) {
	if c.done {
		return
	}
	c.done, c.err = true, err
	if c.task == nil {
		return
	}
	if s.Current() == nil {
		c.task.Resume()
		return
	}
	s.After(0, c.task.Resume)
}

// drop ends the calls that the one who died would have answered.
func (h *Host) drop(daemonOnly bool, why string) {
	for _, c := range slices.Clone(h.calls) {
		if daemonOnly && !c.daemon {
			continue
		}
		c.timer.Stop()
		h.finish(c, c.lost("%s", why))
	}
}

// goOn serves the calls that waited for somebody who hung.
func (h *Host) goOn() {
	for _, c := range slices.Clone(h.calls) {
		if !c.waits {
			continue
		}
		if blocked, err := h.reach(c); blocked && err == nil {
			continue
		}
		c.timer.Stop()
		if !c.gaveUp {
			h.serve(c, h.f.o.CallLatency(h.rand)/2)
			continue
		}
		// Nobody listens any more. The request may still be in the socket, and
		// whether the daemon reads it before it sees that is chance.
		h.calls = slices.DeleteFunc(h.calls, func(o *call) bool { return o == c })
		if h.rand.IntN(2) == 0 {
			h.f.note(h.name, "libvirt", "late "+c.name, c.object, "the caller has given up")
			if c.start != nil {
				c.start(func(error) {})
			} else {
				_ = c.work() // nobody is there to be told
			}
		}
	}
}
