// SPDX-License-Identifier: Apache-2.0

// Package hypervisor gives each Node that runs VMs its Hypervisor.
package hypervisor

import (
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options say what the controller takes over besides the fixed labels.
type Options struct {
	// TransferLabels are further labels a Hypervisor takes over from its Node.
	TransferLabels []string

	// Workers is how many Nodes are handled at once; 0 is 1.
	Workers int
}

// Setup adds the controller to a manager whose cache holds Nodes and Hypervisors.
func Setup(mgr manager.Manager, o Options) error {
	return nil
}
