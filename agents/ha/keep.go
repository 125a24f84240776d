// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/adit-hv/adit/agents/permit"
	"github.com/adit-hv/adit/hardware"
)

// keep feeds the watchdog, notices what has become of the lease, and saves the
// notes: calls into the host's own kernel, none of which waits for anybody.
func (a *agent) keep(ctx context.Context) time.Duration {
	a.mu.Lock()
	begun := a.begun
	a.mu.Unlock()
	if !begun {
		if err := a.begin(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot begin")
			return retry
		}
		for _, l := range []*loop{a.reporter, a.looker, a.beater} {
			l.wake(round, 0)
		}
	}
	ok := a.tend(ctx)
	a.notice(ctx)
	ok = a.save(ctx) && ok

	a.mu.Lock()
	defer a.mu.Unlock()
	again := nextKeep(a.lease, a.now())
	if !ok {
		again = retry
	}
	return again
}

// nextKeep is when the watchdog is to be fed next, or the lapse noticed; 0 is
// when something happens.
func nextKeep(l lease, now time.Duration) time.Duration {
	every := l.times.Watchdog / 4
	switch l.standing(now) {
	case none, off:
		return 0 // nothing is to be fed
	case valid:
		// A clock that counts slowly is looked at again soon after.
		return max(min(every, l.until-now), 10*time.Millisecond)
	}
	return every
}

// care is what to do with the watchdog.
type care string

const (
	leave  care = "leave"
	feed   care = "feed"
	disarm care = "disarm"
)

// careFor decides it.
//
//	no watchdog                          leave
//	high availability off, still armed   disarm
//	no lease in this boot, or off        leave
//	lapsed, time is over                 leave: it shall bite
//	otherwise                            feed, which arms it
func careFor(l lease, w hardware.WatchdogState, now time.Duration) care {
	switch at := l.standing(now); {
	case !w.Present:
		return leave
	case at == off && w.Armed:
		return disarm
	case at == none || at == off || now >= l.fedUntil():
		return leave
	}
	return feed
}

// tend looks after the watchdog. It returns whether that went well.
func (a *agent) tend(ctx context.Context) bool {
	hw := a.o.Hardware
	a.mu.Lock()
	l, was := a.lease, a.watchdog
	a.mu.Unlock()
	log, ok := ctrl.LoggerFrom(ctx), true
	switch careFor(l, was, a.now()) {
	case leave:
		return true
	case feed:
		if err := a.feed(ctx, l); err != nil {
			log.Error(err, "Watchdog not fed")
			ok = false
		} else if was.Armed {
			return true
		}
	case disarm:
		if err := hw.DisarmWatchdog(ctx); err != nil {
			log.Error(err, "Watchdog not disarmed")
			ok = false
		}
	}
	is, err := hw.Watchdog(ctx)
	if err != nil {
		log.Error(err, "Watchdog not read")
		return false
	}
	a.mu.Lock()
	a.watchdog = is
	a.mu.Unlock()
	if is != was {
		log.Info("Watchdog", "present", is.Present, "armed", is.Armed, "timeout", is.Timeout)
		a.tell(0)
	}
	return ok || !is.Present
}

// feed feeds the watchdog, and makes its time shorter if that took so long that
// the machine would outlive it.
func (a *agent) feed(ctx context.Context, l lease) error {
	if err := a.o.Hardware.FeedWatchdog(ctx, l.times.Watchdog); err != nil {
		return err
	}
	if left := l.mend(a.now()); left > 0 {
		return a.o.Hardware.FeedWatchdog(ctx, left)
	}
	return nil
}

// notice tells the other loops when the lease has changed its standing.
func (a *agent) notice(ctx context.Context) {
	a.mu.Lock()
	now := a.now()
	was, is := a.was, a.lease.standing(now)
	a.was = is
	a.mu.Unlock()
	if was == is {
		return
	}
	log := ctrl.LoggerFrom(ctx)
	switch is {
	case lapsed:
		log.Info("Run lease lapsed: protected VMs are stopped")
	case valid:
		log.Info("Run lease granted")
	case off:
		log.Info("High availability is off for this host")
	}
	a.looker.wake(round, 0)
	a.beater.wake(round, 0)
	a.tell(0)
}

// save saves what the next start of the agent, or nova, has to know. A permit
// follows the watchdog: it is written once that is armed, or disarmed.
func (a *agent) save(ctx context.Context) (ok bool) {
	a.mu.Lock()
	may := a.lease.permit(a.boot)
	renewed := may != a.noted && !(may.Until == forever && a.watchdog.Armed)
	events, saved := a.spool.note()
	a.mu.Unlock()
	ok = true
	if renewed {
		if err := a.o.Hardware.SaveNote(ctx, permit.NoteName, may.Encode()); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Permit not saved")
			ok = false
		} else {
			a.mu.Lock()
			a.noted = may
			a.mu.Unlock()
		}
	}
	if events != nil {
		if err := a.o.Hardware.SaveNote(ctx, spoolNote, events); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Events not saved")
			return false
		}
		a.mu.Lock()
		saved()
		a.savedAt = a.now()
		waits := a.spool.waits()
		a.mu.Unlock()
		if waits {
			a.tell(gather)
		}
	}
	return ok
}
