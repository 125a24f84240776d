// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"maps"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/adit-hv/adit/agents/permit"
	"github.com/adit-hv/adit/hardware"
)

// stopMemory is how long after it was asked a guest's power-off is taken for ours
// though the lease is back: guests take minutes to shut down (OpenStack Nova's
// shutdown_timeout is 60 s by default), and some never do.
const stopMemory = 10 * time.Minute

// stops are the domains that were asked to stop for want of a lease.
type stops struct {
	asked map[string]stop // by UUID
	noted []string        // as saved, sorted
}

type stop struct {
	run time.Time     // which run of the domain: its start. Zero: not known any more
	at  time.Duration // when it was asked first

	// pressed is the end of the lease for want of which its power button was.
	pressed time.Duration
}

func newStops() stops { return stops{asked: map[string]stop{}} }

func (s *stops) resume(saved permit.Stopped, now time.Duration) {
	s.noted = saved.Domains
	for _, uuid := range saved.Domains {
		s.asked[uuid] = stop{at: now}
	}
}

// verdict is what happens to a domain while the lease is lapsed.
type verdict string

const (
	spare    verdict = "spare"
	shutDown verdict = "shut down"
	destroy  verdict = "destroy"
)

// judge decides what happens to a domain of a host whose lease lapsed that long
// ago and which has stop to be rid of it; away says that its guest runs elsewhere.
//
//	not ours, or not protected           spare
//	no QEMU                              spare
//	source of a post-copy                spare: it runs elsewhere, cannot run here again, and its memory is needed
//	half-made target of a migration      destroy: its guest runs on at the source
//	cannot hear the power button         destroy
//	first half of stop                   shut down
//	second half of stop, and later       destroy
func judge(d hardware.Domain, away bool, since, stop time.Duration) verdict {
	active := d.Active() || d.State == hardware.StateCrashed
	switch {
	case d.Foreign || d.Spec.Owner == nil || !d.Spec.Owner.Protected:
		return spare
	case !active, away:
		return spare
	case d.Incoming, d.State != hardware.StateRunning && d.State != hardware.StateBlocked && d.State != hardware.StateShuttingDown && !switching(d):
		return destroy
	case since < stop/2:
		return shutDown
	}
	return destroy
}

// switching says that a guest stands still for a moment, while it moves.
func switching(d hardware.Domain) bool {
	return d.State == hardware.StatePaused && (d.Detail == hardware.DetailMigrating || d.Detail == hardware.DetailMigrated)
}

// split says that a domain may be half of a post-copy.
func split(d hardware.Domain) bool {
	return d.State == hardware.StatePaused && (d.Detail == hardware.DetailPostCopy || d.Detail == hardware.DetailPostCopyFailed)
}

// clear judges all domains of a host whose lease has lapsed.
func (a *agent) clear(ctx context.Context, domains []hardware.Domain, begun time.Duration) time.Duration {
	a.mu.Lock()
	l := a.lease
	a.mu.Unlock()
	since := a.now() - l.until
	var press, end []hardware.Domain
	for _, d := range domains {
		switch judge(d, a.away(ctx, d), since, l.times.Stop) {
		case shutDown:
			press = append(press, d)
		case destroy:
			end = append(end, d)
		}
	}
	left := len(press)+len(end) > 0
	a.mu.Lock()
	was := a.lease.stopped(a.now())
	if !left {
		a.lease.looked(begun)
	}
	is := a.lease.stopped(a.now())
	if a.lease.standing(a.now()) != lapsed {
		press, end = nil, nil // granted meanwhile
	}
	press = a.stops.ask(press, end, l.until, a.now())
	a.mu.Unlock()
	if was != is {
		ctrl.LoggerFrom(ctx).Info("Protected VMs are stopped", "all", is)
		a.keeper.wake(round, 0)
		a.tell(0)
	}
	a.noteStops(ctx) // before anybody is asked, so that nobody takes it for his own wish
	for _, d := range press {
		a.shutter.wake(d.UUID, 0)
	}
	for _, d := range end {
		a.destroyer.wake(d.UUID, 0)
	}
	switch half := l.times.Stop/2 - since; {
	case !left:
		return l.times.Stop / 5
	case half > 0:
		return min(half, retry)
	}
	return retry
}

