// SPDX-License-Identifier: Apache-2.0

// Package maintenance takes hosts out of service and back.
package maintenance

import (
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options say how many hosts stay in service whatever is asked.
type Options struct {
	Clock clock.PassiveClock

	// MinActive is the number, or the percentage, of hosts that stay in
	// service; nil is 1.
	MinActive *intstr.IntOrString
}

// Setup adds the controller to a manager whose cache holds Hypervisors,
// Evictions, Nodes and VirtualMachineInstances.
func Setup(mgr manager.Manager, o Options) error {
	return nil
}
