// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/internal/sabotage"
)

// mostDecisions is how many steps an Evacuation remembers.
const mostDecisions = 50

// observation is all that one decision on a host depends on.
type observation struct {
	now    time.Duration
	wall   metav1.Time
	limits Limits

	hypervisor *kvmv1.Hypervisor
	evacuation *v1alpha1.Evacuation  // the open one; nil: none
	history    []v1alpha1.Evacuation // all of this host, the oldest first
	behind     bool                  // the cache does not show our last write yet
	protected  int                   // VMs placed here that are restarted elsewhere

	memory   hostMemory
	expiry   expiry
	brakes   brakes
	verdict  verdict
	lost     bool // it cannot write to the storage that others can
	power    powerMemory
	hasPower string // why there is no management controller; "": there is one
}

// wish is what the management controller is asked for.
type wish string

const (
	wishNothing wish = ""
	wishOff     wish = "off"
	wishOn      wish = "on"
)

// plan is what to do, in the order of the fields.
type plan struct {
	refuse      string // no grant from now on: why
	record      *runLease
	create      *v1alpha1.Evacuation
	status      *v1alpha1.EvacuationStatus
	later       *maintenance // to be given back, other than the Evacuation says
	maintenance *maintenance
	alive       *metav1.Condition
	enabled     *metav1.Condition
	power       wish
	evacuate    bool
	relieve     bool // ask VMs that stand still for want of their disks to leave
	policy      *policy
	tell        string // an Event's reason; its message is alive's
	lookAgain   time.Duration
}

type maintenance struct{ mode, reason string }

// decide is the policy of one host. It is pure.
//
//	high availability off, or not begun   lease off, nothing else
//	no Evacuation open                    by the evidence, and the brakes: judgeHost
//	Fencing                               proof, or the way to one: fence
//	Fenced, Evacuating                    the VMs' turn
//	Evacuated                             wait for the host; power it on if that is the policy
//	Recovering                            look it over, then back into service
func decide(seen observation) plan {
	h := seen.hypervisor
	if seen.behind {
		return plan{lookAgain: conflictRetry}
	}
	if !h.DeletionTimestamp.IsZero() && seen.evacuation == nil {
		return plan{}
	}
	p := plan{enabled: enabled(seen)}
	if seen.evacuation == nil && (p.enabled == nil || !h.Spec.HighAvailability) {
		p.off(seen)
		return p
	}
	e := seen.evacuation
	if e == nil {
		p.judgeHost(seen)
		return p
	}
	p.refuse = reasonFor(e)
	switch e.Status.Phase {
	case "", v1alpha1.EvacuationFencing:
		p.fence(seen)
	case v1alpha1.EvacuationFenced, v1alpha1.EvacuationEvacuating:
		p.hold(seen)
		p.evacuate = true
		if e.Status.Phase == v1alpha1.EvacuationFenced {
			p.say(seen, metav1.ConditionFalse, kvmv1.ReasonFenced, "The host runs nothing: "+e.Status.Proof.Message)
		} else {
			p.say(seen, metav1.ConditionFalse, kvmv1.ReasonEvacuating, "The host runs nothing, and its VMs are being started elsewhere")
		}
	case v1alpha1.EvacuationEvacuated, v1alpha1.EvacuationRecovering:
		p.comeBack(seen)
	}
	return p
}

// enabled is condition HaEnabled: absent before onboarding.
func enabled(seen observation) *metav1.Condition {
	h := seen.hypervisor
	onboarding := meta.FindStatusCondition(h.Status.Conditions, kvmv1.ConditionOnboarding)
	switch {
	case onboarding == nil && h.Spec.LifecycleEnabled:
		return nil
	case onboarding != nil && onboarding.Status == metav1.ConditionTrue && onboarding.Reason != kvmv1.ReasonHandover:
		return condition(metav1.ConditionFalse, kvmv1.ReasonOnboarding, "HA disabled before onboarding")
	case !h.Spec.HighAvailability:
		return condition(metav1.ConditionFalse, kvmv1.ReasonSucceeded, "HA disabled per spec")
	case h.Status.Evicted:
		return condition(metav1.ConditionFalse, kvmv1.ReasonEvicted, "HA disabled due to eviction")
	case seen.brakes.paused:
		return condition(metav1.ConditionFalse, kvmv1.ReasonPaused, "HA is held by ConfigMap "+ConfigName)
	}
	return condition(metav1.ConditionTrue, kvmv1.ReasonSucceeded, "HA is enabled")
}

func condition(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{Status: status, Reason: reason, Message: message}
}

