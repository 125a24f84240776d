// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"context"
	"slices"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/sim"
)

// subscription is one process's stream of events. Its lane keeps the order.
type subscription struct {
	ctx       context.Context
	handle    func(hardware.Event)
	lane      *sim.Lane
	connected bool // events reach it
	timer     *sim.Timer
}

// eventFault counts the faults that spoil event streams.
type eventFault struct {
	lost, dup int
	delays    []time.Duration
}

func (e *eventFault) delay(by time.Duration, begin bool) {
	if begin {
		e.delays = append(e.delays, by)
	} else if i := slices.Index(e.delays, by); i >= 0 {
		e.delays = slices.Delete(e.delays, i, i+1)
	}
}

// Subscribe implements hardware.Events. It returns at once; a subscription made
// while libvirtd is down gets its first Gap when libvirtd is back.
func (v *view) Subscribe(ctx context.Context, handle func(hardware.Event)) error {
	h := v.h
	return v.do(ctx, &call{name: "Subscribe", attempt: "subscribe to", on: "host " + h.name, work: func() error {
		sub := &subscription{ctx: ctx, handle: handle, lane: h.f.s.Lane()}
		h.subs = append(h.subs, sub)
		h.reconnect(sub)
		return nil
	}})
}

// reconnect lets a subscription hear events again, beginning with a Gap.
func (h *Host) reconnect(sub *subscription) {
	if sub.connected || h.daemon != daemonUp || sub.ctx.Err() != nil {
		return
	}
	wait := time.Duration(0)
	if sub.timer != nil {
		// It was connected before and finds out by trying; what happens until
		// then is lost to it.
		wait = between(h.rand, 50*time.Millisecond, time.Second)
		sub.timer.Stop()
	}
	sub.timer = h.f.s.After(wait, func() {
		if h.daemon != daemonUp || sub.connected {
			return
		}
		sub.connected = true
		h.deliver(sub, hardware.Event{Kind: hardware.EventGap, At: h.f.s.Now()})
	})
}

func (h *Host) disconnect(sub *subscription) {
	sub.timer.Stop()
	if !sub.connected {
		return
	}
	sub.connected = false
	h.deliver(sub, hardware.Event{Kind: hardware.EventConnectionLost, At: h.f.s.Now()})
}

// emit publishes an event of a domain, as far as libvirtd sees it.
func (h *Host) emit(d *domain, e hardware.Event) {
	e.UUID, e.Name, e.At = d.uuid, d.name, h.f.s.Now()
	h.f.note(h.name, "libvirt", string(e.Kind), d.uuid, string(e.Detail))
	switch h.daemon {
	case daemonUp:
		h.publish(e)
	case daemonHung:
		h.held = append(h.held, e)
	}
}

// publish hands an event to those who listen, as well as the faults let it.
func (h *Host) publish(e hardware.Event) {
	if h.eventFault.lost > 0 {
		return
	}
	live := h.subs[:0]
	for _, sub := range h.subs {
		if sub.ctx.Err() != nil {
			continue
		}
		live = append(live, sub)
		if !sub.connected {
			continue
		}
		h.deliver(sub, e)
		if h.eventFault.dup > 0 {
			h.deliver(sub, e)
		}
	}
	clear(h.subs[len(live):])
	h.subs = live
}

func (h *Host) deliver(sub *subscription, e hardware.Event) {
	var late time.Duration
	for _, d := range h.eventFault.delays {
		late = max(late, d)
	}
	boot := h.bootID
	sub.lane.After(late+between(h.rand, 100*time.Microsecond, 2*time.Millisecond), func() {
		if sub.ctx.Err() == nil && h.bootID == boot && h.running() {
			sub.handle(e)
		}
	})
}
