// SPDX-License-Identifier: Apache-2.0

package hypervisor

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func node(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "kvm-1", UID: "node-uid",
		CreationTimestamp: metav1.Time{Time: now},
		Labels:            map[string]string{kvmv1.LabelVirtDriver: "kvm", kvmv1.LabelZone: "z"},
		Annotations:       map[string]string{},
	}}
	for _, c := range change {
		c(n)
	}
	return n
}

func annotated(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}
func labelled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}
func unlabelled(key string) func(*corev1.Node) { return func(n *corev1.Node) { delete(n.Labels, key) } }
func condition(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Terminating", Status: status})
	}
}
func deleted(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }
func addresses(ips ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "kvm-1"}}
		for _, ip := range ips {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		}
	}
}

// existing is what a Node with those changes has made.
func existing(change ...func(*corev1.Node)) *kvmv1.Hypervisor {
	return decide(observation{labels: transferred(nil), node: node(change...)}).hypervisor
}

func TestDecide(t *testing.T) {
	const aggregates, traits = kvmv1.AnnotationAggregates, kvmv1.AnnotationCustomTraits
	inTermination := func(h *kvmv1.Hypervisor) *kvmv1.Hypervisor {
		h.Spec.Maintenance = kvmv1.MaintenanceTermination
		return h
	}
	type summary struct {
		Aggregates, Traits []string
		Lifecycle, Skip    bool
		Maintenance        kvmv1.Maintenance
		Zone               string
		IP                 string
		Terminating        bool
	}
	none := []string{}
	tests := []struct {
		name string
		node *corev1.Node
		has  *kvmv1.Hypervisor
		want *summary // nil: nothing is done.
	}{
		{"no node, nothing to do", nil, nil, nil},
		{"a node without VMs has no hypervisor", node(unlabelled(kvmv1.LabelVirtDriver)), nil, nil},
		{"a new node gets one", node(), nil, &summary{none, none, false, false, "", "z", "", false}},
		{"the label turns the lifecycle on", node(labelled(kvmv1.LabelNodeHypervisorLifecycle, "")), nil, &summary{none, none, true, false, "", "z", "", false}},
		{"the label skips tests", node(labelled(kvmv1.LabelNodeHypervisorLifecycle, "skip-tests")), nil, &summary{none, none, true, true, "", "z", "", false}},
		{"the label's end turns it off again", node(), existing(labelled(kvmv1.LabelNodeHypervisorLifecycle, "skip-tests")), &summary{none, none, false, false, "", "z", "", false}},
		{"a node already terminating is created in termination", node(condition(corev1.ConditionTrue)), nil, &summary{none, none, false, false, "termination", "z", "", true}},
		{"a node being deleted is created in termination", node(deleted), nil, &summary{none, none, false, false, "termination", "z", "", true}},
		{"a node that says it is not terminating is not", node(condition(corev1.ConditionFalse)), nil, &summary{none, none, false, false, "", "z", "", false}},
		{"a node that turns terminating does not set maintenance", node(condition(corev1.ConditionTrue)), existing(), &summary{none, none, false, false, "", "z", "", true}},
		{"terminating ends when the node's does", node(), existing(condition(corev1.ConditionTrue)), &summary{none, none, false, false, "termination", "z", "", false}},
		{"lists are trimmed, once each, and end in the zone", node(annotated(aggregates, "a, b ,,a"), annotated(traits, " CUSTOM_X,CUSTOM_X ")), nil, &summary{[]string{"a", "b", "z"}, []string{"CUSTOM_X"}, false, false, "", "z", "", false}},
		{"a zone already listed is not listed twice", node(annotated(aggregates, "z,a")), nil, &summary{[]string{"z", "a"}, none, false, false, "", "z", "", false}},
		{"annotations that come later count", node(annotated(aggregates, "a")), existing(), &summary{[]string{"a", "z"}, none, false, false, "", "z", "", false}},
		{"annotations that go take their values along", node(), existing(annotated(aggregates, "a"), annotated(traits, "CUSTOM_X")), &summary{none, none, false, false, "", "z", "", false}},
		{"without an annotation people's spec stays", node(), func() *kvmv1.Hypervisor {
			h := existing()
			h.Spec.Aggregates, h.Spec.LifecycleEnabled = []string{"mine"}, true
			return h
		}(), &summary{[]string{"mine"}, none, true, false, "", "z", "", false}},
		{"labels that go are removed", node(unlabelled(kvmv1.LabelZone)), existing(), &summary{none, none, false, false, "", "", "", false}},
		{"in termination only labels follow", node(annotated(aggregates, "new"), labelled(kvmv1.LabelZone, "y")), inTermination(existing(annotated(aggregates, "old"))), &summary{[]string{"old", "z"}, none, false, false, "termination", "y", "", false}},
		{"the first address is taken", node(addresses("10.0.0.1", "fd00::1")), nil, &summary{none, none, false, false, "", "z", "10.0.0.1", false}},
		{"the stored family stays", node(addresses("10.0.0.1", "fd00::1")), existing(addresses("fd00::2")), &summary{none, none, false, false, "", "z", "fd00::1", false}},
		{"a family that is gone gives way", node(addresses("10.0.0.1")), existing(addresses("fd00::2")), &summary{none, none, false, false, "", "z", "10.0.0.1", false}},
		{"a hypervisor being deleted is left alone", node(), func() *kvmv1.Hypervisor {
			h := existing()
			h.DeletionTimestamp = &metav1.Time{Time: now}
			return h
		}(), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := decide(observation{labels: transferred(nil), node: tt.node, hypervisor: tt.has}).hypervisor
			if tt.want == nil || got == nil {
				if (got == nil) != (tt.want == nil) {
					t.Fatalf("got %v, want %v", got, tt.want)
				}
				return
			}
			s := summary{
				got.Spec.Aggregates, got.Spec.CustomTraits, got.Spec.LifecycleEnabled, got.Spec.SkipTests,
				got.Spec.Maintenance, got.Labels[kvmv1.LabelZone], got.Status.InternalIP,
				meta.IsStatusConditionTrue(got.Status.Conditions, kvmv1.ConditionTerminating),
			}
			if diff := cmp.Diff(*tt.want, s); diff != "" {
				t.Error(diff)
			}
			again := decide(observation{labels: transferred(nil), node: tt.node, hypervisor: got}).hypervisor
			if diff := cmp.Diff(got, again); diff != "" {
				t.Error("the second look changes more:", diff)
			}
		})
	}
}

func TestANewHypervisorHasTheSchemasDefaults(t *testing.T) {
	want := kvmv1.DefaultHypervisorSpec()
	want.LifecycleEnabled = false // The Node's label alone turns it on.
	if diff := cmp.Diff(want, existing().Spec); diff != "" {
		t.Error(diff)
	}
}

func TestTheOwnerIsThisVeryNode(t *testing.T) {
	h := existing()
	other := node(func(n *corev1.Node) { n.UID = "made-again" })
	got := decide(observation{labels: transferred(nil), node: other, hypervisor: h}).hypervisor
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != "made-again" {
		t.Errorf("owners = %v", got.OwnerReferences)
	}
	if ref := got.OwnerReferences[0]; ref.Controller != nil || ref.BlockOwnerDeletion == nil || !*ref.BlockOwnerDeletion {
		t.Errorf("owner = %v, want one that blocks and does not control", ref)
	}
}

func TestTransferredKeysAreOnceEach(t *testing.T) {
	keys := transferred([]string{kvmv1.LabelZone, "more"})
	if got := len(keys); got != len(kvmv1.TransferredLabels())+1 {
		t.Errorf("%d keys: %q", got, keys)
	}
}
