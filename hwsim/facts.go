// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hardware/parse"
)

// facts are what a host says of itself. They change only with an OS update.
type facts struct {
	identity     hardware.Identity
	system       hardware.System
	capabilities hardware.Capabilities
}

// The versions of a current Garden Linux host.
const (
	defaultGardenLinux = "1592.9"
	defaultKernel      = "6.6.71-cloud-amd64"
	defaultLibvirt     = 10_000_000
	defaultQEMU        = 8_002_006
)

func readFacts(h *Host) (facts, error) {
	var f facts
	dmi := h.spec.DMI
	if dmi == nil {
		dmi = h.firmwareFiles()
	}
	f.identity, f.system = parse.DMI(dmi)
	f.identity.Hostname = h.name
	f.identity.MachineID = cmp.Or(h.spec.MachineID, strings.ReplaceAll(newUUID(h.rand), "-", ""))
	if h.spec.Serial != "" {
		f.identity.Serial = parse.DMIString(h.spec.Serial)
	}
	if h.spec.ProductUUID != "" {
		f.identity.ProductUUID = parse.ProductUUID(h.spec.ProductUUID)
	}
	release := h.spec.OSRelease
	if release == nil {
		release = gardenLinux(cmp.Or(h.spec.GardenLinux, defaultGardenLinux))
	}
	var err error
	if f.system.OSRelease, err = parse.OSRelease(release); err != nil {
		return f, err
	}
	f.system.KernelName = "Linux"
	f.system.KernelRelease = cmp.Or(h.spec.KernelRelease, defaultKernel)
	f.system.KernelVersion = "#1 SMP PREEMPT_DYNAMIC Debian"
	f.system.KernelCommandLine = "root=LABEL=ROOT ro console=ttyS0 intel_iommu=on"
	if f.capabilities, err = h.readCapabilities(); err != nil {
		return f, err
	}
	return f, nil
}

// firmwareFiles is /sys/class/dmi/id of the model.
func (h *Host) firmwareFiles() map[string]string {
	serial := "To Be Filled By O.E.M."
	uuid := newUUID(h.rand)
	if h.model.serial != "" {
		serial = fmt.Sprintf(h.model.serial, h.rand.Uint32())
	} else {
		uuid = "03000200-0400-0500-0006-000700080009" // the board's own, on all of its kind
	}
	return map[string]string{
		"sys_vendor": h.model.vendor, "product_name": h.model.product, "product_serial": serial, "product_uuid": uuid,
		"bios_vendor": h.model.firmwareVendor, "bios_version": cmp.Or(h.spec.FirmwareVersion, h.model.firmware), "bios_date": h.model.firmwareDate,
	}
}

// gardenLinux is the os-release of a Garden Linux release.
func gardenLinux(version string) []byte {
	return fmt.Appendf(nil, `ID=gardenlinux
NAME="Garden Linux"
PRETTY_NAME="Garden Linux %[1]s"
IMAGE_VERSION=%[1]s
VARIANT_ID=metal-sci_usi-amd64
HOME_URL="https://gardenlinux.io"
SUPPORT_URL="https://github.com/gardenlinux/gardenlinux"
GARDENLINUX_CNAME=metal-sci_usi-amd64-%[1]s
GARDENLINUX_FEATURES=log,sap,ssh,_boot,_nopkg,_usi,base,server,metal,sci
GARDENLINUX_VERSION=%[1]s
GARDENLINUX_COMMIT_ID=9f3c1d7a
GARDENLINUX_COMMIT_ID_LONG=9f3c1d7a52e8b6045d1f2c3b4a5968778695a4b3
`, version)
}

