// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"

	"github.com/adit-hv/adit/sim"
)

// writer is one manager of an object that nobody has applied yet.
type writer struct {
	manager, sub string
	at           time.Duration
}

// recordManager keeps who wrote an object, cheaply: what they own is worked
// out when somebody applies.
func (c *Cluster) recordManager(rq *request, st *stored) {
	if metaOf(st.obj).ManagedFields != nil {
		st.writers = nil
		return
	}
	for i, w := range st.writers {
		if w.manager == rq.manager && w.sub == rq.sub {
			st.writers = slices.Clone(st.writers)
			st.writers[i].at = c.s.Elapsed()
			return
		}
	}
	st.writers = append(slices.Clip(st.writers), writer{rq.manager, rq.sub, c.s.Elapsed()})
}

// apply is a server-side apply: each manager owns the fields it applied.
func (c *Cluster) apply(rq *request, k *kind, key types.NamespacedName, data []byte, force bool) (client.Object, error) {
	rq.verb = "apply"
	if rq.manager == "" {
		return nil, apierrors.NewBadRequest("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch")
	}
	applied := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &applied.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	if applied.GetManagedFields() != nil {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	applied.SetGroupVersionKind(k.gvk)
	if k.namespaced {
		applied.SetNamespace(key.Namespace)
	}
	fields, err := k.fieldManager(rq.sub)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	st := k.objects[key]
	live := &unstructured.Unstructured{Object: map[string]any{}}
	live.SetGroupVersionKind(k.gvk)
	var before []metav1.ManagedFieldsEntry
	if st != nil {
		c.settleBeat(k, st)
		if version := applied.GetResourceVersion(); version != "" && version != st.obj.GetResourceVersion() {
			return nil, c.precondition(k, metaOf(st.obj), &metav1.ObjectMeta{ResourceVersion: version})
		}
		if live.Object, err = k.tree(st.obj); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		if before = metaOf(st.obj).ManagedFields; before == nil {
			if live, err = k.attribute(live, st.writers); err != nil {
				return nil, apierrors.NewInternalError(err)
			}
		}
	} else if rq.sub != "" {
		return nil, apierrors.NewNotFound(k.gr, key.Name)
	}
	merged, err := fields.Apply(live, applied, rq.manager, force)
	if err != nil {
		return nil, err
	}
	n := k.new()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(merged.(*unstructured.Unstructured).Object, n); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	c.stamp(metaOf(n), before)
	k.normalize(n)
	if st == nil {
		metaOf(n).ResourceVersion, metaOf(n).UID = "", ""
		return c.create(rq, k, n)
	}
	return c.replace(rq, k, st, n)
}

// attribute gives an object's fields to those who wrote them before anybody
// applied: status to its last writer, the rest to theirs.
func (k *kind) attribute(live *unstructured.Unstructured, writers []writer) (*unstructured.Unstructured, error) {
	types, err := k.typeConverter()
	if err != nil {
		return nil, err
	}
	value, err := types.ObjectToTyped(live, typed.AllowDuplicates)
	if err != nil {
		return nil, err
	}
	all, err := value.ToFieldSet()
	if err != nil {
		return nil, err
	}
	system := fieldpath.NewSet(fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"))
	for _, name := range []string{"name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"} {
		system.Insert(fieldpath.MakePathOrDie("metadata", name))
	}
	status, body := fieldpath.NewSet(fieldpath.MakePathOrDie("status")), fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"))
	for name := range live.Object {
		if name != "status" {
			body.Insert(fieldpath.MakePathOrDie(name))
		}
	}
	var entries []metav1.ManagedFieldsEntry
	for _, sub := range []string{"", "status"} {
		last, found := writer{}, false
		for _, w := range writers {
			if w.sub == sub && w.at >= last.at {
				last, found = w, true
			}
		}
		if !found {
			continue
		}
		owned := all.RecursiveDifference(body)
		if sub == "" {
			owned = all.RecursiveDifference(status).Difference(system)
			for _, name := range []string{"apiVersion", "kind"} {
				owned = owned.RecursiveDifference(fieldpath.NewSet(fieldpath.MakePathOrDie(name)))
			}
		}
		text, err := owned.ToJSON()
		if err != nil {
			return nil, err
		}
		at := metav1.NewTime(sim.Epoch.Add(last.at).Truncate(time.Second))
		entries = append(entries, metav1.ManagedFieldsEntry{Manager: last.manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: sub,
			APIVersion: k.gvk.GroupVersion().String(), Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(text))})
	}
	live.SetManagedFields(entries)
	return live, nil
}

// trackUpdate moves ownership at an ordinary write to an applied object.
func (c *Cluster) trackUpdate(rq *request, k *kind, st *stored, n client.Object) error {
	fields, err := k.fieldManager(rq.sub)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	live, err := k.tree(st.obj)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	tree, err := k.tree(n)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	after := fields.UpdateNoErrors(&unstructured.Unstructured{Object: live}, &unstructured.Unstructured{Object: tree}, rq.manager)
	metaOf(n).ManagedFields = after.(*unstructured.Unstructured).GetManagedFields()
	c.stamp(metaOf(n), metaOf(st.obj).ManagedFields)
	return nil
}

// stamp puts virtual time where the library put the machine's, and keeps the
// time of entries that did not change.
func (c *Cluster) stamp(m *metav1.ObjectMeta, before []metav1.ManagedFieldsEntry) {
	now := metav1.NewTime(c.s.Now().Truncate(time.Second))
	for i := range m.ManagedFields {
		e := &m.ManagedFields[i]
		e.Time = &now
		for j := range before {
			if sameEntry(e, &before[j]) {
				e.Time = before[j].Time
			}
		}
	}
	slices.SortStableFunc(m.ManagedFields, func(a, b metav1.ManagedFieldsEntry) int {
		return a.Time.Compare(b.Time.Time)
	})
}

func sameEntry(a, b *metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.Subresource == b.Subresource &&
		a.FieldsV1 != nil && b.FieldsV1 != nil && bytes.Equal(a.FieldsV1.GetRawBytes(), b.FieldsV1.GetRawBytes())
}

func sameManaged(a, b []metav1.ManagedFieldsEntry) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.ManagedFieldsEntry) bool { return sameEntry(&x, &y) })
}

