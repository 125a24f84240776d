// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/internal/sabotage"
)

// ConfigName is the ConfigMap, in the service's namespace, by which people hold
// the service: data paused and dryRun, each "true" or not.
const ConfigName = "ha"

// fleetView is what one round saw of all hosts together.
type fleetView struct {
	at             time.Duration // when; 0: never
	paused, dryRun bool
	observer       bool
	silent, hosts  map[string]int // by zone
	unheard        map[string]int // by a leader who is new
}

// round is taken once an interval: it makes sure that this replica leads, looks at
// all hosts together, and wakes those about which something has to be decided.
// While nothing happens it costs two small reads.
func (r *Reconciler) round(ctx context.Context) (ctrl.Result, error) {
	again := ctrl.Result{RequeueAfter: r.o.Limits.Interval}
	r.woke()
	err := r.look(ctx)
	if err == nil && r.led() == 0 {
		err = r.recall(ctx)
	}
	var paused, dryRun bool
	if err == nil {
		paused, dryRun, err = r.readConfig(ctx)
	}
	if err != nil {
		r.apiAnswered(false)
		ctrl.LoggerFrom(ctx).V(1).Info("The API does not answer the HA service", "err", err)
		return again, nil
	}
	r.apiAnswered(true)
	var fleet kvmv1.HypervisorList
	if err := r.Client.List(ctx, &fleet, client.UnsafeDisableDeepCopy); err != nil {
		return again, fmt.Errorf("list Hypervisors: %w", err)
	}
	slices.SortFunc(fleet.Items, func(a, b kvmv1.Hypervisor) int { return strings.Compare(a.Name, b.Name) })
	now := r.o.Steady.Elapsed()
	before := r.view()
	silent, blind := r.count(fleet.Items, fleetView{at: max(now, 1), paused: paused, dryRun: dryRun})
	if len(silent) > 0 {
		r.watchPulses(ctx, silent, now)
	}
	r.Service.assign(ring(fleet.Items, blind), now)
	// Everybody is looked at when that begins, and when the service is held or let go.
	all := !r.begun || before.paused != paused || before.dryRun != dryRun
	r.begun = true
	for i := range fleet.Items {
		if name := fleet.Items[i].Name; silent[name] || all || r.restless(&fleet.Items[i]) {
			r.wakeHost(name)
		}
	}
	return again, nil
}

// woke notices that no round was taken for long: the replica stood still, and what
// it knows of its hosts is as old as that.
func (r *Reconciler) woke() {
	now := r.o.Steady.Elapsed()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rounds != 0 && now-r.rounds >= r.o.Limits.Outage {
		r.api.settled = now + r.o.Limits.Settle
	}
	r.rounds = max(now, 1)
}

func (r *Reconciler) view() fleetView {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fleet
}

// recall reads past the cache what was decided before this replica led: the cache
// may be behind, and a host that is being evacuated must get no grant. Only then
// this replica begins to decide.
func (r *Reconciler) recall(ctx context.Context) error {
	var all v1alpha1.EvacuationList
	if err := r.Live.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Evacuations: %w", err)
	}
	for i := range all.Items {
		if e := &all.Items[i]; open(e) && !sabotage.On(sabotage.Amnesia) {
			r.wrote(e)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lead.since = max(r.o.Steady.Elapsed(), 1)
	return nil
}

func (r *Reconciler) readConfig(ctx context.Context) (paused, dryRun bool, err error) {
	var config corev1.ConfigMap
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: ConfigName}, &config)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, false, fmt.Errorf("read ConfigMap %s: %w", ConfigName, err)
	}
	return config.Data["paused"] == "true", config.Data["dryRun"] == "true", nil
}

