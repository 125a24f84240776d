// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/internal/equal"
	"github.com/adit-hv/adit/internal/wiring"
	"github.com/adit-hv/adit/operator/eviction"
)

// indexHost finds the VMs of a host in the cache, indexWaits the hosts whose
// maintenance has not begun.
const (
	indexHost  = "maintenance.host"
	indexWaits = "maintenance.waits"
)

// watch says what wakes which host.
func (r *Reconciler) watch(mgr manager.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &kubevirtv1.VirtualMachineInstance{}, indexHost, hostsOf)
	if err != nil {
		return fmt.Errorf("index VMs by host: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &kvmv1.Hypervisor{}, indexWaits, waits); err != nil {
		return fmt.Errorf("index hosts that wait: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("maintenance").
		For(&kvmv1.Hypervisor{}, builder.WithPredicates(news)).
		Watches(&kvmv1.Hypervisor{}, handler.EnqueueRequestsFromMapFunc(r.waiting), builder.WithPredicates(servesAgain)).
		Watches(&kvmv1.Eviction{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(taintsChanged)).
		Watches(&kubevirtv1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.hostRequests), builder.WithPredicates(hostsChanged)).
		WithOptions(wiring.Options(mgr, 1)).
		Complete(r)
}

func waits(o client.Object) []string {
	if h := o.(*kvmv1.Hypervisor); asks(h) && !disabled(h) {
		return []string{"true"}
	}
	return nil
}

func hostsOf(o client.Object) []string {
	return eviction.HostsOf(o.(*kubevirtv1.VirtualMachineInstance))
}

// hostRequests are a VM's hosts, but for those of which nothing is asked: what
// is on them matters once it is, and that is news of its own.
func (r *Reconciler) hostRequests(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, host := range hostsOf(o) {
		var h kvmv1.Hypervisor
		if err := r.Client.Get(ctx, client.ObjectKey{Name: host}, &h, client.UnsafeDisableDeepCopy); err == nil && !asks(&h) && !disabled(&h) {
			continue
		}
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: host}})
	}
	return requests
}

// waiting are the hosts that may begin their maintenance now that another host
// is back.
func (r *Reconciler) waiting(ctx context.Context, o client.Object) []reconcile.Request {
	var waiting kvmv1.HypervisorList
	if err := r.Client.List(ctx, &waiting, client.MatchingFields{indexWaits: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // The cache alone is asked, and does not refuse.
	}
	var names []string
	for i := range waiting.Items {
		if name := waiting.Items[i].Name; name != o.GetName() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	requests := make([]reconcile.Request, len(names))
	for i, name := range names {
		requests[i].Name = name
	}
	return requests
}

// news leaves out what the agents report, of a host of which nothing is asked.
var news = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld.(*kvmv1.Hypervisor), e.ObjectNew.(*kvmv1.Hypervisor)
		return asks(now) || before.Status.Evicted != now.Status.Evicted ||
			!before.DeletionTimestamp.Equal(now.DeletionTimestamp) || !equal.Values(&before.Spec, &now.Spec) ||
			!equal.Values(&before.Status.Conditions, &now.Status.Conditions)
	},
}

// servesAgain leaves out what lets nobody begin: of forty hosts that are asked to
// leave at once, each that goes would wake all that still wait.
var servesAgain = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !serves(e.ObjectOld.(*kvmv1.Hypervisor)) && serves(e.ObjectNew.(*kvmv1.Hypervisor))
	},
}

var taintsChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !equal.Values(&e.ObjectOld.(*corev1.Node).Spec.Taints, &e.ObjectNew.(*corev1.Node).Spec.Taints)
	},
}

var hostsChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !slices.Equal(hostsOf(e.ObjectOld), hostsOf(e.ObjectNew))
	},
}
