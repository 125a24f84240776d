// SPDX-License-Identifier: Apache-2.0

// Package eviction empties living hosts.
package eviction

import (
	"context"

	"k8s.io/utils/clock"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options say how much an eviction may ask at once.
type Options struct {
	Clock clock.PassiveClock

	// Parallel is how many VMs of one host may be on the move at once, where
	// the Eviction does not say; 0 is 2.
	Parallel int

	// Planner answers dry runs; nil answers only from the VMs themselves.
	Planner Planner

	// Workers is how many Evictions are handled at once; 0 is 1.
	Workers int
}

// Planner says where VMs would go if they had to leave a host, without moving
// or reserving anything. The answers are in the order of the VMs.
type Planner interface {
	WhatIf(ctx context.Context, vmis []*kubevirtv1.VirtualMachineInstance, from string) []Verdict
}

// Verdict is the planner's answer for one VM.
type Verdict struct {
	// Destination is the host it would go to; empty if there is none.
	Destination string
	// Reason is one word for why there is none, Message the text for people.
	Reason, Message string
}

// Setup adds the controller to a manager whose cache holds Evictions,
// Hypervisors, VirtualMachineInstances and VirtualMachineInstanceMigrations.
func Setup(mgr manager.Manager, o Options) error {
	return nil
}
