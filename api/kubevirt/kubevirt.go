// SPDX-License-Identifier: Apache-2.0

// Package kubevirt is what Adit says about KubeVirt's types, which are the
// user's words for a VM: the labels and annotations we use, what of a
// VirtualMachineInstance we support (Unsupported), what is meant where nothing
// is said (Defaults), and how to read the answers one has to ask for often.
//
// One rule is Adit's and not KubeVirt's: a VMI that names no interface has none.
// The package owns these meanings only. It must never know a client, a host or
// how a VM is made; all of it is pure.
package kubevirt

import (
	"k8s.io/apimachinery/pkg/runtime"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// SchedulerName is the name of Adit's scheduler, the only one a VMI may ask for.
const SchedulerName = "adit"

// Labels of a VMI.
const (
	// LabelNodeName is the host a VMI runs on; it mirrors status.nodeName.
	LabelNodeName = kubevirtv1.NodeNameLabel
	// LabelMigrationTargetNodeName is the host a VMI is about to move to.
	LabelMigrationTargetNodeName = kubevirtv1.MigrationTargetNodeNameLabel
)

// LabelEviction, on a VirtualMachineInstanceMigration, names the Eviction that
// asked for it.
const LabelEviction = "kvm.cloud.sap/eviction"

// AnnotationPowerState, on a VMI, is the power state wanted of it. KubeVirt has
// no place for that in a VMI: there a stopped VM is a deleted VMI, and here the
// disks, ports and identity of a stopped VM stay on a host.
const AnnotationPowerState = "kvm.cloud.sap/power-state"

// PowerState is a value of AnnotationPowerState.
type PowerState string

const (
	PowerRunning PowerState = "Running"
	PowerPaused  PowerState = "Paused"
	PowerStopped PowerState = "Stopped"
)

// AddToScheme makes a scheme know kubevirt.io/v1.
func AddToScheme(scheme *runtime.Scheme) error {
	return kubevirtv1.AddToScheme(scheme)
}

// WantedPowerState is the power state wanted of a VMI: what its annotation says,
// else Paused if it is to start so, else Running. Unknown values are returned as
// they are: to start what was not asked to start is worse than to refuse.
func WantedPowerState(vmi *kubevirtv1.VirtualMachineInstance) PowerState {
	if state, said := vmi.Annotations[AnnotationPowerState]; said {
		return PowerState(state)
	}
	if vmi.ShouldStartPaused() {
		return PowerPaused
	}
	return PowerRunning
}
