// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/internal/equal"
	"github.com/adit-hv/adit/internal/wiring"
)

// news leaves out what the agents report of their hosts' loads.
var news = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld.(*kvmv1.Hypervisor), e.ObjectNew.(*kvmv1.Hypervisor)
		return !equal.Values(&before.Status.Conditions, &now.Status.Conditions) || !equal.Values(&before.Spec, &now.Spec)
	},
}

type queue = workqueue.TypedRateLimitingInterface[wiring.Request]

// start remembers the queue, on which listening to all hosts is one request:
// the one without a name.
func (r *Reconciler) start(_ context.Context, q queue) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = q
	return nil
}

// listenIn asks for a listening to all. The queue keeps the earliest time.
func (r *Reconciler) listenIn(wait time.Duration) {
	r.mu.Lock()
	q := r.queue
	r.mu.Unlock()
	if q != nil {
		q.AddAfter(wiring.Request{}, wait)
	}
}

func (r *Reconciler) wake(host string) {
	r.mu.Lock()
	q := r.queue
	r.mu.Unlock()
	if q != nil {
		request := wiring.Request{}
		request.Name = host
		q.Add(request)
	}
}

// listen feels the pulses of all hosts that beat, once one of them is due: one
// list of Leases instead of a request for each host. A heart that beats makes
// no work; one that has stopped wakes its host. Silent ones are looked at one
// by one and more often.
func (r *Reconciler) listen(ctx context.Context) (ctrl.Result, error) {
	now := r.Clock.Now()
	if due, some := r.nextDue(); !some || now.Before(due) {
		return r.untilDue(now), nil
	}
	var leases coordinationv1.LeaseList
	if err := r.Leases.List(ctx, &leases, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		// We could not ask. That is our trouble and not the hosts'.
		return ctrl.Result{}, fmt.Errorf("list leases in %s: %w", r.Namespace, err)
	}
	byHost := make(map[string]*coordinationv1.Lease, len(leases.Items))
	for i := range leases.Items {
		byHost[leases.Items[i].Name] = &leases.Items[i]
	}
	for _, host := range r.feelAll(byHost, now) {
		r.wake(host)
	}
	return r.untilDue(now), nil
}

// feelAll returns the hosts that fell silent, sorted.
func (r *Reconciler) feelAll(leases map[string]*coordinationv1.Lease, now time.Time) (fell []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, host := range slices.Sorted(maps.Keys(r.pulses)) {
		if last := r.pulses[host]; !last.silent && !last.looked.After(now) {
			p := feel(last, leases[host], false, now)
			r.pulses[host] = p
			if p.silent {
				fell = append(fell, host)
			}
		}
	}
	return fell
}

// nextDue is when the first of the beating hearts may have stopped.
func (r *Reconciler) nextDue() (due time.Time, some bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pulses { // In any order: the least one.
		if !p.silent && (!some || p.due().Before(due)) {
			due, some = p.due(), true
		}
	}
	return due, some
}

func (r *Reconciler) untilDue(now time.Time) ctrl.Result {
	due, some := r.nextDue()
	if !some {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(time.Nanosecond, due.Sub(now))}
}
