// SPDX-License-Identifier: Apache-2.0

package kubevirt

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// Migratable says whether a VM could be moved live as far as its object tells,
// and if not, why: a reason of KubeVirt's LiveMigratable condition and what is
// in the way. It is what that condition is computed of and does not read it.
// That a host fits (CPU, capacity) is the scheduler's to say; that the VM may
// move at all, spec.evictionStrategy's.
func Migratable(vmi *kubevirtv1.VirtualMachineInstance) (migratable bool, reason, message string) {
	switch {
	case vmi.IsFinal():
		return false, kubevirtv1.VirtualMachineInstanceReasonNotMigratable, fmt.Sprintf("the VM has ended (%s)", vmi.Status.Phase)
	case vmi.IsMarkedForDeletion():
		return false, kubevirtv1.VirtualMachineInstanceReasonNotMigratable, "the VM is being deleted"
	}
	devices := &vmi.Spec.Domain.Devices
	switch {
	case len(devices.HostDevices) > 0:
		return false, kubevirtv1.VirtualMachineInstanceReasonHostDeviceNotMigratable,
			fmt.Sprintf("host device %s cannot follow the VM: remove it", devices.HostDevices[0].Name)
	case len(devices.GPUs) > 0:
		return false, kubevirtv1.VirtualMachineInstanceReasonHostDeviceNotMigratable,
			fmt.Sprintf("GPU %s cannot follow the VM: remove it", devices.GPUs[0].Name)
	case len(devices.Filesystems) > 0:
		return false, kubevirtv1.VirtualMachineInstanceReasonVirtIOFSNotMigratable,
			fmt.Sprintf("filesystem %s cannot follow the VM: remove it", devices.Filesystems[0].Name)
	}
	for i := range devices.Interfaces {
		if devices.Interfaces[i].SRIOV != nil {
			return false, kubevirtv1.VirtualMachineInstanceReasonInterfaceNotMigratable,
				fmt.Sprintf("interface %s is a piece of the host: use bridge", devices.Interfaces[i].Name)
		}
	}
	if why := diskInTheWay(vmi); why != "" {
		return false, kubevirtv1.VirtualMachineInstanceReasonDisksNotMigratable, why
	}
	return true, "", ""
}

func diskInTheWay(vmi *kubevirtv1.VirtualMachineInstance) string {
	for _, volume := range vmi.Spec.Volumes {
		if volume.HostDisk != nil || volume.EmptyDisk != nil || volume.Ephemeral != nil {
			return fmt.Sprintf("volume %s is on this host only: use a persistentVolumeClaim with access mode ReadWriteMany", volume.Name)
		}
	}
	for _, volume := range vmi.Status.VolumeStatus {
		claim := volume.PersistentVolumeClaimInfo
		if claim == nil || slices.Contains(claim.AccessModes, corev1.ReadWriteMany) {
			continue
		}
		return fmt.Sprintf("volume %s: claim %s can be used by one host at a time: it needs access mode ReadWriteMany", volume.Name, claim.ClaimName)
	}
	return ""
}