// readCapabilities makes the capabilities of the model, or takes the captured
// ones.
func (h *Host) readCapabilities() (hardware.Capabilities, error) {
	c := hardware.Capabilities{}
	if h.spec.CapabilitiesXML != nil {
		var err error
		if c, err = parse.Capabilities(h.spec.CapabilitiesXML); err != nil {
			return c, err
		}
	} else {
		c.HostUUID = newUUID(h.rand)
		c.CPU = hardware.CPU{Arch: "x86_64", Model: cmp.Or(h.spec.CPUModel, h.model.cpu), Vendor: h.model.cpuVendor, Features: h.model.sortedFeatures()}
		c.Arch, c.HypervisorType = "x86_64", "kvm"
		var err error
		if c.Cells, err = h.cells(); err != nil {
			return c, err
		}
	}
	c.LibvirtVersion = hardware.Version(cmp.Or(h.spec.LibvirtVersion, defaultLibvirt))
	c.HypervisorVersion = hardware.Version(cmp.Or(h.spec.QEMUVersion, defaultQEMU))
	c.HypervisorType = cmp.Or(c.HypervisorType, "kvm")
	c.Devices = []string{"disk", "disk/sata", "disk/scsi", "disk/virtio", "graphics", "graphics/vnc", "rng", "rng/virtio", "video", "video/virtio"}
	c.CPUModes = []string{"mode/custom", "mode/host-model", "mode/host-passthrough"}
	c.Features = []string{"backingStoreInput", "genid", "vmcoreinfo"}
	return c, nil
}

// cells spreads CPUs and memory evenly, and numbers the hyperthreads' second
// halves after all first ones, as Linux does on these boards.
func (h *Host) cells() ([]hardware.Cell, error) {
	n, cpus := cmp.Or(h.spec.Cells, h.model.cells), cmp.Or(h.spec.CPUs, h.model.cpus)
	memory := cmp.Or(h.spec.MemoryKiB, h.model.memoryGiB<<20)
	if n < 0 || cpus < n || memory < uint64(n)<<10 {
		return nil, fmt.Errorf("%d cells, %d CPUs, %d KiB: each cell needs a CPU and a MiB", n, cpus, memory)
	}
	huge := h.spec.HugePages2M
	if huge*2048 > memory {
		return nil, fmt.Errorf("hugePages2M %d: more than the memory of %d KiB", huge, memory)
	}
	out := make([]hardware.Cell, n)
	for i := range out {
		share := memory / uint64(n)
		pages := huge / uint64(n)
		out[i] = hardware.Cell{ID: uint64(i), MemoryKiB: share, Pages: []hardware.PagePool{
			{SizeKiB: 4, Count: (share - pages*2048) / 4},
			{SizeKiB: 2048, Count: pages},
		}}
	}
	threads := 1
	if cpus%(2*n) == 0 {
		threads = 2
	}
	perThread := cpus / threads
	for cpu := range cpus {
		cell := cpu % perThread * n / perThread
		out[cell].CPUs = append(out[cell].CPUs, cpu)
	}
	return out, nil
}

// fact is a read that the system answers without libvirtd.
func (v *view) fact(ctx context.Context, name, attempt string, daemon bool, read func()) error {
	return v.do(ctx, &call{name: name, attempt: attempt, on: "host " + v.h.name, daemon: daemon, work: func() error {
		read()
		return nil
	}})
}

// Identity implements hardware.Facts.
func (v *view) Identity(ctx context.Context) (id hardware.Identity, err error) {
	err = v.fact(ctx, "Identity", "read identity of", false, func() { id = v.h.facts.identity })
	return id, err
}

// System implements hardware.Facts.
func (v *view) System(ctx context.Context) (s hardware.System, err error) {
	err = v.fact(ctx, "System", "read system of", false, func() {
		s = v.h.facts.system
		s.OSRelease = maps.Clone(s.OSRelease)
	})
	return s, err
}

// Boot implements hardware.Facts.
func (v *view) Boot(ctx context.Context) (b hardware.Boot, err error) {
	err = v.fact(ctx, "Boot", "read boot of", false, func() {
		b = hardware.Boot{ID: v.h.bootID, Uptime: v.h.Steady().Elapsed()}
	})
	return b, err
}

// SetIdentity changes who the host says it is: another name, a new image, a
// swapped board.
func (h *Host) SetIdentity(change func(*hardware.Identity)) { change(&h.facts.identity) }

// uptimeBefore makes hosts that were up when the run began look like it: none
// of them booted this instant.
func (h *Host) uptimeBefore() time.Duration {
	if h.bootedAt == 0 {
		return 40 * 24 * time.Hour
	}
	return 30 * time.Second // from the kernel's start to libvirtd's
}

// Capabilities implements hardware.Facts. The slices of the result are shared
// with later results and are not to be changed.
func (v *view) Capabilities(ctx context.Context) (c hardware.Capabilities, err error) {
	err = v.fact(ctx, "Capabilities", "read capabilities of", true, func() { c = v.h.facts.capabilities })
	return c, err
}
