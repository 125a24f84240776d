// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// Fleet is the ledger of hosts and of what is placed on them.
type Fleet struct{}

// NewFleet returns an empty fleet.
func NewFleet() *Fleet { return &Fleet{} }

// Request asks for a host for a VM.
type Request struct {
	VM *kubevirtv1.VirtualMachineInstance

	// Source is the host a VM moves from: never the answer, and a live VM's
	// target must offer all that it offers. Empty for a VM that is on no host.
	Source string

	// Cold says that the VM does not run, so that any host it could start on
	// will do.
	Cold bool

	// NodeSelector restricts the hosts further than the VM's own.
	NodeSelector map[string]string

	// Exclude are hosts not to be taken.
	Exclude []string
}

// Place reserves room for a VM and returns the host, or "" and why there is none.
func (f *Fleet) Place(r Request) (host, why string) { return "", "" }

// Release gives back what Place reserved for a VM.
func (f *Fleet) Release(vm types.UID) {}

// Verdict says where a VM would go.
type Verdict struct {
	VM   types.NamespacedName
	UID  types.UID
	Host string // "": it has to stay.
	Why  string // Why it has to stay.
}

// WhatIf says where each VM of a host would go if they left it in this order.
// It reserves nothing.
func (f *Fleet) WhatIf(vms []*kubevirtv1.VirtualMachineInstance, excluding string) []Verdict {
	return nil
}
