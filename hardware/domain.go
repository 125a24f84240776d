// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"context"
	"io"
	"time"
)

// Domains is a host's virtual machines, as libvirt holds them.
type Domains interface {
	// Domains returns all domains, active and not, sorted by UUID.
	Domains(ctx context.Context) ([]Domain, error)

	// Domain returns one domain, or a refusal with ReasonNoDomain.
	Domain(ctx context.Context, uuid string) (Domain, error)

	// Define makes the domain known, or replaces the definition of one that
	// is there under the same UUID and name. Starting is another call.
	Define(ctx context.Context, spec DomainSpec) error

	// Undefine forgets an inactive domain, or makes an active one transient.
	// A domain that is not there is success.
	Undefine(ctx context.Context, uuid string) error

	// Start boots a defined domain. It returns when QEMU runs; the guest has
	// only begun to boot.
	Start(ctx context.Context, uuid string, o StartOptions) error

	// Shutdown asks the guest to power off and returns. Guests may not listen.
	Shutdown(ctx context.Context, uuid string) error

	// Destroy ends the domain at once, as pulling the plug does.
	Destroy(ctx context.Context, uuid string) error

	// Reboot asks the guest to reboot; Reset presses the button.
	Reboot(ctx context.Context, uuid string) error
	Reset(ctx context.Context, uuid string) error

	// Suspend stops the guest's CPUs, Resume lets them run on.
	Suspend(ctx context.Context, uuid string) error
	Resume(ctx context.Context, uuid string) error

	// AttachDisk, DetachDisk, AttachInterface and DetachInterface change the
	// definition and, when the domain runs, the machine. A detach is done when
	// the guest lets go: a DeviceRemoved event says so. Disks are named by
	// target, interfaces by MAC address.
	AttachDisk(ctx context.Context, uuid string, d Disk) error
	DetachDisk(ctx context.Context, uuid, target string) error
	AttachInterface(ctx context.Context, uuid string, i Interface) error
	DetachInterface(ctx context.Context, uuid, mac string) error

	// Resize changes the vCPUs and the memory, live as far as the definition's
	// maxima allow; zero leaves a value as it is.
	Resize(ctx context.Context, uuid string, vcpus int, memoryKiB uint64) error

	// Stats returns running totals of a domain. Values only grow while the
	// domain runs.
	Stats(ctx context.Context, uuid string) (Stats, error)

	// GuestInfo, Freeze and Thaw speak with the guest agent and are refused
	// with ReasonNoAgent where none is connected.
	GuestInfo(ctx context.Context, uuid string) (GuestInfo, error)
	Freeze(ctx context.Context, uuid string) error
	Thaw(ctx context.Context, uuid string) error

	// Console opens the serial console, Graphics the display (RFB); the caller
	// closes them. Screenshot returns a PNG.
	Console(ctx context.Context, uuid string) (io.ReadWriteCloser, error)
	Graphics(ctx context.Context, uuid string) (io.ReadWriteCloser, error)
	Screenshot(ctx context.Context, uuid string) ([]byte, error)

	Migrations
}

// Migrations moves domains between hosts, each move a job on the source. On
// success the domain is defined and runs at the target and is gone from the
// source. On failure before the switch-over it runs on at the source and
// nothing is left at the target.
type Migrations interface {
	// Migrate starts a peer-to-peer migration and returns when the job runs.
	// A job of the same migration already running is success; another job is
	// refused with ReasonJobRunning.
	Migrate(ctx context.Context, uuid string, o MigrateOptions) error

	// Job returns the running job of a domain, or, with none running, its last
	// completed one. Both source and target keep the completed one for a while.
	// A refusal with ReasonNoJob says there is neither. The target of a
	// post-copy shows a running job, with PostCopy and without figures, until
	// the memory has followed: its guest's state need not tell.
	Job(ctx context.Context, uuid string) (Job, error)

	// AbortJob cancels the running job. A post-copy migration cannot be
	// aborted and refuses. No running job is refused with ReasonNoJob.
	AbortJob(ctx context.Context, uuid string) error

	// StartPostCopy switches a running migration that allows it to post-copy.
	StartPostCopy(ctx context.Context, uuid string) error

	// RecoverPostCopy continues a post-copy migration that both sides hold as
	// failed, once they reach each other again. Called on the source.
	RecoverPostCopy(ctx context.Context, uuid string) error

	// SetMigrationLimits changes the bandwidth (bytes a second; 0: unlimited)
	// and the longest switch-over of a running migration.
	SetMigrationLimits(ctx context.Context, uuid string, bytesPerSecond uint64, downtime time.Duration) error
}

// Domain is what a host says of one domain.
type Domain struct {
	UUID   string
	Spec   DomainSpec
	State  State
	Detail Detail // why it is in this state

	// Persistent: the definition outlives the run.
	Persistent bool

	// Incoming: the domain is the half-made target of a migration.
	Incoming bool

	// Foreign: the definition carries none of our metadata, and is never
	// touched.
	Foreign bool

	StartedAt time.Time // zero when inactive
}

