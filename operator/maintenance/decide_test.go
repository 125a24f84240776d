// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func host(name string, maintenance kvmv1.Maintenance, conditions ...metav1.Condition) *kvmv1.Hypervisor {
	return &kvmv1.Hypervisor{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-a", Labels: map[string]string{"shard": "s1"}},
		Spec:       kvmv1.HypervisorSpec{Maintenance: maintenance},
		Status:     kvmv1.HypervisorStatus{Conditions: conditions},
	}
}

func says(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

var (
	out = says("HypervisorDisabled", "True", "Succeeded", "Hypervisor is disabled")
	in  = says("HypervisorDisabled", "False", "Succeeded", "Hypervisor is enabled")
)

func evictionOf(h *kvmv1.Hypervisor, conditions ...metav1.Condition) *kvmv1.Eviction {
	e := newEviction(h)
	e.UID = "uid-e"
	e.Status.Conditions = conditions
	return e
}

func theirs(e *kvmv1.Eviction) *kvmv1.Eviction { e.OwnerReferences = nil; return e }

// summary reads "disabled=... evicting=... evicted +eviction -eviction taint".
func summary(h *kvmv1.Hypervisor, p plan) string {
	h = h.DeepCopy()
	p.mark(h, metav1.NewTime(now))
	var parts []string
	for _, kind := range []string{kvmv1.ConditionHypervisorDisabled, kvmv1.ConditionEvicting} {
		if c := meta.FindStatusCondition(h.Status.Conditions, kind); c != nil {
			parts = append(parts, fmt.Sprintf("%s=%s/%s", kind, c.Status, c.Reason))
		}
	}
	for _, part := range []struct {
		is   bool
		word string
	}{{h.Status.Evicted, "evicted"}, {p.create != nil, "+eviction"}, {p.deleteEviction, "-eviction"}, {p.taint, "taint"}} {
		if part.is {
			parts = append(parts, part.word)
		}
	}
	return strings.Join(parts, " ")
}

func TestDecide(t *testing.T) {
	const disabledEvicting = "HypervisorDisabled=True/Succeeded Evicting=True/Running"
	const disabledEvicted = "HypervisorDisabled=True/Succeeded Evicting=False/Succeeded evicted"
	running := says("Evicting", "True", "Running", "Running")
	done := says("Evicting", "False", "Succeeded", "eviction completed successfully")
	failed := says("Evicting", "False", "Failed", "failed to get hypervisor a")
	evicted := func(h *kvmv1.Hypervisor) *kvmv1.Hypervisor { h.Status.Evicted = true; return h }
	busy := floor{others: 1, least: 1}
	tests := []struct {
		name     string
		host     *kvmv1.Hypervisor
		eviction func(*kvmv1.Hypervisor) *kvmv1.Eviction
		vms      int
		floor    floor
		want     string
	}{
		{name: "a new host is in service", host: host("a", ""), want: "HypervisorDisabled=False/Succeeded"},
		{name: "onboarding comes first", host: host("a", "manual", says("Onboarding", "True", "Testing", "")), floor: busy, want: ""},
		{name: "maintenance disables and asks for an eviction", host: host("a", "manual", in), floor: busy, vms: 3, want: disabledEvicting + " +eviction"},
		{name: "termination by spec alone does so too", host: host("a", "termination", in), floor: busy, vms: 3, want: disabledEvicting + " +eviction"},
		{name: "the floor holds a host in service", host: host("a", "manual", in), floor: floor{others: 0, least: 1}, vms: 3, want: "HypervisorDisabled=False/Waiting"},
		{name: "the floor does not bring a host back", host: host("a", "manual", out), floor: floor{others: 0, least: 1}, vms: 3, want: disabledEvicting + " +eviction"},
		{name: "an eviction under way is mirrored", host: host("a", "manual", out),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction { return evictionOf(h, running) }, vms: 3, want: disabledEvicting},
		{name: "one that has not begun is under way", host: host("a", "manual", out),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction { return evictionOf(h) }, want: disabledEvicting},
		{name: "a person's eviction serves as well", host: host("a", "manual", out),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction { return theirs(evictionOf(h, done)) }, want: disabledEvicted},
		{name: "one that succeeded means evicted", host: host("a", "manual", out, running),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction { return evictionOf(h, done) }, want: disabledEvicted},
		{name: "one that failed does not", host: host("a", "manual", out, running),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction { return evictionOf(h, failed) },
			want:     "HypervisorDisabled=True/Succeeded Evicting=True/Failed"},
		{name: "VMs that came later are evicted too", host: evicted(host("a", "manual", out, done)),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction { return evictionOf(h, done) }, vms: 1, want: disabledEvicting + " -eviction"},
		{name: "manual to termination looks anew", host: evicted(host("a", "termination", out, done)), vms: 1, want: disabledEvicting + " +eviction"},
		{name: "a dry run empties nothing", host: host("a", "manual", out),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction {
				e := theirs(evictionOf(h, done))
				e.Spec.DryRun = true
				return e
			}, want: disabledEvicting + " -eviction"},
		{name: "an eviction of another host is not touched", host: host("a", "manual", out),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction {
				e := theirs(evictionOf(h, done))
				e.Spec.Hypervisor = "b"
				return e
			}, want: disabledEvicting},
		{name: "one being deleted is waited for", host: host("a", "manual", out),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction {
				e := evictionOf(h, done)
				e.DeletionTimestamp = &metav1.Time{Time: now}
				return e
			}, want: disabledEvicting},
		{name: "somebody tidied up after the end", host: evicted(host("a", "manual", out, done)), want: disabledEvicted},
		{name: "an empty host going for good is tainted", host: host("a", "termination", out, running),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction { return evictionOf(h, done) }, want: disabledEvicted + " taint"},
		{name: "one that is not empty is not", host: host("a", "termination", out, running),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction { return evictionOf(h, running) }, vms: 1, want: disabledEvicting},
		{name: "the end of maintenance clears all marks at once", host: evicted(host("a", "", out, done)),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction { return evictionOf(h, done) }, want: "HypervisorDisabled=False/Succeeded -eviction"},
		{name: "a person's eviction outlives maintenance", host: host("a", "", out, running),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction { return theirs(evictionOf(h, running)) }, want: "HypervisorDisabled=False/Succeeded"},
		{name: "a crash in between leaves marks that are cleared", host: evicted(host("a", "", out, done)), want: "HypervisorDisabled=False/Succeeded"},
		{name: "a dead host is out of service, whatever the floor is", host: host("a", "ha", in), floor: floor{others: 0, least: 1}, vms: 3, want: "HypervisorDisabled=True/Succeeded"},
		{name: "given back to a person's maintenance it goes on with that, whatever the floor is", host: host("a", "manual", out), floor: floor{others: 0, least: 1}, want: disabledEvicting + " +eviction"},
		{name: "given back to nobody it serves again", host: host("a", "", out), want: "HypervisorDisabled=False/Succeeded"},
		{name: "a dead host's eviction is withdrawn", host: host("a", "ha", out, running),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction { return evictionOf(h, running) }, want: "HypervisorDisabled=True/Succeeded -eviction"},
		{name: "a node that turns terminating changes nothing of it", host: host("a", "manual", out, running, says("Terminating", "True", "Terminating", "")),
			eviction: func(h *kvmv1.Hypervisor) *kvmv1.Eviction { return evictionOf(h, running) }, vms: 1, want: disabledEvicting},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen := observation{now: now, hypervisor: tt.host, vms: tt.vms, floor: tt.floor, node: &corev1.Node{}}
			if tt.eviction != nil {
				seen.eviction = tt.eviction(tt.host)
			}
			if got := summary(tt.host, decide(seen)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestAnEvictionCarriesLabelsAndOwner(t *testing.T) {
	e := newEviction(host("a", "manual"))
	ref := metav1.GetControllerOf(e)
	if e.Name != "a" || e.Labels["shard"] != "s1" || ref == nil || ref.UID != "uid-a" || ref.Kind != "Hypervisor" {
		t.Errorf("%+v", e)
	}
}

func TestTheHostNamesWhatHoldsItUp(t *testing.T) {
	h := host("a", "manual", out)
	p := decide(observation{now: now, hypervisor: h, vms: 1,
		eviction: evictionOf(h, says("Evicting", "True", "Running", "Running: not moved yet: ns/x (no host)"))})
	if p.evicting.Message != "Evicting: not moved yet: ns/x (no host)" {
		t.Errorf("message %q", p.evicting.Message)
	}
}

func TestCount(t *testing.T) {
	silent := says("Ready", "False", "AgentSilent", "")
	fleet := []kvmv1.Hypervisor{
		*host("a", "manual", says("Ready", "False", "Maintenance", "")), // Asks.
		*host("b", "", in),
		*host("c", "", out),    // Disabled by another.
		*host("d", "ha"),       // Dead.
		*host("e", "", silent), // Not to be relied on.
		*host("f", "auto", says("Ready", "True", "", "")),  // Waits, and serves.
		*host("g", "", says("Offboarded", "True", "", "")), // No host any more.
		*host("h", "", in, says("HostAlive", "False", "Fenced", "")),
		*host("i", "", in, says("HostAlive", "Unknown", "Unreachable", "")),
		*host("j", "", in, says("HostAlive", "True", "Online", "")),
	}
	tests := []struct {
		name   string
		host   string
		least  intstr.IntOrString
		want   floor
		allows bool
	}{
		{"three others serve", "a", intstr.FromInt32(3), floor{others: 3, least: 3}, true},
		{"and a fourth is wanted", "a", intstr.FromInt32(4), floor{others: 3, least: 4}, false},
		{"half of nine are five", "a", intstr.FromString("50%"), floor{others: 3, least: 5}, false},
		{"a silent host's leave costs nothing", "e", intstr.FromInt32(6), floor{others: 4, least: 6, idle: true}, true},
		{"nor does a dead one's", "h", intstr.FromInt32(6), floor{others: 4, least: 6, idle: true}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := count(fleet, tt.host, tt.least)
			if err != nil || got != tt.want || got.allows() != tt.allows {
				t.Errorf("got %+v, allows %v, %v", got, got.allows(), err)
			}
		})
	}
	if _, err := count(nil, "", intstr.FromString("half")); err == nil {
		t.Error("a percentage without one is taken")
	}
}
