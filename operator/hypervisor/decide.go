// SPDX-License-Identifier: Apache-2.0

package hypervisor

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// AnnotationFromNode, on a Hypervisor, lists the parts of its spec that came
// from the Node. Only those go back to their defaults when the Node no longer
// says them; what people wrote stays.
const AnnotationFromNode = "kvm.cloud.sap/from-node"

// Parts of spec a Node can say, as AnnotationFromNode names them.
const (
	partLifecycle  = "lifecycle"
	partAggregates = "aggregates"
	partTraits     = "custom-traits"
)

// observation is all that one decision depends on.
type observation struct {
	labels     []string          // Keys taken over.
	node       *corev1.Node      // nil: there is none.
	hypervisor *kvmv1.Hypervisor // nil: there is none yet.
}

// plan is the Hypervisor as it should be; nil means leave it alone.
type plan struct {
	hypervisor *kvmv1.Hypervisor
}

// decide is the package comment's table. It is pure.
func decide(seen observation) plan {
	if seen.node == nil {
		return plan{}
	}
	if _, runsVMs := seen.node.Labels[kvmv1.LabelVirtDriver]; !runsVMs {
		return plan{}
	}
	var h *kvmv1.Hypervisor
	if seen.hypervisor == nil {
		h = newHypervisor(seen.node)
	} else {
		h = seen.hypervisor.DeepCopy()
	}
	if !h.DeletionTimestamp.IsZero() {
		return plan{} // Its successor is made when it is gone.
	}
	takeLabels(h, seen.node, seen.labels)
	ownedBy(h, seen.node)
	// In termination the schema refuses any change of spec, and would refuse
	// the labels in the same patch.
	if seen.hypervisor == nil || h.Spec.Maintenance != kvmv1.MaintenanceTermination {
		takeSpec(h, seen.node)
	}
	h.Status.InternalIP = internalIP(seen.node, h.Status.InternalIP)
	setTerminating(h, seen.node)
	return plan{hypervisor: h}
}

// newHypervisor is that of a Node seen for the first time. All that the Node
// does not say is the schema's default: an explicit zero value here once meant
// a host that reboots with its VMs on it (evacuateOnReboot). Only the lifecycle
// is off unless the Node's label turns it on, which is the label's meaning.
func newHypervisor(node *corev1.Node) *kvmv1.Hypervisor {
	h := &kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Spec: kvmv1.DefaultHypervisorSpec()}
	h.Spec.LifecycleEnabled = false
	if terminating(node) {
		h.Spec.Maintenance = kvmv1.MaintenanceTermination
	}
	return h
}

// takeLabels copies the keys from the Node, and removes those it no longer has.
func takeLabels(h *kvmv1.Hypervisor, node *corev1.Node, keys []string) {
	for _, key := range keys {
		value, has := node.Labels[key]
		if !has {
			delete(h.Labels, key)
			continue
		}
		if h.Labels == nil {
			h.Labels = map[string]string{}
		}
		h.Labels[key] = value
	}
}

// ownedBy makes the Node, this very one, an owner. A Node made again under the
// same name has another UID; the old reference would let the Hypervisor go.
func ownedBy(h *kvmv1.Hypervisor, node *corev1.Node) {
	yes := true
	ref := metav1.OwnerReference{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, BlockOwnerDeletion: &yes,
	}
	at := slices.IndexFunc(h.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == ref.Kind && o.APIVersion == ref.APIVersion && o.Name == ref.Name
	})
	if at < 0 {
		h.OwnerReferences = append(h.OwnerReferences, ref)
		return
	}
	h.OwnerReferences[at] = ref
}

