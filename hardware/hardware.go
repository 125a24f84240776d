// SPDX-License-Identifier: Apache-2.0

// Package hardware is the seam between the agents and what they drive: one
// host's facts, domains, events and systemd units, in hypervisor terms.
//
// It owns the small interfaces, their plain value types and the three kinds of
// errors; the package hardware/conformance beside it states their meaning as a
// suite that every implementation passes. Everything above the seam is written
// once. It must never know Kubernetes, libvirt's RPC or the simulator.
//
// Rules for both sides. Every call takes a context and is bounded in time.
// Mutating calls are idempotent: the wanted state already there is success.
// Nothing blocks for the length of a migration, a shutdown or an update. Lists
// are sorted, so that equal states read equal. An event is a hint, the list is
// the truth.
package hardware

import "context"

// Host is one host's hardware, as its own agents see it.
type Host interface {
	Facts
	Domains
	Events
	Units
	Watchdog
	Heartbeats
	Peers
	Notes
}

// Facts tells what a host is. All of it is observation; nothing is changed.
type Facts interface {
	// Identity returns who the host is. Unknown fields are empty, placeholders
	// that vendors leave in firmware among them.
	Identity(ctx context.Context) (Identity, error)

	// System returns hardware, firmware, operating system and kernel.
	System(ctx context.Context) (System, error)

	// Boot returns the identity and the age of the current boot.
	Boot(ctx context.Context) (Boot, error)

	// Capabilities returns what the hypervisor can do on this hardware. It
	// needs the virtualisation daemon and is Unavailable without it.
	Capabilities(ctx context.Context) (Capabilities, error)
}

// Events is a host's ordered stream of what happened to its domains.
type Events interface {
	// Subscribe calls handle for each event until ctx is done. The first event
	// of a subscription, and the first after any time in which events may have
	// been lost, is a Gap: the subscriber must list again.
	//
	// Subscribe returns once it has subscribed, without waiting for ctx.
	// handle is called one event after the other and must not block or call
	// back into the host: it takes note and returns.
	Subscribe(ctx context.Context, handle func(Event)) error
}

// Units is the host's systemd, and what is asked of the machine through it.
type Units interface {
	// Units returns the states of units, in the order of the names. A unit that
	// is not installed is no error: it has the load state "not-found".
	Units(ctx context.Context, names ...string) ([]Unit, error)

	// StartUnit, StopUnit, RestartUnit and ReloadUnit queue a job and return;
	// Units shows how it went.
	StartUnit(ctx context.Context, name string) error
	StopUnit(ctx context.Context, name string) error
	RestartUnit(ctx context.Context, name string) error
	ReloadUnit(ctx context.Context, name string) error

	// RebootHost asks the machine to boot anew. The answer may never arrive.
	RebootHost(ctx context.Context) error

	// StartUpdate begins installing an OS version; "latest" is a version. The
	// unit named by UpdateUnit(version) shows how it goes. It does not reboot.
	StartUpdate(ctx context.Context, version string) error
}

// UpdateUnit returns the systemd unit that installs an OS version: the
// instance of systemd-sysupdate for it, or the plain service for "latest".
func UpdateUnit(version string) string {
	if version == "latest" {
		return "systemd-sysupdate.service"
	}
	return "systemd-sysupdate@" + version + ".service"
}
