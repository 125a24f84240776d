// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

// Reasons of the conditions Synchronized, Ready and Paused, and of
// status.reason. Programs read them: the operator places a VM anew on HostFull,
// RestartsExhausted and the reasons for which a VM may be asked to leave.
const (
	ReasonHostFull              = "HostFull"
	ReasonRestartsExhausted     = "RestartsExhausted"
	ReasonNoRunPermit           = "NoRunPermit"
	ReasonHypervisorUnavailable = "HypervisorUnavailable"
	ReasonDomainNotOurs         = "DomainNotOurs"
	ReasonVolumeNotFound        = "VolumeNotFound"
	ReasonVolumeInUse           = "VolumeInUse"
	ReasonHostIncompatible      = "HostIncompatible"
	ReasonInvalidSpec           = "InvalidSpec"
	ReasonUnsupported           = "Unsupported"
	ReasonRefused               = "Refused"
	ReasonNoRunToken            = "NoRunToken"
	ReasonStaleRunToken         = "StaleRunToken"
	ReasonUnknownPowerState     = "UnknownPowerState"
	ReasonMayRunElsewhere       = "MayRunElsewhere"

	ReasonStopped         = "Stopped"
	ReasonGuestPoweredOff = "GuestPoweredOff"
	ReasonDestroyed       = "Destroyed"
	ReasonCrashed         = "Crashed"
	ReasonPanicked        = "Panicked"
	ReasonDomainLost      = "DomainLost"
	ReasonPostCopy        = "PostCopy"

	ReasonPausedByUser             = "PausedByUser"
	ReasonPausedByMigrationMonitor = "PausedByMigrationMonitor"
	ReasonPausedIOError            = "PausedIOError"
	ReasonPausedWatchdog           = "PausedWatchdog"
	ReasonPausedPostCopyFailed     = "PausedPostCopyFailed"
	ReasonPaused                   = "Paused"
)

const (
	yes     = corev1.ConditionTrue
	no      = corev1.ConditionFalse
	unknown = corev1.ConditionUnknown
)

func condition(vmi *kubevirtv1.VirtualMachineInstance, t kubevirtv1.VirtualMachineInstanceConditionType) *kubevirtv1.VirtualMachineInstanceCondition {
	i := slices.IndexFunc(vmi.Status.Conditions, func(c kubevirtv1.VirtualMachineInstanceCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &vmi.Status.Conditions[i]
}

// setCondition keeps the transition time unless the status changes.
func setCondition(vmi *kubevirtv1.VirtualMachineInstance, t kubevirtv1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) {
	c := condition(vmi, t)
	if c == nil {
		vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{Type: t})
		c = &vmi.Status.Conditions[len(vmi.Status.Conditions)-1]
	}
	if c.Status != status {
		c.Status, c.LastTransitionTime = status, seconds(now)
	}
	c.Reason, c.Message = reason, message
}

func dropCondition(vmi *kubevirtv1.VirtualMachineInstance, t kubevirtv1.VirtualMachineInstanceConditionType) {
	vmi.Status.Conditions = slices.DeleteFunc(vmi.Status.Conditions, func(c kubevirtv1.VirtualMachineInstanceCondition) bool { return c.Type == t })
}

// seconds is a time as the wire has it, so that what was written and what is
// read back are equal.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

func setPhase(vmi *kubevirtv1.VirtualMachineInstance, phase kubevirtv1.VirtualMachineInstancePhase, now time.Time) {
	if vmi.Status.Phase == phase {
		return
	}
	vmi.Status.Phase = phase
	vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
		kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: seconds(now)})
}

// synchronized says that nothing stands in the way any more, if something was
// said to.
func synchronized(vmi *kubevirtv1.VirtualMachineInstance, now time.Time) {
	if c := condition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized); c != nil && c.Status != yes {
		setCondition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized, yes, "", "", now)
	}
}

