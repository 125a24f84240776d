// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/adit-hv/adit/hardware"
)

// beat writes the host's heartbeat. It counts milliseconds of uptime, so that it
// grows over the agent's restarts too.
func (a *agent) beat(ctx context.Context) time.Duration {
	a.mu.Lock()
	begun := a.now()
	b := hardware.Heartbeat{Boot: a.boot, Count: uint64(begun / time.Millisecond), Lapsed: a.lease.standing(begun) == lapsed}
	a.heart.ask(begun)
	a.mu.Unlock()

	err := a.o.Hardware.WriteHeartbeat(ctx, a.o.Pool, b)

	a.mu.Lock()
	now := a.now()
	news := a.heart.hear(begun, now, err == nil)
	if err == nil {
		a.lease.beat(begun, now)
	}
	a.mu.Unlock()
	if news {
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Heartbeat not written")
		}
		a.tell(gather)
	}
	return a.next(begun, now)
}

// next is when a loop that began a round then begins the next, an interval later.
func (a *agent) next(begun, now time.Duration) time.Duration {
	return max(a.o.Times.Interval-(now-begun), 100*time.Millisecond)
}
