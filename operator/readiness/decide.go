// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/operator/maintenance"
)

// Reasons of Ready that are Adit's own.
const (
	// ReasonAgentSilent: the host's agent has not renewed its Lease in time.
	ReasonAgentSilent = "AgentSilent"
	// ReasonIdentityUnclear: the agent is not sure that this is its host.
	ReasonIdentityUnclear = "IdentityUnclear"
	// ReasonLibvirtUnavailable: the agent cannot reach libvirt.
	ReasonLibvirtUnavailable = "LibvirtUnavailable"
)

// conditionIdentityConfirmed is the node agent's: the host is the one this
// Hypervisor was made for.
const conditionIdentityConfirmed = "IdentityConfirmed"

// observation is all that one decision depends on.
type observation struct {
	now        time.Time
	hypervisor *kvmv1.Hypervisor // nil: there is none.
	pulse      pulse
}

// plan is what to write and when to look again.
type plan struct {
	ready, tainted metav1.Condition
	lookAgain      time.Duration
}

// decide is pure.
func decide(seen observation) plan {
	p := plan{ready: ready(seen.hypervisor, seen.pulse), tainted: tainted(seen.hypervisor)}
	p.ready.LastTransitionTime = metav1.NewTime(seen.now)
	p.tainted.LastTransitionTime = metav1.NewTime(seen.now)
	// One nanosecond at least: 0 would mean never.
	p.lookAgain = max(time.Nanosecond, seen.pulse.due().Sub(seen.now))
	return p
}

// ready is the first row that holds:
//
//	Offboarded=True                      False Offboarded
//	Terminating=True                     False Terminating
//	Onboarding=True                      False Onboarding
//	Evicting=True, or False              False Evicting, Evicted
//	out of service, in maintenance       False Maintenance, but not while that waits
//	Onboarding=False, but not Succeeded  False Onboarding
//	the agent is silent                  False AgentSilent
//	IdentityConfirmed=False              False IdentityUnclear
//	LibVirtConnection=False              False LibvirtUnavailable
//	else                                 True Ready
//
// Rows and texts up to Onboarding are CobaltCore's. There a host that was never
// onboarded is not ready either; as long as nobody onboards, no Onboarding
// condition is no objection, whatever spec.lifecycleEnabled says.
func ready(h *kvmv1.Hypervisor, agent pulse) metav1.Condition {
	is := func(condition string) bool { return meta.IsStatusConditionTrue(h.Status.Conditions, condition) }
	find := func(condition string) *metav1.Condition {
		return meta.FindStatusCondition(h.Status.Conditions, condition)
	}
	onboarding, evicting := find(kvmv1.ConditionOnboarding), find(kvmv1.ConditionEvicting)
	switch {
	case is(kvmv1.ConditionOffboarded):
		return notReady(kvmv1.ReasonOffboarded, "Hypervisor has been offboarded")
	case is(kvmv1.ConditionTerminating):
		return notReady(kvmv1.ReasonTerminating, "Hypervisor is terminating")
	case is(kvmv1.ConditionOnboarding):
		return notReady(kvmv1.ReasonOnboarding, "Onboarding in progress: "+onboarding.Message)
	case evicting != nil && evicting.Status != metav1.ConditionFalse:
		return notReady(kvmv1.ReasonEvicting, "Hypervisor is disabled and evicting")
	case evicting != nil:
		return notReady(kvmv1.ReasonEvicted, "Hypervisor is disabled and evicted")
	case is(kvmv1.ConditionHypervisorDisabled), h.Spec.Maintenance != kvmv1.MaintenanceUnset && !maintenance.Waits(h):
		return notReady(kvmv1.ReasonMaintenance, "Hypervisor is in maintenance mode")
	case onboarding != nil && onboarding.Reason == kvmv1.ReasonAborted:
		return notReady(kvmv1.ReasonOnboarding, "Onboarding was aborted")
	case onboarding != nil && onboarding.Reason != kvmv1.ReasonSucceeded:
		return notReady(kvmv1.ReasonOnboarding, "Onboarding not yet completed")
	case agent.silent && agent.renewed.IsZero():
		return notReady(ReasonAgentSilent, "The host's agent has not reported yet: is it running?")
	case agent.silent:
		return notReady(ReasonAgentSilent, fmt.Sprintf(
			"The host's agent has been silent since %s: look after the host; its VMs may well run",
			agent.renewed.UTC().Format(time.RFC3339)))
	case failed(find(conditionIdentityConfirmed)):
		return notReady(ReasonIdentityUnclear, "It is unclear whether this is the same host: "+find(conditionIdentityConfirmed).Message)
	case failed(find(kvmv1.ConditionLibVirtConnection)):
		return notReady(ReasonLibvirtUnavailable, "libvirt cannot be used: "+find(kvmv1.ConditionLibVirtConnection).Message)
	}
	return metav1.Condition{
		Type: kvmv1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: kvmv1.ReasonReady, Message: "Hypervisor is ready",
	}
}

func notReady(reason, message string) metav1.Condition {
	return metav1.Condition{Type: kvmv1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

func failed(c *metav1.Condition) bool { return c != nil && c.Status == metav1.ConditionFalse }

func isSilent(h *kvmv1.Hypervisor) bool {
	c := meta.FindStatusCondition(h.Status.Conditions, kvmv1.ConditionReady)
	return c != nil && c.Reason == ReasonAgentSilent
}

// tainted says that a person's kubectl wrote to the Hypervisor and still owns
// something of it, if only a label.
func tainted(h *kvmv1.Hypervisor) metav1.Condition {
	c := metav1.Condition{
		Type: kvmv1.ConditionTainted, Status: metav1.ConditionFalse,
		Reason: kvmv1.ReasonNoKubectl, Message: "🟢", ObservedGeneration: h.Generation,
	}
	for _, entry := range h.ManagedFields {
		if strings.HasPrefix(entry.Manager, "kubectl") {
			c.Status, c.Reason, c.Message = metav1.ConditionTrue, kvmv1.ReasonKubectl, "⚠️"
		}
	}
	return c
}
