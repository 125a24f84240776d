// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"slices"

	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/internal/wiring"
)

// Indices of the cache.
const (
	indexHost     = "eviction.host"     // VMs by the hosts they concern.
	indexID       = "eviction.id"       // VMs by their domain's UUID.
	indexActive   = "eviction.active"   // Migrations that have not ended.
	indexEviction = "eviction.eviction" // Migrations by the Eviction that asked.
	indexOf       = "eviction.of"       // Evictions by host.
)

// watch says what wakes which Eviction.
func (r *Reconciler) watch(mgr manager.Manager, workers int) error {
	for _, i := range []struct {
		object client.Object
		name   string
		values client.IndexerFunc
	}{
		{&kubevirtv1.VirtualMachineInstance{}, indexHost, func(o client.Object) []string {
			return HostsOf(o.(*kubevirtv1.VirtualMachineInstance))
		}},
		{&kubevirtv1.VirtualMachineInstance{}, indexID, func(o client.Object) []string {
			return []string{idOf(o.(*kubevirtv1.VirtualMachineInstance))}
		}},
		{&kubevirtv1.VirtualMachineInstanceMigration{}, indexActive, func(o client.Object) []string {
			if o.(*kubevirtv1.VirtualMachineInstanceMigration).IsFinal() {
				return nil
			}
			return []string{"true"}
		}},
		{&kubevirtv1.VirtualMachineInstanceMigration{}, indexEviction, func(o client.Object) []string {
			if name := o.GetLabels()[kubevirt.LabelEviction]; name != "" {
				return []string{name}
			}
			return nil
		}},
		{&kvmv1.Eviction{}, indexOf, func(o client.Object) []string {
			return []string{o.(*kvmv1.Eviction).Spec.Hypervisor}
		}},
	} {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), i.object, i.name, i.values); err != nil {
			return fmt.Errorf("index %s: %w", i.name, err)
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("eviction").
		For(&kvmv1.Eviction{}).
		Watches(&kvmv1.Hypervisor{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.evictionsOf(ctx, o.GetName())
		})).
		Watches(&kubevirtv1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.evictionsOf(ctx, HostsOf(o.(*kubevirtv1.VirtualMachineInstance))...)
		})).
		Watches(&kubevirtv1.VirtualMachineInstanceMigration{}, handler.EnqueueRequestsFromMapFunc(r.byMigration)).
		WithOptions(wiring.Options(mgr, max(1, workers))).
		Complete(r)
}

// evictionsOf are the Evictions of hosts that have not ended.
func (r *Reconciler) evictionsOf(ctx context.Context, hosts ...string) []reconcile.Request {
	var names []string
	for _, host := range hosts {
		var list kvmv1.EvictionList
		if err := r.Client.List(ctx, &list, client.MatchingFields{indexOf: host}, client.UnsafeDisableDeepCopy); err != nil {
			return nil // The cache alone is asked, and does not refuse.
		}
		for i := range list.Items {
			if !ended(&list.Items[i]) || !list.Items[i].DeletionTimestamp.IsZero() {
				names = append(names, list.Items[i].Name)
			}
		}
	}
	slices.Sort(names)
	var requests []reconcile.Request
	for _, name := range slices.Compact(names) {
		request := reconcile.Request{}
		request.Name = name
		requests = append(requests, request)
	}
	return requests
}

// byMigration wakes the Evictions of the hosts that the migration's VM concerns:
// that covers ours, other people's, and those that end before they begin.
func (r *Reconciler) byMigration(ctx context.Context, o client.Object) []reconcile.Request {
	m := o.(*kubevirtv1.VirtualMachineInstanceMigration)
	var hosts []string
	var vmi kubevirtv1.VirtualMachineInstance
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.VMIName}, &vmi, client.UnsafeDisableDeepCopy); err == nil {
		hosts = HostsOf(&vmi)
	}
	// After the switch-over the VM no longer knows where it came from.
	if state := m.Status.MigrationState; state != nil && state.SourceNode != "" {
		hosts = append(hosts, state.SourceNode)
	}
	requests := r.evictionsOf(ctx, hosts...)
	if name := m.Labels[kubevirt.LabelEviction]; name != "" {
		own := reconcile.Request{}
		own.Name = name
		if !slices.Contains(requests, own) {
			requests = append(requests, own)
		}
	}
	return requests
}
