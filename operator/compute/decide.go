// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/internal/sabotage"
)

// messageInterval is how long a message that says why a VM waits stands before
// another one replaces it: the numbers in it change with each VM that comes or
// goes.
const messageInterval = 30 * time.Second

// observation is all that one decision depends on.
type observation struct {
	now    time.Time
	vmi    *kubevirtv1.VirtualMachineInstance // Nil: gone.
	behind bool                               // The ledger has seen a later version.

	host string // The fleet's answer, if it was asked.
	why  Refusal

	yieldOn string // Without a host: where others would make room,
	yield   []types.NamespacedName
}

// plan is what to write. The zero plan writes nothing.
type plan struct {
	release bool // Remove the finalizer.
	stale   bool // Remove the mark of an evacuation that is not of where it is.

	host  string // Place it there,
	token int64  // with this run token.

	fail, unplace bool
	condition     *kubevirtv1.VirtualMachineInstanceCondition
	wait          bool // It found no room.
	soon          bool // It found hosts that are busy starting others.
}

func (p plan) verb() string {
	switch {
	case p.release:
		return "release"
	case p.stale:
		return "unmark"
	case p.fail:
		return "refuse"
	case p.host != "":
		return "place"
	}
	return "hold back"
}

// isPlaced says whether some host may be acting on a VM.
func isPlaced(vmi *kubevirtv1.VirtualMachineInstance) bool {
	if vmi.Status.NodeName != "" {
		return true
	}
	for label := range vmi.Labels {
		if strings.HasPrefix(label, kubevirt.LabelHostPrefix) {
			return true
		}
	}
	return false
}

// hostThatRefused is the host a VM was placed on and that says it will not run
// it: it has no room and never started it, or it had it and gave it up. It says
// so of one placement, by its run token: what an earlier host said stands on the
// VMI until a later one has better news.
func hostThatRefused(vmi *kubevirtv1.VirtualMachineInstance) string {
	if vmi.Status.Phase != kubevirtv1.Scheduled || vmi.DeletionTimestamp != nil || isMoving(vmi) {
		return ""
	}
	c := condition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized)
	mark := fmt.Sprintf("run token %s: ", vmi.Annotations[kubevirt.AnnotationRunToken])
	if c == nil || c.Status != corev1.ConditionFalse || !strings.HasPrefix(c.Message, mark) {
		return ""
	}
	switch c.Reason {
	case ReasonRestartsExhausted, ReasonStorageLost, ReasonYielded, ReasonDomainLost:
		return vmi.Status.NodeName
	case ReasonHostFull:
		if !startedOnce(vmi) {
			return vmi.Status.NodeName
		}
	}
	return ""
}

// startedOnce says that a VM has run since it was placed where it is.
func startedOnce(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return slices.ContainsFunc(vmi.Status.PhaseTransitionTimestamps, func(t kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp) bool {
		return t.Phase == kubevirtv1.Running
	})
}

// isEvacuated says that a VM's host is proven to run it no more.
func isEvacuated(vmi *kubevirtv1.VirtualMachineInstance) bool {
	host, _ := kubevirt.EvacuatedFrom(vmi)
	return host != "" && host == vmi.Status.NodeName
}

// leftHost is the host that a VM is to be taken off, "" if none.
func leftHost(vmi *kubevirtv1.VirtualMachineInstance) string {
	if isEvacuated(vmi) {
		return vmi.Status.NodeName
	}
	return hostThatRefused(vmi)
}

// Starting says that a VM that left its host for good was placed anew and does not
// run yet: its new host has that to do.
func Starting(vmi *kubevirtv1.VirtualMachineInstance) bool {
	if vmi.Status.Phase != kubevirtv1.Scheduled || vmi.Status.NodeName == "" || kubevirt.WantedPowerState(vmi) == kubevirt.PowerStopped {
		return false
	}
	c := condition(vmi, kubevirtv1.VirtualMachineInstanceReady)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == ReasonEvacuated
}

// concernsOthers says that a host besides the one a VM is placed on may act on
// it: the target of a migration that has not let go.
func concernsOthers(vmi *kubevirtv1.VirtualMachineInstance) bool {
	for label := range vmi.Labels {
		if host, ours := strings.CutPrefix(label, kubevirt.LabelHostPrefix); ours && host != vmi.Status.NodeName {
			return true
		}
	}
	return false
}

func isMoving(vmi *kubevirtv1.VirtualMachineInstance) bool {
	m := vmi.Status.MigrationState
	return m != nil && !m.Completed && !m.Failed
}

