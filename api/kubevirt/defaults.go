// SPDX-License-Identifier: Apache-2.0

package kubevirt

import (
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

const (
	// TerminationGraceSeconds is how long a VM has to shut down before it is
	// switched off, if it does not say. KubeVirt's default.
	TerminationGraceSeconds = 30
	// MachineQ35 is the machine a VM gets, if it does not say. KubeVirt's default
	// on amd64.
	MachineQ35 = "q35"
)

// Defaults writes into a VMI what is meant where its spec says nothing, so that
// a later release that means something else does not change a VM that exists.
// It needs a name and namespace: generateName must have been resolved. What is
// said is never changed; to do it twice is to do it once.
func Defaults(vmi *kubevirtv1.VirtualMachineInstance) {
	spec := &vmi.Spec
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = new(int64(TerminationGraceSeconds))
	}
	domain := &spec.Domain
	if domain.Machine == nil {
		domain.Machine = &kubevirtv1.Machine{}
	}
	if domain.Machine.Type == "" {
		domain.Machine.Type = MachineQ35
	}
	domain.CPU = topology(vmi)
	if domain.Firmware == nil {
		domain.Firmware = &kubevirtv1.Firmware{}
	}
	if domain.Firmware.UUID == "" {
		domain.Firmware.UUID = types.UID(DomainUUID(vmi))
	}
	if guest := GuestMemory(vmi); !guest.IsZero() {
		if domain.Memory == nil {
			domain.Memory = &kubevirtv1.Memory{}
		}
		if domain.Memory.Guest == nil {
			domain.Memory.Guest = &guest
		}
	}
	for i := range domain.Devices.Interfaces {
		nic := &domain.Devices.Interfaces[i]
		if nic.Binding == nil && nic.InterfaceBindingMethod == (kubevirtv1.InterfaceBindingMethod{}) {
			nic.Bridge = &kubevirtv1.InterfaceBridge{}
		}
	}
}

// topology is the CPU of a VMI with nothing left unsaid. A VMI that says nothing
// about sockets, cores and threads has as many sockets as its resources have
// CPUs, limits before requests, as in KubeVirt.
func topology(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.CPU {
	cpu := &kubevirtv1.CPU{}
	if vmi.Spec.Domain.CPU != nil {
		cpu = vmi.Spec.Domain.CPU.DeepCopy()
	}
	if cpu.Sockets == 0 && cpu.Cores == 0 && cpu.Threads == 0 {
		limit := vmi.Spec.Domain.Resources.Limits.Cpu()
		request := vmi.Spec.Domain.Resources.Requests.Cpu()
		switch {
		case limit.Sign() > 0:
			cpu.Sockets = uint32(limit.Value()) // Rounded up.
		case request.Sign() > 0:
			cpu.Sockets = uint32(request.Value())
		}
	}
	cpu.Sockets = max(cpu.Sockets, 1)
	cpu.Cores = max(cpu.Cores, 1)
	cpu.Threads = max(cpu.Threads, 1)
	return cpu
}

// VCPUs is the number of CPUs a VM sees: at least one.
func VCPUs(vmi *kubevirtv1.VirtualMachineInstance) int64 {
	cpu := topology(vmi)
	return int64(cpu.Sockets) * int64(cpu.Cores) * int64(cpu.Threads)
}

// GuestMemory is the memory a VM sees: what domain.memory.guest says, else what
// the resources request, else their limit. Zero means that nobody said.
func GuestMemory(vmi *kubevirtv1.VirtualMachineInstance) resource.Quantity {
	domain := &vmi.Spec.Domain
	if domain.Memory != nil && domain.Memory.Guest != nil {
		return domain.Memory.Guest.DeepCopy()
	}
	for _, list := range []corev1.ResourceList{domain.Resources.Requests, domain.Resources.Limits} {
		if memory, said := list[corev1.ResourceMemory]; said {
			return memory.DeepCopy()
		}
	}
	return resource.Quantity{}
}

// domainUUIDs is the space our name-derived UUIDs live in. Drawn once at random;
// a change would give every VM that does not say its UUID another one.
const domainUUIDs = "c1a0f8a3-6b0e-4d0b-9a57-2f6f3e9d7c11"

// DomainUUID is the UUID of a VM's domain, and the name of its Migration: what
// domain.firmware.uuid says, else one made of namespace and name (version 5). It
// is not that of the object: a VM that is made again is the same machine to its
// guest. KubeVirt's own fallback leaves the namespace out, which would give two
// VMs on one host one UUID; libvirt refuses the second.
func DomainUUID(vmi *kubevirtv1.VirtualMachineInstance) string {
	if firmware := vmi.Spec.Domain.Firmware; firmware != nil && firmware.UUID != "" {
		return string(firmware.UUID)
	}
	return uuid.NewSHA1(uuid.MustParse(domainUUIDs), []byte(vmi.Namespace+"/"+vmi.Name)).String()
}
