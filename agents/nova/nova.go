// SPDX-License-Identifier: Apache-2.0

// Package nova makes one host's domains equal the VMs placed on it: it starts,
// stops and pauses them, moves them out and takes them in, adopts what runs
// after its own restart, and clears away what a failed migration left.
//
// It reads the VirtualMachineInstances labelled for its host, the host's
// Hypervisor and the host's domains. It alone writes what ARCHITECTURE.md gives
// to the VM's host, to a migration's source and to its target. It must never
// know another host's domains, nor touch one that is not ours.
package nova

import (
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/hardware"
)

// Options say which host the agent serves and how patient it is.
type Options struct {
	// Host is the host's name: its Hypervisor's and its Node's.
	Host string

	// Hardware is the host.
	Hardware hardware.Host

	// Clock is what every deadline is measured with.
	Clock clock.PassiveClock

	// Resync is how often a VM is looked at with no event; 0 is 5 minutes.
	// Each VM's own is up to a tenth longer, by its name and the host's, so
	// that a fleet's agents do not look in step.
	Resync time.Duration

	// HoldOff is how long a domain that stopped without a request is watched
	// before its end is believed, because a reset by libvirt's on_reboot and
	// by a guest's restart policy is a stop and a start; 0 is 15 seconds.
	HoldOff time.Duration

	// Workers is how many VMs are handled at once; 0 is 4.
	Workers int
}

// Setup adds the agent to a manager, whose cache holds the
// VirtualMachineInstances labelled host.kvm.cloud.sap/HOST and the host's
// Hypervisor, and no more.
func Setup(mgr manager.Manager, o Options) error {
	return nil
}