// count finds the hosts that are silent and those that see nothing, which are the
// same but for those that are known to be gone, and closes and opens the zones'
// guards. A guard counts whoever is Suspect: when the first of them is silent for
// long enough to be fenced, the others have been silent for that at least.
func (r *Reconciler) count(fleet []kvmv1.Hypervisor, view fleetView) (silent, blind map[string]bool) {
	now := view.at
	silences := r.Service.silences(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	settled := r.lead.since != 0 && now-r.lead.since >= r.o.Limits.Settle
	silent, blind = map[string]bool{}, map[string]bool{}
	view.silent, view.hosts, view.unheard = map[string]int{}, map[string]int{}, map[string]int{}
	heard, lost := 0, 0
	for i := range fleet {
		h := &fleet[i]
		zone := h.Labels[kvmv1.LabelZone]
		view.hosts[zone]++
		silence, known := silences[h.Name]
		quiet := known && silence >= 3*r.o.Limits.Interval || !known && settled
		if gone(h) && (quiet || !known) {
			blind[h.Name] = true // that is no news
			continue
		}
		if known {
			heard++
		}
		if !known && !settled && h.Spec.HighAvailability {
			view.unheard[zone]++
		}
		if !quiet {
			continue
		}
		blind[h.Name] = true
		if !h.Spec.HighAvailability {
			continue
		}
		silent[h.Name] = true
		if known || h.Annotations[v1alpha1.AnnotationRunLease] != "" {
			view.silent[zone]++
		}
		if known {
			lost++
		}
	}
	view.observer = observer(heard, lost, r.o.Limits)
	r.fleet = view
	for zone, hosts := range r.fleet.hosts { // In any order: each has its own.
		if r.zones[zone] == nil {
			r.zones[zone] = &storm{}
		}
		r.zones[zone].see(r.fleet.silent[zone], hosts, now, r.o.Limits)
	}
	return silent, blind
}

// observer says whether rather the leader is cut off than the hosts are dead:
// it hears nobody, or fewer than half of all those that it has heard.
func observer(heard, lost int, l Limits) bool {
	return heard == lost || heard > l.StormHosts && 2*lost > heard
}

// gone says whether a host is proven to run nothing.
func gone(h *kvmv1.Hypervisor) bool {
	switch aliveReason(h) {
	case kvmv1.ReasonFenced, kvmv1.ReasonEvacuating, kvmv1.ReasonHostEmpty:
		return true
	}
	return false
}

// watchPulses reads the Leases of all hosts at once, for those that are silent.
func (r *Reconciler) watchPulses(ctx context.Context, silent map[string]bool, now time.Duration) {
	var leases coordinationv1.LeaseList
	err := r.Live.List(ctx, &leases, client.InNamespace(r.o.Namespace), client.UnsafeDisableDeepCopy)
	renewals := map[string]string{}
	for i := range leases.Items {
		if l := &leases.Items[i]; silent[l.Name] && l.Spec.RenewTime != nil {
			renewals[l.Name] = l.Spec.RenewTime.String()
		}
	}
	if err != nil {
		r.apiAnswered(false)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for host := range r.doubts {
		if !silent[host] {
			delete(r.doubts, host)
		}
	}
	for host := range silent { // In any order: each has its own.
		renewal := renewals[host]
		if renewal == "" {
			renewal = "none"
		}
		r.doubts[host] = r.doubts[host].watchPulse(renewal, err == nil, now)
	}
}

// restless says whether a host has to be looked at although it is heard.
func (r *Reconciler) restless(h *kvmv1.Hypervisor) bool {
	reason := aliveReason(h)
	return reason != "" && reason != kvmv1.ReasonOnline || r.Service.stranded(h.Name)
}

// apiAnswered takes in whether the API did what was asked.
func (r *Reconciler) apiAnswered(ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.api.answered(ok, r.o.Steady.Elapsed())
}

// looked says whether a round has looked at all hosts, and at how people hold the
// service: before, nothing is decided.
func (r *Reconciler) looked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lead.since != 0 && r.fleet.at != 0
}

func (r *Reconciler) led() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lead.since
}
