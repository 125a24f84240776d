// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// leaseDuration is how long a heartbeat lasts, if its Lease does not say. It is
// the kubelet's (nodeLeaseDurationSeconds), as the heartbeat is.
const leaseDuration = 40 * time.Second

// silentLook is how often a silent agent is listened for: a heartbeat's own
// time, so that its return shows as soon as it can.
const silentLook = 10 * time.Second

// pulse is what is known of one host's heartbeat. The host's clock is not ours:
// a renewal is believed to be as old as it says only where both clocks agree
// that it came between two of our looks.
type pulse struct {
	known    bool      // A look has been taken.
	renewed  time.Time // As the host's clock says; zero: no Lease.
	beat     time.Time // Of the last renewal, by our clock.
	duration time.Duration
	looked   time.Time
	silent   bool
}

// due is when the next look is worth its request.
func (p pulse) due() time.Time {
	switch {
	case !p.known:
		return time.Time{}
	case p.silent:
		return p.looked.Add(silentLook)
	}
	return p.beat.Add(p.duration)
}

// feel takes the next look. saidSilent is whether we said before that the agent
// is silent: then, if nothing else is remembered, it has to move to be believed;
// otherwise a host that is seen for the first time has its whole duration.
func feel(last pulse, lease *coordinationv1.Lease, saidSilent bool, now time.Time) pulse {
	p := pulse{known: true, duration: leaseDuration, looked: now}
	if lease != nil {
		if s := lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
			p.duration = time.Duration(*s) * time.Second
		}
		if t := lease.Spec.RenewTime; t != nil {
			p.renewed = t.Time
		}
	}
	switch {
	case p.renewed.IsZero():
		p.silent = true
	case !last.known:
		p.silent, p.beat = saidSilent, now
		if fresh := p.renewed.After(now.Add(-p.duration)) && !p.renewed.After(now); fresh {
			p.silent, p.beat = false, p.renewed
		}
	case p.renewed.Equal(last.renewed):
		p.beat = last.beat
		p.silent = last.silent || !now.Before(p.beat.Add(p.duration))
	case p.renewed.After(last.looked) && !p.renewed.After(now):
		p.beat = p.renewed
		// It beat after our look and has been still since.
		p.silent = !now.Before(p.beat.Add(p.duration))
	default:
		p.beat = now
	}
	return p
}
