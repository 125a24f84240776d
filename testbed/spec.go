// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"time"
)

// Spec describes a world: its hosts, VMs, operator and API. Sizes are bytes.
type Spec struct {
	Hosts    []HostGroup
	VMs      []VMGroup
	Operator Operator
	API      API
}

// HostGroup is a number of like hosts, named NAME001, NAME002, ...
type HostGroup struct {
	Name  string
	Count int
	Model string // a model of hwsim; "" is r860
	Zone  string
	Rack  string

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

	Guest Guest
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
