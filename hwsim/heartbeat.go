// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"context"
	"slices"
	"time"

	"github.com/adit-hv/adit/hardware"
)

// heartbeatTime is what a small write to storage with a cache takes.
const heartbeatTime = 2 * time.Millisecond

// WriteHeartbeat implements hardware.Heartbeats.
func (v *view) WriteHeartbeat(ctx context.Context, pool string, b hardware.Heartbeat) error {
	c := &call{name: "WriteHeartbeat", object: pool, attempt: "write heartbeat to", on: "pool " + pool, mutating: true, whole: true, quiet: true, service: heartbeatTime}
	c.work = func() error {
		p, err := v.h.heartbeatPool(c, pool)
		if err != nil {
			return err
		}
		p.heartbeats[v.h.heartbeatKey(p, v.h.name)] = b
		return nil
	}
	return v.do(ctx, c)
}

// ReadHeartbeat implements hardware.Heartbeats.
func (v *view) ReadHeartbeat(ctx context.Context, pool, host string) (b hardware.Heartbeat, err error) {
	c := &call{name: "ReadHeartbeat", object: pool + "/" + host, attempt: "read heartbeat of " + host + " in", on: "pool " + pool, service: heartbeatTime}
	c.work = func() error {
		p, err := v.h.heartbeatPool(c, pool)
		if err != nil {
			return err
		}
		b = p.heartbeats[v.h.heartbeatKey(p, host)]
		return nil
	}
	err = v.do(ctx, c)
	return b, err
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
