// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

const (
	// SharedPool is the storage pool that all hosts reach.
	SharedPool = "shared"

	// bridge is the integration bridge all ports are on. Open vSwitch's and
	// OVN's name for it.
	bridge = "br-int"
)

// VolumeName is the volume, as POOL/NAME, behind a claim: each claim of a
// namespace is one volume of the shared pool.
func VolumeName(namespace, claim string) string {
	return SharedPool + "/" + namespace + "/" + claim
}

// DomainName is the name of a VM's domain. It cannot hold two VMs: names in
// Kubernetes have no underscore.
func DomainName(vmi *kubevirtv1.VirtualMachineInstance) string {
	return vmi.Namespace + "_" + vmi.Name
}

// Translate makes a domain's definition of a VMI, the same one on each host. An
// error names the field that cannot be.
func Translate(vmi *kubevirtv1.VirtualMachineInstance) (hardware.DomainSpec, error) {
	domain := &vmi.Spec.Domain
	spec := hardware.DomainSpec{
		UUID: kubevirt.DomainUUID(vmi),
		Name: DomainName(vmi),
		Owner: &hardware.Owner{
			Namespace:  vmi.Namespace,
			Name:       vmi.Name,
			UID:        string(vmi.UID),
			Generation: runToken(vmi),
			Protected:  kubevirt.Protected(vmi),
		},
		MemoryKiB:     memoryKiB(vmi),
		VCPUs:         int(kubevirt.VCPUs(vmi)),
		Machine:       kubevirt.MachineQ35,
		Firmware:      "bios",
		OnCrash:       "destroy",
		GuestAgent:    true,
		SerialConsole: isTrue(domain.Devices.AutoattachSerialConsole),
		Graphics:      isTrue(domain.Devices.AutoattachGraphicsDevice),
	}
	if spec.MemoryKiB == 0 {
		return spec, fmt.Errorf("spec.domain.memory.guest: says nothing, nor do the resources: say how much memory the VM has")
	}
	if kubevirt.Protected(vmi) && vmi.Annotations[kubevirt.AnnotationOnPanic] == panicKeep {
		spec.OnCrash = "preserve"
	}
	if domain.Machine != nil && domain.Machine.Type != "" {
		spec.Machine = domain.Machine.Type
	}
	if f := domain.Firmware; f != nil && f.Bootloader != nil && f.Bootloader.EFI != nil {
		spec.Firmware = "efi"
	}
	if w := domain.Devices.Watchdog; w != nil && w.I6300ESB != nil {
		spec.Watchdog = cmp.Or(string(w.I6300ESB.Action), "reset")
	}
	if m := domain.Memory; m != nil && m.Hugepages != nil && m.Hugepages.PageSize != "" {
		size, err := resource.ParseQuantity(m.Hugepages.PageSize)
		if err != nil || size.Value() < 1024 {
			return spec, fmt.Errorf("spec.domain.memory.hugepages.pageSize: %q is no page size; write 2Mi or 1Gi", m.Hugepages.PageSize)
		}
		spec.HugePageKiB = uint64(size.Value()) / 1024
	}
	var err error
	if spec.CPU, err = cpuOf(vmi); err != nil {
		return spec, err
	}
	if c := domain.CPU; c != nil && c.NUMA != nil && c.NUMA.GuestMappingPassthrough != nil {
		all := make([]int, spec.VCPUs)
		for i := range all {
			all[i] = i
		}
		spec.NUMA = []hardware.GuestCell{{MemoryKiB: spec.MemoryKiB, VCPUs: all, HostCell: -1}}
	}
	if spec.Disks, err = disksOf(vmi); err != nil {
		return spec, err
	}
	spec.Interfaces = interfacesOf(vmi)
	return spec, nil
}

func isTrue(b *bool) bool { return b == nil || *b }

// memoryKiB is the guest's memory, rounded up to what libvirt counts in, as
// libvirt itself rounds.
func memoryKiB(vmi *kubevirtv1.VirtualMachineInstance) uint64 {
	memory := kubevirt.GuestMemory(vmi)
	if memory.Sign() <= 0 {
		return 0
	}
	bytes := memory.Value() // rounded up to a byte
	if bytes > math.MaxInt64-1023 {
		return uint64(bytes) / 1024
	}
	return uint64(bytes+1023) / 1024
}

