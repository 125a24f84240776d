// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// ReasonWaiting is that of HypervisorDisabled=False while maintenance is asked
// for and the floor of hosts in service forbids it. Until it begins the host
// serves as before.
const ReasonWaiting = "Waiting"

// evictionReason is CobaltCore's text in an Eviction made here.
const evictionReason = "openstack-hypervisor-operator maintenance"

// observation is all that one decision depends on. vms and floor are read only
// where maintenance is asked for.
type observation struct {
	now        time.Time
	hypervisor *kvmv1.Hypervisor // nil: there is none.
	eviction   *kvmv1.Eviction   // Named as the host; nil: there is none.
	node       *corev1.Node      // nil: there is none.
	vms        int               // Of VMs and domains at the host, the larger number.
	floor      floor
}

// plan is what to write. The zero plan changes nothing but the taint.
type plan struct {
	disabled *metav1.Condition // nil: leave it.
	evicting *metav1.Condition // nil: remove it, unless keep.
	evicted  bool
	keep     bool // Leave evicting and evicted as they are.
	leaves   bool // Maintenance has ended.

	deleteEviction bool
	create         *kvmv1.Eviction

	taint      bool
	leaveTaint bool
}

// decide is the policy. It is pure.
//
//	Onboarding=True           nothing: onboarding comes first
//	""                        enabled; our Eviction, Evicting and evicted go
//	ha                        disabled; our Eviction, Evicting and evicted go: nobody leaves a dead host by himself
//	manual, auto, termination
//	  too few other hosts     enabled, Waiting
//	  no Eviction             disabled, Evicting; make one
//	  one that is in the way  disabled, Evicting; delete it and make one when it is gone:
//	                          a dry run, or one that succeeded before further VMs came
//	  one under way           disabled, Evicting
//	  one that failed         disabled, Evicting with its message: Failed is not Evicted
//	  one that succeeded      disabled, evicted; in termination the Node is tainted
func decide(seen observation) plan {
	h := seen.hypervisor
	if !h.DeletionTimestamp.IsZero() || meta.IsStatusConditionTrue(h.Status.Conditions, kvmv1.ConditionOnboarding) {
		return plan{keep: true, leaveTaint: true}
	}
	if !asks(h) {
		p := plan{leaves: true, deleteEviction: ours(seen)}
		switch h.Spec.Maintenance {
		case kvmv1.MaintenanceUnset:
			p.disabled = is(metav1.ConditionFalse, kvmv1.ReasonSucceeded, "Hypervisor is enabled")
		case kvmv1.MaintenanceHA:
			p.disabled = is(metav1.ConditionTrue, kvmv1.ReasonSucceeded, "Hypervisor is disabled")
		}
		return p
	}
	if !disabled(h) && !seen.floor.allows() {
		return plan{disabled: is(metav1.ConditionFalse, ReasonWaiting, seen.floor.message())}
	}
	p := evict(seen)
	p.disabled = is(metav1.ConditionTrue, kvmv1.ReasonSucceeded, "Hypervisor is disabled")
	p.taint = p.evicted && h.Spec.Maintenance == kvmv1.MaintenanceTermination
	return p
}

// evict is the part of the table on a host out of service.
func evict(seen observation) plan {
	evicting := func(reason, message string) *metav1.Condition { return is(metav1.ConditionTrue, reason, message) }
	running := evicting(kvmv1.ReasonRunning, "Evicting")
	evicted := plan{evicting: is(metav1.ConditionFalse, kvmv1.ReasonSucceeded, "Evicted"), evicted: true}
	e := seen.eviction
	if e == nil {
		if seen.vms == 0 && seen.hypervisor.Status.Evicted {
			return evicted // Somebody tidied up.
		}
		return plan{evicting: running, create: newEviction(seen.hypervisor)}
	}
	state := meta.FindStatusCondition(e.Status.Conditions, kvmv1.ConditionEvicting)
	ended := state != nil && state.Status == metav1.ConditionFalse
	switch {
	case !e.DeletionTimestamp.IsZero():
		return plan{evicting: running}
	case e.Spec.Hypervisor != seen.hypervisor.Name:
		return plan{evicting: evicting(kvmv1.ReasonRunning, fmt.Sprintf("Evicting: Eviction %s is in the way: it is for %s; delete it", e.Name, e.Spec.Hypervisor))}
	case e.Spec.DryRun:
		return plan{evicting: running, deleteEviction: true}
	case ended && state.Reason == kvmv1.ReasonSucceeded && seen.vms == 0:
		return evicted
	case ended && state.Reason == kvmv1.ReasonSucceeded:
		return plan{evicting: running, deleteEviction: true}
	case ended:
		return plan{evicting: evicting(kvmv1.ReasonFailed, "Evicting: "+state.Message+"; delete the Eviction to try again")}
	case state != nil:
		_, why, more := strings.Cut(state.Message, ": ")
		if more {
			running.Message += ": " + why
		}
	}
	return plan{evicting: running}
}

// ours says that the Eviction was made here. One that a person made stays: it
// is his wish, and it waits by itself while the host is in service.
func ours(seen observation) bool {
	return seen.eviction != nil && seen.eviction.DeletionTimestamp.IsZero() &&
		metav1.IsControlledBy(seen.eviction, seen.hypervisor)
}

func newEviction(h *kvmv1.Hypervisor) *kvmv1.Eviction {
	labels := map[string]string{}
	for key, value := range h.Labels {
		labels[key] = value
	}
	return &kvmv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{
			Name: h.Name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(h, kvmv1.GroupVersion.WithKind("Hypervisor"))},
		},
		Spec: kvmv1.EvictionSpec{Hypervisor: h.Name, Reason: evictionReason},
	}
}

// mark writes the plan's marks into a Hypervisor.
func (p plan) mark(h *kvmv1.Hypervisor, now metav1.Time) {
	set := func(kind string, c metav1.Condition) {
		c.Type, c.LastTransitionTime = kind, now
		meta.SetStatusCondition(&h.Status.Conditions, c)
	}
	if p.disabled != nil {
		set(kvmv1.ConditionHypervisorDisabled, *p.disabled)
	}
	if p.keep {
		return
	}
	h.Status.Evicted = p.evicted
	if p.evicting == nil {
		meta.RemoveStatusCondition(&h.Status.Conditions, kvmv1.ConditionEvicting)
		return
	}
	set(kvmv1.ConditionEvicting, *p.evicting)
}

// words are the marks for a log.
func (p plan) words() []string {
	var words []string
	for _, c := range []*metav1.Condition{p.disabled, p.evicting} {
		if c != nil {
			words = append(words, c.Message)
		}
	}
	return words
}

func is(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{Status: status, Reason: reason, Message: message}
}
