// SPDX-License-Identifier: Apache-2.0

package hwsim

import "time"

// HostSpec describes a host. Only Name is needed; what is zero comes from the
// model.
type HostSpec struct {
	Name  string
	Model string // one of Models(); "" is "r860"
	Zone  string
	Rack  string

	// Feed is the power feed the host and its management controller hang on,
	// Switch that of its management and migration links. "" is the rack's own.
	Feed   string
	Switch string

	Cells           int // NUMA cells
	CPUs            int // logical, in all cells together
	MemoryKiB       uint64
	HugePages2M     uint64 // 2 MiB pages set aside at boot, spread over the cells
	CPUModel        string // libvirt's name, e.g. "Icelake-Server-v7"
	GardenLinux     string // release, e.g. "1592.9"
	KernelRelease   string
	LibvirtVersion  uint64
	QEMUVersion     uint64
	FirmwareVersion string

	// Odd or captured inputs; each replaces what the model would say.
	CapabilitiesXML []byte            // libvirt's capabilities document
	DMI             map[string]string // /sys/class/dmi/id by file name; a missing file is one that cannot be read
	OSRelease       []byte            // /etc/os-release

	Serial      string
	MachineID   string
	ProductUUID string

	// The host's NICs, bytes a second each way, and the round trip to a peer.
	MigrationBandwidth uint64        // 0: 25 Gbit/s
	MigrationLatency   time.Duration // 0: 200 µs
	ManagementLatency  time.Duration // 0: 500 µs

	// NoWatchdog is a machine without a hardware watchdog, NoBMC one without a
	// management controller.
	NoWatchdog bool
	NoBMC      bool

	// Drift is how much faster than true time the host's oscillator runs, in
	// millionths: the steady clock and the watchdog count by it. Good ones stay
	// below 100.
	Drift int

	// ClockSkew is how far the wall clock is ahead.
	ClockSkew time.Duration

	// BootTime is from power-on to libvirtd; zero draws POST and OS start of
	// the model.
	BootTime time.Duration

	// Off: the host is added powered off.
	Off bool
}

// Guest is a VM's behaviour from inside.
type Guest struct {
	BootTime time.Duration // until it listens to ACPI and its agent connects; 0: 12 s

	UsedMemoryBytes     uint64 // touched so far; the rest are zero pages. 0: half of the memory
	DirtyBytesPerSecond uint64 // 0: 1 MiB/s; DirtyNothing for none
	WorkingSetBytes     uint64 // what it writes to again and again; 0: a sixteenth of the memory

	Agent bool // a guest agent is installed; it also needs the domain's channel

	// ShutdownAfter is how long a guest takes to power off when asked; zero is
	// 3 s. IgnoresShutdown is a guest that does not listen.
	ShutdownAfter   time.Duration
	IgnoresShutdown bool

	// DetachAfter is how long the guest takes to let go of a device; zero is
	// 150 ms. IgnoresDetach is a guest that never does.
	DetachAfter   time.Duration
	IgnoresDetach bool
}

// DirtyNothing is the dirty rate of a guest that writes no memory.
const DirtyNothing = ^uint64(0)

// PoolSpec describes storage for volumes.
type PoolSpec struct {
	Name   string
	Shared bool     // one storage for all its hosts; otherwise each host has its own of that name
	Hosts  []string // who reaches it; nil: all

	// NoLocks is storage that lets two hosts write one disk.
	NoLocks bool

	// LockLease is how long the locks of a host that lost power stay taken.
	LockLease time.Duration
}

// SetGuest says how the VM of that UUID behaves from now on. A migration under
// way keeps the workload it began with.
func (f *Fleet) SetGuest(uuid string, g Guest) { f.guests[uuid] = g }
