// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"context"
	"slices"
	"time"

	"github.com/adit-hv/adit/hardware"
)

const (
	heartbeatTime  = 2 * time.Millisecond   // a small write to storage with a cache
	storageTimeout = 4 * time.Second        // until I/O is given up; less than the agents' interval
	storagePoll    = 250 * time.Millisecond // how often a waiting caller looks at its context
)

// WriteHeartbeat implements hardware.Heartbeats.
func (v *view) WriteHeartbeat(ctx context.Context, name string, b hardware.Heartbeat) error {
	c := &call{name: "WriteHeartbeat", object: name, attempt: "write heartbeat to", on: "pool " + name, mutating: true, whole: true, quiet: true}
	return v.heartbeatIO(ctx, c, name, func(p *pool) { p.heartbeats[v.h.heartbeatKey(p, v.h.name)] = b })
}

// ReadHeartbeat implements hardware.Heartbeats.
func (v *view) ReadHeartbeat(ctx context.Context, name, host string) (b hardware.Heartbeat, err error) {
	c := &call{name: "ReadHeartbeat", object: name + "/" + host, attempt: "read heartbeat of " + host + " in", on: "pool " + name}
	err = v.heartbeatIO(ctx, c, name, func(p *pool) { b = p.heartbeats[v.h.heartbeatKey(p, host)] })
	return b, err
}

// heartbeatIO does I/O to a pool. What hangs is given up after a while, and
// done when the storage goes on: the write is in the kernel's queue.
func (v *view) heartbeatIO(ctx context.Context, c *call, name string, do func(*pool)) error {
	h := v.h
	c.service = heartbeatTime
	c.start = func(answer func(error)) {
		p, err := h.heartbeatPool(c, name)
		switch {
		case err != nil:
			answer(err)
		case !h.hangsOn(p):
			do(p)
			answer(nil)
		default:
			h.waitForIO(ctx, c, answer, p, func() { do(p) })
		}
	}
	return v.do(ctx, c)
}

func (h *Host) waitForIO(ctx context.Context, c *call, answer func(error), p *pool, do func()) {
	landed := false
	var land func()
	land = func() {
		if h.hangsOn(p) {
			h.stalledIO = append(h.stalledIO, land)
			return
		}
		landed = true
		if c.done && (!c.mutating || h.rand.IntN(4) == 0) {
			return // nobody waits, or it was cancelled in time
		}
		do()
		answer(nil)
	}
	h.stalledIO = append(h.stalledIO, land)
	giveUp := h.f.s.Elapsed() + storageTimeout
	var look func()
	look = func() {
		switch {
		case landed || c.done:
		case ctx.Err() != nil || h.f.s.Elapsed() >= giveUp:
			answer(c.lost("no answer from storage"))
		default:
			h.f.s.After(storagePoll, look)
		}
	}
	h.f.s.After(storagePoll, look)
}

// heartbeatPool is the pool as far as the host reaches it.
func (h *Host) heartbeatPool(c *call, name string) (*pool, error) {
	p := h.f.pools[name]
	switch {
	case p == nil || p.spec.Hosts != nil && !slices.Contains(p.spec.Hosts, h.name):
		return nil, hardware.Fail(hardware.Refused, hardware.ReasonNoStorage, c.attempt, c.on, "%s has no such pool", h.name)
	case h.lostPools[name] > 0:
		return nil, c.fail(hardware.Unavailable, "input/output error")
	}
	return p, nil
}

// heartbeatKey is under what a host's heartbeat lies in a pool: storage that is
// not shared is another one on each host.
func (h *Host) heartbeatKey(p *pool, host string) string {
	if p.spec.Shared {
		return host
	}
	return h.name + ":" + host
}