// objections are what keeps a VM from ever being placed as it is.
func objections(vmi *kubevirtv1.VirtualMachineInstance) string {
	errs := kubevirt.Unsupported(vmi)
	switch {
	case len(errs) > 0:
		return errs.ToAggregate().Error()
	case guestMemory(vmi) <= 0:
		return "spec.domain.memory.guest: Required value: say how much memory the VM has"
	}
	if _, ok := runToken(vmi); !ok {
		return fmt.Sprintf("metadata.annotations[%s]: Invalid value: %q: must be a number; it is Adit's own", kubevirt.AnnotationRunToken, vmi.Annotations[kubevirt.AnnotationRunToken])
	}
	return ""
}

func guestMemory(vmi *kubevirtv1.VirtualMachineInstance) int64 {
	memory := kubevirt.GuestMemory(vmi)
	return memory.Value()
}

// settled are the rows of the table before a host is asked for.
func settled(seen observation) (p plan, is bool) {
	vmi := seen.vmi
	switch {
	case seen.behind, vmi.IsFinal() && vmi.DeletionTimestamp == nil:
		return plan{}, true
	case vmi.Annotations[kubevirt.AnnotationEvacuatedFrom] != "" && !isEvacuated(vmi):
		return plan{stale: true}, true
	case isEvacuated(vmi) && concernsOthers(vmi):
		return plan{}, true // Nobody should have marked it yet.
	case vmi.DeletionTimestamp != nil:
		let := isEvacuated(vmi) || !isPlaced(vmi)
		return plan{release: let && slices.Contains(vmi.Finalizers, kubevirt.Finalizer), unplace: isEvacuated(vmi)}, true
	case leftHost(vmi) != "":
		return plan{}, false
	case isPlaced(vmi), vmi.IsRunning():
		return plan{}, true
	}
	if message := objections(vmi); message != "" {
		return plan{fail: true, condition: notScheduled(ReasonUnsupported, message)}, true
	}
	return plan{}, false
}

func wantsHost(seen observation) bool {
	_, is := settled(seen)
	return !is
}

// decide is the table in the package comment. It is pure.
func decide(seen observation) plan {
	if p, is := settled(seen); is {
		return p
	}
	if seen.host != "" {
		token, _ := runToken(seen.vmi)
		if token == 0 || !sabotage.On(sabotage.NoRunToken) {
			token++
		}
		return plan{host: seen.host, token: token}
	}
	if isEvacuated(seen.vmi) && seen.why.Busy() {
		return plan{soon: true} // a host takes it once it has started others
	}
	p := plan{wait: true, unplace: isPlaced(seen.vmi)}
	why := notScheduled(corev1.PodReasonUnschedulable, seen.why.String())
	have := condition(seen.vmi, podScheduled)
	switch {
	case p.unplace, seen.vmi.Status.Phase != kubevirtv1.Pending,
		have == nil, have.Status != why.Status, have.Reason != why.Reason,
		have.Message != why.Message && !seen.now.Before(have.LastProbeTime.Add(messageInterval)):
		p.condition = why
	}
	return p
}

const podScheduled = kubevirtv1.VirtualMachineInstanceConditionType(corev1.PodScheduled)

func notScheduled(reason, message string) *kubevirtv1.VirtualMachineInstanceCondition {
	return &kubevirtv1.VirtualMachineInstanceCondition{
		Type: podScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message,
	}
}

func condition(vmi *kubevirtv1.VirtualMachineInstance, kind kubevirtv1.VirtualMachineInstanceConditionType) *kubevirtv1.VirtualMachineInstanceCondition {
	for i := range vmi.Status.Conditions {
		if vmi.Status.Conditions[i].Type == kind {
			return &vmi.Status.Conditions[i]
		}
	}
	return nil
}

