// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/internal/sabotage"
)

// observe reads what the cache, the agents' reports and our memory say of a host.
// What it returns of the cache is only read.
func (r *Reconciler) observe(ctx context.Context, host string) (observation, error) {
	seen := observation{now: r.o.Steady.Elapsed(), wall: metav1.NewTime(r.o.Clock.Now()), limits: r.o.Limits}
	var h kvmv1.Hypervisor
	if err := r.Client.Get(ctx, client.ObjectKey{Name: host}, &h, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return seen, nil
		}
		return seen, fmt.Errorf("read Hypervisor %s: %w", host, err)
	}
	seen.hypervisor = &h
	r.Service.meet(host)
	if err := r.observeEvacuations(ctx, host, &seen); err != nil {
		return seen, err
	}
	if seen.behind {
		return seen, r.lookForLost(ctx, host)
	}
	var vms kubevirtv1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &vms, client.MatchingFields{indexHost: host}, client.UnsafeDisableDeepCopy); err != nil {
		return seen, fmt.Errorf("list VMs of %s: %w", host, err)
	}
	seen.protected = len(vms.Items)

	memory, known := r.Service.snapshot(host)
	seen.memory = memory
	record, times, armed := parseRunLease(h.Annotations[v1alpha1.AnnotationRunLease])
	e := evidence{now: seen.now, limits: seen.limits, heard: known && memory.last != 0, silence: seen.now - memory.last}
	e.sightings = sorted(memory.sightings)
	if memory.strandedSince != 0 {
		seen.lost = true
		e.stranded = seen.now - memory.strandedSince
		e.paused = memory.paused(seen.now)
		e.othersWrite = r.Service.othersWrite(host, seen.now)
	}
	r.mu.Lock()
	if r.lead.since != 0 {
		e.ledFor = seen.now - r.lead.since
	}
	if d, doubted := r.doubts[host]; doubted {
		e.pulse = d.says(seen.now)
	} else {
		e.pulse = pulseUnknown
	}
	zone := h.Labels[kvmv1.LabelZone]
	seen.brakes = brakes{
		paused: r.fleet.paused, dryRun: r.fleet.dryRun, observer: r.fleet.observer,
		outage: r.api.holds(seen.now), storm: r.zones[zone] != nil && r.zones[zone].closed,
		blind:  r.fleet.at == 0 || seen.now-r.fleet.at > 2*r.o.Limits.Interval || !r.Service.sure(seen.now),
		silent: r.fleet.silent[zone], zone: r.fleet.hosts[zone], unheard: r.fleet.unheard[zone],
	}
	for _, z := range r.fences { // In any order: they are counted.
		seen.brakes.fencing++
		if z == zone {
			seen.brakes.fencingZone++
		}
	}
	seen.ledAt = r.lead.grantsFrom()
	r.mu.Unlock()

	seen.lost = seen.lost && e.othersWrite
	seen.verdict = judge(e)
	seen.expiry = expiry{evidence: e, terms: times, armed: armed, boot: record.Boot, granted: memory.granted, ledAt: seen.ledAt}
	seen.power = r.power.memory(host)
	switch {
	case seen.evacuation == nil: // A host that is not to be fenced needs none, and dialling is not free.
	case r.o.Power == nil:
		seen.hasPower = "the HA service knows of none"
	default:
		if _, err := r.o.Power(host); err != nil {
			seen.hasPower = err.Error()
		}
	}
	return seen, nil
}

// observeEvacuations finds the host's Evacuations, and says whether the cache is
// behind what we wrote.
func (r *Reconciler) observeEvacuations(ctx context.Context, host string, seen *observation) error {
	var list v1alpha1.EvacuationList
	if err := r.Client.List(ctx, &list, client.MatchingFields{indexOf: host}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Evacuations of %s: %w", host, err)
	}
	seen.history = list.Items
	slices.SortFunc(seen.history, func(a, b v1alpha1.Evacuation) int { return cmp.Compare(numberOf(&a), numberOf(&b)) })
	if sabotage.On(sabotage.Amnesia) {
		lead := metav1.NewTime(seen.wall.Add(r.led() - seen.now))
		seen.history = slices.DeleteFunc(seen.history, func(e v1alpha1.Evacuation) bool { return e.CreationTimestamp.Before(&lead) })
	}
	for i := range seen.history {
		if e := &seen.history[i]; open(e) {
			seen.evacuation = e
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if wrote := r.last[host]; wrote != nil {
		i := slices.IndexFunc(seen.history, func(e v1alpha1.Evacuation) bool { return e.Name == wrote.Name })
		if i < 0 || olderVersion(seen.history[i].ResourceVersion, wrote.ResourceVersion) {
			seen.behind = true
			return nil
		}
		delete(r.last, host)
	}
	if e := seen.evacuation; e != nil && e.Status.Proof == nil {
		r.fences[host] = seen.hypervisor.Labels[kvmv1.LabelZone]
	} else {
		r.release(host)
	}
	return nil
}

// release gives a place among those that are being fenced to the next in turn. The
// caller holds the lock.
func (r *Reconciler) release(host string) {
	if _, had := r.fences[host]; !had {
		return
	}
	delete(r.fences, host)
	for _, next := range sortedKeys(r.turns) {
		if r.queue != nil {
			r.queue.Add(ctrl.Request{NamespacedName: client.ObjectKey{Name: next}})
		}
	}
	clear(r.turns)
}

// wrote remembers a write of ours until the cache shows it.
func (r *Reconciler) wrote(e *v1alpha1.Evacuation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[e.Spec.Hypervisor], r.lastAt[e.Spec.Hypervisor] = e, r.o.Steady.Elapsed()
}

// lookForLost asks the API itself about a write of ours that the cache does not
// show for long: somebody may have deleted the Evacuation, and then nobody waits
// for it.
func (r *Reconciler) lookForLost(ctx context.Context, host string) error {
	r.mu.Lock()
	wrote, since := r.last[host], r.o.Steady.Elapsed()-r.lastAt[host]
	r.mu.Unlock()
	if wrote == nil || since < lostAfter {
		return nil
	}
	var e v1alpha1.Evacuation
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(wrote), &e)
	switch {
	case err == nil && e.UID == wrote.UID:
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("read Evacuation %s: %w", wrote.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, host)
	return nil
}

// lostAfter is how long a cache is given to show what was written: far longer than
// one that works takes.
const lostAfter = 10 * time.Second

// forget drops a host whose Hypervisor is gone.
func (r *Reconciler) forget(host string) {
	r.mu.Lock()
	delete(r.doubts, host)
	r.release(host)
	delete(r.turns, host)
	delete(r.last, host)
	delete(r.lastAt, host)
	r.mu.Unlock()
	r.Service.forget(host)
	r.power.forget(host)
}

// olderVersion says whether version a is before b. Versions that are no numbers cannot
// be ordered; then what the cache shows is believed.
func olderVersion(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// numberOf is the number in an Evacuation's name.
func numberOf(e *v1alpha1.Evacuation) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(e.Name, e.Spec.Hypervisor+"-"))
	return n
}

func sorted(m map[string]sighting) []sighting {
	out := make([]sighting, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
