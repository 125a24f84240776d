// SPDX-License-Identifier: Apache-2.0

// Package readiness says of each Hypervisor whether it is Ready, and why not.
//
// It reads Hypervisors, and the agents' Leases from the API itself, all at once
// when one is due, so that nothing follows every heartbeat. It alone writes the
// conditions Ready (the table stands at ready) and Tainted. It must never know
// VMs, and never act: that an agent is silent says nothing of the VMs beside it.
package readiness

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/internal/equal"
	"github.com/adit-hv/adit/internal/wiring"
)

// conflictRetry lets the cache catch up with the write that came first. Most
// caches do within some tens of milliseconds.
const conflictRetry = 200 * time.Millisecond

// Options say where heartbeats are found and by which clock they are judged.
type Options struct {
	Clock clock.PassiveClock

	// Namespace is where the agents keep their Leases, one for each host and
	// named as it; "kvm" when empty.
	Namespace string

	// Workers is how many Hypervisors are handled at once; 0 is 1.
	Workers int
}

// Setup adds the controller to a manager whose cache holds Hypervisors. Leases
// are read from the API itself, so that no cache follows every heartbeat.
func Setup(mgr manager.Manager, o Options) error {
	if o.Clock == nil {
		return fmt.Errorf("operator/readiness: no clock")
	}
	if o.Namespace == "" {
		o.Namespace = "kvm"
	}
	r := &Reconciler{
		Client: mgr.GetClient(), Leases: mgr.GetAPIReader(),
		Clock: o.Clock, Namespace: o.Namespace, pulses: map[string]pulse{},
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("readiness").
		For(&kvmv1.Hypervisor{}, builder.WithPredicates(news)).
		WatchesRawSource(source.Func(r.start)).
		WithOptions(wiring.Options(mgr, max(1, o.Workers))).
		Complete(r)
}

// Reconciler judges one Hypervisor.
type Reconciler struct {
	Client    client.Client
	Leases    client.Reader // The API itself.
	Clock     clock.PassiveClock
	Namespace string

	mu     sync.Mutex // Never held across a request.
	pulses map[string]pulse
	queue  queue
}

// Reconcile observes, decides and acts. The request without a name is to
// listen to all.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Name == "" {
		return r.listen(ctx)
	}
	seen, err := r.observe(ctx, req)
	if err != nil {
		return ctrl.Result{}, err
	}
	if seen.hypervisor == nil {
		return ctrl.Result{}, nil
	}
	p := decide(seen)
	err = r.act(ctx, seen, p)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	if !seen.pulse.silent {
		r.listenIn(p.lookAgain)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{RequeueAfter: p.lookAgain}, client.IgnoreNotFound(err)
}

func (r *Reconciler) observe(ctx context.Context, req ctrl.Request) (observation, error) {
	seen := observation{now: r.Clock.Now()}
	var hypervisor kvmv1.Hypervisor
	if err := r.Client.Get(ctx, req.NamespacedName, &hypervisor, client.UnsafeDisableDeepCopy); err != nil { // act copies
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
			return seen, nil
		}
		return seen, fmt.Errorf("read hypervisor %s: %w", req.Name, err)
	}
	seen.hypervisor = &hypervisor

	known := r.pulse(req.Name)
	if seen.now.Before(known.due()) {
		seen.pulse = known
		return seen, nil
	}
	var lease coordinationv1.Lease
	switch err := r.Leases.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: req.Name}, &lease); {
	case err == nil:
		seen.pulse = feel(known, &lease, isSilent(&hypervisor), seen.now)
	case apierrors.IsNotFound(err):
		seen.pulse = feel(known, nil, isSilent(&hypervisor), seen.now)
	default:
		// We could not ask. That is our trouble and not the host's.
		return seen, fmt.Errorf("read lease %s/%s: %w", r.Namespace, req.Name, err)
	}
	r.remember(req.Name, seen.pulse)
	return seen, nil
}

func (r *Reconciler) act(ctx context.Context, seen observation, p plan) error {
	next := seen.hypervisor.DeepCopy()
	meta.SetStatusCondition(&next.Status.Conditions, p.ready)
	meta.SetStatusCondition(&next.Status.Conditions, p.tainted)
	if equal.Values(&next.Status, &seen.hypervisor.Status) {
		return nil
	}
	// A merge patch replaces the whole list of conditions. The lock turns a
	// write over a stale list into another look.
	base := client.MergeFromWithOptions(seen.hypervisor, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, next, base); err != nil {
		return fmt.Errorf("patch status of hypervisor %s: %w", next.Name, err)
	}
	was := meta.FindStatusCondition(seen.hypervisor.Status.Conditions, kvmv1.ConditionReady)
	if was == nil || was.Status != p.ready.Status || was.Reason != p.ready.Reason {
		ctrl.LoggerFrom(ctx).Info("Judged Hypervisor", "Hypervisor", klog.KObj(next),
			"ready", p.ready.Status, "reason", p.ready.Reason, "message", p.ready.Message)
	}
	return nil
}

func (r *Reconciler) pulse(host string) pulse {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulses[host]
}

func (r *Reconciler) remember(host string, p pulse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulses[host] = p
}

func (r *Reconciler) forget(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pulses, host)
}
