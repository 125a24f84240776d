// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The garbage collector and the namespace controller: components that real
// clusters run beside the API server, each step after a delay of its own.

type dependent struct {
	k   *kind
	key types.NamespacedName
}

// follow tells the components of a change.
func (c *Cluster) follow(k *kind, key types.NamespacedName, ch change) {
	me := dependent{k, key}
	var before, after []metav1.OwnerReference
	var uid types.UID
	if ch.old != nil {
		before, uid = metaOf(ch.old).OwnerReferences, ch.old.GetUID()
	}
	if ch.new != nil {
		after, uid = metaOf(ch.new).OwnerReferences, ch.new.GetUID()
	}
	if len(before)+len(after) > 0 {
		c.index(me, before, after)
		if ch.old == nil {
			c.soon(func() { c.collect(me) })
		}
		if ch.new == nil {
			for _, ref := range before {
				if owner, ok := c.ownerOf(ref, key.Namespace); ok {
					c.soon(func() { c.finishOwner(owner) })
				}
			}
		}
	}
	if ch.new == nil {
		for _, d := range c.dependentsOf(uid) {
			c.soon(func() { c.collect(d) })
		}
		return
	}
	if metaOf(ch.new).DeletionTimestamp == nil {
		return
	}
	if k.isNamespace() {
		c.soon(func() { c.emptyNamespace(key) })
	}
	finalizers := metaOf(ch.new).Finalizers
	if slices.Contains(finalizers, metav1.FinalizerDeleteDependents) || slices.Contains(finalizers, metav1.FinalizerOrphanDependents) {
		c.soon(func() { c.finishOwner(me) })
	}
}

func (c *Cluster) soon(fn func()) { c.s.After(c.o.GCDelay(c.s.Rand("kubesim/gc")), fn) }

func (c *Cluster) index(me dependent, before, after []metav1.OwnerReference) {
	for _, ref := range before {
		delete(c.dependents[ref.UID], me)
		if len(c.dependents[ref.UID]) == 0 {
			delete(c.dependents, ref.UID)
		}
	}
	for _, ref := range after {
		if c.dependents[ref.UID] == nil {
			c.dependents[ref.UID] = map[dependent]bool{}
		}
		c.dependents[ref.UID][me] = true
	}
}

func (c *Cluster) dependentsOf(uid types.UID) []dependent {
	return slices.SortedFunc(maps.Keys(c.dependents[uid]), func(a, b dependent) int {
		if n := strings.Compare(a.k.gvk.String(), b.k.gvk.String()); n != 0 {
			return n
		}
		return compareKeys(a.key, b.key)
	})
}

func (c *Cluster) ownerOf(ref metav1.OwnerReference, namespace string) (dependent, bool) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return dependent{}, false
	}
	k, err := c.kindOf(gv.WithKind(ref.Kind))
	if err != nil {
		return dependent{}, false
	}
	key := types.NamespacedName{Name: ref.Name}
	if k.namespaced {
		key.Namespace = namespace
	}
	st := k.objects[key]
	return dependent{k, key}, st != nil && st.obj.GetUID() == ref.UID
}

func collector(verb string) *request {
	return &request{by: "garbage-collector", manager: "kube-controller-manager", verb: verb}
}

