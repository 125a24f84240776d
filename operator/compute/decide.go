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
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
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
}

// plan is what to write. The zero plan writes nothing.
type plan struct {
	release bool // Remove the finalizer.

	host  string // Place it there,
	token int64  // with this run token.

	fail, unplace bool
	condition     *kubevirtv1.VirtualMachineInstanceCondition
	wait          bool // It found no room.
}

func (p plan) verb() string {
	switch {
	case p.release:
		return "release"
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

// hostThatRefused is the host a VM was placed on, has never started on, and that
// says it has no room. It says so of one placement, by its run token: what an
// earlier host said stands on the VMI until a later one has better news.
func hostThatRefused(vmi *kubevirtv1.VirtualMachineInstance) string {
	if vmi.Status.Phase != kubevirtv1.Scheduled || vmi.DeletionTimestamp != nil || isMoving(vmi) {
		return ""
	}
	if slices.ContainsFunc(vmi.Status.PhaseTransitionTimestamps, func(t kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp) bool {
		return t.Phase == kubevirtv1.Running
	}) {
		return ""
	}
	c := condition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized)
	mark := fmt.Sprintf("run token %s: ", vmi.Annotations[kubevirt.AnnotationRunToken])
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != ReasonHostFull || !strings.HasPrefix(c.Message, mark) {
		return ""
	}
	return vmi.Status.NodeName
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
	case vmi.DeletionTimestamp != nil:
		return plan{release: !isPlaced(vmi) && slices.Contains(vmi.Finalizers, kubevirt.Finalizer)}, true
	case hostThatRefused(vmi) != "":
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
		return plan{host: seen.host, token: token + 1}
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
	if !p.release && p.host == "" && p.condition == nil {
		return nil
	}
	vmi := seen.vmi.DeepCopy()
	now := metav1.NewTime(seen.now)
	switch {
	case p.release:
		vmi.Finalizers = slices.DeleteFunc(vmi.Finalizers, func(f string) bool { return f == kubevirt.Finalizer })
	case p.fail:
		setPhase(vmi, kubevirtv1.Failed, now)
		vmi.Status.Reason = p.condition.Reason
	case p.host != "":
		unplace(vmi)
		place(vmi, p.host, p.token)
		setPhase(vmi, kubevirtv1.Scheduled, now)
		if have := condition(vmi, podScheduled); have != nil && have.Status != corev1.ConditionTrue {
			setCondition(vmi, kubevirtv1.VirtualMachineInstanceCondition{Type: podScheduled, Status: corev1.ConditionTrue}, now)
		}
	default:
		if p.unplace {
			unplace(vmi)
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
	if vmi.Annotations == nil {
		vmi.Annotations = map[string]string{}
	}
	vmi.Annotations[kubevirt.AnnotationRunToken] = strconv.FormatInt(token, 10)
	vmi.Status.NodeName = host
}

// unplace takes a VM off the host that refused it.
func unplace(vmi *kubevirtv1.VirtualMachineInstance) {
	for label := range vmi.Labels {
		if strings.HasPrefix(label, kubevirt.LabelHostPrefix) {
			delete(vmi.Labels, label)
		}
	}
	delete(vmi.Labels, kubevirt.LabelNodeName)
	vmi.Status.NodeName = ""
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
