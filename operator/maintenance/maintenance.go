// SPDX-License-Identifier: Apache-2.0

// Package maintenance takes hosts out of service and back. Hypervisor's
// spec.maintenance is the one source of intent; the table stands at decide, and
// is gone through anew at each look.
//
// It reads Hypervisors, Evictions, Nodes and VirtualMachineInstances. It alone
// writes the conditions HypervisorDisabled and Evicting, status.evicted, the Eviction
// named as the host, and the Node taint kvm.cloud.sap/offboarding. How a VM moves,
// and where, it must never know.
package maintenance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	kubevirtv1 "kubevirt.io/api/core/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/internal/equal"
)

// conflictRetry lets the cache catch up with the write that came first. Most
// caches do within some tens of milliseconds.
const conflictRetry = 200 * time.Millisecond

// Options say how many hosts stay in service whatever is asked.
type Options struct {
	Clock clock.PassiveClock

	// MinActive is the number, or the percentage, of hosts that stay in
	// service; nil is 1.
	MinActive *intstr.IntOrString
}

// Reconciler carries one host into maintenance or out of it.
type Reconciler struct {
	Client client.Client
	Live   client.Reader // The API itself.
	Clock  clock.PassiveClock

	// MinActive is how many hosts stay in service.
	MinActive intstr.IntOrString
}

// Reconcile observes, decides and acts.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	seen, err := r.observe(ctx, req)
	if err != nil {
		return ctrl.Result{}, err
	}
	if seen.hypervisor == nil {
		return ctrl.Result{}, nil
	}
	err = r.act(ctx, seen, decide(seen))
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

func (r *Reconciler) observe(ctx context.Context, req ctrl.Request) (observation, error) {
	seen := observation{now: r.Clock.Now()}
	// What is read here is only read: act makes copies of what it changes.
	var hypervisor kvmv1.Hypervisor
	if err := r.Client.Get(ctx, req.NamespacedName, &hypervisor, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return seen, nil
		}
		return seen, fmt.Errorf("read hypervisor %s: %w", req.Name, err)
	}
	seen.hypervisor = &hypervisor

	var eviction kvmv1.Eviction
	switch err := r.Client.Get(ctx, req.NamespacedName, &eviction, client.UnsafeDisableDeepCopy); {
	case err == nil:
		seen.eviction = &eviction
	case !apierrors.IsNotFound(err):
		return seen, fmt.Errorf("read eviction %s: %w", req.Name, err)
	}
	var node corev1.Node
	switch err := r.Client.Get(ctx, req.NamespacedName, &node, client.UnsafeDisableDeepCopy); {
	case err == nil:
		seen.node = &node
	case !apierrors.IsNotFound(err):
		return seen, fmt.Errorf("read node %s: %w", req.Name, err)
	}
	if !asks(&hypervisor) {
		return seen, nil
	}
	var vmis kubevirtv1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &vmis, client.MatchingFields{indexHost: req.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return seen, fmt.Errorf("list VMs of %s: %w", req.Name, err)
	}
	seen.vms = max(len(vmis.Items), len(hypervisor.Status.Instances), hypervisor.Status.NumInstances)
	if disabled(&hypervisor) {
		return seen, nil
	}
	var err error
	seen.floor, err = r.floor(ctx, req.Name)
	return seen, err
}

// floor says whether the host may leave service. The cache may not have heard
// of a host that left a moment ago, so before it does the API itself is asked:
// one worker admits hosts one after the other.
func (r *Reconciler) floor(ctx context.Context, host string) (floor, error) {
	var fleet kvmv1.HypervisorList
	if err := r.Client.List(ctx, &fleet, client.UnsafeDisableDeepCopy); err != nil {
		return floor{}, fmt.Errorf("list hypervisors: %w", err)
	}
	f, err := count(fleet.Items, host, r.MinActive)
	if err != nil || !f.allows() {
		return f, err
	}
	fleet = kvmv1.HypervisorList{}
	if err := r.Live.List(ctx, &fleet, client.UnsafeDisableDeepCopy); err != nil {
		return floor{}, fmt.Errorf("list hypervisors: %w", err)
	}
	return count(fleet.Items, host, r.MinActive)
}