// Active reports whether the domain has a QEMU process.
func (d Domain) Active() bool {
	return d.State != StateShutOff && d.State != StateCrashed && d.State != ""
}

// State is a domain's state, in libvirt's words.
type State string

// The domain states.
const (
	StateRunning      State = "running"
	StateBlocked      State = "blocked"
	StatePaused       State = "paused"
	StateShuttingDown State = "in shutdown"
	StateShutOff      State = "shut off"
	StateCrashed      State = "crashed" // preserved after a panic; QEMU is still there as a paused process in libvirt's view
	StatePMSuspended  State = "pmsuspended"
)

// Detail says why a domain is in its state or what an event is about, in
// libvirt's words.
type Detail string

// The details of states and of lifecycle events.
const (
	DetailNone           Detail = ""
	DetailBooted         Detail = "booted"
	DetailMigrated       Detail = "migrated"
	DetailMigrating      Detail = "migrating" // paused for the switch-over, or incoming
	DetailMigrationEnded Detail = "migration canceled"
	DetailUnpaused       Detail = "unpaused"
	DetailUser           Detail = "user"
	DetailIOError        Detail = "I/O error"
	DetailWatchdog       Detail = "watchdog"
	DetailPanicked       Detail = "panicked"
	DetailPostCopy       Detail = "post-copy"
	DetailPostCopyFailed Detail = "post-copy failed"
	DetailStartingUp     Detail = "starting up"
	DetailShutdown       Detail = "shutdown"  // the guest powered off
	DetailDestroyed      Detail = "destroyed" // somebody pulled the plug
	DetailCrashed        Detail = "crashed"
	DetailFailed         Detail = "failed" // QEMU is gone without a word
	DetailHost           Detail = "host"
	DetailGuest          Detail = "guest"
	DetailAdded          Detail = "added"
	DetailUpdated        Detail = "updated"
	DetailRemoved        Detail = "removed"
)

// DomainSpec is a domain's definition.
type DomainSpec struct {
	UUID string // canonical lower-case form
	Name string // unique on the host; "/" and control characters are refused

	// Owner is our metadata. Nil on domains that others made.
	Owner *Owner

	MemoryKiB     uint64
	VCPUs         int
	HugePageKiB   uint64 // 0: ordinary pages
	Machine       string // e.g. "q35"; "" is the implementation's default
	Firmware      string // "bios" or "efi"; "" is bios
	CPU           CPUSpec
	NUMA          []GuestCell   // nil: one cell, not bound
	Pinned        map[int][]int // vCPU → host CPUs; nil: not pinned
	Disks         []Disk
	Interfaces    []Interface
	Watchdog      string // action: reset, poweroff, pause, none; "" means no device
	OnCrash       string // destroy, restart, preserve; "" is destroy
	GuestAgent    bool   // a channel for the agent
	SerialConsole bool
	Graphics      bool
}

// Owner is what Adit writes into a domain's metadata: which object it is for,
// and under which run token it may run.
type Owner struct {
	Namespace string
	Name      string
	UID       string

	// Generation is the run token: each start of the VM anywhere needs a
	// higher one than the start before it.
	Generation int64

	// Protected: the VM is one that high availability restarts elsewhere, so
	// that a host which has lost its run lease must stop it.
	Protected bool
}

// CPUSpec is the processor a guest sees.
type CPUSpec struct {
	Mode     string // host-model, host-passthrough or custom; "" is host-model
	Model    string // for custom
	Features []string
	Sockets  int
	Cores    int
	Threads  int
}

// GuestCell is one NUMA cell of a guest.
type GuestCell struct {
	ID        int
	MemoryKiB uint64
	VCPUs     []int
	HostCell  int // -1: not bound
}

// Disk is a domain's disk.
type Disk struct {
	Target   string // vda, sda, ...
	Volume   string // POOL/NAME of shared or local storage
	Bus      string // virtio, sata, scsi
	Serial   string
	ReadOnly bool
	Shared   bool // more than one writer is meant
}

// Interface is a domain's network interface.
type Interface struct {
	MAC    string
	Port   string // the virtual port's id on the integration bridge
	Bridge string
	Model  string // "virtio" when empty
}

// StartOptions say how a domain starts.
type StartOptions struct {
	Paused bool
}

// Stats are a domain's running totals.
type Stats struct {
	CPUTime    time.Duration
	MemoryKiB  uint64 // in use by the guest
	ReadBytes  uint64
	WriteBytes uint64
	DirtyRate  uint64 // bytes a second, an estimate; 0: not known
	Interfaces map[string]InterfaceStats
}

// InterfaceStats are the totals of one interface, by its MAC address.
type InterfaceStats struct {
	ReceivedBytes uint64
	SentBytes     uint64
}

// GuestInfo is what the guest agent says.
type GuestInfo struct {
	Hostname    string
	OSName      string
	OSVersion   string
	Kernel      string
	Filesystems int
	Frozen      bool
}
