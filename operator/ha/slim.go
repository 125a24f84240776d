// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ByObject is how a manager's cache should hold what this package reads. A fleet
// has 20,000 VMs, and most of each is disks, networks and what is well.
func ByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&kubevirtv1.VirtualMachineInstance{}: {Transform: slim}}
}

// slim leaves out of a VM what this package never looks at. It returns another
// object, as the one given may be others' too. All writes here are patches, so
// that what is missing is not missed by the API.
func slim(o any) (any, error) {
	full, ok := o.(*kubevirtv1.VirtualMachineInstance)
	if !ok { // a tombstone
		return o, nil
	}
	vmi := &kubevirtv1.VirtualMachineInstance{TypeMeta: full.TypeMeta, ObjectMeta: full.ObjectMeta}
	vmi.ManagedFields = nil
	vmi.Spec.Domain.Memory = full.Spec.Domain.Memory
	vmi.Spec.Domain.Resources = full.Spec.Domain.Resources
	s := &full.Status
	vmi.Status = kubevirtv1.VirtualMachineInstanceStatus{
		Phase: s.Phase, Reason: s.Reason, NodeName: s.NodeName, MigrationState: s.MigrationState,
		PhaseTransitionTimestamps: s.PhaseTransitionTimestamps,
	}
	for _, c := range s.Conditions {
		stalled := c.Type == kubevirtv1.VirtualMachineInstancePaused || c.Type == kubevirtv1.VirtualMachineInstanceReady
		if stalled || c.Status != corev1.ConditionTrue {
			vmi.Status.Conditions = append(vmi.Status.Conditions, c)
		}
	}
	vmi.Status.Conditions = slices.Clip(vmi.Status.Conditions)
	return vmi, nil
}
