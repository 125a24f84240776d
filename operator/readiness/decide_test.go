// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func host(maintenance kvmv1.Maintenance, conditions ...metav1.Condition) *kvmv1.Hypervisor {
	return &kvmv1.Hypervisor{
		Spec:   kvmv1.HypervisorSpec{Maintenance: maintenance},
		Status: kvmv1.HypervisorStatus{Conditions: conditions},
	}
}

func is(kind, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: "m"}
}

func not(kind, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: "m"}
}

func TestReady(t *testing.T) {
	alive := pulse{known: true, renewed: now, beat: now, duration: leaseDuration}
	silent := pulse{known: true, renewed: now, beat: now, duration: leaseDuration, silent: true}
	const (
		offboarded, terminating, onboarding = kvmv1.ConditionOffboarded, kvmv1.ConditionTerminating, kvmv1.ConditionOnboarding
		evicting, disabled                  = kvmv1.ConditionEvicting, kvmv1.ConditionHypervisorDisabled
	)
	tests := []struct {
		name  string
		host  *kvmv1.Hypervisor
		pulse pulse
		want  string
	}{
		{"a host whose agent beats is ready", host(""), alive, "Ready: Hypervisor is ready"},
		{"no onboarding is no objection, one that succeeded neither", host("", not(onboarding, "Succeeded")), alive, "Ready: Hypervisor is ready"},
		{"offboarded goes before terminating", host("", is(offboarded, "x"), is(terminating, "x")), alive, "Offboarded: Hypervisor has been offboarded"},
		{"terminating goes before evicting", host("", is(terminating, "x"), is(evicting, "Running")), alive, "Terminating: Hypervisor is terminating"},
		{"onboarding tells its message", host("", is(onboarding, "Testing")), alive, "Onboarding: Onboarding in progress: m"},
		{"evicting", host("manual", is(disabled, "Succeeded"), is(evicting, "Running")), alive, "Evicting: Hypervisor is disabled and evicting"},
		{"evicted", host("manual", is(disabled, "Succeeded"), not(evicting, "Succeeded")), alive, "Evicted: Hypervisor is disabled and evicted"},
		{"in maintenance from the first moment", host("manual"), alive, "Maintenance: Hypervisor is in maintenance mode"},
		{"ha is maintenance", host("ha", not(disabled, "Waiting")), alive, "Maintenance: Hypervisor is in maintenance mode"},
		{"a host taken out by the HA service", host("", is(disabled, "Succeeded")), alive, "Maintenance: Hypervisor is in maintenance mode"},
		{"a host that waits for its maintenance is in service", host("manual", not(disabled, "Waiting")), alive, "Ready: Hypervisor is ready"},
		{"onboarding aborted", host("", not(onboarding, "Aborted")), alive, "Onboarding: Onboarding was aborted"},
		{"onboarding unfinished", host("", not(onboarding, "Initial")), alive, "Onboarding: Onboarding not yet completed"},
		{"a silent agent", host("", not("LibVirtConnection", "x"), not("IdentityConfirmed", "x")), silent, "AgentSilent: The host's agent has been silent since 2026-01-02T03:04:05Z: look after the host; its VMs may well run"},
		{"an agent never seen", host(""), pulse{known: true, silent: true}, "AgentSilent: The host's agent has not reported yet: is it running?"},
		{"maintenance hides a silent agent", host("manual"), silent, "Maintenance: Hypervisor is in maintenance mode"},
		{"identity unclear", host("", not("LibVirtConnection", "x"), not("IdentityConfirmed", "x")), alive, "IdentityUnclear: It is unclear whether this is the same host: m"},
		{"libvirt unavailable", host("", not("LibVirtConnection", "x"), is("IdentityConfirmed", "x")), alive, "LibvirtUnavailable: libvirt cannot be used: m"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := decide(observation{now: now, hypervisor: tt.host, pulse: tt.pulse})
			if have := got.ready.Reason + ": " + got.ready.Message; have != tt.want {
				t.Errorf("Ready = %s, want %s", have, tt.want)
			}
			if isTrue := got.ready.Status == metav1.ConditionTrue; isTrue != (got.ready.Reason == "Ready") {
				t.Errorf("status %s, reason %s", got.ready.Status, got.ready.Reason)
			}
			if got.lookAgain <= 0 {
				t.Errorf("lookAgain = %v, which is never", got.lookAgain)
			}
		})
	}
}

func TestTainted(t *testing.T) {
	h := host("")
	h.Generation = 7
	h.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "operator"}}
	if c := tainted(h); c.Status != metav1.ConditionFalse || c.Message != "🟢" || c.ObservedGeneration != 7 {
		t.Errorf("untouched: %+v", c)
	}
	h.ManagedFields = append(h.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubectl-edit"})
	if c := tainted(h); c.Status != metav1.ConditionTrue || c.Reason != "Kubectl" || c.Message != "⚠️" {
		t.Errorf("touched: %+v", c)
	}
}
