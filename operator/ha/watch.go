// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/internal/equal"
	"github.com/adit-hv/adit/internal/wiring"
)

type queue = workqueue.TypedRateLimitingInterface[wiring.Request]

const (
	// indexHost finds the protected VMs that are placed on a host and not over.
	indexHost = "ha.host"
	// indexOf finds a host's Evacuations.
	indexOf = "ha.of"
)

// watch says what wakes which host, and starts the service's round.
func (r *Reconciler) watch(mgr manager.Manager) error {
	index := mgr.GetFieldIndexer()
	if err := index.IndexField(context.Background(), &kubevirtv1.VirtualMachineInstance{}, indexHost, protectedAt); err != nil {
		return err
	}
	if err := index.IndexField(context.Background(), &v1alpha1.Evacuation{}, indexOf, hostOf); err != nil {
		return err
	}
	if err := indexVictims(context.Background(), index); err != nil {
		return err
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("ha").
		For(&kvmv1.Hypervisor{}, builder.WithPredicates(news)).
		Watches(&v1alpha1.Evacuation{}, handler.EnqueueRequestsFromMapFunc(hostRequest)).
		WatchesRawSource(source.Func(r.start)).
		WithOptions(wiring.Options(mgr, max(4, r.o.Workers))).
		Complete(r)
	if err != nil {
		return err
	}
	return r.power.watch(mgr, r)
}

func protectedAt(o client.Object) []string {
	vmi := o.(*kubevirtv1.VirtualMachineInstance)
	if !kubevirt.Protected(vmi) || vmi.Status.NodeName == "" || vmi.IsFinal() {
		return nil
	}
	return []string{vmi.Status.NodeName}
}

func hostOf(o client.Object) []string { return []string{o.(*v1alpha1.Evacuation).Spec.Hypervisor} }

func hostRequest(_ context.Context, o client.Object) []reconcile.Request {
	request := reconcile.Request{}
	request.Name = o.(*v1alpha1.Evacuation).Spec.Hypervisor
	return []reconcile.Request{request}
}

// news leaves out what the agents report of their hosts' loads.
var news = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld.(*kvmv1.Hypervisor), e.ObjectNew.(*kvmv1.Hypervisor)
		return !equal.Values(&before.Spec, &now.Spec) || !before.DeletionTimestamp.Equal(now.DeletionTimestamp) ||
			before.Status.Evicted != now.Status.Evicted || !equal.Values(&before.Status.Conditions, &now.Status.Conditions) ||
			before.Annotations[v1alpha1.AnnotationConfirmFenced] != now.Annotations[v1alpha1.AnnotationConfirmFenced] ||
			before.Annotations[v1alpha1.AnnotationRunLease] != now.Annotations[v1alpha1.AnnotationRunLease]
	},
}

// start keeps the queue, by which reports wake their hosts, and begins the round.
func (r *Reconciler) start(_ context.Context, q queue) error {
	r.mu.Lock()
	r.queue = q
	r.mu.Unlock()
	r.Service.onNews(r.wakeHost)
	q.Add(wiring.Request{})
	return nil
}

func (r *Reconciler) wakeHost(host string) { r.wakeHostIn(host, 0) }

func (r *Reconciler) wakeHostIn(host string, in time.Duration) {
	r.mu.Lock()
	q := r.queue
	r.mu.Unlock()
	if q == nil {
		return
	}
	request := wiring.Request{}
	request.Name = host
	if in > 0 {
		q.AddAfter(request, in)
		return
	}
	q.Add(request)
}
