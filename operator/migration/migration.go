// SPDX-License-Identifier: Apache-2.0

// Package migration carries VirtualMachineInstanceMigrations from wish to end:
// one VMI's at a time, by turns and limits over all. It reads VMIs, their
// migrations and the fleet. It alone writes a migration's status, a VMI's
// target labels and its part of migrationState (ARCHITECTURE.md). It must never
// move a VM itself, nor believe that one has moved before its target says so.
//
//	target fenced                  failed, its labels cleared: it runs nothing
//	source fenced                  failed; the target has to say whether it has the VM
//	deleted, VMI handed off        abort; at once if the target has not answered
//	failed                         target's labels cleared, then a rest
//	target silent, gone            withdrawn
//	handed off                     PreparingTarget, TargetReady, Running
//	there                          Succeeded
//	second of a VMI, VMI unfit     Failed
//	no slot, VMI not up yet        Pending
//	no host                        Scheduling; in the end Failed
//	slot and host                  handed off
package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
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
	"github.com/adit-hv/adit/operator/compute"
)

// indexVMI finds migrations by the VMI they are of.
const indexVMI = "spec.vmiName"

// catchUp is when a VMI is looked at again of which the cache shows an old view.
// The event that renews it may be of no interest by itself.
const catchUp = time.Second

// Options are the limits of migrations. Zero values mean the defaults, which
// are KubeVirt's where it has one.
type Options struct {
	Clock clock.PassiveClock

	PerFleet  int // Migrations at once; 0 is 5.
	PerHost   int // Of them out of one host; 0 is 2.
	PerTarget int // Of them into one host; 0 is 2.

	Bandwidth               *resource.Quantity // Bytes a second for one; nil is no limit.
	CompletionTimeoutPerGiB time.Duration      // 0 is 150 s.
	ProgressTimeout         time.Duration      // 0 is 150 s.
	AllowAutoConverge       bool
	AllowPostCopy           bool
	AllowWorkloadDisruption bool

	UnschedulableTimeout time.Duration // With no host that fits; 0 is 300 s.
	PendingTimeout       time.Duration // For the target to prepare; 0 is 900 s.
	KeepFinished         int           // Finished migrations kept of a VM; 0 is 5.

	Workers int // 0 is 4.
}

func (o Options) withDefaults() Options {
	set := func(n *int, to int) {
		if *n == 0 {
			*n = to
		}
	}
	wait := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&o.PerFleet, 5)
	set(&o.PerHost, 2)
	set(&o.PerTarget, 2)
	set(&o.KeepFinished, 5)
	set(&o.Workers, 4)
	wait(&o.CompletionTimeoutPerGiB, 150*time.Second)
	wait(&o.ProgressTimeout, 150*time.Second)
	wait(&o.UnschedulableTimeout, 300*time.Second)
	wait(&o.PendingTimeout, 900*time.Second)
	return o
}

// Setup adds the controller to a manager. The fleet is the one compute.Setup
// returned for the same manager.
func Setup(mgr manager.Manager, fleet *compute.Fleet, o Options) error {
	o = o.withDefaults()
	r := &Reconciler{
		Client: mgr.GetClient(), Fleet: fleet, Options: o,
		slots: newSlots(o.PerFleet, o.PerHost), sightings: newSightings(),
	}
	index := func(object client.Object) []string {
		return []string{object.(*kubevirtv1.VirtualMachineInstanceMigration).Spec.VMIName}
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &kubevirtv1.VirtualMachineInstanceMigration{}, indexVMI, index); err != nil {
		return fmt.Errorf("index migrations by VMI: %w", err)
	}
	return builder.ControllerManagedBy(mgr).
		Named("migration").
		Watches(&kubevirtv1.VirtualMachineInstanceMigration{}, r.migrationEvents()).
		Watches(&kubevirtv1.VirtualMachineInstance{}, r.vmEvents()).
		Watches(&kvmv1.Hypervisor{}, r.hostEvents()).
		WithOptions(wiring.Options(mgr, o.Workers)).
		Complete(r)
}

// Reconciler carries one VMI's migrations forward.
type Reconciler struct {
	Client  client.Client
	Fleet   *compute.Fleet
	Options Options

	slots     *slots
	sightings *sightings
}

// Reconcile observes, decides and acts. Taking a slot and asking the fleet for
// a host belong to observing, although they reserve: what is then not written
// is given back.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	seen, err := r.observe(ctx, req)
	if err != nil {
		return ctrl.Result{}, err
	}
	if seen.behind {
		return ctrl.Result{RequeueAfter: catchUp}, nil
	}
	p := decide(seen, r.Options)
	if err := r.act(ctx, seen, p); err != nil {
		return ctrl.Result{}, err
	}
	if p.conflict {
		p.again = sooner(p.again, catchUp)
	}
	return ctrl.Result{RequeueAfter: p.again, Priority: &p.priority}, nil
}