// ask notes who is asked to stop, and returns those whose power button has not
// been pressed since the lease ended.
func (s *stops) ask(press, end []hardware.Domain, ended, now time.Duration) (first []hardware.Domain) {
	for _, d := range end {
		s.note(d, now)
	}
	for _, d := range press {
		st := s.note(d, now)
		if st.pressed != ended {
			st.pressed = ended
			s.asked[d.UUID] = st
			first = append(first, d)
		}
	}
	return first
}

func (s *stops) note(d hardware.Domain, now time.Duration) stop {
	st, is := s.asked[d.UUID]
	if !is || !st.run.Equal(d.StartedAt) {
		st = stop{run: d.StartedAt, at: now}
		s.asked[d.UUID] = st
	}
	return st
}

// away says that a domain is the source of a post-copy: its guest runs elsewhere.
// Whoever cannot be asked runs here.
func (a *agent) away(ctx context.Context, d hardware.Domain) bool {
	if !split(d) {
		return false
	}
	job, err := a.o.Hardware.Job(ctx, d.UUID)
	return err == nil && job.Operation == hardware.OperationMigrationOut && job.PostCopy
}

// goOn forgets those who run again, or are gone, once the lease is back.
func (a *agent) goOn(ctx context.Context, domains []hardware.Domain, now time.Duration) {
	a.mu.Lock()
	if len(a.stops.asked) == 0 {
		a.mu.Unlock()
		return
	}
	a.stops.forget(domains, now)
	a.mu.Unlock()
	a.noteStops(ctx)
}

func (s *stops) forget(domains []hardware.Domain, now time.Duration) {
	there := map[string]hardware.Domain{}
	for _, d := range domains {
		there[d.UUID] = d
	}
	for _, uuid := range slices.Sorted(maps.Keys(s.asked)) {
		st := s.asked[uuid]
		d, is := there[uuid]
		old := now-st.at >= stopMemory
		again := d.Active() && !st.run.IsZero() && !st.run.Equal(d.StartedAt)
		if !is || again || d.Active() && old {
			delete(s.asked, uuid)
		}
	}
}

// noteStops saves who was stopped, for nova to know.
func (a *agent) noteStops(ctx context.Context) {
	a.mu.Lock()
	uuids := slices.Sorted(maps.Keys(a.stops.asked))
	same := slices.Equal(uuids, a.stops.noted)
	a.mu.Unlock()
	if same {
		return
	}
	if err := a.o.Hardware.SaveNote(ctx, permit.StoppedName, permit.Stopped{Domains: uuids}.Encode()); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Stopped domains not saved") // stopped they are all the same
		return
	}
	a.mu.Lock()
	a.stops.noted = uuids
	a.mu.Unlock()
}

// hasLapsed says that the lease is lapsed still.
func (a *agent) hasLapsed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lease.standing(a.now()) == lapsed
}

// shutDown presses a guest's power button. One that is on its way to another host
// is let go: pressed, it would power off there, of its own will as it would seem.
// If it does not get away in time it is destroyed.
func (a *agent) shutDown(ctx context.Context, uuid string) time.Duration {
	if job, err := a.o.Hardware.Job(ctx, uuid); err == nil && job.Running() && job.Operation == hardware.OperationMigrationOut {
		return 0
	}
	if !a.hasLapsed() {
		return 0
	}
	ctrl.LoggerFrom(ctx).Info("Shutting down domain for want of a run lease", "domain", uuid)
	if err := a.o.Hardware.Shutdown(ctx, uuid); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Not shut down", "domain", uuid) // it will be destroyed
	}
	return 0
}

// destroy ends a domain. One that is still there is seen at the next look.
func (a *agent) destroy(ctx context.Context, uuid string) time.Duration {
	if !a.hasLapsed() {
		return 0
	}
	ctrl.LoggerFrom(ctx).Info("Destroying domain for want of a run lease", "domain", uuid)
	err := a.o.Hardware.Destroy(ctx, uuid)
	if err != nil && hardware.ReasonOf(err) != hardware.ReasonNoDomain {
		ctrl.LoggerFrom(ctx).Error(err, "Not destroyed", "domain", uuid)
		return 0
	}
	a.looker.wake(round, gather/2)
	return 0
}