// takeSpec copies what the Node's label and annotations say into spec.
func takeSpec(h *kvmv1.Hypervisor, node *corev1.Node) {
	before := list(h.Annotations[AnnotationFromNode])
	var now []string

	value, enabled := node.Labels[kvmv1.LabelNodeHypervisorLifecycle]
	switch {
	case enabled:
		now = append(now, partLifecycle)
		h.Spec.LifecycleEnabled = true
		h.Spec.SkipTests = value == kvmv1.LifecycleSkipTests
	case slices.Contains(before, partLifecycle):
		h.Spec.LifecycleEnabled = false
		h.Spec.SkipTests = false
	}

	aggregates, said := node.Annotations[kvmv1.AnnotationAggregates]
	switch {
	case said:
		now = append(now, partAggregates)
		names := list(aggregates)
		if zone := node.Labels[kvmv1.LabelZone]; zone != "" && !slices.Contains(names, zone) {
			names = append(names, zone)
		}
		h.Spec.Aggregates = names
	case slices.Contains(before, partAggregates):
		h.Spec.Aggregates = []string{}
	}

	traits, said := node.Annotations[kvmv1.AnnotationCustomTraits]
	switch {
	case said:
		now = append(now, partTraits)
		h.Spec.CustomTraits = list(traits)
	case slices.Contains(before, partTraits):
		h.Spec.CustomTraits = []string{}
	}

	if len(now) == 0 {
		delete(h.Annotations, AnnotationFromNode)
		return
	}
	if h.Annotations == nil {
		h.Annotations = map[string]string{}
	}
	h.Annotations[AnnotationFromNode] = strings.Join(now, ",")
}

// list reads a comma-separated list: trimmed, without empty items and doubles,
// in its own order. It is never nil, since null is not a list to the schema.
func list(text string) []string {
	items := []string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" && !slices.Contains(items, item) {
			items = append(items, item)
		}
	}
	return items
}

// internalIP is the Node's first internal address of the stored one's family,
// so that the two of a dual-stack Node do not take turns.
func internalIP(node *corev1.Node, stored string) string {
	first := ""
	for _, address := range node.Status.Addresses {
		if address.Type != corev1.NodeInternalIP {
			continue
		}
		if first == "" {
			first = address.Address
		}
		if stored != "" && isIPv6(address.Address) == isIPv6(stored) {
			return address.Address
		}
	}
	return first
}

func isIPv6(address string) bool { return strings.Contains(address, ":") }

// terminating says that a Node is going for good: it is being deleted, or
// Gardener says so.
func terminating(node *corev1.Node) bool {
	if !node.DeletionTimestamp.IsZero() {
		return true
	}
	for _, c := range node.Status.Conditions {
		if c.Type == kvmv1.ConditionTerminating {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// setTerminating says so on the Hypervisor as long as it is true, with the time
// since when it is true of the Node.
func setTerminating(h *kvmv1.Hypervisor, node *corev1.Node) {
	if !terminating(node) {
		meta.RemoveStatusCondition(&h.Status.Conditions, kvmv1.ConditionTerminating)
		return
	}
	since := node.CreationTimestamp
	for _, c := range node.Status.Conditions {
		if c.Type == kvmv1.ConditionTerminating && !c.LastTransitionTime.IsZero() {
			since = c.LastTransitionTime
		}
	}
	if !node.DeletionTimestamp.IsZero() {
		since = *node.DeletionTimestamp
	}
	meta.SetStatusCondition(&h.Status.Conditions, metav1.Condition{
		Type:               kvmv1.ConditionTerminating,
		Status:             metav1.ConditionTrue,
		Reason:             kvmv1.ReasonTerminating,
		Message:            "Node is terminating",
		LastTransitionTime: since,
	})
}

func terminatingOf(h *kvmv1.Hypervisor) *metav1.Condition {
	return meta.FindStatusCondition(h.Status.Conditions, kvmv1.ConditionTerminating)
}

// transferred is the fixed keys and the further ones, sorted and each once.
func transferred(further []string) []string {
	keys := append(kvmv1.TransferredLabels(), further...)
	slices.Sort(keys)
	return slices.Compact(keys)
}
