// SPDX-License-Identifier: Apache-2.0

package kubevirt

import (
	"strings"

	kubevirtv1 "kubevirt.io/api/core/v1"
)

// AnnotationHighAvailability, on a VMI, is "false" for a VM that nobody shall
// restart after its host or its QEMU died. It counts from the next placement on.
const AnnotationHighAvailability = "kvm.cloud.sap/high-availability"

// LabelProtected, on a VMI, is "true" once it was placed as a VM that is to be
// restarted after a failure; its host stops it when it loses its run lease.
const LabelProtected = "kvm.cloud.sap/protected"

// AnnotationRestartPriority, on a VMI, is the class in which it is restarted:
// "high", "medium" (the default) or "low".
const AnnotationRestartPriority = "kvm.cloud.sap/restart-priority"

// AnnotationYields, on a VMI, is "true" for a VM that may be stopped to make room
// for one of a higher class that has to be restarted.
const AnnotationYields = "kvm.cloud.sap/yields"

// AnnotationEvacuatedFrom, on a VMI, says that the host named in it is proven to
// run it no more, so that it has to be placed anew: "HOST/EVACUATION". The HA
// service writes it, placement takes it away.
const AnnotationEvacuatedFrom = "kvm.cloud.sap/evacuated-from"

// AnnotationLeave, on a VMI, asks its host to give the VM up so that it can be
// placed elsewhere: "HOST/WHY", WHY one of the Leave constants. The HA service
// writes it of a VM whose disks that host has lost, placement of one that yields;
// placement takes it away.
const AnnotationLeave = "kvm.cloud.sap/leave"

// Why a VM is asked to leave, and the reason of Synchronized=False by which its
// host says that it has given it up.
const (
	LeaveStorageLost = "StorageLost"
	LeaveYielded     = "Yielded"
)

// EvacuatedFrom is what AnnotationEvacuatedFrom says; host is "" where it says
// nothing.
func EvacuatedFrom(vmi *kubevirtv1.VirtualMachineInstance) (host, evacuation string) {
	host, evacuation, _ = strings.Cut(vmi.Annotations[AnnotationEvacuatedFrom], "/")
	return host, evacuation
}

// AskedToLeave is why a host is asked to give a VMI up, "" if it is not.
func AskedToLeave(vmi *kubevirtv1.VirtualMachineInstance, host string) (why string) {
	from, why, _ := strings.Cut(vmi.Annotations[AnnotationLeave], "/")
	if from != host || (why != LeaveStorageLost && why != LeaveYielded) {
		return ""
	}
	return why
}

// The policies of a protected VM, as annotations of the VMI; the first value is
// the default.
const (
	AnnotationOnCrash   = "kvm.cloud.sap/on-crash"    // of its QEMU: "restart", "fail"
	AnnotationOnPanic   = "kvm.cloud.sap/on-panic"    // of the guest: "restart", "keep" (paused, to be looked into), "fail"
	AnnotationOnIOError = "kvm.cloud.sap/on-io-error" // "move" (once it has lasted), "wait"
)

// RestartPriority is a class of VMs that are restarted before others.
type RestartPriority int

// The classes, the last one first.
const (
	PriorityLow RestartPriority = iota
	PriorityMedium
	PriorityHigh
)

// String returns the class as the annotation says it.
func (p RestartPriority) String() string {
	switch p {
	case PriorityHigh:
		return "high"
	case PriorityLow:
		return "low"
	}
	return "medium"
}

// RestartPriorityOf is a VMI's class; an unknown word is medium.
func RestartPriorityOf(vmi *kubevirtv1.VirtualMachineInstance) RestartPriority {
	switch vmi.Annotations[AnnotationRestartPriority] {
	case "high":
		return PriorityHigh
	case "low":
		return PriorityLow
	}
	return PriorityMedium
}

// WantsProtection says whether a VMI asks to be restarted after a failure, which
// it does unless it says otherwise.
func WantsProtection(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return vmi.Annotations[AnnotationHighAvailability] != "false"
}

// Protected says whether a VMI was placed as one that is restarted.
func Protected(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return vmi.Labels[LabelProtected] == "true"
}
