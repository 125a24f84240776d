// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"math"
	"time"

	"github.com/adit-hv/adit/agents/permit"
)

// standing is what a host may do with protected VMs.
type standing string

const (
	// none: no grant in this boot. Nothing is started, and nothing is stopped.
	none standing = "none"
	// valid: they may run.
	valid standing = "valid"
	// lapsed: they are stopped, or the watchdog bites.
	lapsed standing = "lapsed"
	// off: high availability is off here, they may run without a lease.
	off standing = "off"
)

// forever is until when a host without high availability may run them.
const forever = time.Duration(math.MaxInt64)

// lease is a host's run lease. It is arithmetic: every time is the host's steady
// clock, and is given. Its zero, with times, is a host that has just booted.
type lease struct {
	times Times

	// until is the lease's end: 0 before the first grant, forever when off. That
	// it has lapsed is only that now is past it, so nobody can forget to note it.
	until time.Duration

	// clear is when the last look began that found no protected VM.
	clear time.Duration
}

func (l lease) standing(now time.Duration) standing {
	switch {
	case l.until == 0:
		return none
	case l.until == forever:
		return off
	case now < l.until:
		return valid
	}
	return lapsed
}

// grant takes in that a report sent then was answered with a grant. A grant that
// was long under way may be over already.
func (l *lease) grant(sent, now time.Duration) {
	until := sent + l.times.Term
	switch {
	case until <= now:
	case l.until == forever:
		l.until = until
	default:
		l.until = max(l.until, until)
	}
}

// beat takes in that a heartbeat begun then was written. It renews what is valid
// and revives nothing.
func (l *lease) beat(begun, now time.Duration) {
	if l.standing(now) == valid {
		l.until = max(l.until, begun+l.times.Term)
	}
}

// switchOff takes in that high availability is off here. The next grant ends it: a
// refusal does not, since a host without a lease has nothing to be refused.
func (l *lease) switchOff() { l.until = forever }

// looked takes in that a look that began then found no protected VM. One from
// before the lapse counts for nothing, since one may have started after it.
func (l *lease) looked(begun time.Duration) { l.clear = max(l.clear, begun) }

// stopped says that the lease has lapsed and that nothing protected was left
// when that was looked at last.
func (l lease) stopped(now time.Duration) bool {
	return l.standing(now) == lapsed && l.clear >= l.until
}

// fedUntil is the last moment at which the watchdog may be fed: stop after the
// lapse, or after the last look that found nothing protected. 0 is never.
func (l lease) fedUntil() time.Duration {
	if l.until == 0 || l.until == forever {
		return 0
	}
	return max(l.until, l.clear) + l.times.Stop
}

// mend is what the watchdog is to be set to when a feeding was held up so long,
// as happens to a process that is not scheduled, that the machine would outlive
// its time. 0: nothing is to be mended.
func (l lease) mend(fed time.Duration) time.Duration {
	left := l.fedUntil() + l.times.Watchdog - fed
	if left >= l.times.Watchdog {
		return 0
	}
	return max(left.Truncate(time.Second), time.Second) // it counts whole seconds
}

// permit is what nova may read.
func (l lease) permit(boot string) permit.Permit {
	return permit.Permit{Until: l.until, Boot: boot}
}

// resume is the lease that an earlier agent of this boot held, as its permit
// says. A watchdog that is armed without one was armed by an agent that died
// before it wrote it, or could not: until when it held a lease nobody knows, so
// that it has lapsed and its time is over.
func resume(p permit.Permit, t Times, boot string, armed bool, now time.Duration) lease {
	l := lease{times: t}
	switch {
	case p.Boot == boot && p.Until > 0:
		l.until = p.Until
	case armed:
		l.until = max(now-t.Stop, 1)
	}
	return l
}
