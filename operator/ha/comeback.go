// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
)

// comeBack is a host whose VMs are elsewhere.
func (p *plan) comeBack(seen observation) {
	e := seen.evacuation
	p.hold(seen)
	p.lookAgain = seen.limits.Interval
	heard := seen.memory.last != 0 && seen.now-seen.memory.last < 3*seen.limits.Interval
	fresh := heard && (seen.memory.boot != e.Spec.Boot || seen.memory.lease.GetLapsed() && seen.memory.lease.GetStopped())
	if !fresh {
		if e.Status.Phase == v1alpha1.EvacuationRecovering {
			p.step(seen, v1alpha1.EvacuationEvacuated, "SilentAgain", "the host fell silent again before it was back in service")
		}
		message := "No VM of the host waits any more; it is out of service"
		if seen.limits.PowerOn && e.Status.Power != nil && e.Status.Power.Ordered != nil && !heard && seen.hasPower == "" {
			p.power = wishOn
			message += " and is being switched on"
		}
		p.say(metav1.ConditionFalse, kvmv1.ReasonHostEmpty, message)
		return
	}
	if e.Status.Phase == v1alpha1.EvacuationEvacuated {
		p.step(seen, v1alpha1.EvacuationRecovering, "Recovering", "the host reports again")
	}
	missing := p.missing(seen)
	if missing == "" {
		p.step(seen, v1alpha1.EvacuationDone, "Done", "the host is back in service")
		p.say(metav1.ConditionTrue, kvmv1.ReasonOnline, "The host's HA agent reports")
		p.giveBack(seen)
		p.tell, p.lookAgain = &happening{"Recovered", "The host is back in service"}, conflictRetry
		return
	}
	p.say(metav1.ConditionUnknown, kvmv1.ReasonRecovering, "The host is back, but not in service yet: "+missing)
}

// missing is why a host that is back may not serve yet.
func (p *plan) missing(seen observation) string {
	for _, uuid := range sortedKeys(seen.memory.instances) {
		if i := seen.memory.instances[uuid]; i.GetProtected() && active(i) {
			return "domain " + i.GetName() + " is still active there"
		}
	}
	down := holdDown(seen.history, seen.limits)
	since := seen.evacuation.Status.Proof
	switch {
	case !seen.memory.synced:
		return "it has not told its domains"
	case seen.memory.soundSince == 0:
		return "its virtualisation daemon or its storage does not answer"
	case seen.now-seen.memory.soundSince < seen.limits.Rejoin:
		return fmt.Sprintf("it has to do well for %s", seen.limits.Rejoin)
	case down > 0 && since != nil && seen.wall.Sub(since.At.Time) < down:
		return fmt.Sprintf("it keeps dying, and is held down for %s", down)
	}
	return ""
}

// hold keeps maintenance at ha while the Evacuation is open. What somebody sets
// meanwhile is what the host gets when it is over.
func (p *plan) hold(seen observation) {
	spec := seen.hypervisor.Spec
	if spec.Maintenance == kvmv1.MaintenanceHA || !seen.hypervisor.DeletionTimestamp.IsZero() {
		return
	}
	p.maintenance = &maintenance{string(kvmv1.MaintenanceHA), reasonFor(seen.evacuation)}
	if string(spec.Maintenance) != seen.evacuation.Spec.Maintenance {
		p.later = &maintenance{string(spec.Maintenance), spec.MaintenanceReason}
	}
}

// giveBack makes maintenance what it was.
func (p *plan) giveBack(seen observation) {
	p.maintenance = nil
	if seen.hypervisor.Spec.Maintenance == kvmv1.MaintenanceHA {
		p.maintenance = &maintenance{seen.evacuation.Spec.Maintenance, seen.evacuation.Spec.MaintenanceReason}
	}
}

// giveBackLate does it for an Evacuation that was closed by a leader that died
// before it came to that.
func (p *plan) giveBackLate(seen observation) {
	if len(seen.history) == 0 || seen.hypervisor.Spec.Maintenance != kvmv1.MaintenanceHA {
		return
	}
	last := &seen.history[len(seen.history)-1]
	if !open(last) && seen.hypervisor.Spec.MaintenanceReason == reasonFor(last) {
		p.maintenance = &maintenance{last.Spec.Maintenance, last.Spec.MaintenanceReason}
	}
}

// reasonFor is the reason of maintenance while an Evacuation is open.
func reasonFor(e *v1alpha1.Evacuation) string { return "the host is being evacuated (" + e.Name + ")" }
