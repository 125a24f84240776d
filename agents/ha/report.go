// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	ctrl "sigs.k8s.io/controller-runtime"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
)

// talk is how far the conversation with the service has come.
type talk struct {
	seq      uint64        // of the last report sent
	sent     time.Duration // when that was
	version  uint64        // of the table, as it was sent
	base     uint64        // the last report that was taken; 0: none
	baseAt   uint64        // version of the table in it
	full     bool          // the next report is to be full
	failures int           // in a row
}

// tell lets the service be told in a while. Nobody is told more often than once
// in gap, and who does not answer when it is his turn.
func (a *agent) tell(in time.Duration) {
	a.mu.Lock()
	now, t := a.now(), a.talk
	a.mu.Unlock()
	switch {
	case t.failures > 0: // the next try is due
		return
	case in > 0 && t.seq > 0:
		in = max(in, t.sent+gap-now)
	}
	a.reporter.wake(round, in)
}

// report sends one report and takes in the answer.
func (a *agent) report(ctx context.Context) time.Duration {
	a.mu.Lock()
	sent := a.now()
	message := a.compose(sent)
	a.mu.Unlock()

	answer, err := a.o.Service.Report(ctx, message)

	a.mu.Lock()
	now := a.now()
	heard := err == nil && answer.GetLeader() && answer.GetSeq() == message.Seq
	silent := a.talk.failures
	if !heard {
		a.talk.failures++
		a.talk.full = a.talk.full || message.Full
		failures := a.talk.failures
		a.mu.Unlock()
		if failures == 1 {
			ctrl.LoggerFrom(ctx).Info("HA service does not answer", "err", err)
		}
		return backOff(a.o, failures)
	}
	before := a.lease.standing(now)
	more := a.take(message, answer, sent, now)
	changed := a.lease.standing(now) != before
	more = more || a.talk.full || a.spool.waits() || a.table.version > a.talk.version
	a.mu.Unlock()
	if silent > 0 {
		ctrl.LoggerFrom(ctx).Info("HA service answers again")
	}
	if changed {
		a.keeper.wake(round, 0)
	}
	if more {
		return gather
	}
	// Up to a twentieth sooner, so that a fleet that began together does not go on in step.
	return max(a.next(sent, now)-a.o.Times.Interval/20000*time.Duration(roll(1000, a.o.Host, message.Seq)), gather)
}

// backOff is how long to wait after so many failures in a row: a second, doubling
// up to an interval, and by host and failure a quarter more or less.
func backOff(o Options, failures int) time.Duration {
	d := o.Times.Interval
	if failures < 8 { // before a shift that is too far
		d = min(d, time.Second<<(failures-1))
	}
	return d*3/4 + d/2/1000*time.Duration(roll(1000, o.Host, failures))
}

// compose builds the next report.
func (a *agent) compose(now time.Duration) *hav1.ReportRequest {
	t := &a.talk
	t.seq++
	t.sent, t.version = now, a.table.version
	patience := a.o.Times.Interval
	answers, since := a.hypervisor.state(now, patience)
	standing := a.lease.standing(now)
	r := &hav1.ReportRequest{
		Host: a.o.Host, Boot: a.boot, Epoch: a.epoch, Seq: t.seq, Uptime: durationpb.New(now),
		EventsDropped:  a.spool.Dropped,
		Virtualisation: &hav1.Virtualisation{Answers: answers, Since: durationpb.New(max(now-since, 0))},
		Watchdog:       &hav1.Watchdog{Present: a.watchdog.Present, Armed: a.watchdog.Armed, Timeout: durationpb.New(a.watchdog.Timeout)},
		Lease: &hav1.Lease{
			Valid: standing == valid, Lapsed: standing == lapsed, Stopped: a.lease.stopped(now), Off: standing == off,
			Term: durationpb.New(a.o.Times.Term), Stop: durationpb.New(a.o.Times.Stop),
		},
	}
	switch {
	case !a.table.known: // what runs here nobody knows yet, and an empty list would say that nothing does
	case t.full || t.base == 0:
		r.Full, t.full = true, false
		r.Instances, _ = a.table.since(0)
	default:
		r.Base = t.base
		r.Instances, r.Gone = a.table.since(t.baseAt)
	}
	for _, h := range a.spool.next() {
		r.Events = append(r.Events, h.message(now))
	}
	if a.o.Pool != "" {
		writable, _ := a.heart.state(now, patience)
		// Before its first write an agent knows nothing: that is no old trouble.
		since := cmp.Or(a.heart.last, a.heart.since)
		r.Storage = []*hav1.Storage{{Pool: a.o.Pool, Writable: writable, Age: durationpb.New(now - since)}}
	}
	for _, host := range slices.Sorted(maps.Keys(a.neighbours)) {
		if n := a.neighbours[host]; n.asked || n.read {
			r.Witnesses = append(r.Witnesses, n.message(host, now, patience))
		}
	}
	return r
}

// take takes in the leader's answer to a report. It says whether the service
// waits for another one.
func (a *agent) take(r *hav1.ReportRequest, answer *hav1.ReportResponse, sent, now time.Duration) (more bool) {
	t := &a.talk
	t.failures = 0
	switch {
	case answer.Resync:
		more = a.table.known && !r.Full
		t.base = 0
	case r.Full || r.Base > 0:
		t.base, t.baseAt = r.Seq, t.version
		a.table.forget(t.baseAt)
	}
	a.spool.taken(answer.Events)
	switch {
	case answer.Off:
		a.lease.switchOff()
	case answer.Granted:
		a.lease.grant(sent, now)
	}
	if a.watch(answer.Watch) {
		a.reacher.wake(round, 0)
		a.reader.wake(round, 0)
	}
	return more
}