// act writes the plan. Leaving maintenance, the Eviction goes before the marks:
// whoever crashes between the two still finds the marks and does both again.
// Entering, the marks come first, since an Eviction refuses to start without.
func (r *Reconciler) act(ctx context.Context, seen observation, p plan) error {
	if p.leaves {
		if err := r.deleteEviction(ctx, seen, p); err != nil {
			return err
		}
	}
	if err := r.writeStatus(ctx, seen, p); err != nil {
		return err
	}
	if !p.leaves {
		if err := r.deleteEviction(ctx, seen, p); err != nil {
			return err
		}
	}
	if p.create != nil {
		if err := r.Client.Create(ctx, p.create); err != nil {
			return fmt.Errorf("create eviction %s: %w", p.create.Name, err)
		}
		ctrl.LoggerFrom(ctx).Info("Asked for eviction", "Eviction", klog.KObj(p.create), "reason", p.create.Spec.Reason)
	}
	return r.writeTaint(ctx, seen, p)
}

func (r *Reconciler) deleteEviction(ctx context.Context, seen observation, p plan) error {
	if !p.deleteEviction {
		return nil
	}
	uid := seen.eviction.UID
	err := r.Client.Delete(ctx, seen.eviction, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete eviction %s: %w", seen.eviction.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Withdrew eviction", "Eviction", klog.KObj(seen.eviction))
	return nil
}

func (r *Reconciler) writeStatus(ctx context.Context, seen observation, p plan) error {
	next := seen.hypervisor.DeepCopy()
	p.mark(next, metav1.NewTime(seen.now))
	if equal.Values(&next.Status, &seen.hypervisor.Status) {
		return nil
	}
	// A merge patch replaces the whole list of conditions. The lock turns a
	// write over a stale list into another look.
	base := client.MergeFromWithOptions(seen.hypervisor, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, next, base); err != nil {
		return fmt.Errorf("patch status of hypervisor %s: %w", next.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Marked Hypervisor", "Hypervisor", klog.KObj(next),
		"maintenance", next.Spec.Maintenance, "marks", strings.Join(p.words(), ", "))
	return nil
}

// writeTaint adds or removes the offboarding taint. It drives the agents' pods
// off, so it stands only while the host is empty and going for good.
func (r *Reconciler) writeTaint(ctx context.Context, seen observation, p plan) error {
	if seen.node == nil || p.leaveTaint {
		return nil
	}
	isOurs := func(t corev1.Taint) bool { return t.Key == kvmv1.TaintOffboarding }
	has := slices.ContainsFunc(seen.node.Spec.Taints, isOurs)
	if has == p.taint {
		return nil
	}
	next := seen.node.DeepCopy()
	if p.taint {
		next.Spec.Taints = append(next.Spec.Taints, corev1.Taint{Key: kvmv1.TaintOffboarding, Effect: corev1.TaintEffectNoExecute})
	} else {
		next.Spec.Taints = slices.DeleteFunc(next.Spec.Taints, isOurs)
	}
	base := client.MergeFromWithOptions(seen.node, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, next, base); err != nil {
		return fmt.Errorf("patch taints of node %s: %w", next.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Changed offboarding taint", "Node", klog.KObj(next), "set", p.taint)
	return nil
}

// Setup adds the controller to a manager whose cache holds Hypervisors,
// Evictions, Nodes and VirtualMachineInstances. It has one worker, whatever the
// fleet's size: hosts are admitted to maintenance one after the other.
func Setup(mgr manager.Manager, o Options) error {
	if o.Clock == nil {
		return fmt.Errorf("operator/maintenance: no clock")
	}
	least := intstr.FromInt32(1)
	if o.MinActive != nil {
		least = *o.MinActive
	}
	r := &Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: o.Clock, MinActive: least}
	if _, err := count(nil, "", least); err != nil {
		return fmt.Errorf("operator/maintenance: MinActive: %w", err)
	}
	return r.watch(mgr)
}
