// SPDX-License-Identifier: Apache-2.0

// Package compute places VMs on hosts. It reads VirtualMachineInstances and
// Hypervisors and keeps both in a ledger, the Fleet, which migration and
// eviction ask too. It alone writes what ARCHITECTURE.md gives to placement, in
// one patch. It must never know how a VM is run, nor start or stop one.
//
//	ended, or placed                   nothing
//	evacuated from a host it is not on that mark removed
//	evacuated, another host may act    nothing: that one has to speak first
//	deleted, never placed or evacuated finalizer removed
//	asks for what we do not support    Failed, PodScheduled=False Unsupported
//	evacuated, all that fit are busy   nothing yet
//	evacuated, or given up by its host placed elsewhere, or Pending and on no host
//	a host fits                        placed: Scheduled, with the next run token
//	none fits                          Pending, PodScheduled=False Unschedulable;
//	                                   others that yield to it are asked to leave
package compute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/internal/wiring"
)

const (
	// AnnotationProject is the project a VM belongs to, if not its namespace;
	// it opens hosts whose spec.allowedProjects name it.
	AnnotationProject = "kvm.cloud.sap/project"

	// ReasonHostFull is the reason of Synchronized=False by which a host says
	// that it has no room for a VM placed on it.
	ReasonHostFull = "HostFull"
	// The others by which a host gives up a VM that may have run there: its QEMU
	// died again and again, the host has lost the VM's disks, the VM was asked to
	// make room, or it moved away and its target lost it. Its domain is gone when a
	// host says so.
	ReasonRestartsExhausted = "RestartsExhausted"
	ReasonStorageLost       = kubevirt.LeaveStorageLost
	ReasonYielded           = kubevirt.LeaveYielded
	ReasonDomainLost        = "DomainLost"

	// ReasonEvacuated is that of Ready=False of a VM that is to run elsewhere
	// and does not yet.
	ReasonEvacuated = "Evacuated"
	// ReasonUnsupported is that of a VM whose spec we cannot honour.
	ReasonUnsupported = "Unsupported"
)

// avoidance is how long a VM keeps off a host that refused it for want of room:
// by then the host's report, once a minute, has said why.
const avoidance = 2 * time.Minute

// conflictRetry is when a VM is looked at again whose version had moved on. The
// event that shows how comes sooner, unless it was the last before.
const conflictRetry = time.Second

// busyRetry is when a VM is looked at again for which all hosts are busy starting
// others: a start takes seconds.
const busyRetry = time.Second

// urgentPriority puts a VM that has run before ahead of those that have not;
// the classes in which VMs are restarted come on top.
const urgentPriority = 10

// Options say how VMs are placed.
type Options struct {
	// Clock is what waits and deadlines are measured with.
	Clock clock.PassiveClock

	// AllowYield lets VMs marked to yield be stopped for those of a higher class
	// that have run before and fit nowhere.
	AllowYield bool

	// PerTarget is how many VMs that left a dead host may be about to start on one
	// host; 0 is 10.
	PerTarget int

	// Workers is how many VMs are placed at once; 0 is 4.
	Workers int
}

// Setup adds the controller to a manager and returns the fleet as it sees it.
// The fleet is filled by the controller's own events.
func Setup(mgr manager.Manager, o Options) (*Fleet, error) {
	if o.Workers == 0 {
		o.Workers = 4
	}
	r := &Reconciler{Client: mgr.GetClient(), Clock: o.Clock, Fleet: NewFleet(o.Clock), PerTarget: cmp.Or(o.PerTarget, 10), AllowYield: o.AllowYield}
	err := builder.ControllerManagedBy(mgr).
		Named("compute").
		Watches(&kubevirtv1.VirtualMachineInstance{}, r.vmEvents()).
		Watches(&kvmv1.Hypervisor{}, r.hostEvents()).
		WithOptions(wiring.Options(mgr, o.Workers)).
		Complete(r)
	return r.Fleet, err
}

// Reconciler places one VM.
type Reconciler struct {
	Client client.Client
	Clock  clock.PassiveClock
	Fleet  *Fleet

	PerTarget  int  // Evacuated VMs about to start on one host.
	AllowYield bool // VMs marked so are stopped for those of a higher class.
}

// Reconcile observes, decides and acts. Asking the fleet for a host belongs to
// observing, although it reserves: what is then not written is given back.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.Fleet.markSynced() // Workers start when all there was has been seen.
	seen, err := r.observe(ctx, req)
	if err != nil || seen.vmi == nil {
		return ctrl.Result{}, err
	}
	p := decide(seen)
	again, err := r.act(ctx, seen, p)
	result := ctrl.Result{RequeueAfter: again}
	if hasRun(seen.vmi) {
		priority := priorityOf(seen.vmi)
		result.Priority = &priority
	}
	return result, err
}

func (r *Reconciler) observe(ctx context.Context, req ctrl.Request) (observation, error) {
	seen := observation{now: r.Clock.Now()}
	var vmi kubevirtv1.VirtualMachineInstance // the cache's own: what is to be changed is copied
	if err := r.Client.Get(ctx, req.NamespacedName, &vmi, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			r.Fleet.forgetKey(req.NamespacedName)
		}
		return seen, client.IgnoreNotFound(err)
	}
	seen.vmi = &vmi
	seen.behind = r.Fleet.Ahead(&vmi)
	if wantsHost(seen) {
		ask := Request{VM: &vmi}
		if left := leftHost(&vmi); left != "" {
			r.Fleet.avoid(vmi.UID, left, seen.now.Add(avoidance))
			ask.Exclude = []string{left}
		}
		if isEvacuated(&vmi) {
			ask.MaxStarting = r.PerTarget
		}
		seen.host, seen.why = r.Fleet.Place(ask)
		if r.AllowYield && seen.host == "" && !seen.why.Busy() {
			seen.yieldOn, seen.yield = r.Fleet.yielding(&vmi, ask.Exclude)
		}
	}
	return seen, nil
}

// act writes the plan: one patch, or none.
func (r *Reconciler) act(ctx context.Context, seen observation, p plan) (again time.Duration, err error) {
	if p.soon {
		again = busyRetry
	}
	if p.wait {
		again = r.Fleet.waits(seen.vmi.UID)
	}
	after := p.apply(seen)
	if after == nil {
		if p.wait {
			return again, r.askToYield(ctx, seen)
		}
		return again, nil
	}
	lock := client.MergeFromWithOptions(seen.vmi, client.MergeFromWithOptimisticLock{})
	switch err := r.Client.Patch(ctx, after, lock); {
	case err == nil:
	case NotWritten(err):
		if p.host != "" {
			r.Fleet.Release(seen.vmi.UID, p.host)
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return conflictRetry, nil
		}
		return 0, fmt.Errorf("%s VM %s: %w", p.verb(), klog.KObj(seen.vmi), err)
	default:
		return 0, fmt.Errorf("%s VM %s: %w", p.verb(), klog.KObj(seen.vmi), err)
	}
	if !p.release {
		r.Fleet.Observe(after)
	}
	if p.wait {
		return again, r.askToYield(ctx, seen)
	}
	if p.host != "" {
		ctrl.LoggerFrom(ctx).Info("Placed VM", "VirtualMachineInstance", klog.KObj(after), "host", p.host, "runToken", p.token)
	}
	return again, nil
}

// NotWritten says that a write that ended in this error surely changed nothing:
// the API refused it. After any other error it may have.
func NotWritten(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && !apierrors.IsTimeout(err)
}
