// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// observation is all that one decision depends on. Of an Eviction that has ended
// or is being deleted only what that needs is read.
type observation struct {
	now        time.Time
	behind     bool              // We wrote a later version than this.
	wroteAt    time.Time         // When we wrote the last status; zero: not known.
	eviction   *kvmv1.Eviction   // nil: there is none.
	hypervisor *kvmv1.Hypervisor // nil: there is none, and the API itself says so.

	vms     []*kubevirtv1.VirtualMachineInstance          // That concern the host, by namespace and name.
	own     []*kubevirtv1.VirtualMachineInstanceMigration // Of this Eviction, by name.
	active  map[types.NamespacedName]*kubevirtv1.VirtualMachineInstanceMigration
	domains []domain

	verdicts map[string]Verdict // Of a dry run, by VM id.
}

// domain is a domain the host lists and no VM there explains.
type domain struct {
	id, name  string
	lingering bool // A VM that has left, or ended: the host's list is to follow.
}

func (r *Reconciler) observe(ctx context.Context, req ctrl.Request) (observation, error) {
	seen := observation{now: r.Clock.Now()}
	var eviction kvmv1.Eviction
	if err := r.Client.Get(ctx, req.NamespacedName, &eviction); err != nil {
		if apierrors.IsNotFound(err) {
			return seen, nil
		}
		return seen, fmt.Errorf("read eviction %s: %w", req.Name, err)
	}
	seen.eviction = &eviction
	seen.wroteAt = r.written.last(&eviction)
	if seen.behind = r.written.ahead(&eviction); seen.behind {
		return seen, nil
	}
	if !eviction.DeletionTimestamp.IsZero() {
		return seen, r.observeCancel(ctx, &seen)
	}
	if ended(&eviction) {
		return seen, nil
	}
	if err := r.observeHypervisor(ctx, &seen); err != nil || seen.hypervisor == nil {
		return seen, err
	}
	if err := r.observeVMs(ctx, &seen); err != nil {
		return seen, err
	}
	if err := r.observeMigrations(ctx, &seen); err != nil {
		return seen, err
	}
	if err := r.observeDomains(ctx, &seen); err != nil {
		return seen, err
	}
	if eviction.Spec.DryRun && r.Planner != nil {
		seen.verdicts = r.ask(ctx, seen)
	}
	return seen, nil
}

// observeHypervisor, and what follows, share the cache's objects: of all that is
// read, an eviction changes its own status alone.
func (r *Reconciler) observeHypervisor(ctx context.Context, seen *observation) error {
	key := client.ObjectKey{Name: seen.eviction.Spec.Hypervisor}
	var hypervisor kvmv1.Hypervisor
	err := r.Client.Get(ctx, key, &hypervisor, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		// An Eviction may be heard of before its Hypervisor is.
		err = r.Live.Get(ctx, key, &hypervisor)
	}
	switch {
	case err == nil:
		seen.hypervisor = &hypervisor
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read hypervisor %s: %w", key.Name, err)
	}
	return nil
}