// fieldManager is the API server's own. It keeps no state between calls.
func (k *facts) fieldManager(sub string) (*managedfields.FieldManager, error) {
	types, err := k.typeConverter()
	if err != nil {
		return nil, err
	}
	reset := map[fieldpath.APIVersion]*fieldpath.Set{}
	version := fieldpath.APIVersion(k.gvk.GroupVersion().String())
	if k.statusSub && sub == "" {
		reset[version] = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	} else if sub == "status" {
		reset[version] = fieldpath.NewSet(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata"))
	}
	return managedfields.NewDefaultCRDFieldManager(types, asIs{}, asIs{}, asIs{}, k.gvk, k.gvk.GroupVersion(), sub, fieldpath.NewExcludeFilterSetMap(reset))
}

func (k *facts) typeConverter() (managedfields.TypeConverter, error) {
	if k.schema == nil {
		return managedfields.NewDeducedTypeConverter(), nil
	}
	return k.schema.converter()
}

func (p *pipeline) converter() (managedfields.TypeConverter, error) {
	p.onceTypes.Do(func() {
		root := p.Structural.ToKubeOpenAPI()
		root.Properties["apiVersion"] = *spec.StringProperty()
		root.Properties["kind"] = *spec.StringProperty()
		root.Properties["metadata"] = objectMetaSchema()
		root.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": p.gvk.Group, "version": p.gvk.Version, "kind": p.gvk.Kind}})
		p.types, p.typesErr = managedfields.NewTypeConverter(map[string]*spec.Schema{"root": root}, false)
	})
	return p.types, p.typesErr
}

// objectMetaSchema says how metadata's lists and maps merge
// (apimachinery meta/v1 ObjectMeta's patch strategies).
func objectMetaSchema() spec.Schema {
	text := func() spec.Schema { return *spec.StringProperty() }
	object := func(properties map[string]spec.Schema) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}, Properties: properties}}
	}
	finalizers := *spec.ArrayProperty(spec.StringProperty())
	finalizers.AddExtension("x-kubernetes-list-type", "set")
	owner := object(map[string]spec.Schema{"apiVersion": text(), "kind": text(), "name": text(), "uid": text(), "controller": *spec.BooleanProperty(), "blockOwnerDeletion": *spec.BooleanProperty()})
	owner.AddExtension("x-kubernetes-map-type", "atomic")
	owners := *spec.ArrayProperty(&owner)
	owners.AddExtension("x-kubernetes-list-type", "map")
	owners.AddExtension("x-kubernetes-list-map-keys", []any{"uid"})
	entry := object(map[string]spec.Schema{"manager": text(), "operation": text(), "apiVersion": text(), "time": text(), "fieldsType": text(), "subresource": text(),
		"fieldsV1": {SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}})
	m := object(map[string]spec.Schema{
		"name": text(), "generateName": text(), "namespace": text(), "uid": text(), "selfLink": text(), "resourceVersion": text(),
		"creationTimestamp": text(), "deletionTimestamp": text(), "generation": *spec.Int64Property(), "deletionGracePeriodSeconds": *spec.Int64Property(),
		"labels": *spec.MapProperty(spec.StringProperty()), "annotations": *spec.MapProperty(spec.StringProperty()),
		"finalizers": finalizers, "ownerReferences": owners, "managedFields": *spec.ArrayProperty(&entry),
	})
	return m
}

// asIs converts and defaults nothing: a kind has one version here, and admit
// sets its defaults.
type asIs struct{}

func (asIs) Convert(in, out, _ any) error { return fmt.Errorf("convert %T to %T", in, out) }
func (asIs) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}
func (asIs) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
func (asIs) Default(runtime.Object) {}
func (asIs) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, nil
}
