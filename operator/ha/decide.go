// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
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
	ledAt      time.Duration         // from then on nobody but this leader grants
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
	wishLook    wish = "look" // whose it is
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
	hostAlive   *metav1.Condition
	enabled     *metav1.Condition
	power       wish
	evacuate    bool
	relieve     bool // look after VMs that stand still for want of their disks
	leave       bool // and ask them to leave
	policy      *policy
	handled     bool // what the host's events call for is on record
	unconfirm   bool // take a person's confirmation away
	tell        *happening
	turn        bool // it waits for the end of another's fencing
	lookAgain   time.Duration
}

// happening is an Event for people.
type happening struct{ reason, message string }

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
	if seen.evacuation == nil && (p.enabled == nil || p.enabled.Reason == kvmv1.ReasonOnboarding || !h.Spec.HighAvailability) {
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
			p.say(metav1.ConditionFalse, kvmv1.ReasonFenced, "The host runs nothing: "+e.Status.Proof.Message)
		} else {
			p.say(metav1.ConditionFalse, kvmv1.ReasonEvacuating, "The host runs nothing, and its VMs are being started elsewhere")
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
		return condition(metav1.ConditionFalse, kvmv1.ReasonPaused, "HA is held by ConfigMap "+ConfigName+": nothing new begins until adit ha resume")
	case seen.brakes.dryRun:
		return condition(metav1.ConditionFalse, kvmv1.ReasonDryRun, "HA is rehearsed by ConfigMap "+ConfigName+": it says what it would do and does nothing until adit ha dry-run off")
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
	record := leaseOf(seen.memory, false)
	p.record = &record
	p.policy = &policy{boot: seen.memory.boot, off: true}
	p.handled = seen.memory.memoryFailed != ""
}

// judgeHost is the table of a host without an open Evacuation.
func (p *plan) judgeHost(seen observation) {
	v := seen.verdict
	p.lookAgain = seen.limits.Interval
	switch {
	case v.state == "":
		return // Too early to say anything.
	case v.stranded && seen.protected == 0:
		v.message += ". Nothing protected is placed on it, so that it is left alone"
		p.online(seen, v.message)
		return
	case v.stranded:
		p.begin(seen, v.message)
		return
	case v.state == kvmv1.ReasonSuspect && seen.brakes.observer:
		return // Whoever hears hardly anybody has nothing to say about this one.
	case v.state == kvmv1.ReasonUnreachable && seen.bootOnRecord() == "" && !seen.confirmed():
		p.say(metav1.ConditionUnknown, v.state, v.message+". Its HA agent has never reported, so that it is left alone; look after its HA agent, or confirm that it runs nothing")
		return
	case v.state == kvmv1.ReasonUnreachable && seen.protected == 0:
		p.say(metav1.ConditionUnknown, v.state, v.message+". Nothing protected is placed on it, so that it is left alone")
		return
	case v.state == kvmv1.ReasonUnreachable:
		p.begin(seen, v.message)
		return
	case v.state == kvmv1.ReasonOnline:
		p.online(seen, v.message)
		return
	}
	p.say(metav1.ConditionUnknown, v.state, v.message)
}

// online is a host that is heard and has what it needs.
func (p *plan) online(seen observation, message string) {
	h := seen.hypervisor
	p.lookAgain = 0
	p.serve(seen)
	p.giveBackLate(seen)
	p.relieve = seen.memory.strandedSince != 0 || seen.memory.pausedByIOErrors()
	held := asked(seen.brakes, "VMs that stand still for want of their disks would be asked to leave it")
	p.leave = p.relieve && seen.lost && held == ""
	if p.relieve && seen.lost && held != "" {
		message += ". Held: " + held
	}
	if _, said := h.Annotations[v1alpha1.AnnotationConfirmFenced]; said {
		p.unconfirm = true
		p.tell = &happening{"ConfirmationWithdrawn", "The host is heard, so that the confirmation that it runs nothing is taken away"}
	}
	if failed := seen.memory.memoryFailed; failed != "" {
		message += p.empty(seen, "uncorrectable memory error ("+failed+")")
	}
	p.say(metav1.ConditionTrue, kvmv1.ReasonOnline, message)
}

// empty has a host emptied while its VMs can still leave, and says what keeps it from
// that. A person may put it back into service: it is asked for once.
func (p *plan) empty(seen observation, why string) (held string) {
	switch held := asked(seen.brakes, "it would be emptied now"); {
	case seen.hypervisor.Spec.Maintenance != kvmv1.MaintenanceUnset:
		p.handled = true
	case held == "":
		p.maintenance = &maintenance{string(kvmv1.MaintenanceAuto), why + ": move the VMs away before the host dies"}
		p.tell = &happening{"MemoryFailure", why + ": the host is being emptied"}
	case seen.brakes.paused: // It is told again until it is handled.
		return ". It has an " + why + ", and is to be emptied. Held: " + held
	default:
		p.handled = true
		p.tell = &happening{"MemoryFailure", why + ": " + held}
	}
	return ""
}

// serve answers a host that is heard: it may run its protected VMs as long as its run
// lease lasts. In a rehearsal it needs none, since whoever stopped his VMs without one
// would wait in vain for them to be started elsewhere.
func (p *plan) serve(seen observation) {
	if seen.brakes.dryRun {
		p.off(seen)
		return
	}
	p.recordLease(seen)
	p.policy = &policy{boot: seen.memory.boot, grant: true}
}

// recordLease puts on record what a host reports of its lease. That its watchdog is
// armed counts once a predecessor cannot have it disarmed any more.
func (p *plan) recordLease(seen observation) {
	record := leaseOf(seen.memory, true)
	if have := seen.hypervisor.Annotations[v1alpha1.AnnotationRunLease]; record.Watchdog != "" && seen.memory.last < seen.ledAt && have != record.text() {
		record.Watchdog = ""
		p.lookAgain = seen.limits.Interval
	}
	p.record = &record
}

// bootOnRecord is the latest boot of the host that anybody knows of.
func (seen observation) bootOnRecord() string { return cmp.Or(seen.memory.boot, seen.expiry.boot) }

// confirmed says whether a person's word counts.
func (seen observation) confirmed() bool {
	word, _ := confirmed(seen.hypervisor, seen.wall.Time)
	return word != nil && !seen.verdict.stranded
}

// begin makes the Evacuation, unless a brake holds.
func (p *plan) begin(seen observation, why string) {
	h := seen.hypervisor
	would := fmt.Sprintf("it would be fenced now and its %d protected VMs started elsewhere", seen.protected)
	if brake := hold(seen.brakes, h, seen.confirmed(), would, seen.limits); brake != "" {
		p.turn = brake == turn(seen.brakes, seen.limits)
		if _, problem := confirmed(h, seen.wall.Time); problem != "" {
			brake += "; " + problem
		}
		p.say(metav1.ConditionUnknown, kvmv1.ReasonHeld, why+". Held: "+brake)
		if seen.verdict.stranded { // It is heard, and goes on.
			p.serve(seen)
		}
		return
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
		Spec: v1alpha1.EvacuationSpec{Hypervisor: h.Name, Boot: seen.bootOnRecord()},
	}
	if h.Spec.Maintenance != kvmv1.MaintenanceHA {
		p.create.Spec.Maintenance, p.create.Spec.MaintenanceReason = string(h.Spec.Maintenance), h.Spec.MaintenanceReason
	}
	p.say(metav1.ConditionUnknown, kvmv1.ReasonFencing, why)
	p.lookAgain = conflictRetry
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
func (p *plan) say(status metav1.ConditionStatus, reason, message string) {
	p.hostAlive = condition(status, reason, message)
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