func cpuOf(vmi *kubevirtv1.VirtualMachineInstance) (hardware.CPUSpec, error) {
	spec := hardware.CPUSpec{Mode: "host-model", Sockets: int(kubevirt.VCPUs(vmi)), Cores: 1, Threads: 1}
	cpu := vmi.Spec.Domain.CPU
	if cpu == nil {
		return spec, nil
	}
	if cpu.Sockets+cpu.Cores+cpu.Threads > 0 {
		spec.Sockets, spec.Cores, spec.Threads = int(max(cpu.Sockets, 1)), int(max(cpu.Cores, 1)), int(max(cpu.Threads, 1))
	}
	switch cpu.Model {
	case "", kubevirtv1.CPUModeHostModel:
	case kubevirtv1.CPUModeHostPassthrough:
		spec.Mode = "host-passthrough"
	default:
		spec.Mode, spec.Model = "custom", cpu.Model
	}
	for i, f := range cpu.Features {
		switch f.Policy {
		case "", "require", "force":
			spec.Features = append(spec.Features, f.Name)
		case "optional":
		default:
			return spec, fmt.Errorf("spec.domain.cpu.features[%d].policy: a feature cannot be taken away (%s %s): choose a model without it", i, f.Policy, f.Name)
		}
	}
	slices.Sort(spec.Features)
	return spec, nil
}

// disksOf translates the disks. Their targets follow the order of the spec,
// which the guest sees; their own order is that of booting.
func disksOf(vmi *kubevirtv1.VirtualMachineInstance) ([]hardware.Disk, error) {
	type bootable struct {
		disk  hardware.Disk
		order uint
	}
	var disks []bootable
	letters := map[string]int{}
	for i, d := range vmi.Spec.Domain.Devices.Disks {
		claim := claimOf(vmi, d.Name)
		if claim == "" {
			return nil, fmt.Errorf("spec.domain.devices.disks[%d].name: %q names no volume with a claim", i, d.Name)
		}
		bus, readOnly := kubevirtv1.DiskBusSATA, false // KubeVirt's default
		if d.Disk != nil {
			bus, readOnly = cmp.Or(d.Disk.Bus, bus), d.Disk.ReadOnly
		}
		prefix := "sd"
		if bus == kubevirtv1.DiskBusVirtio {
			prefix = "vd"
		}
		b := bootable{order: math.MaxUint, disk: hardware.Disk{
			Target:   prefix + letter(letters[prefix]),
			Volume:   VolumeName(vmi.Namespace, claim),
			Bus:      string(bus),
			Serial:   d.Serial,
			ReadOnly: readOnly,
			Shared:   d.Shareable != nil && *d.Shareable,
		}}
		if d.BootOrder != nil {
			b.order = *d.BootOrder
		}
		letters[prefix]++
		disks = append(disks, b)
	}
	slices.SortStableFunc(disks, func(a, b bootable) int { return cmp.Compare(a.order, b.order) })
	var out []hardware.Disk
	for _, d := range disks {
		out = append(out, d.disk)
	}
	return out, nil
}

// letter names the n-th disk of a bus: a … z, aa, ab …
func letter(n int) string {
	name := ""
	for ; n >= 0; n = n/26 - 1 {
		name = string(rune('a'+n%26)) + name
	}
	return name
}

func claimOf(vmi *kubevirtv1.VirtualMachineInstance, volume string) string {
	for _, v := range vmi.Spec.Volumes {
		switch {
		case v.Name != volume:
		case v.PersistentVolumeClaim != nil:
			return v.PersistentVolumeClaim.ClaimName
		case v.DataVolume != nil:
			return v.DataVolume.Name // its claim has the same name
		}
	}
	return ""
}

func interfacesOf(vmi *kubevirtv1.VirtualMachineInstance) []hardware.Interface {
	var out []hardware.Interface
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		name := vmi.Namespace + "/" + vmi.Name + "/" + nic.Name
		out = append(out, hardware.Interface{
			MAC:    cmp.Or(strings.ToLower(strings.ReplaceAll(nic.MacAddress, "-", ":")), macOf(name)),
			Port:   uuid.NewSHA1(ports, []byte(name)).String(),
			Bridge: bridge,
			Model:  cmp.Or(nic.Model, "virtio"),
		})
	}
	return out
}

// ports is the space of the ids of ports. Drawn once at random.
var ports = uuid.MustParse("5b0c7c34-7f0e-4a55-8f0b-6a4d1c1b9e02")

// macOf is the address of an interface that asks for none: locally
// administered, and the same wherever the VM is.
func macOf(name string) string {
	h := sha256.Sum256([]byte(name))
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", h[0], h[1], h[2], h[3], h[4])
}
