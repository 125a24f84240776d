// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"context"
	"slices"
	"time"

	"github.com/adit-hv/adit/hardware"
)

// peerTimeout is how long a peer is waited for.
const peerTimeout = time.Second

// Reach implements hardware.Peers. A host whose programs stand still answers
// nobody.
func (v *view) Reach(ctx context.Context, n hardware.Network, host string) error {
	h := v.h
	c := &call{name: "Reach", object: host, attempt: "reach", on: "host " + host + " on " + string(n)}
	c.start = func(answer func(error)) {
		peer := h.f.hosts[host]
		switch {
		case peer == nil || !slices.Contains([]hardware.Network{hardware.NetworkManagement, hardware.NetworkMigration}, n):
			answer(hardware.Fail(hardware.Refused, hardware.ReasonOther, c.attempt, c.on, "there is no such host or network"))
		case peer.state == HostUp && h.f.Reach(h, peer, string(n)):
			answer(nil)
		default:
			h.f.s.After(peerTimeout, func() { answer(c.fail(hardware.Unavailable, "no answer within %v", peerTimeout)) })
		}
	}
	return v.do(ctx, c)
}
