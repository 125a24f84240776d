// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/internal/sabotage"
)

// brakes are what may hold a new fencing. All are read at one moment.
type brakes struct {
	paused, dryRun bool
	blind          bool // the leader may lead no more, or has not looked at all hosts of late
	observer       bool // the leader hears too few to be trusted
	outage         bool // the API does not answer, or has only just come back
	storm          bool // of the host's zone
	silent, zone   int  // hosts of the zone that are silent, and all of them
	unheard        int  // by this leader, who is new; any of them may be silent
	fencingZone    int  // Evacuations that seek a proof, of the zone
	fencing        int  // and of all
}

// hold says which brake holds a host that is to be fenced, "" if none. A person's
// confirmation passes all but leadership, the pause and the dry run. The dry run comes
// last, since it says what would be if it were none.
func hold(b brakes, h *kvmv1.Hypervisor, confirmed bool, would string, l Limits) (why string) {
	switch {
	case b.blind: // Then nothing of the rest is known either.
		return "the HA service is not sure that it leads, or has not looked at all hosts for a while: if that lasts, look after its way to the Kubernetes API"
	case b.paused:
		return asked(b, would)
	case !confirmed:
		why = danger(b, h, l)
	}
	return cmp.Or(why, asked(b, would))
}

// danger is why nobody but a person may say that a host is to be fenced now, "" if
// the evidence may.
func danger(b brakes, h *kvmv1.Hypervisor, l Limits) (why string) {
	switch {
	case b.observer:
		return "the HA service hears fewer than half of the hosts: its own network is to blame rather than theirs; mend that, or confirm those that you know to be dead"
	case b.outage:
		return fmt.Sprintf("the Kubernetes API or this replica stood still, and has been back for less than %s; by then it is known who is silent still", l.Settle)
	case b.storm:
		return fmt.Sprintf("too many of the zone's %d hosts are silent at once, or were less than %s ago (storm): if they are dead, confirm them one by one", b.zone, l.Settle)
	case b.unheard > 0 && raging(b.silent+b.unheard, b.zone, l):
		return fmt.Sprintf("the HA service's leader is new and has not heard %d of the zone's %d hosts yet: it may be a storm; that is known when it has led for %s", b.unheard, b.zone, l.Settle)
	case inMaintenance(h) && !meta.IsStatusConditionTrue(h.Status.Conditions, kvmv1.ConditionEvicting):
		return fmt.Sprintf("the host is in maintenance (%s) by a person, and is not fenced: take it out of maintenance, or confirm that it runs nothing", h.Spec.Maintenance)
	}
	return turn(b, l)
}

// asked says how a person holds the whole service, "" if nobody does. would is what
// the service would do otherwise.
func asked(b brakes, would string) (why string) {
	switch {
	case b.paused:
		return "the service is paused by ConfigMap " + ConfigName + "; adit ha resume lets it go on"
	case b.dryRun:
		return would + ", but this is a dry run by ConfigMap " + ConfigName + "; adit ha dry-run off lets it happen"
	}
	return ""
}

// turn is the budget: why a host has to wait for another's end, "" if it has not.
func turn(b brakes, l Limits) (why string) {
	switch {
	case b.fencingZone >= l.FencesZone:
		return fmt.Sprintf("%d hosts of the zone are being fenced already; this one waits its turn", l.FencesZone)
	case b.fencing >= l.FencesFleet:
		return fmt.Sprintf("%d hosts are being fenced already; this one waits its turn", l.FencesFleet)
	}
	return ""
}

// inMaintenance says whether a person, or a program for him, took the host out of
// service.
func inMaintenance(h *kvmv1.Hypervisor) bool {
	switch h.Spec.Maintenance {
	case kvmv1.MaintenanceManual, kvmv1.MaintenanceAuto, kvmv1.MaintenanceTermination:
		return true
	}
	return false
}

// storm is a zone's guard: it closes when too many are silent at once and opens
// when that has been over for long enough.
type storm struct {
	closed bool
	calm   time.Duration // since when it has been over
}

// raging says whether so many silent hosts of a zone are a storm.
func raging(silent, hosts int, l Limits) bool {
	return silent > l.StormHosts && float64(silent) > l.StormShare*float64(hosts) && !sabotage.On(sabotage.NoStormGuard)
}

// see takes in how many of a zone's hosts are silent.
func (s *storm) see(silent, hosts int, now time.Duration, l Limits) {
	switch {
	case raging(silent, hosts, l):
		s.closed, s.calm = true, 0
	case s.closed && s.calm == 0:
		s.calm = max(now, 1)
	case s.closed && now-s.calm >= l.Settle:
		s.closed = false
	}
}

// outage is whether the API can be relied on.
type outage struct {
	limits  Limits
	since   time.Duration // requests fail since; 0: they do not
	settled time.Duration // not to be relied on before
}

// answered takes in one request's fate.
func (o *outage) answered(ok bool, now time.Duration) {
	switch {
	case !ok && o.since == 0:
		o.since = max(now, 1)
	case ok && o.since != 0:
		if now-o.since >= o.limits.Outage {
			o.settled = now + o.limits.Settle
		}
		o.since = 0
	}
}

// holds says whether nothing new may begin.
func (o *outage) holds(now time.Duration) bool {
	return o.since != 0 && now-o.since >= o.limits.Outage || now < o.settled
}

// holdDown is how long a host that keeps dying stays out of service after it is
// back: by how often it was fenced, each time within FlapWithin of the time
// before.
func holdDown(history []v1alpha1.Evacuation, l Limits) time.Duration {
	fenced, last := 0, time.Time{}
	for i := range history { // the oldest first
		e := &history[i]
		if e.Status.Proof == nil {
			continue
		}
		at := e.CreationTimestamp.Time
		if fenced > 0 && at.Sub(last) > l.FlapWithin+held(fenced, l) {
			fenced = 0
		}
		fenced, last = fenced+1, at
	}
	return held(fenced, l)
}

func held(fenced int, l Limits) time.Duration {
	if fenced < 2 {
		return 0
	}
	d := l.HoldDown
	for range fenced - 2 {
		if d *= 2; d >= l.HoldDownMax {
			return l.HoldDownMax
		}
	}
	return d
}
