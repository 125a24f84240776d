// SPDX-License-Identifier: Apache-2.0

// Package eviction empties living hosts: it asks each VM to leave by a
// VirtualMachineInstanceMigration, some at a time, until a fresh list is empty;
// it names those that cannot leave; its table stands at decide.
//
// It reads Evictions, Hypervisors, VirtualMachineInstances and their migrations.
// It alone writes an Eviction's status and its finalizer, and makes and
// withdraws the migrations that carry the Eviction's label and UID. Where a VM
// goes, and whether a host is in service, others say; it must never touch a VM
// nor a migration that somebody else asked for.
package eviction

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// parallel is how many VMs of one host move at once where nobody says: KubeVirt's
// parallelOutboundMigrationsPerNode.
const parallel = 2

// conflictRetry lets the cache catch up with the write that came first. Most
// caches do within some tens of milliseconds.
const conflictRetry = 200 * time.Millisecond

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
	if o.Clock == nil {
		return fmt.Errorf("operator/eviction: no clock")
	}
	if o.Parallel <= 0 {
		o.Parallel = parallel
	}
	r := &Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Clock: o.Clock, Planner: o.Planner, Parallel: o.Parallel,
	}
	return r.watch(mgr, o.Workers)
}

// Reconciler carries one Eviction forward.
type Reconciler struct {
	Client   client.Client
	Live     client.Reader // The API itself.
	Clock    clock.PassiveClock
	Planner  Planner
	Parallel int

	written written
}

// Reconcile observes, decides and acts.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	seen, err := r.observe(ctx, req)
	if err != nil {
		return ctrl.Result{}, err
	}
	if seen.eviction == nil {
		return ctrl.Result{}, nil
	}
	if seen.behind {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	p := decide(seen, r.Parallel)
	err = r.act(ctx, seen, p)
	if apierrors.IsConflict(err) || errors.Is(err, errBehind) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	return ctrl.Result{RequeueAfter: p.lookAgain}, client.IgnoreNotFound(err)
}
