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

// unlike says whether the API itself knows another host than the cache does, as far
// as decisions go that cannot be taken back.
func (r *Reconciler) unlike(ctx context.Context, seen observation) (bool, error) {
	var h kvmv1.Hypervisor
	name := seen.hypervisor.Name
	if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &h); err != nil {
		return false, fmt.Errorf("read Hypervisor %s past the cache: %w", name, err)
	}
	return h.UID != seen.hypervisor.UID || !equal.Values(&h.Spec, &seen.hypervisor.Spec) ||
		!equal.Values(&h.Annotations, &seen.hypervisor.Annotations), nil
}

// act does what the plan says, in its order: grants stop before an Evacuation is
// made, what is decided is written before anything rests on it, and grants begin
// last.
func (r *Reconciler) act(ctx context.Context, seen observation, p plan) (time.Duration, error) {
	host := seen.hypervisor.Name
	if seen.behind {
		return p.lookAgain, nil
	}
	if p.create != nil || p.status != nil && p.status.Proof != nil && seen.evacuation.Status.Proof == nil {
		if unlike, err := r.unlike(ctx, seen); err != nil || unlike {
			return conflictRetry, err
		}
	}
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
			r.waitTurn(host)
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
	}
	before := aliveReason(seen.hypervisor)
	if err := r.writeConditions(ctx, seen, p); err != nil {
		return 0, err
	}
	r.announce(seen, p, before)
	if p.unconfirm {
		if err := r.unconfirm(ctx, seen); err != nil {
			return 0, err
		}
	}
	if p.handled {
		r.Service.eventsHandled(host, seen.memory.boot)
	}
	if p.turn {
		r.waitTurn(host)
	}
	evacuation := ""
	if seen.evacuation != nil {
		evacuation = powerKey(seen.evacuation)
	}
	r.power.want(host, evacuation, p.power)
	if p.evacuate {
		return r.evacuateHost(ctx, seen)
	}
	if p.policy != nil {
		r.Service.setPolicy(host, *p.policy)
	}
	if p.relieve {
		again, err := r.victims.relieve(ctx, host, p.leave)
		if err != nil {
			return 0, err
		}
		return max(again, seen.limits.Interval), nil
	}
	return p.lookAgain, nil
}

// announce tells people what has happened. A doubt that has passed is no news.
func (r *Reconciler) announce(seen observation, p plan, before string) {
	tell := func(kind, reason, message string) {
		r.Events.Eventf(seen.hypervisor, nil, kind, reason, "HighAvailability", "%s", message)
	}
	if p.tell != nil {
		tell(corev1.EventTypeNormal, p.tell.reason, p.tell.message)
	}
	c := p.hostAlive
	switch {
	case c == nil || c.Reason == before || c.Reason == kvmv1.ReasonSuspect:
	case c.Reason == kvmv1.ReasonOnline && (before == "" || before == kvmv1.ReasonSuspect || p.tell != nil):
	case c.Status == "True":
		tell(corev1.EventTypeNormal, c.Reason, c.Message)
	default:
		tell(corev1.EventTypeWarning, c.Reason, c.Message)
	}
}

// waitTurn has a host looked at when another's fencing is over.
func (r *Reconciler) waitTurn(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns[host] = true
}

// unconfirm takes a person's confirmation away.
func (r *Reconciler) unconfirm(ctx context.Context, seen observation) error {
	after := seen.hypervisor.DeepCopy()
	delete(after.Annotations, v1alpha1.AnnotationConfirmFenced)
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(seen.hypervisor, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("take the confirmation of %s away: %w", after.Name, err)
	}
	*seen.hypervisor = *after
	return nil
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
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(seen.hypervisor, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("record the run lease of %s: %w", after.Name, err)
	}
	*seen.hypervisor = *after
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
	if p.hostAlive != nil {
		p.hostAlive.Type, p.hostAlive.LastTransitionTime = kvmv1.ConditionHostAlive, seen.wall
		meta.SetStatusCondition(&after.Status.Conditions, *p.hostAlive)
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