// collect deletes an object whose owners are all gone, or forgets those that
// are.
func (c *Cluster) collect(d dependent) {
	st := d.k.objects[d.key]
	if st == nil || len(metaOf(st.obj).OwnerReferences) == 0 {
		return
	}
	var solid []metav1.OwnerReference
	waiting := 0
	refs := metaOf(st.obj).OwnerReferences
	for _, ref := range refs {
		owner, ok := c.ownerOf(ref, d.key.Namespace)
		if !ok {
			continue
		}
		if slices.Contains(metaOf(owner.k.objects[owner.key].obj).Finalizers, metav1.FinalizerDeleteDependents) {
			waiting++
			continue
		}
		solid = append(solid, ref)
	}
	switch {
	case len(solid) == len(refs):
	case len(solid) > 0:
		n := d.k.shallow(st.obj)
		metaOf(n).OwnerReferences = solid
		_, _ = c.replace(collector("patch"), d.k, st, n) // refused, for a schema that was tightened: it stays
	default:
		o := &client.DeleteOptions{}
		if policy := metav1.DeletePropagationForeground; waiting > 0 && len(c.dependents[st.obj.GetUID()]) > 0 {
			o.PropagationPolicy = &policy
		}
		_ = c.delete(collector("delete"), d.k, d.key, o) // it was there a line ago
	}
}

// finishOwner lets an owner go whose dependents are deleted or set free, as
// its finalizer asks.
func (c *Cluster) finishOwner(owner dependent) {
	st := owner.k.objects[owner.key]
	if st == nil || metaOf(st.obj).DeletionTimestamp == nil {
		return
	}
	uid, finalizer := st.obj.GetUID(), metav1.FinalizerDeleteDependents
	if slices.Contains(metaOf(st.obj).Finalizers, metav1.FinalizerOrphanDependents) {
		finalizer = metav1.FinalizerOrphanDependents
	} else if !slices.Contains(metaOf(st.obj).Finalizers, finalizer) {
		return
	}
	blocked := false
	for _, d := range c.dependentsOf(uid) {
		if finalizer == metav1.FinalizerDeleteDependents {
			c.collect(d)
			if left := d.k.objects[d.key]; left != nil {
				blocked = blocked || blocks(metaOf(left.obj).OwnerReferences, uid)
			}
			continue
		}
		dep := d.k.objects[d.key]
		n := d.k.shallow(dep.obj)
		metaOf(n).OwnerReferences = without(metaOf(n).OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == uid })
		_, _ = c.replace(collector("patch"), d.k, dep, n)
	}
	if blocked {
		return // the last dependent's end calls again
	}
	if st = owner.k.objects[owner.key]; st == nil {
		return
	}
	n := owner.k.shallow(st.obj)
	metaOf(n).Finalizers = without(metaOf(n).Finalizers, func(f string) bool { return f == finalizer })
	_, _ = c.replace(collector("patch"), owner.k, st, n)
}

// without copies a list less some; an empty one is nil, as on the wire.
func without[T any](list []T, some func(T) bool) (kept []T) {
	for _, one := range list {
		if !some(one) {
			kept = append(kept, one)
		}
	}
	return kept
}

func blocks(refs []metav1.OwnerReference, uid types.UID) bool {
	return slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool {
		return r.UID == uid && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
	})
}

// emptyNamespace deletes what is in a terminating namespace, then the
// namespace; it comes back while finalizers hold something.
func (c *Cluster) emptyNamespace(key types.NamespacedName) {
	st := c.namespaces.objects[key]
	if st == nil || st.obj.GetDeletionTimestamp() == nil {
		return
	}
	left := false
	for _, k := range c.sortedKinds() {
		if !k.namespaced {
			continue
		}
		for _, one := range k.selected(&selector{namespace: key.Name}) {
			_ = c.delete(&request{by: "namespace-controller", manager: "kube-controller-manager", verb: "delete"}, k, client.ObjectKeyFromObject(one.obj), &client.DeleteOptions{})
			left = left || k.objects[client.ObjectKeyFromObject(one.obj)] != nil
		}
	}
	if left || len(metaOf(st.obj).Finalizers) > 0 {
		c.s.After(namespaceRetry, func() { c.emptyNamespace(key) })
		return
	}
	ns := st.obj.DeepCopyObject().(*corev1.Namespace)
	ns.Spec.Finalizers = nil
	c.commit(&request{by: "namespace-controller", manager: "kube-controller-manager", verb: "delete"}, c.namespaces, key, st, nil, nil)
}
