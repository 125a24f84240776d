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
	first := r.led() == 0
	err := r.look(ctx)
	if err == nil && first {
		err = r.recall(ctx)
	}
	if err == nil {
		err = r.readConfig(ctx)
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
	silent := r.count(fleet.Items, now)
	if len(silent) > 0 {
		r.watchPulses(ctx, silent, now)
	}
	r.Service.assign(ring(fleet.Items, silent))
	for i := range fleet.Items {
		if name := fleet.Items[i].Name; silent[name] || first || r.restless(&fleet.Items[i]) {
			r.wakeHost(name)
		}
	}
	return again, nil
}

// recall reads past the cache what was decided before this replica led: the cache
// may be behind, and a host that is being evacuated must get no grant.
func (r *Reconciler) recall(ctx context.Context) error {
	var all v1alpha1.EvacuationList
	if err := r.Live.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		r.mu.Lock()
		r.lead.since = 0 // not before that is known
		r.mu.Unlock()
		return fmt.Errorf("list Evacuations: %w", err)
	}
	for i := range all.Items {
		if e := &all.Items[i]; open(e) && !sabotage.On(sabotage.Amnesia) {
			r.wrote(e)
		}
	}
	r.mu.Lock()
	r.lead.recalled = true
	r.mu.Unlock()
	return nil
}

// recalled says whether hosts can be decided upon: this replica has seen that it
// leads, and what its predecessors had decided. The round in which that comes
// wakes all hosts.
func (r *Reconciler) recalled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lead.recalled
}

func (r *Reconciler) readConfig(ctx context.Context) error {
	var config corev1.ConfigMap
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: ConfigName}, &config)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read ConfigMap %s: %w", ConfigName, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fleet.paused, r.fleet.dryRun = config.Data["paused"] == "true", config.Data["dryRun"] == "true"
	return nil
}

// count finds the hosts that are silent, and closes and opens the zones' guards.
func (r *Reconciler) count(fleet []kvmv1.Hypervisor, now time.Duration) (silent map[string]bool) {
	silences := r.Service.silences(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	settled := r.lead.since != 0 && now-r.lead.since >= r.o.Limits.Settle
	silent = map[string]bool{}
	r.fleet.silent, r.fleet.hosts, r.fleet.unheard = map[string]int{}, map[string]int{}, map[string]int{}
	heard, lost := 0, 0
	for i := range fleet {
		h := &fleet[i]
		zone := h.Labels[kvmv1.LabelZone]
		r.fleet.hosts[zone]++
		silence, known := silences[h.Name]
		if known {
			heard++
		}
		switch {
		case known && silence < 3*r.o.Limits.Interval, !h.Spec.HighAvailability:
			continue
		case !known && !settled && !gone(h):
			r.fleet.unheard[zone]++
			continue
		case gone(h):
			continue // that is no news
		}
		silent[h.Name] = true
		if known {
			lost++
		}
		if !known || silence >= 5*r.o.Limits.Interval {
			r.fleet.silent[zone]++
		}
	}
	r.fleet.observer = heard > r.o.Limits.StormHosts && 2*lost > heard
	for zone, hosts := range r.fleet.hosts { // In any order: each has its own.
		if r.zones[zone] == nil {
			r.zones[zone] = &storm{}
		}
		r.zones[zone].see(r.fleet.silent[zone], hosts, now, r.o.Limits)
	}
	return silent
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

func (r *Reconciler) led() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lead.since
}
