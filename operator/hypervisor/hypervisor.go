// SPDX-License-Identifier: Apache-2.0

// Package hypervisor gives each Node that runs VMs its Hypervisor.
//
//	Node has no virt-driver label, or is gone    nothing; the owner reference lets the Hypervisor go
//	no Hypervisor                                create it from the Node, in termination if the Node ends
//	labels, owner, annotations differ            patch metadata, and spec unless in termination
//	internalIp or Terminating differ             patch status
//
// It reads Nodes and Hypervisors. It alone writes the Hypervisor object, its
// labels, what the Node says of spec, status.internalIp and the condition
// Terminating. It must never set spec.maintenance of a Hypervisor that exists,
// nor know Evictions or VMs.
package hypervisor

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/internal/equal"
	"github.com/adit-hv/adit/internal/wiring"
)

// conflictRetry lets the cache catch up with the write that came first. Most
// caches do within some tens of milliseconds.
const conflictRetry = 200 * time.Millisecond

// Options say what the controller takes over besides the fixed labels.
type Options struct {
	// TransferLabels are further labels a Hypervisor takes over from its Node.
	TransferLabels []string

	// Workers is how many Nodes are handled at once; 0 is 1.
	Workers int
}

// Setup adds the controller to a manager whose cache holds Nodes and Hypervisors.
func Setup(mgr manager.Manager, o Options) error {
	r := &Reconciler{Client: mgr.GetClient(), Labels: transferred(o.TransferLabels)}
	return ctrl.NewControllerManagedBy(mgr).
		Named("hypervisor").
		For(&corev1.Node{}, builder.WithPredicates(newsOfNode)).
		Watches(&kvmv1.Hypervisor{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(newsOfHypervisor)).
		WithOptions(wiring.Options(mgr, max(1, o.Workers))).
		Complete(r)
}

// newsOfNode leaves out a kubelet's news of itself: images, pressure, capacity.
var newsOfNode = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return !equal.Values(&before.Labels, &now.Labels) ||
			!equal.Values(&before.Annotations, &now.Annotations) ||
			!equal.Values(&before.Status.Addresses, &now.Status.Addresses) ||
			terminating(before) != terminating(now)
	},
}

// newsOfHypervisor leaves out what the agents and the other controllers say.
var newsOfHypervisor = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld.(*kvmv1.Hypervisor), e.ObjectNew.(*kvmv1.Hypervisor)
		return !equal.Values(&before.ObjectMeta.Labels, &now.ObjectMeta.Labels) ||
			!equal.Values(&before.ObjectMeta.Annotations, &now.ObjectMeta.Annotations) ||
			!equal.Values(&before.OwnerReferences, &now.OwnerReferences) ||
			!equal.Values(&before.Spec, &now.Spec) ||
			before.Status.InternalIP != now.Status.InternalIP ||
			!equal.Values(terminatingOf(before), terminatingOf(now))
	},
}

// Reconciler makes one Node's Hypervisor as the Node says.
type Reconciler struct {
	Client client.Client
	Labels []string // Taken over from the Node, sorted.
}

// Reconcile observes, decides and acts.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	seen, err := r.observe(ctx, req)
	if err != nil {
		return ctrl.Result{}, err
	}
	err = r.act(ctx, seen, decide(seen))
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	return ctrl.Result{}, err
}

func (r *Reconciler) observe(ctx context.Context, req ctrl.Request) (observation, error) {
	seen := observation{labels: r.Labels}
	var node corev1.Node
	if err := r.Client.Get(ctx, req.NamespacedName, &node); err != nil {
		if apierrors.IsNotFound(err) {
			return seen, nil
		}
		return seen, fmt.Errorf("read node %s: %w", req.Name, err)
	}
	seen.node = &node
	var hypervisor kvmv1.Hypervisor
	switch err := r.Client.Get(ctx, req.NamespacedName, &hypervisor); {
	case err == nil:
		seen.hypervisor = &hypervisor
	case !apierrors.IsNotFound(err):
		return seen, fmt.Errorf("read hypervisor %s: %w", req.Name, err)
	}
	return seen, nil
}

// act writes the plan: the object first, then its status.
func (r *Reconciler) act(ctx context.Context, seen observation, p plan) error {
	if p.hypervisor == nil {
		return nil
	}
	log := ctrl.LoggerFrom(ctx)
	wanted := p.hypervisor
	status := wanted.Status
	before := seen.hypervisor
	if before == nil {
		if err := r.Client.Create(ctx, wanted); err != nil {
			return fmt.Errorf("create hypervisor %s: %w", wanted.Name, err)
		}
		log.Info("Created Hypervisor", "Hypervisor", klog.KObj(wanted), "maintenance", wanted.Spec.Maintenance)
		// The answer carries the defaults of the schema, and is what the
		// status is written over.
		before = wanted.DeepCopy()
	} else if objectDiffers(before, wanted) {
		base := client.MergeFromWithOptions(withoutStatus(before), client.MergeFromWithOptimisticLock{})
		object := withoutStatus(wanted)
		if err := r.Client.Patch(ctx, object, base); err != nil {
			return fmt.Errorf("patch hypervisor %s: %w", wanted.Name, err)
		}
		log.Info("Took over from Node", "Hypervisor", klog.KObj(wanted))
		before = object.DeepCopy()
	}
	next := before.DeepCopy()
	next.Status.InternalIP = status.InternalIP
	setTerminating(next, seen.node)
	if equal.Values(&before.Status, &next.Status) {
		return nil
	}
	// A merge patch replaces the whole list of conditions. The lock turns a
	// write over a stale list into another look.
	base := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, next, base); err != nil {
		return fmt.Errorf("patch status of hypervisor %s: %w", wanted.Name, err)
	}
	return nil
}

func objectDiffers(a, b *kvmv1.Hypervisor) bool {
	return !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) ||
		!equal.Values(&a.OwnerReferences, &b.OwnerReferences) ||
		!equal.Values(&a.Spec, &b.Spec)
}

func withoutStatus(h *kvmv1.Hypervisor) *kvmv1.Hypervisor {
	h = h.DeepCopy()
	h.Status = kvmv1.HypervisorStatus{}
	return h
}
