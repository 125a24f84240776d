// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"

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
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// vmEvents keeps the ledger and queues the VMs there is something to do for.
func (r *Reconciler) vmEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			vmi, ok := e.Object.(*kubevirtv1.VirtualMachineInstance)
			if !ok {
				return
			}
			r.wake(q, r.Fleet.Observe(vmi))
			enqueue(q, client.ObjectKeyFromObject(vmi), priorityOf(vmi)) // Always: see markSynced.
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			vmi, ok := e.ObjectNew.(*kubevirtv1.VirtualMachineInstance)
			if !ok {
				return
			}
			r.wake(q, r.Fleet.Observe(vmi))
			if needsUs(vmi) {
				enqueue(q, client.ObjectKeyFromObject(vmi), priorityOf(vmi))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			vmi, ok := e.Object.(*kubevirtv1.VirtualMachineInstance)
			if !ok {
				return
			}
			r.wake(q, r.Fleet.Forget(vmi.UID))
			enqueue(q, client.ObjectKeyFromObject(vmi), 0)
		},
	}
}

// needsUs is false for a VM that is where it belongs, as nearly all are.
func needsUs(vmi *kubevirtv1.VirtualMachineInstance) bool {
	marked := vmi.Annotations[kubevirt.AnnotationEvacuatedFrom] != ""
	if vmi.DeletionTimestamp != nil {
		return marked || !isPlaced(vmi)
	}
	return !vmi.IsFinal() && (marked || !isPlaced(vmi) || hostThatRefused(vmi) != "")
}

// priorityOf is a VM's place in the queue: one that has run comes before those
// that have not, by the class in which it is restarted.
func priorityOf(vmi *kubevirtv1.VirtualMachineInstance) int {
	if !hasRun(vmi) {
		return 0
	}
	return urgentPriority + int(kubevirt.RestartPriorityOf(vmi))
}

func hasRun(vmi *kubevirtv1.VirtualMachineInstance) bool {
	token, _ := runToken(vmi)
	return token > 0
}

// hostEvents keeps the ledger and wakes the VMs that may now fit.
func (r *Reconciler) hostEvents() handler.EventHandler {
	observe := func(object client.Object, q queue) {
		if hv, ok := object.(*kvmv1.Hypervisor); ok && r.Fleet.ObserveHost(hv) {
			r.wake(q, []string{hv.Name})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { observe(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { observe(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { r.Fleet.ForgetHost(e.Object.GetName()) },
	}
}

func (r *Reconciler) wake(q queue, hosts []string) {
	for _, host := range hosts {
		for _, v := range r.Fleet.wake(host) {
			enqueue(q, v.key, v.priority)
		}
	}
}

func enqueue(q queue, key types.NamespacedName, priority int) {
	request := reconcile.Request{NamespacedName: key}
	if byPriority, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok && priority > 0 {
		byPriority.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
		return
	}
	q.Add(request)
}
