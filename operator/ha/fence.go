// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/internal/sabotage"
)

// fence looks for a proof, and goes the ways to one.
func (p *plan) fence(seen observation) {
	e := seen.evacuation
	p.hold(seen)
	p.lookAgain = seen.limits.Interval
	heard := seen.memory.last != 0 && seen.now-seen.memory.last < 3*seen.limits.Interval
	ordered := e.Status.Power != nil && e.Status.Power.Ordered != nil
	rehearsed := seen.brakes.dryRun && !ordered
	if kind, message := p.prove(seen, heard); kind != "" && !rehearsed {
		p.step(seen, v1alpha1.EvacuationFenced, "Fenced", message)
		p.status.Proof = &v1alpha1.Proof{Kind: kind, Message: message, At: seen.wall}
		p.say(metav1.ConditionFalse, kvmv1.ReasonFenced, "The host runs nothing: "+message)
		p.lookAgain = conflictRetry
		return
	}
	if why := p.alive(seen, heard); why != "" && !ordered {
		p.step(seen, v1alpha1.EvacuationCancelled, "Cancelled", why)
		p.giveBack(seen)
		p.tell = &happening{"Cancelled", "Evacuation " + e.Name + " is cancelled: " + why}
		p.lookAgain = conflictRetry
		return
	}
	_, missing := seen.expiry.expired()
	// A host that is heard is given the time to stop its VMs by itself, and one
	// that has booted anew the time to say so twice.
	overdue := seen.now-max(seen.expiry.granted, seen.expiry.ledAt) > seen.expiry.terms.safe(seen.limits.Margin)
	rebooted := heard && e.Spec.Boot != "" && seen.memory.boot != e.Spec.Boot
	useController := seen.hasPower == "" && !rebooted && (ordered || !heard || overdue)
	reason, message := kvmv1.ReasonFencing, ""
	switch {
	case useController && !ordered && !(seen.power.right && seen.power.evacuation == powerKey(e)):
		// What is ordered cannot be taken back: first it has to be known of whom.
		p.power = wishLook
		message = "Asking the management controller whose it is"
		if seen.power.problem != "" {
			message = "The management controller does not help: " + seen.power.problem
		}
		p.noteTrouble(seen)
	case useController && !ordered:
		p.step(seen, v1alpha1.EvacuationFencing, "PowerOff", "the management controller is about to be told to switch the host off")
		p.status.Power = &v1alpha1.PowerRecord{Ordered: &seen.wall, Attempts: 1}
		message = "Switching the host off"
	case useController:
		p.power = wishOff
		message = "Switching the host off and making sure"
		if seen.power.problem != "" {
			message = "The management controller does not help: " + seen.power.problem
		}
		p.noteTrouble(seen)
	case seen.hasPower != "":
		message = "No management controller: " + seen.hasPower
	default:
		message = "The host is stopping its protected VMs"
	}
	if e.Status.Phase == "" && p.status == nil {
		p.step(seen, v1alpha1.EvacuationFencing, "Fencing", message)
	}
	if hopeless := !seen.expiry.armed && (seen.hasPower != "" || seen.power.problem != ""); hopeless {
		reason = kvmv1.ReasonUnproven
		message += ". " + confirmHow(seen.hypervisor.Name)
	}
	if _, problem := confirmed(seen.hypervisor, seen.wall.Time); problem != "" {
		message += "; " + problem
	}
	p.say(metav1.ConditionUnknown, reason, message+". Of its run lease: "+missing)
}

// alive is why a host that was to be fenced need not be, "" if it has to.
func (*plan) alive(seen observation, heard bool) (why string) {
	boot, m := seen.evacuation.Spec.Boot, seen.memory
	switch {
	case seen.brakes.dryRun:
		return "this is a dry run since, by ConfigMap " + ConfigName
	case heard && (boot == "" || m.boot == boot) && !seen.verdict.stranded && !m.lease.GetLapsed() && m.writable():
		return "the host is heard again, in the same boot and with its run lease"
	case !heard && seen.verdict.state == kvmv1.ReasonIsolated:
		return "the host shows again that it lives"
	}
	return ""
}

// confirmHow says what a person can do.
func confirmHow(host string) string {
	return fmt.Sprintf("If you know that %s runs nothing and cannot come back unseen, say so with adit ha confirm %s, or annotation %s on its Hypervisor: \"WHO until TIME: REASON\"", host, host, v1alpha1.AnnotationConfirmFenced)
}

// prove finds what shows that the host runs nothing.
func (p *plan) prove(seen observation, heard bool) (v1alpha1.ProofKind, string) {
	e, m := seen.evacuation, seen.memory
	if sabotage.On(sabotage.NoProof) {
		return v1alpha1.ProofLeaseExpired, "sabotage: none is needed"
	}
	if seen.brakes.blind {
		return "", "" // Another may lead, and may have granted a lease.
	}
	if seen.power.proof != "" && seen.power.evacuation == powerKey(e) {
		return v1alpha1.ProofPowerOff, seen.power.proof
	}
	// Nobody can have granted the host anything after what it says here.
	since := max(m.granted, seen.ledAt)
	known, same := e.Spec.Boot != "" && heard, m.boot == e.Spec.Boot
	switch proof, _ := seen.expiry.expired(); {
	case known && !same && m.granted == 0 && m.last-m.first >= 2*seen.limits.Interval && idle(m, since):
		return v1alpha1.ProofNewBoot, "the host reports from a later boot, " + m.boot + ", in which nothing protected has been started"
	case known && same && stopped(m, since):
		return v1alpha1.ProofStopped, "the host itself has stopped its protected VMs, since its run lease has lapsed"
	case proof != "" && seen.expiry.boot == e.Spec.Boot && !(heard && same):
		return v1alpha1.ProofLeaseExpired, proof
	}
	if word, _ := confirmed(seen.hypervisor, seen.wall.Time); word != nil && !heard {
		return v1alpha1.ProofConfirmed, word.who + " has confirmed it: " + word.why
	}
	return "", ""
}

// noteTrouble keeps the controller's latest trouble, once for each kind.
func (p *plan) noteTrouble(seen observation) {
	next := v1alpha1.PowerRecord{}
	if record := seen.evacuation.Status.Power; record != nil {
		next = *record
	}
	if seen.power.problem == "" || next.LastError == seen.power.problem {
		return
	}
	p.step(seen, v1alpha1.EvacuationFencing, "PowerTrouble", seen.power.problem)
	next.LastError, next.Attempts = seen.power.problem, max(next.Attempts, int32(seen.power.attempts))
	p.status.Power = &next
}
