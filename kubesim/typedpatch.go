// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"reflect"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/internal/equal"
)

// mergeBase returns the object that a patch of client.MergeFrom starts from,
// if it is one and of this kind, and whether its version is a lock. The type
// is controller-runtime's own; where its shape is not the one known, the patch
// is taken as a document, as any.
func (k *kind) mergeBase(patch client.Patch, body client.Object) (from client.Object, locked bool) {
	v := reflect.ValueOf(patch)
	if patch.Type() != types.MergePatchType || v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct || reflect.TypeOf(body).Elem() != k.typ {
		return nil, false
	}
	base, options := v.Elem().FieldByName("from"), v.Elem().FieldByName("opts")
	if base.Kind() != reflect.Interface || base.IsNil() || base.Elem().Kind() != reflect.Pointer || base.Elem().Type().Elem() != k.typ ||
		options.Kind() != reflect.Struct {
		return nil, false
	}
	lock := options.FieldByName("OptimisticLock")
	if lock.Kind() != reflect.Bool {
		return nil, false
	}
	return reflect.NewAt(k.typ, base.Elem().UnsafePointer()).Interface().(client.Object), lock.Bool()
}

// mergeTyped is a merge patch without its document: where the caller started
// from what is stored, what comes out is the caller's object. It says no where
// only the document can tell, and the caller must then make one.
//
// Making the document, two journeys to JSON and a comparison of trees, costs
// more than all the rest of a write.
func (c *Cluster) mergeTyped(rq *request, k *kind, from, body client.Object, locked bool) (stored client.Object, done bool, err error) {
	st := k.objects[client.ObjectKeyFromObject(body)]
	if st == nil || st.beat != nil {
		return nil, false, nil
	}
	a, b, have := metaOf(from), metaOf(body), metaOf(st.obj)
	if locked && a.ResourceVersion != "" && a.ResourceVersion != have.ResourceVersion && a.UID == b.UID && a.UID == have.UID {
		return nil, true, c.precondition(k, have, a)
	}
	if a.ResourceVersion != have.ResourceVersion || b.ResourceVersion != have.ResourceVersion ||
		a.Name != have.Name || a.Namespace != have.Namespace || a.ManagedFields != nil || have.ManagedFields != nil ||
		!k.alike(from, st.obj) {
		return nil, false, nil
	}
	n, err := k.copyIn(body)
	if err != nil {
		return nil, false, nil
	}
	if err := c.precondition(k, have, metaOf(n)); err != nil {
		return nil, true, err
	}
	stored, err = c.replace(rq, k, st, n)
	return stored, true, err
}

// alike compares all but an object's kind.
func (k *facts) alike(a, b client.Object) bool {
	if !equal.Values(metaOf(a), metaOf(b)) {
		return false
	}
	body, status := k.differences(a, b)
	return !body && !status
}