func (r *Reconciler) observe(ctx context.Context, req ctrl.Request) (observation, error) {
	seen := observation{now: r.Options.Clock.Now(), key: req.NamespacedName}
	if !r.Fleet.Synced() {
		seen.behind = true
		return seen, nil
	}
	var migrations kubevirtv1.VirtualMachineInstanceMigrationList
	err := r.Client.List(ctx, &migrations, client.InNamespace(req.Namespace), client.MatchingFields{indexVMI: req.Name})
	if err != nil {
		return seen, err
	}
	seen.migrations = migrations.Items
	slices.SortFunc(seen.migrations, func(a, b kubevirtv1.VirtualMachineInstanceMigration) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	var vmi kubevirtv1.VirtualMachineInstance
	switch err := r.Client.Get(ctx, req.NamespacedName, &vmi); {
	case err == nil:
		seen.vmi = &vmi
		seen.behind = r.Fleet.Ahead(&vmi)
	case !apierrors.IsNotFound(err):
		return seen, err
	}
	seen.behind = seen.behind || r.sightings.ahead(seen.migrations)
	if seen.behind || seen.vmi == nil {
		return seen, nil
	}
	seen.hostFenced = r.Fleet.HostFenced(seen.vmi.Status.NodeName)
	r.look(&seen)
	r.reserve(&seen)
	return seen, nil
}

// look adds what the VMI does not say of its migration: what the hosts report,
// and since when we have seen what has no time of its own.
func (r *Reconciler) look(seen *observation) {
	m := seen.vmi.Status.MigrationState
	if m == nil || m.TargetNode == "" {
		return
	}
	seen.targetTakes = r.Fleet.HostTakes(m.TargetNode)
	seen.targetLists, seen.targetActive = r.Fleet.HostReports(m.TargetNode, seen.vmi)
	_, seen.sourceActive = r.Fleet.HostReports(m.SourceNode, seen.vmi)
	if kubevirt.Protected(seen.vmi) { // No proof speaks of the others.
		seen.targetFenced, seen.sourceFenced = r.Fleet.HostFenced(m.TargetNode), r.Fleet.HostFenced(m.SourceNode)
	}
	seen.answeredSince, seen.failedSince = r.sightings.see(seen.vmi, seen.now)
}

// reserve asks for a slot and a host if a migration wants them.
func (r *Reconciler) reserve(seen *observation) {
	i := seen.candidate(r.Options)
	if i < 0 {
		r.slots.leave(seen.vmi.UID)
		return
	}
	turn := seen.turn(i)
	if !r.slots.take(turn, seen.vmi.ResourceVersion) {
		return
	}
	seen.slot = true
	m := &seen.migrations[i]
	seen.host, seen.why = r.Fleet.Place(compute.Request{
		VM: seen.vmi, Source: seen.vmi.Status.NodeName, Cold: isStopped(seen.vmi),
		NodeSelector: m.Spec.AddedNodeSelector, Exclude: seen.excluded(), MaxIncoming: r.Options.PerTarget,
	})
	if seen.host == "" {
		r.slots.give(turn, true)
	}
}

// act writes the plan: the VMI first, because all else is told from it.
func (r *Reconciler) act(ctx context.Context, seen observation, p *plan) error {
	if err := r.writeVMI(ctx, seen, p); err != nil || p.conflict {
		return err
	}
	for _, w := range p.writes {
		if err := r.writeStatus(ctx, seen, p, w); err != nil {
			return err
		}
	}
	for _, i := range p.remove {
		m := &seen.migrations[i]
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, m)); err != nil {
			return fmt.Errorf("remove finished migration %s: %w", klog.KObj(m), err)
		}
	}
	return nil
}

func (r *Reconciler) writeVMI(ctx context.Context, seen observation, p *plan) error {
	after := p.applyToVMI(seen, r.Options)
	if after == nil {
		return nil
	}
	lock := client.MergeFromWithOptions(seen.vmi, client.MergeFromWithOptimisticLock{})
	err := r.Client.Patch(ctx, after, lock)
	if err != nil && compute.NotWritten(err) && p.vmi == handOff {
		r.Fleet.Release(seen.vmi.UID, p.target)
		r.slots.give(seen.turn(p.candidate), false)
	}
	switch {
	case err == nil:
		r.Fleet.Observe(after)
		r.slots.observe(after)
		ctrl.LoggerFrom(ctx).Info(p.vmi.news(), "VirtualMachineInstance", klog.KObj(after), "target", p.target, "reason", p.reason)
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		p.conflict = true
		return nil
	default:
		return fmt.Errorf("%s VM %s: %w", p.vmi, klog.KObj(seen.vmi), err)
	}
	return nil
}

func (r *Reconciler) writeStatus(ctx context.Context, seen observation, p *plan, w write) error {
	before := &seen.migrations[w.index]
	after := w.apply(before, seen, p)
	lock := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	switch err := r.Client.Status().Patch(ctx, after, lock); {
	case err == nil:
		r.sightings.wrote(after)
		if isOver(after) {
			ctrl.LoggerFrom(ctx).Info("Migration ended", "VirtualMachineInstanceMigration", klog.KObj(after), "phase", after.Status.Phase, "reason", w.failure)
		}
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		p.conflict = true
	default:
		return fmt.Errorf("write status of migration %s: %w", klog.KObj(before), err)
	}
	return nil
}
