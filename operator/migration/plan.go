// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
)

// plan is what to write, the VMI first, and when to look again.
type plan struct {
	vmi       change
	target    string // Of a hand-off.
	reason    string // Of the others.
	candidate int    // The migration handed off.

	writes   []write
	remove   []int // Finished migrations beyond those kept.
	again    time.Duration
	priority int

	conflict bool // Set by act: what was decided on is old.
}

// change is what to write to the VMI.
type change string

const (
	nothing   change = ""
	handOff   change = "hand off"
	abort     change = "abort migration of"
	withdrawn change = "withdraw migration of"
	// withdrawnAll is withdrawn from a target that has nothing.
	withdrawnAll change = "withdraw migration and target of"
	clear        change = "clear target of"
	clearAll     change = "clear silent target of"
)

func (c change) news() string {
	return map[change]string{
		handOff:      "Handed off migration",
		abort:        "Asked to abort migration",
		withdrawn:    "Withdrew migration",
		withdrawnAll: "Withdrew migration whose end is known",
		clear:        "Cleared target of migration",
		clearAll:     "Cleared silent target of migration",
	}[c]
}

// write is one migration's next status.
type write struct {
	index   int
	phase   kubevirtv1.VirtualMachineInstanceMigrationPhase
	failure string // Why it is Failed.
	why     string // Why no host fits.
}

func (p *plan) withdraw(reason string) { p.vmi, p.reason = withdrawn, reason }

func (p *plan) phase(i int, phase kubevirtv1.VirtualMachineInstanceMigrationPhase) {
	p.writes = append(p.writes, write{index: i, phase: phase})
}

func (p *plan) fail(i int, reason string) {
	p.writes = append(p.writes, write{index: i, phase: kubevirtv1.MigrationFailed, failure: reason})
}

// advance writes a phase unless it, or a later one, is there already.
func (p *plan) advance(m *kubevirtv1.VirtualMachineInstanceMigration, i int, phase kubevirtv1.VirtualMachineInstanceMigrationPhase) {
	if rank[m.Status.Phase] < rank[phase] {
		p.phase(i, phase)
	}
}

var rank = map[kubevirtv1.VirtualMachineInstanceMigrationPhase]int{
	kubevirtv1.MigrationPending: 1, kubevirtv1.MigrationScheduling: 2, kubevirtv1.MigrationScheduled: 3,
	kubevirtv1.MigrationPreparingTarget: 4, kubevirtv1.MigrationTargetReady: 5, kubevirtv1.MigrationRunning: 6,
}

func (p *plan) lookAgain(after time.Duration) { p.again = sooner(p.again, after) }

// sooner is the earlier of two waits; 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// applyToVMI is the VMI as it should be, nil if it is so already.
func (p *plan) applyToVMI(seen observation, o Options) *kubevirtv1.VirtualMachineInstance {
	if p.vmi == nothing {
		return nil
	}
	vmi := seen.vmi.DeepCopy()
	state := vmi.Status.MigrationState
	switch p.vmi {
	case handOff:
		if vmi.Labels == nil {
			vmi.Labels = map[string]string{}
		}
		vmi.Labels[kubevirt.HostLabel(p.target)] = ""
		vmi.Labels[kubevirt.LabelMigrationTargetNodeName] = p.target
		vmi.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{
			MigrationUID:           seen.migrations[p.candidate].UID,
			SourceNode:             vmi.Status.NodeName,
			TargetNode:             p.target,
			MigrationConfiguration: o.configuration(),
		}
		if isStopped(vmi) {
			raiseRunToken(vmi) // its next start is on another host
		}
	case abort:
		state.AbortRequested = true
	case withdrawn:
		state.Failed, state.FailureReason = true, p.reason
		delete(vmi.Labels, kubevirt.LabelMigrationTargetNodeName)
	case withdrawnAll:
		state.Failed, state.FailureReason = true, p.reason
		clearTarget(vmi)
	case clear:
		delete(vmi.Labels, kubevirt.LabelMigrationTargetNodeName)
	case clearAll:
		clearTarget(vmi)
	}
	return vmi
}

