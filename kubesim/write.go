// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/internal/equal"
	"github.com/adit-hv/adit/sim"
)

// request is who asks for what.
type request struct {
	by      string // process or user
	role    string
	host    string
	manager string // field manager
	verb    string
	sub     string
	dry     bool
}

// create takes over n, which nobody else may hold.
func (c *Cluster) create(rq *request, k *kind, n client.Object) (client.Object, error) {
	m := metaOf(n)
	if m.ResourceVersion != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if m.Name == "" && m.GenerateName != "" {
		m.Name = c.generateName(m.GenerateName)
	}
	key := client.ObjectKeyFromObject(n)
	if err := c.checkNamespace(rq, k, key); err != nil {
		return nil, err
	}
	if err := k.checkMeta(m); err != nil {
		return nil, err
	}
	if k.objects[key] != nil {
		return nil, apierrors.NewAlreadyExists(k.gr, key.Name)
	}
	m.UID, m.CreationTimestamp = c.newUID(rq.dry), metav1.NewTime(c.s.Now().Truncate(time.Second))
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = nil, nil
	m.Generation = 0
	if k.generations() {
		m.Generation = 1
	}
	if k.statusSub && k.status >= 0 {
		reflect.ValueOf(n).Elem().Field(k.status).SetZero()
	}
	if ns, ok := n.(*corev1.Namespace); ok {
		ns.Spec.Finalizers, ns.Status.Phase = []corev1.FinalizerName{corev1.FinalizerKubernetes}, corev1.NamespaceActive
	}
	n, tree, err := c.admit(k, n, nil, "")
	if err != nil || rq.dry {
		return n, err
	}
	st := c.commit(rq, k, key, nil, n, tree)
	return st.obj, nil
}

// admit brings a new version into its stored form and judges it.
func (c *Cluster) admit(k *kind, n client.Object, old *stored, sub string) (client.Object, map[string]any, error) {
	var tree map[string]any
	if k.schema != nil && c.o.Fidelity == Full {
		var before map[string]any
		if old != nil {
			before = old.tree
		}
		var err error
		if n, tree, err = k.schema.admit(k.facts, n, before, sub); err != nil {
			return nil, nil, err
		}
	} else if k.defaults != nil {
		k.defaults(reflect.ValueOf(n).Elem())
	}
	if size := c.sizeOf(n); size > c.o.MaxObjectBytes {
		return nil, nil, apierrors.NewInternalError(fmt.Errorf("etcdserver: request is too large: %d bytes", size))
	}
	return n, tree, nil
}

