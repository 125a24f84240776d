// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	kubevirtv1 "kubevirt.io/api/core/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// affinity is what a VM's placement has to do with other VMs'.
type affinity struct {
	together []*term // Required: with one of these.
	apart    []*term // Required: with none of these. Holds for them as well.
	prefer   []preference
	broken   string // A required term that cannot be judged, and why.
}

// term is VMs and a topology. All VMs that hold an equal one share it.
type term struct {
	group    *group
	topology string // A label of Hypervisors.
	key      string
	refs     int
	holders  map[int32]int32 // Host: VMs there that must be apart by this term.
}

// group is all VMs that match a selector, counted by host as they come and go,
// so that no placement has to look at VMs.
type group struct {
	key        string
	namespaces []string // Nil: all.
	selector   labels.Selector
	refs       int
	onHost     map[int32]int32
}

type preference struct {
	term   *term
	weight int64 // Negative: rather apart.
}

func (g *group) matches(namespace string, l labels.Set) bool {
	return (g.namespaces == nil || slices.Contains(g.namespaces, namespace)) && g.selector.Matches(l)
}

// affinityOf interns the terms of a VMI. Each is given back by forgetTerms.
func (f *Fleet) affinityOf(vmi *kubevirtv1.VirtualMachineInstance) (a affinity) {
	spec := vmi.Spec.Affinity
	if spec == nil {
		return a
	}
	required := func(terms []corev1.PodAffinityTerm) (held []*term) {
		for i := range terms {
			t, err := f.intern(vmi, &terms[i])
			if err != nil {
				a.broken = err.Error()
				continue
			}
			held = append(held, t)
		}
		return held
	}
	preferred := func(terms []corev1.WeightedPodAffinityTerm, sign int64) {
		for i := range terms {
			// One that cannot be judged is no reason to keep a VM waiting.
			if t, err := f.intern(vmi, &terms[i].PodAffinityTerm); err == nil {
				a.prefer = append(a.prefer, preference{t, sign * int64(terms[i].Weight)})
			}
		}
	}
	if with := spec.PodAffinity; with != nil {
		a.together = required(with.RequiredDuringSchedulingIgnoredDuringExecution)
		preferred(with.PreferredDuringSchedulingIgnoredDuringExecution, 1)
	}
	if without := spec.PodAntiAffinity; without != nil {
		a.apart = required(without.RequiredDuringSchedulingIgnoredDuringExecution)
		preferred(without.PreferredDuringSchedulingIgnoredDuringExecution, -1)
	}
	return a
}

func (a *affinity) terms() []*term {
	all := slices.Concat(a.together, a.apart)
	for _, p := range a.prefer {
		all = append(all, p.term)
	}
	return all
}

// intern finds or makes the term. A selector means VMIs by their labels; it is
// written as for pods.
func (f *Fleet) intern(vmi *kubevirtv1.VirtualMachineInstance, spec *corev1.PodAffinityTerm) (*term, error) {
	selector, err := metav1.LabelSelectorAsSelector(spec.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("affinity labelSelector: %w", err)
	}
	for key, operator := range own(spec) {
		value, has := vmi.Labels[key]
		if !has {
			continue
		}
		requirement, err := labels.NewRequirement(key, operator, []string{value})
		if err != nil {
			return nil, fmt.Errorf("affinity label %s: %w", key, err)
		}
		selector = selector.Add(*requirement)
	}
	namespaces := slices.Sorted(slices.Values(spec.Namespaces))
	switch s := spec.NamespaceSelector; {
	case s == nil && len(namespaces) == 0:
		namespaces = []string{vmi.Namespace}
	case s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0:
		return nil, fmt.Errorf("affinity namespaceSelector: not supported: name the namespaces, or leave it empty for all")
	case s != nil:
		namespaces = nil
	}

	groupKey := strings.Join(namespaces, ",") + ";" + selector.String()
	if namespaces == nil {
		groupKey = "*" + groupKey
	}
	key := groupKey + ";" + spec.TopologyKey
	if t := f.terms[key]; t != nil {
		t.refs++
		return t, nil
	}
	g := f.groups[groupKey]
	if g == nil {
		g = &group{key: groupKey, namespaces: namespaces, selector: selector, onHost: map[int32]int32{}}
		f.groups[groupKey] = g
		f.groupsIn(namespaces, func(list []*group) []*group { return append(list, g) })
		for _, v := range f.vms { // In any order: it only adds up.
			if g.matches(v.key.Namespace, v.labels) {
				v.groups = append(v.groups, g)
				for i := range v.claims {
					add(g.onHost, v.claims[i].host.id, 1)
				}
			}
		}
	}
	g.refs++
	t := &term{group: g, topology: spec.TopologyKey, key: key, refs: 1, holders: map[int32]int32{}}
	f.terms[key] = t
	if namespaces == nil {
		namespaces = allNamespaces
	}
	for _, namespace := range namespaces {
		f.termsIn[namespace] = append(f.termsIn[namespace], t)
	}
	return t, nil
}

// own yields the labels whose value a term takes from the VM itself.
func own(spec *corev1.PodAffinityTerm) func(yield func(string, selection.Operator) bool) {
	return func(yield func(string, selection.Operator) bool) {
		for _, key := range spec.MatchLabelKeys {
			if !yield(key, selection.In) {
				return
			}
		}
		for _, key := range spec.MismatchLabelKeys {
			if !yield(key, selection.NotIn) {
				return
			}
		}
	}
}