// apply is the VMI as it should be, nil if it is so already.
func (p plan) apply(seen observation) *kubevirtv1.VirtualMachineInstance {
	if !p.release && !p.stale && p.host == "" && p.condition == nil {
		return nil
	}
	vmi := seen.vmi.DeepCopy()
	now := metav1.NewTime(seen.now)
	switch {
	case p.release:
		if p.unplace {
			leave(vmi, now)
			setPhase(vmi, kubevirtv1.Failed, now)
			vmi.Status.Reason = ReasonEvacuated
		}
		vmi.Finalizers = slices.DeleteFunc(vmi.Finalizers, func(f string) bool { return f == kubevirt.Finalizer })
	case p.stale:
		delete(vmi.Annotations, kubevirt.AnnotationEvacuatedFrom)
	case p.fail:
		setPhase(vmi, kubevirtv1.Failed, now)
		vmi.Status.Reason = p.condition.Reason
	case p.host != "":
		leave(vmi, now)
		place(vmi, p.host, p.token)
		setPhase(vmi, kubevirtv1.Scheduled, now)
		if have := condition(vmi, podScheduled); have != nil && have.Status != corev1.ConditionTrue {
			setCondition(vmi, kubevirtv1.VirtualMachineInstanceCondition{Type: podScheduled, Status: corev1.ConditionTrue}, now)
		}
	default:
		if p.unplace {
			leave(vmi, now)
		}
		setPhase(vmi, kubevirtv1.Pending, now)
	}
	if p.condition != nil {
		setCondition(vmi, *p.condition, now)
	}
	return vmi
}

func place(vmi *kubevirtv1.VirtualMachineInstance, host string, token int64) {
	if !slices.Contains(vmi.Finalizers, kubevirt.Finalizer) {
		vmi.Finalizers = append(vmi.Finalizers, kubevirt.Finalizer)
	}
	if vmi.Labels == nil {
		vmi.Labels = map[string]string{}
	}
	vmi.Labels[kubevirt.LabelNodeName] = host
	vmi.Labels[kubevirt.HostLabel(host)] = ""
	if kubevirt.WantsProtection(vmi) {
		vmi.Labels[kubevirt.LabelProtected] = "true"
	} else {
		delete(vmi.Labels, kubevirt.LabelProtected)
	}
	if vmi.Annotations == nil {
		vmi.Annotations = map[string]string{}
	}
	vmi.Annotations[kubevirt.AnnotationRunToken] = strconv.FormatInt(token, 10)
	vmi.Status.NodeName = host
}

// leave takes a VM off its host, if it is on one. One that may have run there
// begins a new life: what was said of the former does not hold for it, and
// whether it ran is asked of its new host alone.
func leave(vmi *kubevirtv1.VirtualMachineInstance, now metav1.Time) {
	from, evacuated := vmi.Status.NodeName, isEvacuated(vmi)
	for label := range vmi.Labels {
		if strings.HasPrefix(label, kubevirt.LabelHostPrefix) {
			delete(vmi.Labels, label)
		}
	}
	delete(vmi.Labels, kubevirt.LabelNodeName)
	delete(vmi.Labels, kubevirt.LabelMigrationTargetNodeName)
	delete(vmi.Annotations, kubevirt.AnnotationEvacuatedFrom)
	delete(vmi.Annotations, kubevirt.AnnotationLeave)
	vmi.Status.NodeName = ""
	if isMoving(vmi) {
		vmi.Status.MigrationState = nil // its source is gone, and no target has a part of it
	}
	if from == "" || !startedOnce(vmi) && !evacuated {
		return
	}
	vmi.Status.Phase, vmi.Status.Reason = "", ""
	vmi.Status.PhaseTransitionTimestamps = nil
	vmi.Status.Conditions = slices.DeleteFunc(vmi.Status.Conditions, func(c kubevirtv1.VirtualMachineInstanceCondition) bool {
		return c.Type != podScheduled && c.Type != kubevirtv1.VirtualMachineInstanceReady
	})
	setCondition(vmi, kubevirtv1.VirtualMachineInstanceCondition{
		Type: kubevirtv1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: ReasonEvacuated,
		Message: "it does not run on " + from + " any more and is to run elsewhere",
	}, now)
}

// setPhase notes when a phase began. One that was had before is noted again, so
// that the times tell how often a VM was placed.
func setPhase(vmi *kubevirtv1.VirtualMachineInstance, phase kubevirtv1.VirtualMachineInstancePhase, now metav1.Time) {
	if vmi.Status.Phase == phase {
		return
	}
	vmi.Status.Phase = phase
	vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
		kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: now})
}

func setCondition(vmi *kubevirtv1.VirtualMachineInstance, c kubevirtv1.VirtualMachineInstanceCondition, now metav1.Time) {
	c.LastProbeTime, c.LastTransitionTime = now, now
	have := condition(vmi, c.Type)
	if have == nil {
		vmi.Status.Conditions = append(vmi.Status.Conditions, c)
		return
	}
	if have.Status == c.Status {
		c.LastTransitionTime = have.LastTransitionTime
	}
	*have = c
}