// update takes over n and checks what an update's body must carry.
func (c *Cluster) update(rq *request, k *kind, n client.Object) (client.Object, error) {
	st, err := c.find(k, client.ObjectKeyFromObject(n))
	if err != nil {
		return nil, err
	}
	have, want := metaOf(st.obj), metaOf(n)
	if want.ResourceVersion == "" && !k.unconditional {
		return nil, apierrors.NewInvalid(k.gvk.GroupKind(), want.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update")})
	}
	if err := c.precondition(k, have, want); err != nil {
		return nil, err
	}
	return c.replace(rq, k, st, n)
}

func (c *Cluster) precondition(k *kind, have, want *metav1.ObjectMeta) error {
	if want.UID != "" && want.UID != have.UID {
		//lint:ignore ST1005 the server's text
		return c.conflict(k, have.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", want.UID, have.UID))
	}
	if want.ResourceVersion != "" && want.ResourceVersion != have.ResourceVersion {
		return c.conflict(k, have.Name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

func (c *Cluster) conflict(k *kind, name string, err error) error {
	c.totals.Conflicts++
	return apierrors.NewConflict(k.gr, name, err)
}

func (c *Cluster) find(k *kind, key types.NamespacedName) (*stored, error) {
	st := k.objects[key]
	if st == nil {
		return nil, apierrors.NewNotFound(k.gr, key.Name)
	}
	c.settleBeat(k, st)
	return st, nil
}

// replace stores n, which it takes over, as the next version of st.
func (c *Cluster) replace(rq *request, k *kind, st *stored, n client.Object) (client.Object, error) {
	if rq.sub != "" && (rq.sub != "status" || !k.statusSub) {
		return nil, apierrors.NewNotFound(k.gr, st.obj.GetName())
	}
	managed := metaOf(n).ManagedFields
	n, err := k.merge(rq.sub, st.obj, n)
	if err != nil {
		return nil, err
	}
	n, tree, err := c.admit(k, n, st, rq.sub)
	if err != nil {
		return nil, err
	}
	have, m := metaOf(st.obj), metaOf(n)
	if rq.verb == "apply" {
		m.ManagedFields = managed
	} else if have.ManagedFields != nil {
		if err := c.trackUpdate(rq, k, st, n); err != nil {
			return nil, err
		}
	}
	body, status := k.differences(st.obj, n)
	if !body && !status && sameMeta(have, m) {
		if !rq.dry {
			c.totals.NoOps++
		}
		return st.obj, nil
	}
	if k.generations() && (body || status && !k.statusSub) {
		m.Generation++
	}
	if rq.dry {
		return n, nil
	}
	key := client.ObjectKeyFromObject(n)
	if m.DeletionTimestamp != nil && len(m.Finalizers) == 0 && !k.isNamespace() {
		c.commit(rq, k, key, st, nil, nil)
		return n, nil
	}
	return c.commit(rq, k, key, st, n, tree).obj, nil
}

// merge lets a write change only what its endpoint may.
func (k *kind) merge(sub string, old, n client.Object) (client.Object, error) {
	from, to := reflect.ValueOf(old).Elem(), reflect.ValueOf(n).Elem()
	if sub == "status" {
		out := k.new()
		reflect.ValueOf(out).Elem().Set(from)
		if k.status >= 0 {
			reflect.ValueOf(out).Elem().Field(k.status).Set(to.Field(k.status))
		}
		return out, nil
	}
	if k.statusSub && k.status >= 0 {
		to.Field(k.status).Set(from.Field(k.status))
	}
	have, m := metaOf(old), metaOf(n)
	var errs field.ErrorList
	path := field.NewPath("metadata")
	if !m.CreationTimestamp.IsZero() && !m.CreationTimestamp.Equal(&have.CreationTimestamp) {
		errs = append(errs, field.Invalid(path.Child("creationTimestamp"), m.CreationTimestamp, validation.FieldImmutableErrorMsg))
	}
	if m.DeletionTimestamp != nil && !m.DeletionTimestamp.Equal(have.DeletionTimestamp) {
		errs = append(errs, field.Invalid(path.Child("deletionTimestamp"), m.DeletionTimestamp, validation.FieldImmutableErrorMsg))
	}
	if have.DeletionTimestamp != nil {
		var added []string
		for _, f := range m.Finalizers {
			if !slices.Contains(have.Finalizers, f) {
				added = append(added, f)
			}
		}
		if added != nil {
			errs = append(errs, field.Forbidden(path.Child("finalizers"), fmt.Sprintf("no new finalizers can be added if the object is being deleted, found new finalizers %#v", added)))
		}
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(k.gvk.GroupKind(), have.Name, errs)
	}
	m.UID, m.CreationTimestamp, m.Generation, m.ResourceVersion = have.UID, have.CreationTimestamp, have.Generation, have.ResourceVersion
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = have.DeletionTimestamp, have.DeletionGracePeriodSeconds
	m.GenerateName, m.ManagedFields = have.GenerateName, have.ManagedFields
	if !sameMeta(have, m) {
		if err := k.checkMeta(m); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (k *facts) differences(old, n client.Object) (body, status bool) {
	a, b := reflect.ValueOf(old).Elem(), reflect.ValueOf(n).Elem()
	for _, i := range k.body {
		if !equal.Fields(a.Field(i), b.Field(i)) {
			body = true
			break
		}
	}
	if k.status >= 0 {
		status = !equal.Fields(a.Field(k.status), b.Field(k.status))
	}
	return body, status
}

// sameMeta compares what a writer may change.
func sameMeta(a, b *metav1.ObjectMeta) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		slices.Equal(a.Finalizers, b.Finalizers) && equal.Values(&a.OwnerReferences, &b.OwnerReferences) &&
		a.DeletionTimestamp.Equal(b.DeletionTimestamp) && sameManaged(a.ManagedFields, b.ManagedFields)
}

func (k *facts) checkMeta(m *metav1.ObjectMeta) error {
	check := validation.NameIsDNSSubdomain
	if k.isNamespace() {
		check = validation.NameIsDNSLabel
	}
	if errs := validation.ValidateObjectMeta(m, k.namespaced, check, field.NewPath("metadata")); len(errs) > 0 {
		return apierrors.NewInvalid(k.gvk.GroupKind(), m.Name, errs)
	}
	return nil
}

func (k *facts) isNamespace() bool { return k.gvk.Kind == "Namespace" && k.gvk.Group == "" }

// generations: the core kinds do not count theirs.
func (k *facts) generations() bool {
	return k.custom || k.gvk.Group != "" && k.gvk.Group != "coordination.k8s.io" && k.gvk.Group != "events.k8s.io"
}

func (k *facts) statusUnwritten(o client.Object) bool {
	return k.statusSub && k.status >= 0 && reflect.ValueOf(o).Elem().Field(k.status).IsZero()
}

func (k *facts) normalize(o client.Object) {
	if k.normal != nil {
		k.normal(reflect.ValueOf(o).Elem())
	}
}

// commit makes n the next version of an object; nil removes it. From here on
// n belongs to the store and does not change.
func (c *Cluster) commit(rq *request, k *kind, key types.NamespacedName, old *stored, n client.Object, tree map[string]any) *stored {
	c.rv++
	c.totals.Writes++
	version := strconv.FormatUint(c.rv, 10)
	ch := change{rv: c.rv, at: c.s.Elapsed()}
	st := &stored{rv: c.rv, tree: tree}
	if old != nil {
		ch.old, st.name, st.writers = old.obj, old.name, old.writers
	} else {
		st.name = k.gvk.Kind + " " + key.String()
		if key.Namespace == "" {
			st.name = k.gvk.Kind + " " + key.Name
		}
	}
	if n != nil {
		st.beat = keptBeat(old, n)
		n.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		metaOf(n).ResourceVersion = version
		st.obj, ch.new = n, n
		c.recordManager(rq, st)
		k.put(key, old, st)
	} else {
		k.remove(key, old)
	}
	if old != nil && old.beat != nil && st.beat == nil && old.beat.until < 0 {
		old.beat.lost()
	}
	k.past.add(ch)
	c.s.Note(sim.Note{Host: rq.host, Component: rq.by, What: rq.what(), Object: st.name, Detail: version})
	c.follow(k, key, ch)
	c.observe(rq, k, ch)
	k.fanOut(ch)
	return st
}

func (rq *request) what() string {
	if rq.sub == "" {
		return rq.verb
	}
	return rq.verb + " " + rq.sub
}

func (c *Cluster) observe(rq *request, k *kind, ch change) {
	if c.o.OnWrite == nil && (c.o.Owners == nil || rq.role == "") {
		return
	}
	w := Write{Process: rq.by, Role: rq.role, Verb: rq.verb, Subresource: rq.sub, GVK: k.gvk, Old: ch.old, New: ch.new, RV: ch.rv, At: ch.at}
	if c.o.OnWrite != nil {
		c.o.OnWrite(w)
	}
	if c.o.Owners != nil && rq.role != "" {
		c.checkOwners(k, w)
	}
}

func (c *Cluster) generateName(base string) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789" // apimachinery util/rand's
	const maxBase = 58                             // names.SimpleNameGenerator: 63 less 5
	r := c.s.Rand("kubesim/names")
	name := []byte(base[:min(len(base), maxBase)])
	for range 5 {
		name = append(name, alphabet[r.IntN(len(alphabet))])
	}
	return string(name)
}

// newUID draws a version 4 UUID of the seed. A dry run draws none.
func (c *Cluster) newUID(dry bool) types.UID {
	if dry {
		return "00000000-0000-4000-8000-000000000000"
	}
	r := c.s.Rand("kubesim/uids")
	a, b := r.Uint64(), r.Uint64()
	text := make([]byte, 0, 36)
	const hex = "0123456789abcdef"
	for i := range 32 {
		word, shift := a, 60-4*i
		if i >= 16 {
			word, shift = b, 60-4*(i-16)
		}
		digit := word >> shift & 15
		switch i {
		case 8, 20:
			text = append(text, '-')
		case 12:
			text, digit = append(text, '-'), 4
		case 16:
			text, digit = append(text, '-'), 8|digit&3
		}
		text = append(text, hex[digit])
	}
	return types.UID(text)
}