func (r *Reconciler) observeVMs(ctx context.Context, seen *observation) error {
	var list kubevirtv1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &list, client.MatchingFields{indexHost: seen.eviction.Spec.Hypervisor}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list VMs of %s: %w", seen.eviction.Spec.Hypervisor, err)
	}
	for i := range list.Items {
		seen.vms = append(seen.vms, &list.Items[i])
	}
	slices.SortFunc(seen.vms, func(a, b *kubevirtv1.VirtualMachineInstance) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

// observeMigrations reads our own migrations and whatever is active in the
// fleet. One that our status claims and the cache does not know is asked of the
// API itself: it is either too new for the cache, or somebody deleted it.
func (r *Reconciler) observeMigrations(ctx context.Context, seen *observation) error {
	var own, active kubevirtv1.VirtualMachineInstanceMigrationList
	if err := r.Client.List(ctx, &own, client.MatchingFields{indexEviction: labelValue(seen.eviction.Name)}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list migrations of eviction %s: %w", seen.eviction.Name, err)
	}
	if err := r.Client.List(ctx, &active, client.MatchingFields{indexActive: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list active migrations: %w", err)
	}
	seen.active = map[types.NamespacedName]*kubevirtv1.VirtualMachineInstanceMigration{}
	for i := range active.Items {
		m := &active.Items[i]
		seen.addActive(m)
	}
	seen.addOwn(own.Items)
	for _, claimed := range seen.eviction.Status.Instances {
		if claimed.State != kvmv1.EvictionInstanceMoving || claimed.Attempts == 0 {
			continue
		}
		at := slices.IndexFunc(seen.vms, func(v *kubevirtv1.VirtualMachineInstance) bool {
			return v.Namespace == claimed.Namespace && v.Name == claimed.Name
		})
		if at < 0 || lastAttempt(seen.own, seen.vms[at].UID) >= claimed.Attempts {
			continue
		}
		key := client.ObjectKey{Namespace: claimed.Namespace, Name: migrationName(seen.eviction, seen.vms[at], claimed.Attempts)}
		var m kubevirtv1.VirtualMachineInstanceMigration
		switch err := r.Live.Get(ctx, key, &m); {
		case err == nil:
			seen.addOwn([]kubevirtv1.VirtualMachineInstanceMigration{m})
			if !m.IsFinal() {
				seen.addActive(&m)
			}
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("read migration %s: %w", key, err)
		}
	}
	return nil
}

func (seen *observation) addOwn(items []kubevirtv1.VirtualMachineInstanceMigration) {
	for i := range items {
		if isOwn(*seen, &items[i]) {
			seen.own = append(seen.own, &items[i])
		}
	}
	slices.SortFunc(seen.own, func(a, b *kubevirtv1.VirtualMachineInstanceMigration) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// isOwn says that this very Eviction asked for a migration.
func isOwn(seen observation, m *kubevirtv1.VirtualMachineInstanceMigration) bool {
	return m.Annotations[annotationEvictionUID] == string(seen.eviction.UID)
}

// addActive keeps one active migration of a VM: ours rather than another's,
// else the first by name. Two at once are one too many, and not ours to judge.
func (seen *observation) addActive(m *kubevirtv1.VirtualMachineInstanceMigration) {
	key := types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.VMIName}
	had := seen.active[key]
	mine := func(m *kubevirtv1.VirtualMachineInstanceMigration) bool { return isOwn(*seen, m) }
	if had == nil || mine(m) && !mine(had) || mine(m) == mine(had) && m.Name < had.Name {
		seen.active[key] = m
	}
}

// observeDomains compares the host's own list with the VMs: the list is the
// truth of what is there, the VMs of what we may move.
func (r *Reconciler) observeDomains(ctx context.Context, seen *observation) error {
	explained := map[string]bool{}
	for _, v := range seen.vms {
		explained[idOf(v)] = true
	}
	for _, instance := range seen.hypervisor.Status.Instances {
		id := strings.ToLower(instance.ID)
		if explained[id] {
			continue
		}
		explained[id] = true // Once each.
		var list kubevirtv1.VirtualMachineInstanceList
		if err := r.Client.List(ctx, &list, client.MatchingFields{indexID: id}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list VMs of domain %s: %w", id, err)
		}
		seen.domains = append(seen.domains, domain{id: id, name: instance.Name, lingering: len(list.Items) > 0})
	}
	slices.SortFunc(seen.domains, func(a, b domain) int { return cmp.Compare(a.id, b.id) })
	return nil
}

// observeCancel reads our migrations from the API itself: one that the cache
// has not heard of would go on, and nobody would be left to withdraw it.
func (r *Reconciler) observeCancel(ctx context.Context, seen *observation) error {
	var list kubevirtv1.VirtualMachineInstanceMigrationList
	if err := r.Live.List(ctx, &list, client.MatchingLabels{kubevirt.LabelEviction: labelValue(seen.eviction.Name)}); err != nil {
		return fmt.Errorf("list migrations of eviction %s: %w", seen.eviction.Name, err)
	}
	seen.addOwn(list.Items)
	for _, m := range seen.own {
		if m.IsFinal() {
			continue
		}
		var vmi kubevirtv1.VirtualMachineInstance
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.VMIName}, &vmi)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read VM %s/%s: %w", m.Namespace, m.Spec.VMIName, err)
		}
		if err == nil {
			seen.vms = append(seen.vms, &vmi)
		}
	}
	return nil
}

// ask puts the dry run's question for the VMs that could move at all, in the
// order in which they would be asked to.
func (r *Reconciler) ask(ctx context.Context, seen observation) map[string]Verdict {
	var vmis []*kubevirtv1.VirtualMachineInstance
	for _, s := range stands(seen) {
		if s.vmi != nil && s.ready {
			vmis = append(vmis, s.vmi)
		}
	}
	verdicts := map[string]Verdict{}
	for i, v := range r.Planner.WhatIf(ctx, vmis, seen.eviction.Spec.Hypervisor) {
		if i < len(vmis) {
			verdicts[idOf(vmis[i])] = v
		}
	}
	return verdicts
}
