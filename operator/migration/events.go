// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/internal/equal"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// migrationEvents queues the VMI a migration is of.
func (r *Reconciler) migrationEvents() handler.EventHandler {
	add := func(object client.Object, q queue) {
		if m, ok := object.(*kubevirtv1.VirtualMachineInstanceMigration); ok {
			enqueue(q, types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.VMIName}, priorityOf(m))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.sightings.forgetMigration(e.Object.GetUID())
			add(e.Object, q)
		},
	}
}

// vmEvents keeps the slots, and queues a VMI that moves, has just done so or
// waits to, and those whose turn has come.
func (r *Reconciler) vmEvents() handler.EventHandler {
	wake := func(keys []types.NamespacedName, q queue) {
		for _, key := range keys {
			enqueue(q, key, userPriority)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if vmi, ok := e.Object.(*kubevirtv1.VirtualMachineInstance); ok {
				wake(r.slots.observe(vmi), q)
				if vmi.Status.MigrationState != nil {
					enqueue(q, client.ObjectKeyFromObject(vmi), userPriority)
				}
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			old, _ := e.ObjectOld.(*kubevirtv1.VirtualMachineInstance)
			vmi, ok := e.ObjectNew.(*kubevirtv1.VirtualMachineInstance)
			if !ok || old == nil {
				return
			}
			wake(r.slots.observe(vmi), q)
			if r.slots.waits(vmi.UID) || isLive(vmi) || hasTargetName(vmi) || hasCopyLabel(vmi) ||
				!equal.Values(old.Status.MigrationState, vmi.Status.MigrationState) {
				enqueue(q, client.ObjectKeyFromObject(vmi), userPriority)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.sightings.forgetVM(e.Object.GetUID())
			wake(r.slots.forget(e.Object.GetUID()), q)
			enqueue(q, client.ObjectKeyFromObject(e.Object), userPriority)
		},
	}
}

// hostEvents queues the VMIs that concern a host which was fenced: their migrations
// are settled by that. The ledger hears of it by another watch, so a little later.
func (r *Reconciler) hostEvents() handler.EventHandler {
	fenced := func(object client.Object) bool {
		hv, ok := object.(*kvmv1.Hypervisor)
		return ok && meta.IsStatusConditionFalse(hv.Status.Conditions, kvmv1.ConditionHostAlive)
	}
	wake := func(ctx context.Context, host string, q queue) {
		var vmis kubevirtv1.VirtualMachineInstanceList
		if err := r.Client.List(ctx, &vmis, client.HasLabels{kubevirt.HostLabel(host)}, client.UnsafeDisableDeepCopy); err != nil {
			return // The cache alone is asked, and does not refuse.
		}
		for i := range vmis.Items {
			if vmi := &vmis.Items[i]; isLive(vmi) || hasTargetName(vmi) || hasCopyLabel(vmi) {
				q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(vmi)}, catchUp)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if fenced(e.Object) {
				wake(ctx, e.Object.GetName(), q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if fenced(e.ObjectNew) && !fenced(e.ObjectOld) {
				wake(ctx, e.ObjectNew.GetName(), q)
			}
		},
	}
}

func enqueue(q queue, key types.NamespacedName, priority int) {
	request := reconcile.Request{NamespacedName: key}
	if byPriority, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		byPriority.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
		return
	}
	q.Add(request)
}