// raiseRunToken gives a VM that is off the next token: the domain it leaves may
// not start any more.
func raiseRunToken(vmi *kubevirtv1.VirtualMachineInstance) {
	token, err := strconv.ParseInt(vmi.Annotations[kubevirt.AnnotationRunToken], 10, 64)
	if err != nil {
		return // without a number it starts nowhere
	}
	vmi.Annotations[kubevirt.AnnotationRunToken] = strconv.FormatInt(token+1, 10)
}

// clearTarget takes the VMI out of the sight of all hosts but its own.
func clearTarget(vmi *kubevirtv1.VirtualMachineInstance) {
	delete(vmi.Labels, kubevirt.LabelMigrationTargetNodeName)
	for label := range vmi.Labels {
		if host, ours := strings.CutPrefix(label, kubevirt.LabelHostPrefix); ours && host != vmi.Status.NodeName {
			delete(vmi.Labels, label)
		}
	}
}

// configuration is what the source has to keep to.
func (o Options) configuration() *kubevirtv1.MigrationConfiguration {
	return &kubevirtv1.MigrationConfiguration{
		BandwidthPerMigration:   o.Bandwidth,
		CompletionTimeoutPerGiB: new(int64(o.CompletionTimeoutPerGiB / time.Second)),
		ProgressTimeout:         new(int64(o.ProgressTimeout / time.Second)),
		AllowAutoConverge:       &o.AllowAutoConverge,
		AllowPostCopy:           &o.AllowPostCopy,
		AllowWorkloadDisruption: &o.AllowWorkloadDisruption,
	}
}

// conditionScheduled says on a migration why no host fits, as PodScheduled does
// on a VMI.
const conditionScheduled = kubevirtv1.VirtualMachineInstanceMigrationConditionType(corev1.PodScheduled)

func unschedulable(m *kubevirtv1.VirtualMachineInstanceMigration) *kubevirtv1.VirtualMachineInstanceMigrationCondition {
	for i := range m.Status.Conditions {
		if m.Status.Conditions[i].Type == conditionScheduled {
			return &m.Status.Conditions[i]
		}
	}
	return nil
}

// apply is the migration as it should be.
func (w write) apply(before *kubevirtv1.VirtualMachineInstanceMigration, seen observation, p *plan) *kubevirtv1.VirtualMachineInstanceMigration {
	m := before.DeepCopy()
	now := metav1.NewTime(seen.now)
	if m.Status.Phase != w.phase {
		m.Status.Phase = w.phase
		m.Status.PhaseTransitionTimestamps = append(m.Status.PhaseTransitionTimestamps,
			kubevirtv1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{Phase: w.phase, PhaseTransitionTimestamp: now})
	}
	switch {
	case w.why != "":
		setUnschedulable(m, w.why, now)
	case p.vmi == handOff && p.candidate == w.index:
		m.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{
			MigrationUID: m.UID, SourceNode: seen.vmi.Status.NodeName, TargetNode: p.target,
		}
		if have := unschedulable(m); have != nil {
			have.Status, have.Reason, have.Message = corev1.ConditionTrue, "", ""
			have.LastProbeTime, have.LastTransitionTime = now, now
		}
	case seen.vmi != nil && seen.isOwner(m):
		state := seen.vmi.Status.MigrationState
		m.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{
			MigrationUID: m.UID, SourceNode: state.SourceNode, TargetNode: state.TargetNode,
			StartTimestamp: state.StartTimestamp, EndTimestamp: state.EndTimestamp, Completed: state.Completed,
		}
	}
	if w.failure != "" {
		if m.Status.MigrationState == nil {
			m.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{MigrationUID: m.UID}
		}
		m.Status.MigrationState.Failed = true
		m.Status.MigrationState.FailureReason = w.failure
	}
	return m
}

func setUnschedulable(m *kubevirtv1.VirtualMachineInstanceMigration, why string, now metav1.Time) {
	have := unschedulable(m)
	if have == nil {
		m.Status.Conditions = append(m.Status.Conditions, kubevirtv1.VirtualMachineInstanceMigrationCondition{
			Type: conditionScheduled, LastTransitionTime: now,
		})
		have = unschedulable(m)
	}
	if have.Status == corev1.ConditionTrue {
		have.LastTransitionTime = now
	}
	have.Status, have.Reason, have.Message, have.LastProbeTime = corev1.ConditionFalse, corev1.PodReasonUnschedulable, why, now
}