// off is a host that nobody watches over: it needs no lease.
func (p *plan) off(seen observation) {
	if seen.memory.boot == "" || seen.now-seen.memory.last > 3*seen.limits.Interval {
		return
	}
	record := leaseOf(seen.memory, true)
	p.record = &record
	p.policy = &policy{boot: seen.memory.boot, off: true}
}

// judgeHost is the table of a host without an open Evacuation.
func (p *plan) judgeHost(seen observation) {
	h, v := seen.hypervisor, seen.verdict
	p.lookAgain = seen.limits.Interval
	switch {
	case v.state == "":
		return // Too early to say anything.
	case v.stranded:
		p.begin(seen, v.message)
		return
	case v.state == kvmv1.ReasonUnreachable && seen.protected == 0:
		p.say(seen, metav1.ConditionUnknown, v.state, v.message+". Nothing protected is placed on it, so that it is left alone")
		return
	case v.state == kvmv1.ReasonUnreachable:
		p.begin(seen, v.message)
		return
	case v.state == kvmv1.ReasonOnline:
		p.lookAgain = 0
		p.say(seen, metav1.ConditionTrue, v.state, v.message)
		record := leaseOf(seen.memory, false)
		p.record = &record
		p.policy = &policy{boot: seen.memory.boot, grant: true}
		p.relieve = seen.memory.strandedSince != 0 || seen.memory.pausedByIOErrors()
		p.giveBackLate(seen)
		if seen.memory.memoryFailed != "" && h.Spec.Maintenance == kvmv1.MaintenanceUnset {
			p.maintenance = &maintenance{string(kvmv1.MaintenanceAuto), "uncorrectable memory error (" + seen.memory.memoryFailed + "): move the VMs away before the host dies"}
			p.tell = "MemoryFailure"
		}
		return
	}
	p.say(seen, metav1.ConditionUnknown, v.state, v.message)
}

// begin makes the Evacuation, unless a brake holds.
func (p *plan) begin(seen observation, why string) {
	h := seen.hypervisor
	word, problem := confirmed(h, seen.wall.Time)
	if why2 := hold(seen.brakes, h, word != nil && !seen.verdict.stranded, seen.limits); why2 != "" {
		if problem != "" {
			why2 += "; " + problem
		}
		p.say(seen, metav1.ConditionUnknown, kvmv1.ReasonHeld, why+". Held: "+why2)
		if seen.verdict.stranded { // It is heard, and goes on.
			p.policy = &policy{boot: seen.memory.boot, grant: true}
		}
		return
	}
	boot := seen.memory.boot
	if boot == "" {
		boot = seen.expiry.boot
	}
	number := 1
	if n := len(seen.history); n > 0 {
		number = numberOf(&seen.history[n-1]) + 1
	}
	p.refuse = "the host is being evacuated"
	p.create = &v1alpha1.Evacuation{
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("%s-%d", h.Name, number),
			Labels: map[string]string{v1alpha1.LabelEvacuated: h.Name},
		},
		Spec: v1alpha1.EvacuationSpec{Hypervisor: h.Name, Boot: boot},
	}
	if h.Spec.Maintenance != kvmv1.MaintenanceHA {
		p.create.Spec.Maintenance, p.create.Spec.MaintenanceReason = string(h.Spec.Maintenance), h.Spec.MaintenanceReason
	}
	p.say(seen, metav1.ConditionUnknown, kvmv1.ReasonFencing, why)
	p.tell = "Fencing"
	p.lookAgain = conflictRetry
}

