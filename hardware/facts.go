// SPDX-License-Identifier: Apache-2.0

package hardware

import "time"

// Identity says who a host is. No single field is proof: serials are
// placeholders on white boxes, machine ids are cloned with images.
type Identity struct {
	Hostname    string
	MachineID   string // /etc/machine-id, 32 hex digits
	ProductUUID string // DMI product_uuid, lower case
	Serial      string // DMI product_serial
}

// System describes hardware, firmware and operating system.
type System struct {
	HardwareVendor string // DMI sys_vendor
	HardwareModel  string // DMI product_name

	FirmwareVendor  string
	FirmwareVersion string
	FirmwareDate    time.Time // zero: unknown

	// OSRelease holds /etc/os-release after unquoting; the last of repeated
	// keys wins.
	OSRelease map[string]string

	KernelName        string // uname -s
	KernelRelease     string // uname -r
	KernelVersion     string // uname -v
	KernelCommandLine string
}

// Boot identifies one boot of the host.
type Boot struct {
	ID     string // /proc/sys/kernel/random/boot_id
	Uptime time.Duration
}

// Capabilities says what the hypervisor can do on this host.
type Capabilities struct {
	LibvirtVersion    Version // of the virtualisation daemon
	HypervisorVersion Version // of QEMU or Cloud Hypervisor

	HostUUID string
	CPU      CPU
	Cells    []Cell // sorted by ID

	// Domain capabilities, of the machine type new domains get.
	Arch           string   // e.g. "x86_64"
	HypervisorType string   // "kvm", "qemu" or "ch"
	Devices        []string // "disk", "disk/virtio", ... sorted
	CPUModes       []string // "mode/host-model", ... sorted
	Features       []string // "vmcoreinfo", ... sorted
}

// Version is a libvirt version number: major·1,000,000 + minor·1,000 + release.
type Version uint64

// CPU is the host's processor as libvirt names it.
type CPU struct {
	Arch     string   // e.g. "x86_64"
	Model    string   // e.g. "Icelake-Server-v7"
	Vendor   string   // e.g. "Intel"
	Features []string // sorted
}

// Cell is one NUMA cell. A cell may have CPUs and no memory: boards with empty
// memory controllers are like that, and it is no error.
type Cell struct {
	ID        uint64
	MemoryKiB uint64
	CPUs      []int // logical CPU ids, sorted
	Pages     []PagePool
}

// PagePool is a cell's pool of pages of one size.
type PagePool struct {
	SizeKiB uint64
	Count   uint64
}

// Unit is the state of a systemd unit, in systemd's own words.
type Unit struct {
	Name      string
	Load      string // loaded, not-found, masked, bad-setting, error, ...
	Active    string // active, reloading, inactive, failed, activating, ...
	Sub       string // running, exited, dead, auto-restart, listening, ...
	Result    string // success, exit-code, start-limit-hit, ...
	Restarts  uint32 // NRestarts
	ChangedAt time.Time
	Oneshot   bool // Type=oneshot: for it, active/exited and activating/start mean done and under way
}
