// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// asOf returns the matching objects as they were before the changes undone
// says, newest first, in order.
func (c *Cluster) asOf(k *kind, sel *selector, undone func(change) bool) []client.Object {
	var was map[types.NamespacedName]client.Object
	for _, ch := range slices.Backward(k.past.changes) {
		if !undone(ch) {
			break
		}
		one := ch.old
		if one == nil {
			one = ch.new
		}
		if was == nil {
			was = map[types.NamespacedName]client.Object{}
		}
		was[client.ObjectKeyFromObject(one)] = ch.old
	}
	now := k.selected(sel)
	out := make([]client.Object, 0, len(now))
	for _, st := range now {
		if len(was) > 0 {
			if _, changed := was[client.ObjectKeyFromObject(st.obj)]; changed {
				continue
			}
		}
		out = append(out, c.seen(st, c.s.Elapsed()))
	}
	if len(was) == 0 {
		return out
	}
	for _, o := range was {
		if o != nil && sel.matches(k, o) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b client.Object) int {
		return compareKeys(client.ObjectKeyFromObject(a), client.ObjectKeyFromObject(b))
	})
	return out
}

// page is what a continue token holds.
type page struct {
	RV    uint64 `json:"rv"`
	After string `json:"after"` // namespace/name of the last object given
}

// list answers a list request: the objects, and the list's metadata.
func (c *Cluster) list(k *kind, o *client.ListOptions, undone func(change) bool) ([]client.Object, *metav1.ListMeta, error) {
	sel, err := newSelector(k, o.Namespace, o.LabelSelector, o.FieldSelector)
	if err != nil {
		return nil, nil, err
	}
	from := page{RV: c.rv}
	if o.Continue != "" {
		text, err := base64.RawURLEncoding.DecodeString(o.Continue)
		if err != nil || json.Unmarshal(text, &from) != nil {
			return nil, nil, apierrors.NewBadRequest("continue key is not valid")
		}
		if from.RV < k.past.compacted {
			return nil, nil, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result.")
		}
		undone = func(ch change) bool { return ch.rv > from.RV }
	} else if o.Raw != nil && o.Raw.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		if from.RV, err = strconv.ParseUint(o.Raw.ResourceVersion, 10, 64); err != nil {
			return nil, nil, apierrors.NewBadRequest("invalid resource version: " + o.Raw.ResourceVersion)
		}
		if from.RV < k.past.compacted {
			return nil, nil, apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
		}
		undone = func(ch change) bool { return ch.rv > from.RV }
	}
	if undone == nil {
		undone = func(change) bool { return false }
	}
	objects := c.asOf(k, sel, undone)
	if from.After != "" {
		i := slices.IndexFunc(objects, func(x client.Object) bool { return pageKey(x) > from.After })
		if i < 0 {
			i = len(objects)
		}
		objects = objects[i:]
	}
	listMeta := &metav1.ListMeta{ResourceVersion: strconv.FormatUint(from.RV, 10)}
	if o.Limit > 0 && int64(len(objects)) > o.Limit {
		left := int64(len(objects)) - o.Limit
		objects = objects[:o.Limit]
		text, _ := json.Marshal(page{RV: from.RV, After: pageKey(objects[o.Limit-1])}) // two plain fields
		listMeta.Continue = base64.RawURLEncoding.EncodeToString(text)
		if sel.labels == nil && sel.fields == nil {
			listMeta.RemainingItemCount = &left
		}
	}
	return objects, listMeta, nil
}

// pageKey orders as the lists do: no name contains a zero byte.
func pageKey(o client.Object) string { return o.GetNamespace() + "\x00" + o.GetName() }

// fill puts copies of the objects into a list of whatever type.
func (k *kind) fill(into client.ObjectList, objects []client.Object, withKind, share bool) error {
	switch into := into.(type) {
	case *unstructured.UnstructuredList:
		into.SetGroupVersionKind(k.gvk.GroupVersion().WithKind(k.gvk.Kind + "List"))
		into.Items = make([]unstructured.Unstructured, len(objects))
		for i, o := range objects {
			if err := k.copyOut(&into.Items[i], o, true); err != nil {
				return err
			}
		}
		return nil
	case *metav1.PartialObjectMetadataList:
		into.Items = make([]metav1.PartialObjectMetadata, len(objects))
		for i, o := range objects {
			if err := k.copyOut(&into.Items[i], o, true); err != nil {
				return err
			}
		}
		return nil
	}
	ptr, err := meta.GetItemsPtr(into)
	if err != nil {
		return err
	}
	items := reflect.ValueOf(ptr).Elem()
	out := reflect.MakeSlice(items.Type(), len(objects), len(objects))
	for i, o := range objects {
		item := out.Index(i)
		pointer := item.Kind() == reflect.Pointer
		if !share {
			o = o.DeepCopyObject().(client.Object)
		} else if pointer {
			o = k.shallow(o)
		}
		if pointer {
			item.Set(reflect.ValueOf(o))
		} else {
			item.Set(reflect.ValueOf(o).Elem())
			o = item.Addr().Interface().(client.Object)
		}
		if withKind {
			o.GetObjectKind().SetGroupVersionKind(k.gvk)
		}
	}
	items.Set(out)
	return nil
}

// copyOut writes a copy of a stored object into the caller's value. Typed
// answers of a live API carry no kind; those of a cache do.
func (k *kind) copyOut(into client.Object, o client.Object, withKind bool) error {
	switch into := into.(type) {
	case *unstructured.Unstructured:
		tree, err := k.tree(o)
		if err != nil {
			return err
		}
		into.Object = tree
		return nil
	case *metav1.PartialObjectMetadata:
		metaOf(o).DeepCopyInto(&into.ObjectMeta)
		into.SetGroupVersionKind(k.gvk)
		return nil
	}
	to := reflect.ValueOf(into)
	if to.Type().Elem() != k.typ {
		return fmt.Errorf("cannot read %s into %T", k.gvk, into)
	}
	to.Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
	if withKind {
		into.GetObjectKind().SetGroupVersionKind(k.gvk)
	} else {
		into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return nil
}

// copyIn makes a caller's object one that the store may keep, in the form it
// has after its journey.
func (k *kind) copyIn(o client.Object) (client.Object, error) {
	var n client.Object
	switch o := o.(type) {
	case *unstructured.Unstructured:
		n = k.new()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.DeepCopy().Object, n); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	default:
		if reflect.TypeOf(o).Elem() != k.typ {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot write %T as %s", o, k.gvk))
		}
		n = o.DeepCopyObject().(client.Object)
	}
	n.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	metaOf(n).ManagedFields = nil
	k.normalize(n)
	return n, nil
}