// described is a copy of a VM for describe: conditions and phases are its own, and
// all else is the VM's still. Most looks find that nothing has changed.
func described(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.VirtualMachineInstance {
	own := *vmi
	own.Status.Conditions = slices.Clone(vmi.Status.Conditions)
	own.Status.PhaseTransitionTimestamps = slices.Clip(vmi.Status.PhaseTransitionTimestamps)
	return &own
}

// describe writes what an active domain is into the VM's status: into
// conditions, phase and reason, and no other part of it (see described).
func describe(vmi *kubevirtv1.VirtualMachineInstance, state hardware.State, detail hardware.Detail, agent hardware.Detail, now time.Time) {
	setPhase(vmi, kubevirtv1.Running, now)
	vmi.Status.Reason = ""
	synchronized(vmi, now)

	switch reason, message := paused(vmi, state, detail); {
	case reason != "":
		setCondition(vmi, kubevirtv1.VirtualMachineInstancePaused, yes, reason, message, now)
		setCondition(vmi, kubevirtv1.VirtualMachineInstanceReady, no, kubevirtv1.GuestNotRunningReason, message, now)
	default:
		dropCondition(vmi, kubevirtv1.VirtualMachineInstancePaused)
		setCondition(vmi, kubevirtv1.VirtualMachineInstanceReady, yes, "", "", now)
	}

	if migratable, reason, message := kubevirt.Migratable(vmi); migratable {
		setCondition(vmi, kubevirtv1.VirtualMachineInstanceIsMigratable, yes, "", "", now)
	} else {
		setCondition(vmi, kubevirtv1.VirtualMachineInstanceIsMigratable, no, reason, message, now)
	}

	switch agent {
	case hardware.DetailConnected:
		setCondition(vmi, kubevirtv1.VirtualMachineInstanceAgentConnected, yes, "", "", now)
	case hardware.DetailDisconnected:
		dropCondition(vmi, kubevirtv1.VirtualMachineInstanceAgentConnected)
	}
}

// paused says why a guest's CPUs stand still. The moment of a switch-over is no
// pause.
func paused(vmi *kubevirtv1.VirtualMachineInstance, state hardware.State, detail hardware.Detail) (reason, message string) {
	if state != hardware.StatePaused {
		return "", ""
	}
	switch detail {
	case hardware.DetailMigrating, hardware.DetailMigrated, hardware.DetailPostCopy, hardware.DetailStartingUp:
		return "", ""
	case hardware.DetailIOError:
		return ReasonPausedIOError, "a disk answered with an error and the guest is paused: mend the storage, and it goes on within a minute"
	case hardware.DetailWatchdog:
		return ReasonPausedWatchdog, "the guest's watchdog ran out"
	case hardware.DetailPostCopyFailed:
		return ReasonPausedPostCopyFailed, "the memory is split over two hosts since their link broke; it can be recovered while both live"
	case hardware.DetailUser, hardware.DetailNone:
		if st := migrating(vmi); st != nil && st.Mode == kubevirtv1.MigrationPaused {
			return ReasonPausedByMigrationMonitor, "the guest is paused until its migration is done"
		}
		return ReasonPausedByUser, "paused on request"
	}
	return ReasonPaused, "paused: " + string(detail)
}

// stopped writes that a VM was stopped on request and stays on its host.
func stopped(vmi *kubevirtv1.VirtualMachineInstance, now time.Time) {
	setPhase(vmi, kubevirtv1.Scheduled, now)
	vmi.Status.Reason = ""
	synchronized(vmi, now)
	setCondition(vmi, kubevirtv1.VirtualMachineInstanceReady, no, ReasonStopped, "stopped on request", now)
	dropCondition(vmi, kubevirtv1.VirtualMachineInstancePaused)
	dropCondition(vmi, kubevirtv1.VirtualMachineInstanceAgentConnected)
}

// ended writes how a VM came to its end.
func ended(vmi *kubevirtv1.VirtualMachineInstance, phase kubevirtv1.VirtualMachineInstancePhase, reason, message string, now time.Time) {
	setPhase(vmi, phase, now)
	vmi.Status.Reason = reason
	synchronized(vmi, now)
	setCondition(vmi, kubevirtv1.VirtualMachineInstanceReady, no, reason, message, now)
	dropCondition(vmi, kubevirtv1.VirtualMachineInstancePaused)
	dropCondition(vmi, kubevirtv1.VirtualMachineInstanceAgentConnected)
}

// runToken is the number under which the VM may run; 0: none was given.
func runToken(vmi *kubevirtv1.VirtualMachineInstance) int64 {
	n, err := strconv.ParseInt(vmi.Annotations[kubevirt.AnnotationRunToken], 10, 64)
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// placementMark begins the message of HostFull: the verdict holds for one
// placement, and the next one has a higher token.
func placementMark(token int64) string { return fmt.Sprintf("run token %d: ", token) }
