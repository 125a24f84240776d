// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"cmp"
	"fmt"
	"time"
)

// Spec describes a world: its hosts, VMs, operator and API. Sizes are bytes.
type Spec struct {
	Hosts    []HostGroup
	VMs      []VMGroup
	Operator Operator
	API      API
	Storage  Storage

	// HA is the HA service with its agents; nil is a fleet without.
	HA *HA
}

// HostGroup is a number of like hosts, named NAME001, NAME002, ...
type HostGroup struct {
	Name  string
	Count int
	Model string // a model of hwsim; "" is r860
	Zone  string
	Rack  string

	// Feed and Switch are what the hosts hang on; "" is the rack's own.
	Feed   string
	Switch string

	NoWatchdog bool // no watchdog in their hardware
	NoBMC      bool // no management controllers

	Skew  time.Duration // of the wall clock, ahead
	Drift int           // of the steady clock, in millionths

	// Capabilities, OSRelease and DMI replace what the model says, by what was
	// read off a real host.
	Capabilities []byte
	OSRelease    []byte
	DMI          map[string]string

	Labels map[string]string // of the Node

	// MigrationBandwidth is each host's link to the migration network, in
	// bytes a second; 0 is the model's.
	MigrationBandwidth uint64

	// Overcommit of cpu and memory, as in the Hypervisor's spec.
	Overcommit map[string]float64
}

// VMGroup is a number of like VMs, named NAME-1, NAME-2, ...
type VMGroup struct {
	Name   string
	Count  int
	At     time.Duration // when the first is created
	Every  time.Duration // between two; 0 creates all at once
	CPUs   int
	Memory uint64

	Labels   map[string]string
	Host     string // pins the VMs to a host by node selector
	Apart    string // topology key of a required anti-affinity within the group
	Priority string // priorityClassName
	Traits   []string
	CPUModel string
	NUMA     bool // one guest cell that must fit a host cell
	Stopped  bool // created with the power state Stopped
	Grace    time.Duration
	Pinned   bool // not live-migratable: dedicated CPUs

	Policy Policy

	Guest Guest
}

// Policy is what shall become of a VM after a failure, as its annotations say
// it; "" leaves the annotation out.
type Policy struct {
	Protected string // "true" or "false"
	Restart   string // high, medium, low
	Yields    string // "true" or "false"
	OnCrash   string // restart, fail
	OnPanic   string // restart, keep, fail
	OnIOError string // move, wait
}

// Guest is how a VM behaves inside.
type Guest struct {
	Boot       time.Duration // until the guest answers; 0 is the default
	Used       uint64        // memory that is not zero pages; 0: all of it
	DirtyRate  uint64        // bytes a second
	WorkingSet uint64        // bytes the dirtying goes round in; 0: all used memory
	Agent      bool
	Shutdown   time.Duration // from ACPI to off; 0 is the default
	Deaf       bool          // ignores ACPI
}

// Operator is how the operator is configured; zero values are its defaults.
type Operator struct {
	Migrations         int // at once in the fleet
	PerHost            int // out of one host at once
	PerTarget          int // into one host at once
	Bandwidth          uint64
	CompletionPerGiB   time.Duration
	Progress           time.Duration
	AutoConverge       bool
	PostCopy           bool
	WorkloadDisruption bool
	Unschedulable      time.Duration
	Floor              int // hosts that stay out of maintenance
	Replicas           int
}

// API is how the simulated API behaves; zero values are kubesim's defaults.
type API struct {
	Latency     time.Duration // median of a call
	Lag         time.Duration // median of a watch event's way into a cache
	EagerLeases bool          // write each heartbeat
}

// Storage is how the pool of the VMs' disks behaves.
type Storage struct {
	NoLocks   bool          // two hosts can write one disk
	LockLease time.Duration // until a dead host's locks are free; 0: 60 s, with HA 10 s
}

// HA is how high availability is set up; zero values are the defaults of
// docs/ha.md.
type HA struct {
	Replicas int // of the service; 0 is 2

	// NoWatchdog is that no host of the fleet has one.
	NoWatchdog bool

	Interval, Term, Stop, Watchdog time.Duration // the agents'
	Settle, Outage, Rejoin         time.Duration
	StormShare                     float64
	StormHosts                     int
	Fences, FencesPerZone          int
	PerFleet, PerTarget            int
	HoldDown                       time.Duration
	PowerOn                        bool
	Yields                         bool // the operator may let VMs yield

	// Paused and DryRun are what the ConfigMap says from the start.
	Paused, DryRun bool
}

// Check says whether the agents could start with these times.
func (h HA) Check() error {
	interval, term := cmp.Or(h.Interval, 5*time.Second), cmp.Or(h.Term, 20*time.Second)
	switch {
	case term < 2*interval:
		return fmt.Errorf("term: %v with an interval of %v: one lost report would end a lease; give two intervals or more", term, interval)
	case h.Watchdog > 0 && (h.Watchdog < 4*time.Second || h.Watchdog%time.Second != 0):
		return fmt.Errorf("watchdogTimeout: %v; it counts whole seconds, 4 or more", h.Watchdog)
	}
	return nil
}
