// SPDX-License-Identifier: Apache-2.0

// Package wiring gives every controller its options, so that one runtime or
// the other can be put under all of them.
//
// It knows that a manager may bring its own queue; it must never know which.
package wiring

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Runtime is a manager that brings the queue its controllers run on. The
// simulated manager is one; controller-runtime's own is not and needs none.
type Runtime interface {
	ControllerOptions(workers int) controller.Options
}

// Options returns the options of a controller with that many workers under
// mgr. Controllers add rate limiters and priorities, and change nothing else.
func Options(mgr manager.Manager, workers int) controller.Options {
	if r, ok := mgr.(Runtime); ok {
		return r.ControllerOptions(workers)
	}
	priority := true
	return controller.Options{MaxConcurrentReconciles: workers, UsePriorityQueue: &priority}
}

// Paced is a manager whose time passes faster than the wall clock's.
type Paced interface {
	Wait(time.Duration) time.Duration
}

// Wait is how long by the wall clock a wait of d under mgr is. What waits on its
// queue need not ask: the queue knows.
func Wait(mgr manager.Manager, d time.Duration) time.Duration {
	if p, ok := mgr.(Paced); ok {
		return p.Wait(d)
	}
	return d
}

// Request is what our controllers' queues hold.
type Request = reconcile.Request

// Steady is a clock that moves forward evenly, whatever is done to the wall
// clock: the host's time since boot, or a process's monotonic one. Its zero means
// nothing; two processes' readings are comparable only on one host and boot.
type Steady interface {
	Elapsed() time.Duration
}
