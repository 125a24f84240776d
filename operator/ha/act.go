// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/internal/equal"
)

// mostEvacuations is how many of a host are kept.
const mostEvacuations = 10

// act does what the plan says, in its order: grants stop before an Evacuation is
// made, what is decided is written before anything rests on it, and grants begin
// last.
func (r *Reconciler) act(ctx context.Context, seen observation, p plan) (time.Duration, error) {
	host := seen.hypervisor.Name
	if p.refuse != "" {
		r.Service.refuse(host, p.refuse)
	}
	if p.record != nil && seen.hypervisor.Annotations[v1alpha1.AnnotationRunLease] != p.record.text() {
		if err := r.writeRecord(ctx, seen, p); err != nil {
			return 0, err
		}
	}
	if p.create != nil {
		if !r.reserve(seen) {
			return seen.limits.Interval, nil
		}
		if err := r.create(ctx, seen, p.create); err != nil {
			return 0, err
		}
	}
	if p.later == nil && p.status != nil && !equal.Values(p.status, &seen.evacuation.Status) {
		if err := r.writeEvacuation(ctx, seen.evacuation, p.status); err != nil {
			return 0, err
		}
	}
	if p.later != nil {
		return conflictRetry, r.writeLater(ctx, seen.evacuation, *p.later)
	}
	if p.maintenance != nil {
		if err := r.writeMaintenance(ctx, seen, *p.maintenance); err != nil {
			return 0, err
		}
		if p.tell == "MemoryFailure" {
			r.Service.memoryFailureTaken(host)
		}
	}
	if err := r.writeConditions(ctx, seen, p); err != nil {
		return 0, err
	}
	if p.tell != "" && p.alive != nil {
		kind := corev1.EventTypeNormal
		if p.alive.Status != "True" {
			kind = corev1.EventTypeWarning
		}
		r.Events.Eventf(seen.hypervisor, nil, kind, p.tell, "HighAvailability", "%s", p.alive.Message)
	}
	evacuation := ""
	if seen.evacuation != nil {
		evacuation = seen.evacuation.Name
	}
	r.power.want(host, evacuation, p.power)
	if p.evacuate {
		return r.evacuateHost(ctx, seen)
	}
	if p.policy != nil {
		r.Service.setPolicy(host, *p.policy)
	}
	if p.relieve {
		again, err := r.victims.relieve(ctx, host, seen.lost)
		if err != nil {
			return 0, err
		}
		return max(again, seen.limits.Interval), nil
	}
	return p.lookAgain, nil
}

// evacuateHost is the VMs' turn, and its end.
func (r *Reconciler) evacuateHost(ctx context.Context, seen observation) (time.Duration, error) {
	e := seen.evacuation.DeepCopy()
	before := e.ResourceVersion
	done, again, err := r.victims.evacuate(ctx, seen.hypervisor, e)
	if e.ResourceVersion != before {
		r.wrote(e)
	}
	if err != nil || !done {
		return again, err
	}
	seen.evacuation = e
	p := plan{}
	p.step(seen, v1alpha1.EvacuationEvacuated, "Evacuated", "no VM of the host waits any more")
	return seen.limits.Interval, r.writeEvacuation(ctx, e, p.status)
}

// reserve takes one of the places for hosts that are being fenced. It is taken
// before the Evacuation is made, since several hosts are handled at once.
func (r *Reconciler) reserve(seen observation) bool {
	zone := seen.hypervisor.Labels[kvmv1.LabelZone]
	word, _ := confirmed(seen.hypervisor, seen.wall.Time)
	r.mu.Lock()
	defer r.mu.Unlock()
	inZone := 0
	for _, z := range r.fences { // In any order: they are counted.
		if z == zone {
			inZone++
		}
	}
	if word == nil && (len(r.fences) >= seen.limits.FencesFleet || inZone >= seen.limits.FencesZone) {
		return false
	}
	r.fences[seen.hypervisor.Name] = zone
	return true
}

func (r *Reconciler) create(ctx context.Context, seen observation, e *v1alpha1.Evacuation) error {
	if err := r.Client.Create(ctx, e); err != nil {
		return fmt.Errorf("create Evacuation %s: %w", e.Name, err)
	}
	r.wrote(e)
	for i := range max(0, len(seen.history)-mostEvacuations+1) {
		old := seen.history[i].DeepCopy()
		if open(old) {
			continue
		}
		if err := r.Client.Delete(ctx, old); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Evacuation %s: %w", old.Name, err)
		}
	}
	return nil
}

// writeEvacuation patches the status; a later version in between is a conflict.
func (r *Reconciler) writeEvacuation(ctx context.Context, e *v1alpha1.Evacuation, status *v1alpha1.EvacuationStatus) error {
	after := e.DeepCopy()
	status.DeepCopyInto(&after.Status)
	if err := r.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(e, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write Evacuation %s: %w", e.Name, err)
	}
	r.wrote(after)
	return nil
}

// writeLater keeps which maintenance the host is to have afterwards. The rest of
// the plan waits for it.
func (r *Reconciler) writeLater(ctx context.Context, e *v1alpha1.Evacuation, m maintenance) error {
	after := e.DeepCopy()
	after.Spec.Maintenance, after.Spec.MaintenanceReason = m.mode, m.reason
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(e, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write Evacuation %s: %w", e.Name, err)
	}
	r.wrote(after)
	return nil
}

func (r *Reconciler) writeRecord(ctx context.Context, seen observation, p plan) error {
	after := seen.hypervisor.DeepCopy()
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	after.Annotations[v1alpha1.AnnotationRunLease] = p.record.text()
	if err := r.Client.Patch(ctx, after, client.MergeFrom(seen.hypervisor)); err != nil {
		return fmt.Errorf("record the run lease of %s: %w", after.Name, err)
	}
	return nil
}

func (r *Reconciler) writeMaintenance(ctx context.Context, seen observation, m maintenance) error {
	after := seen.hypervisor.DeepCopy()
	after.Spec.Maintenance, after.Spec.MaintenanceReason = kvmv1.Maintenance(m.mode), m.reason
	if equal.Values(&after.Spec, &seen.hypervisor.Spec) {
		return nil
	}
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(seen.hypervisor, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("set maintenance of %s: %w", after.Name, err)
	}
	*seen.hypervisor = *after
	return nil
}

func (r *Reconciler) writeConditions(ctx context.Context, seen observation, p plan) error {
	after := seen.hypervisor.DeepCopy()
	if p.alive != nil {
		p.alive.Type, p.alive.LastTransitionTime = kvmv1.ConditionHostAlive, seen.wall
		meta.SetStatusCondition(&after.Status.Conditions, *p.alive)
	}
	if p.enabled != nil {
		p.enabled.Type, p.enabled.LastTransitionTime = kvmv1.ConditionHaEnabled, seen.wall
		meta.SetStatusCondition(&after.Status.Conditions, *p.enabled)
	}
	if equal.Values(&after.Status.Conditions, &seen.hypervisor.Status.Conditions) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(seen.hypervisor, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write conditions of %s: %w", after.Name, err)
	}
	return nil
}
