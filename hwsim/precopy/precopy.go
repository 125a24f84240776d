// SPDX-License-Identifier: Apache-2.0

// Package precopy is the physics of one live migration: iterative pre-copy with
// working sets, auto-converge and post-copy, the shape QEMU's has. It is a pure
// function of its parameters and of the calls made on it: it reads no clock,
// rolls no dice and sets no timer. Whoever drives it owns time and bandwidth:
// he asks Next when something happens by itself, calls Advance then, and
// SetBandwidth when the share granted on the wire changes. It must never know
// hosts, domains or networks.
package precopy

import "time"

// Params describe the guest and how it is migrated. Sizes are bytes. The zero
// value of a field means its default.
type Params struct {
	// MemoryBytes is the guest's whole memory, ZeroBytes its part that was
	// never written and costs only the time to look at it.
	MemoryBytes uint64
	ZeroBytes   uint64

	// WorkingSets say how the guest dirties its memory.
	WorkingSets []WorkingSet

	// DiskBytes are copied before the memory when storage is not shared.
	DiskBytes uint64

	// Setup passes before the first byte, without use of the network.
	Setup time.Duration
	// Downtime is the switch-over's limit; default 300 ms.
	Downtime time.Duration
	// DeviceTime is the fixed part of the switch-over; default 30 ms.
	DeviceTime time.Duration
	// NetworkRTT is a round trip between the hosts; default 200 µs.
	NetworkRTT time.Duration

	// MaxBytesPerSecond bounds disk copy and rounds, as QEMU's max-bandwidth;
	// 0 is unlimited. Switch-over and post-copy are not bound by it.
	MaxBytesPerSecond float64
	// StreamBytesPerSecond is what one connection's thread can send; default
	// 1.3 GB/s. Connections multiply it; default 1.
	StreamBytesPerSecond float64
	Connections          int
	// ZeroScanBytesPerSecond is how fast zero pages are found; default 3.6 GiB/s.
	ZeroScanBytesPerSecond float64
	// CompressionRatio is bytes sent for each byte of pages; default 1, none.
	CompressionRatio float64
	PageSize         uint64 // default 4096

	AutoConverge bool
	Throttle     Throttle
}

// WorkingSet is memory that the guest writes evenly: after a time t since the
// last look, Bytes·(1−e^(−DirtyBytesPerSecond·t/Bytes)) of it are dirty.
type WorkingSet struct {
	Bytes               uint64
	DirtyBytesPerSecond float64
}

// Throttle are auto-converge's parameters in percent.
type Throttle struct {
	Initial   int // default 20
	Increment int // default 10
	Max       int // default 99
	Trigger   int // default 50: dirty bytes of a period in percent of those sent
	// SyncPeriod is how often the dirty bitmap is looked at within a round
	// after the first; default 5 s, negative: only at round ends.
	SyncPeriod time.Duration
}

// Phase is where a migration stands.
type Phase int

// The phases, in order; post-copy is skipped unless asked for.
const (
	PhaseNew        Phase = iota
	PhaseSetup            // nothing is sent yet
	PhaseDisk             // disks are copied
	PhaseRounds           // memory is copied while the guest runs at the source
	PhaseSwitchOver       // the guest stands still
	PhasePostCopy         // the guest runs at the target, pages follow
	PhaseCompleted
)

// ChangeKind names what happened.
type ChangeKind int

// The changes. Between SwitchOverBegan and Switched the guest runs nowhere.
const (
	SetupEnded      ChangeKind = iota // bytes begin to flow; see Demand
	MemoryBegan                       // disks are done, the first round begins
	RoundEnded                        // the bitmap was read; Iteration is the round that ended
	Throttled                         // auto-converge took more of the guest's time
	SwitchOverBegan                   // the source's guest is paused
	Switched                          // the target's guest runs
	PostCopyStarted                   // follows Switched at once when in post-copy
	Completed                         // the target needs the source no more
)

// Change is one thing that happened, and when.
type Change struct {
	At              time.Duration
	Kind            ChangeKind
	Iteration       uint64 // the round it belongs to
	ThrottlePercent int
}

// Progress is all that can be read off a migration; its fields are those of
// libvirt's virDomainGetJobStats. Sizes are bytes.
type Progress struct {
	Phase Phase

	Elapsed  time.Duration // since Start; stands still when completed
	Setup    time.Duration
	Downtime time.Duration // expected while running, measured once switched

	// Processed counts bytes on the wire, Remaining bytes of pages.
	MemoryTotal          uint64
	MemoryProcessed      uint64
	MemoryRemaining      uint64
	MemoryBytesPerSecond uint64

	ConstantPages    uint64 // zero pages, sent as a mark
	NormalPages      uint64
	NormalBytes      uint64
	PageSize         uint64
	DirtyRate        uint64 // pages a second in the last period between syncs
	Iteration        uint64 // dirty-sync count; 1 in the first round
	PostCopyRequests uint64 // pages the target's guest had to wait for

	DiskTotal          uint64
	DiskProcessed      uint64
	DiskRemaining      uint64
	DiskBytesPerSecond uint64

	ThrottlePercent int
	PostCopy        bool

	// GuestSpeed is the share of its normal speed at which the guest runs now.
	GuestSpeed float64
	// BlackOut is how long the guest stood still, BrownOut the time it lost by
	// running slower: the integral of 1−GuestSpeed while it ran.
	BlackOut time.Duration
	BrownOut time.Duration
}
