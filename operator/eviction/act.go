// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/internal/equal"
)

// act writes the plan: first what holds the Eviction, then migrations, then the
// status, which claims only what has been done.
func (r *Reconciler) act(ctx context.Context, seen observation, p plan) error {
	e := seen.eviction
	if p.hold {
		next := e.DeepCopy()
		controllerutil.AddFinalizer(next, Finalizer)
		base := client.MergeFromWithOptions(e, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, next, base); err != nil {
			return fmt.Errorf("hold eviction %s: %w", e.Name, err)
		}
		r.written.note(next)
		e = next
	}
	if err := r.withdraw(ctx, p); err != nil {
		return err
	}
	for _, a := range p.ask {
		refused, err := r.askToLeave(ctx, seen, a)
		if err != nil {
			return err
		}
		if refused != nil {
			if p.status == nil {
				p.status = &p.full // it is news now
			}
			refuse(p.status, seen, a, refused)
		}
	}
	if p.release {
		next := e.DeepCopy()
		controllerutil.RemoveFinalizer(next, Finalizer)
		base := client.MergeFromWithOptions(e, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, next, base); err != nil {
			return fmt.Errorf("let eviction %s go: %w", e.Name, err)
		}
		r.written.forget(e)
		ctrl.LoggerFrom(ctx).Info("Cancelled eviction", "Eviction", klog.KObj(e), "withdrawn", len(p.withdraw))
		return nil
	}
	return r.writeStatus(ctx, e, p)
}

// withdraw deletes migrations that have not begun. The version is part of the
// wish: one that has begun since our view is not withdrawn but looked at again.
func (r *Reconciler) withdraw(ctx context.Context, p plan) error {
	for _, m := range p.withdraw {
		uid, version := m.UID, m.ResourceVersion
		err := r.Client.Delete(ctx, m, client.Preconditions{UID: &uid, ResourceVersion: &version})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("withdraw migration %s/%s: %w", m.Namespace, m.Name, err)
		}
		ctrl.LoggerFrom(ctx).Info("Withdrew migration", "VirtualMachineInstanceMigration", klog.KObj(m))
	}
	return nil
}

// errBehind says that the decision was made on an old view of a VM.
var errBehind = errors.New("the cache is behind")

// stillHere asks the API itself. The cache may hear of a migration's end before
// it hears of the VM's new place; asked then, the VM would move once more.
func (r *Reconciler) stillHere(ctx context.Context, seen observation, a asked) error {
	var vmi kubevirtv1.VirtualMachineInstance
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(a.vmi), &vmi)
	switch {
	case apierrors.IsNotFound(err), err == nil && (vmi.UID != a.vmi.UID || vmi.Status.NodeName != seen.eviction.Spec.Hypervisor):
		return errBehind
	case err != nil:
		return fmt.Errorf("read VM %s/%s: %w", a.vmi.Namespace, a.vmi.Name, err)
	}
	return nil
}

// askToLeave makes a VM's migration. What the API refuses is that VM's failure
// and nobody else's; where it cannot answer, the same name is tried again.
func (r *Reconciler) askToLeave(ctx context.Context, seen observation, a asked) (refusal, err error) {
	if err := r.stillHere(ctx, seen, a); err != nil {
		return nil, err
	}
	m := newMigration(seen.eviction, a.vmi, a.attempt)
	err = r.Client.Create(ctx, m)
	switch {
	case err == nil:
		ctrl.LoggerFrom(ctx).Info("Asked VM to leave", "VirtualMachineInstance", klog.KObj(a.vmi), "attempt", a.attempt)
	case apierrors.IsAlreadyExists(err):
		// It was asked before, and we did not hear the answer.
	case refused(err):
		return err, nil
	default:
		return nil, fmt.Errorf("ask VM %s/%s to leave %s: %w", a.vmi.Namespace, a.vmi.Name, seen.eviction.Spec.Hypervisor, err)
	}
	return nil, nil
}

// refused says that the API will say no again. A conflict is some admission's
// no: a create has no version to conflict with.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// refuse corrects the status, which said that the VM moves.
func refuse(s *kvmv1.EvictionStatus, seen observation, a asked, why error) {
	for i := range s.Instances {
		entry := &s.Instances[i]
		if entry.ID != idOf(a.vmi) || entry.State != kvmv1.EvictionInstanceMoving {
			continue
		}
		entry.State, entry.Reason, entry.Message = kvmv1.EvictionInstanceFailed, ReasonRefused, cut(why.Error())
		entry.NextAttempt = &metav1.Time{Time: ceil(seen.now.Add(backOff(a.attempt)))}
		s.Running--
		s.Failed++
	}
}

func (r *Reconciler) writeStatus(ctx context.Context, e *kvmv1.Eviction, p plan) error {
	if p.status == nil || equal.Values(p.status, &e.Status) {
		return nil
	}
	next := e.DeepCopy()
	next.Status = *p.status
	// A merge patch replaces the whole lists. The lock turns a write over stale
	// ones into another look.
	base := client.MergeFromWithOptions(e, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, next, base); err != nil {
		return fmt.Errorf("patch status of eviction %s: %w", e.Name, err)
	}
	r.written.note(next)
	r.written.told(next, r.Clock.Now())
	if ended(next) {
		ctrl.LoggerFrom(ctx).Info("Eviction ended", "Eviction", klog.KObj(next), "moved", next.Status.Moved)
	}
	return nil
}
