// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
)

// facts is what was learnt of a host. A nil or unknown part could not be read
// now; what was last reported of it stays.
type facts struct {
	identity     hardware.Identity
	system       *hardware.System
	capabilities *hardware.Capabilities
	domains      []hardware.Domain
	domainsKnown bool

	told
}

// told is what a report says of the facts, made when they are read and kept as
// long as they are: most looks read nothing anew. Its parts are shared by many
// reports and never changed; nil ones are made for the one report.
type told struct {
	os      *kvmv1.OperatingSystem // of identity and system
	able    *able                  // of capabilities
	counted *counted               // of capabilities and domains
}

// able is what a host can do.
type able struct {
	libvirt, hypervisor string // versions
	capabilities        kvmv1.Capabilities
	domainCapabilities  kvmv1.DomainCapabilities
}

// counted is what a host has, and what of it is promised.
type counted struct {
	instances            []kvmv1.Instance
	capacity, allocation resources
	cells                []kvmv1.Cell
}

// report writes into status what the facts say and leaves the rest.
func report(status *kvmv1.HypervisorStatus, f facts, overcommit map[kvmv1.ResourceName]float64) {
	if f.system != nil {
		if f.os == nil {
			f.os = operatingSystem(*f.system, f.identity)
		}
		status.OperatingSystem = *f.os
	}
	if f.capabilities != nil {
		if f.able == nil {
			f.able = ableTo(*f.capabilities)
		}
		status.LibVirtVersion, status.HypervisorVersion = f.able.libvirt, f.able.hypervisor
		status.Capabilities, status.DomainCapabilities = f.able.capabilities, f.able.domainCapabilities
	}
	if f.domainsKnown {
		if f.counted != nil {
			status.Instances = f.counted.instances
		} else {
			status.Instances = instances(f.domains)
		}
		status.NumInstances = len(status.Instances)
	}
	if f.capabilities != nil && f.domainsKnown {
		c := f.counted
		if c == nil {
			c = count(*f.capabilities, f.domains)
		}
		// Capacity and allocation go together, since they are read against
		// each other.
		status.Capacity, status.Allocation, status.Cells = c.capacity, c.allocation, c.cells
	}
	// Ratios change without the host: they apply to whatever capacity is known.
	if status.Capacity != nil {
		status.EffectiveCapacity = overcommitted(status.Capacity, overcommit)
	}
	if f.counted != nil && f.capabilities != nil && f.domainsKnown && len(overcommit) == 0 {
		return // as counted
	}
	status.Cells = slices.Clone(status.Cells)
	for i := range status.Cells {
		status.Cells[i].EffectiveCapacity = overcommitted(status.Cells[i].Capacity, overcommit)
	}
}

func ableTo(c hardware.Capabilities) *able {
	total := capacityOf(c).total.resources()
	return &able{
		libvirt: versionText(c.LibvirtVersion), hypervisor: versionText(c.HypervisorVersion),
		capabilities: kvmv1.Capabilities{
			HostCPUArch: cmp.Or(c.CPU.Arch, "unknown"),
			HostMemory:  total[kvmv1.ResourceMemory],
			HostCPUs:    total[kvmv1.ResourceCPU],
		},
		domainCapabilities: kvmv1.DomainCapabilities{
			Arch:              cmp.Or(c.Arch, "unknown"),
			HypervisorType:    cmp.Or(c.HypervisorType, "unknown"),
			SupportedDevices:  sorted(c.Devices),
			SupportedCPUModes: sorted(c.CPUModes),
			SupportedFeatures: sorted(c.Features),
		},
	}
}

// count adds up what a host has and what its domains have been promised.
func count(capabilities hardware.Capabilities, domains []hardware.Domain) *counted {
	c := capacityOf(capabilities)
	a := allocate(c.cells, domains)
	n := &counted{
		instances: instances(domains), capacity: c.total.resources(), allocation: a.total.resources(),
		cells: make([]kvmv1.Cell, len(c.cells)),
	}
	for i, cell := range c.cells {
		n.cells[i] = kvmv1.Cell{CellID: cell.ID, Capacity: cellLoad(cell).resources(), Allocation: a.cells[i].resources()}
		n.cells[i].EffectiveCapacity = n.cells[i].Capacity // without ratios
	}
	return n
}

// versionText prints a libvirt version number: 9000000 is "9.0.0".
func versionText(v hardware.Version) string {
	if v == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%d.%d.%d", v/1_000_000, v/1_000%1_000, v%1_000)
}

func sorted(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

// instances lists the domains, active ones first, in an order that does not
// depend on libvirt's.
func instances(domains []hardware.Domain) []kvmv1.Instance {
	list := make([]kvmv1.Instance, 0, len(domains))
	for _, d := range domains {
		list = append(list, kvmv1.Instance{ID: d.UUID, Name: d.Spec.Name, Active: d.Active()})
	}
	slices.SortFunc(list, func(a, b kvmv1.Instance) int {
		if a.Active != b.Active {
			if a.Active {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return list
}

func operatingSystem(s hardware.System, i hardware.Identity) *kvmv1.OperatingSystem {
	o := &kvmv1.OperatingSystem{
		Version:             s.OSRelease["GARDENLINUX_VERSION"],
		VariantID:           s.OSRelease["VARIANT_ID"],
		PrettyVersion:       s.OSRelease["PRETTY_NAME"],
		KernelName:          s.KernelName,
		KernelRelease:       s.KernelRelease,
		KernelVersion:       s.KernelVersion,
		KernelCommandLine:   strings.TrimSpace(s.KernelCommandLine),
		HardwareVendor:      s.HardwareVendor,
		HardwareModel:       s.HardwareModel,
		HardwareSerial:      i.Serial,
		FirmwareVersion:     s.FirmwareVersion,
		FirmwareVendor:      s.FirmwareVendor,
		GardenLinuxCommitID: s.OSRelease["GARDENLINUX_COMMIT_ID_LONG"],
	}
	if !s.FirmwareDate.IsZero() {
		o.FirmwareDate = &metav1.Time{Time: s.FirmwareDate.UTC()}
	}
	for feature := range strings.SplitSeq(s.OSRelease["GARDENLINUX_FEATURES"], ",") {
		if feature = strings.TrimSpace(feature); feature != "" {
			o.GardenLinuxFeatures = append(o.GardenLinuxFeatures, feature)
		}
	}
	return o
}

// osVersions are the names by which spec.version may mean the running system;
// the first is the one in the status. IMAGE_VERSION is what systemd-sysupdate
// counts in, VERSION_ID what most distributions have.
func osVersions(s hardware.System) []string {
	var names []string
	for _, key := range []string{"GARDENLINUX_VERSION", "IMAGE_VERSION", "VERSION_ID"} {
		if v := s.OSRelease[key]; v != "" && !slices.Contains(names, v) {
			names = append(names, v)
		}
	}
	return names
}
