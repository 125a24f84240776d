// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/adit-hv/adit/hardware"
)

// tellNothing are the kinds of events after which a list would show what it
// showed before.
var tellNothing = []hardware.EventKind{
	hardware.EventAgent, hardware.EventMigrationIteration, hardware.EventBlockJob, hardware.EventDeviceRemoved, hardware.EventControlError,
}

// note takes in one event: it is kept for the service, and says that the domains
// have to be listed.
func (a *agent) note(e hardware.Event) {
	a.mu.Lock()
	now := a.now()
	of := slices.Contains(told, e.Kind) && !a.table.foreign[e.UUID]
	lost := of && a.spool.add(e, now)
	if e.Kind == hardware.EventGap || lost {
		a.talk.full = true
	}
	standing := a.lease.standing(now)
	save := max(gather/2, a.savedAt+gap-now)
	a.mu.Unlock()
	switch {
	case slices.Contains(tellNothing, e.Kind):
	case standing == lapsed: // it may be a protected VM that starts
		a.looker.wake(round, 0)
	default:
		a.looker.wake(round, gather)
	}
	if of {
		a.keeper.wake(round, save)
	}
	if e.Kind == hardware.EventGap || lost {
		a.tell(gather)
	}
}

// subscribe does nothing when that has been done. It is tried again at each look.
func (a *agent) subscribe(ctx context.Context) {
	a.mu.Lock()
	done := a.subscribed
	a.subscribed = true
	a.mu.Unlock()
	if done {
		return
	}
	if err := a.o.Hardware.Subscribe(a.looker.lifetime(), a.note); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "No events yet")
		a.mu.Lock()
		a.subscribed = false
		a.mu.Unlock()
	}
}

// look lists the domains. While the lease is lapsed it looks again and again, and
// says who is to be stopped.
func (a *agent) look(ctx context.Context) time.Duration {
	a.subscribe(ctx)
	a.mu.Lock()
	begun := a.now()
	a.hypervisor.ask(begun)
	a.mu.Unlock()

	domains, err := a.o.Hardware.Domains(ctx)

	a.mu.Lock()
	now := a.now()
	news := a.hypervisor.hear(begun, now, err == nil)
	if err == nil {
		news = a.table.take(domains) || news
	}
	standing := a.lease.standing(now)
	a.mu.Unlock()
	if news {
		a.tell(gather / 2)
	}
	if err != nil {
		if news {
			ctrl.LoggerFrom(ctx).Error(err, "Hypervisor does not answer")
		}
		if standing == lapsed {
			return retry
		}
		return a.o.Times.Interval
	}
	if standing == lapsed {
		return a.clear(ctx, domains, begun)
	}
	a.goOn(ctx, domains, now)
	return a.o.Resync
}
