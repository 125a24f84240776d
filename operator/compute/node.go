// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// nodeRule is what a VM's nodeSelector and nodeAffinity want of a host's labels.
type nodeRule struct {
	all    []labels.Requirement
	terms  []nodeTerm // One must match; none given allows all.
	prefer []nodePreference
	never  bool // Its terms can match no host.
}

type nodeTerm struct {
	labels []labels.Requirement
	fields []labels.Requirement // Of metadata.name only, as in Kubernetes.
}

type nodePreference struct {
	term   nodeTerm
	weight int64
}

func nodeRuleOf(selector map[string]string, affinity *corev1.Affinity) (rule nodeRule) {
	rule.all = requirementsOf(selector)
	if affinity == nil || affinity.NodeAffinity == nil {
		return rule
	}
	if required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i := range required.NodeSelectorTerms {
			// An empty term, or one that cannot be read, matches nothing.
			if term, ok := nodeTermOf(&required.NodeSelectorTerms[i]); ok {
				rule.terms = append(rule.terms, term)
			}
		}
		rule.never = len(rule.terms) == 0
	}
	for _, preferred := range affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		if term, ok := nodeTermOf(&preferred.Preference); ok {
			rule.prefer = append(rule.prefer, nodePreference{term, int64(preferred.Weight)})
		}
	}
	return rule
}

func requirementsOf(selector map[string]string) (all []labels.Requirement) {
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		// An illegal key is on no host.
		requirement, err := labels.NewRequirement(key, selection.Equals, []string{selector[key]})
		if err != nil {
			requirement, _ = labels.NewRequirement("illegal", selection.In, []string{"illegal"})
		}
		all = append(all, *requirement)
	}
	return all
}

var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

func nodeTermOf(spec *corev1.NodeSelectorTerm) (term nodeTerm, ok bool) {
	if len(spec.MatchExpressions)+len(spec.MatchFields) == 0 {
		return term, false
	}
	for _, expression := range spec.MatchExpressions {
		requirement, err := labels.NewRequirement(expression.Key, operators[expression.Operator], expression.Values)
		if err != nil {
			return term, false
		}
		term.labels = append(term.labels, *requirement)
	}
	for _, field := range spec.MatchFields {
		requirement, err := labels.NewRequirement(field.Key, operators[field.Operator], field.Values)
		if err != nil || field.Key != "metadata.name" {
			return term, false
		}
		term.fields = append(term.fields, *requirement)
	}
	return term, true
}

func (t *nodeTerm) matches(h *host) bool {
	if !match(t.labels, labels.Set(h.labels)) {
		return false
	}
	return len(t.fields) == 0 || match(t.fields, labels.Set{"metadata.name": h.name})
}

func match(all []labels.Requirement, set labels.Set) bool {
	for i := range all {
		if !all[i].Matches(set) {
			return false
		}
	}
	return true
}

func (r *nodeRule) matches(h *host) bool {
	if r.never || !match(r.all, labels.Set(h.labels)) {
		return false
	}
	for i := range r.terms {
		if r.terms[i].matches(h) {
			return true
		}
	}
	return len(r.terms) == 0
}

func (r *nodeRule) liking(h *host) (sum int64) {
	for i := range r.prefer {
		if r.prefer[i].term.matches(h) {
			sum += r.prefer[i].weight
		}
	}
	return sum
}