// allNamespaces is the key of what holds in each.
var allNamespaces = []string{""}

func (f *Fleet) groupsIn(namespaces []string, change func([]*group) []*group) {
	if namespaces == nil {
		namespaces = allNamespaces
	}
	for _, namespace := range namespaces {
		f.groupsOf[namespace] = change(f.groupsOf[namespace])
	}
}

// forgetTerms gives back the terms of a shape; those nobody holds are dropped,
// and their groups.
func (f *Fleet) forgetTerms(a *affinity) {
	for _, t := range a.terms() {
		if t.refs--; t.refs > 0 {
			continue
		}
		delete(f.terms, t.key)
		namespaces := t.group.namespaces
		if namespaces == nil {
			namespaces = allNamespaces
		}
		for _, namespace := range namespaces {
			f.termsIn[namespace] = without(f.termsIn[namespace], t)
			if len(f.termsIn[namespace]) == 0 {
				delete(f.termsIn, namespace)
			}
		}
		g := t.group
		if g.refs--; g.refs > 0 {
			continue
		}
		delete(f.groups, g.key)
		f.groupsIn(g.namespaces, func(list []*group) []*group { return without(list, g) })
		for _, namespace := range namespaces {
			if len(f.groupsOf[namespace]) == 0 {
				delete(f.groupsOf, namespace)
			}
		}
		for _, v := range f.vms { // In any order: it only takes away.
			v.groups = without(v.groups, g)
		}
	}
}

func without[T comparable](list []T, item T) []T {
	if i := slices.Index(list, item); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// groupsFor are the groups a VM with these labels is in.
func (f *Fleet) groupsFor(namespace string, l labels.Set) (in []*group) {
	for _, list := range [][]*group{f.groupsOf[namespace], f.groupsOf[""]} {
		for _, g := range list {
			if g.selector.Matches(l) {
				in = append(in, g)
			}
		}
	}
	return in
}

func add(counts map[int32]int32, host int32, by int32) {
	if counts[host] += by; counts[host] == 0 {
		delete(counts, host)
	}
}

// spread is how many VMs of a term are in each value of its topology.
type spread struct {
	topology string
	in       map[string]int64
	empty    bool // There are none, in no value.
}

// spreadOf sums counts by the values of a topology. The VM that asks does not
// count as its own neighbour, so that it may move within its zone.
func (f *Fleet) spreadOf(topology string, counts map[int32]int32, self *vm, isMember bool) spread {
	s := spread{topology: topology, in: make(map[string]int64, len(counts)), empty: true}
	for id, n := range counts { // In any order: it only adds up.
		h := f.hosts[id]
		if isMember && self.claimOn(h) != nil {
			n--
		}
		if n == 0 {
			continue
		}
		if at, has := h.at(topology); has {
			s.in[at] += int64(n)
			s.empty = false
		}
	}
	return s
}

// at is a host's value of a topology. A host has always a name.
func (h *host) at(topology string) (value string, has bool) {
	value, has = h.labels[topology]
	if !has && topology == kvmv1.LabelHostname {
		return h.name, true
	}
	return value, has
}

// neighbours is a VM's affinity with all that is placed now.
type neighbours struct {
	together, apart []spread
	prefer          []spread
	weights         []int64
	alone           []bool // Of together: nobody is there, and the VM itself would match.
}

func (f *Fleet) neighboursOf(v *vm) (n neighbours) {
	member := func(t *term) bool { return slices.Contains(v.groups, t.group) }
	for _, t := range v.together {
		s := f.spreadOf(t.topology, t.group.onHost, v, member(t))
		n.together = append(n.together, s)
		// The first of a group that wants to be together may go anywhere, as
		// in kube-scheduler, or none could ever start.
		n.alone = append(n.alone, s.empty && t.group.matches(v.key.Namespace, v.labels))
	}
	for _, t := range v.apart {
		n.apart = append(n.apart, f.spreadOf(t.topology, t.group.onHost, v, member(t)))
	}
	for _, p := range v.prefer {
		n.prefer = append(n.prefer, f.spreadOf(p.term.topology, p.term.group.onHost, v, member(p.term)))
		n.weights = append(n.weights, p.weight)
	}
	// What others keep away from themselves.
	for _, list := range [][]*term{f.termsIn[v.key.Namespace], f.termsIn[""]} {
		for _, t := range list {
			if len(t.holders) > 0 && t.group.selector.Matches(v.labels) {
				n.apart = append(n.apart, f.spreadOf(t.topology, t.holders, v, slices.Contains(v.apart, t)))
			}
		}
	}
	return n
}

func (n *neighbours) refuse(h *host) reason {
	for i := range n.together {
		at, has := h.at(n.together[i].topology)
		if n.alone[i] && has {
			continue
		}
		if !has || n.together[i].in[at] == 0 {
			return noAffinity
		}
	}
	for i := range n.apart {
		if at, has := h.at(n.apart[i].topology); has && n.apart[i].in[at] > 0 {
			return antiAffinity
		}
	}
	return fits
}

// liking is how much a VM's preferences speak for a host.
func (n *neighbours) liking(h *host) (sum int64) {
	for i := range n.prefer {
		if at, has := h.at(n.prefer[i].topology); has {
			sum += n.weights[i] * n.prefer[i].in[at]
		}
	}
	return sum
}