// fence looks for a proof, and goes the ways to one.
func (p *plan) fence(seen observation) {
	e := seen.evacuation
	p.hold(seen)
	p.lookAgain = seen.limits.Interval
	heard := seen.memory.last != 0 && seen.now-seen.memory.last < 3*seen.limits.Interval
	ordered := e.Status.Power != nil && e.Status.Power.Ordered != nil
	if kind, message := p.prove(seen, heard); kind != "" {
		p.step(seen, v1alpha1.EvacuationFenced, "Fenced", message)
		p.status.Proof = &v1alpha1.Proof{Kind: kind, Message: message, At: seen.wall}
		p.say(seen, metav1.ConditionFalse, kvmv1.ReasonFenced, "The host runs nothing: "+message)
		p.tell, p.lookAgain = "Fenced", conflictRetry
		return
	}
	if heard && seen.memory.boot == e.Spec.Boot && !ordered && !seen.verdict.stranded && !seen.memory.lease.GetLapsed() && seen.memory.writable() {
		p.step(seen, v1alpha1.EvacuationCancelled, "Cancelled", "the host is heard again, in the same boot and with its run lease")
		p.say(seen, metav1.ConditionTrue, kvmv1.ReasonOnline, seen.verdict.message)
		p.giveBack(seen)
		p.tell, p.lookAgain = "Cancelled", conflictRetry
		return
	}
	_, missing := seen.expiry.expired()
	// A host that is heard is given the time to stop its VMs by itself, and one
	// that has booted anew the time to say so twice.
	overdue := seen.now-max(seen.expiry.granted, seen.expiry.ledAt) > seen.expiry.terms.safe(seen.limits.Margin)
	rebooted := heard && seen.memory.boot != e.Spec.Boot
	useController := seen.hasPower == "" && !rebooted && (ordered || !heard || overdue)
	reason, message := kvmv1.ReasonFencing, ""
	switch {
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
	if hopeless := !seen.expiry.armed && (seen.hasPower != "" || seen.power.problem != ""); hopeless {
		reason = kvmv1.ReasonUnproven
		message += ". " + confirmHow(seen.hypervisor.Name)
	}
	if _, problem := confirmed(seen.hypervisor, seen.wall.Time); problem != "" {
		message += "; " + problem
	}
	p.say(seen, metav1.ConditionUnknown, reason, message+". Of its run lease: "+missing)
}

// confirmHow says what a person can do.
func confirmHow(host string) string {
	return fmt.Sprintf("If you know that %s runs nothing and cannot come back unseen, say so with annotation %s on its Hypervisor: \"WHO until TIME: REASON\"", host, v1alpha1.AnnotationConfirmFenced)
}

// prove finds what shows that the host runs nothing.
func (p *plan) prove(seen observation, heard bool) (v1alpha1.ProofKind, string) {
	e := seen.evacuation
	if sabotage.On(sabotage.NoProof) {
		return v1alpha1.ProofLeaseExpired, "sabotage: none is needed"
	}
	if seen.power.proof != "" && seen.power.evacuation == e.Name {
		return v1alpha1.ProofPowerOff, seen.power.proof
	}
	if e.Spec.Boot != "" && heard && seen.memory.boot != e.Spec.Boot && seen.memory.granted == 0 && seen.memory.last-seen.memory.first >= 2*seen.limits.Interval {
		return v1alpha1.ProofNewBoot, "the host reports from a later boot, " + seen.memory.boot
	}
	if e.Spec.Boot != "" && heard && stopped(seen.memory, e.Spec.Boot, seen.memory.granted) {
		return v1alpha1.ProofStopped, "the host itself has stopped its protected VMs, since its run lease has lapsed"
	}
	if proof, _ := seen.expiry.expired(); proof != "" && seen.expiry.boot == e.Spec.Boot {
		return v1alpha1.ProofLeaseExpired, proof
	}
	if word, _ := confirmed(seen.hypervisor, seen.wall.Time); word != nil && !heard {
		return v1alpha1.ProofConfirmed, word.who + " has confirmed it: " + word.why
	}
	return "", ""
}

// noteTrouble keeps the controller's latest trouble, once for each kind.
func (p *plan) noteTrouble(seen observation) {
	record := seen.evacuation.Status.Power
	if seen.power.problem == "" || record == nil || record.LastError == seen.power.problem {
		return
	}
	p.step(seen, v1alpha1.EvacuationFencing, "PowerTrouble", seen.power.problem)
	next := *record
	next.LastError, next.Attempts = seen.power.problem, max(record.Attempts, int32(seen.power.attempts))
	p.status.Power = &next
}

// step moves the Evacuation on and writes down why.
func (p *plan) step(seen observation, phase v1alpha1.EvacuationPhase, what, message string) {
	next := seen.evacuation.Status.DeepCopy()
	next.Phase, next.Message = phase, message
	next.Decisions = append(next.Decisions, v1alpha1.Decision{At: seen.wall, What: what, Message: message})
	if n := len(next.Decisions); n > mostDecisions {
		next.Decisions = slices.Clone(next.Decisions[n-mostDecisions:])
	}
	p.status = next
}

// say sets HostAlive.
func (p *plan) say(_ observation, status metav1.ConditionStatus, reason, message string) {
	p.alive = condition(status, reason, message)
}

// open says whether an Evacuation is not over.
func open(e *v1alpha1.Evacuation) bool {
	return e.Status.Phase != v1alpha1.EvacuationDone && e.Status.Phase != v1alpha1.EvacuationCancelled
}

func aliveReason(h *kvmv1.Hypervisor) string {
	if c := meta.FindStatusCondition(h.Status.Conditions, kvmv1.ConditionHostAlive); c != nil {
		return c.Reason
	}
	return ""
}
