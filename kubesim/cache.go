// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cacheReader is a process's cache: one informer per kind.
type cacheReader struct {
	l  *life
	mu sync.Mutex // informers are asked for outside the baton while starting
	by map[schema.GroupVersionKind]*informer
}

var _ cache.Cache = (*cacheReader)(nil)

func (r *cacheReader) informer(k *kind) (*informer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if inf := r.by[k.gvk]; inf != nil {
		return inf, nil
	}
	sel, err := r.selectorFor(k)
	if err != nil {
		return nil, err
	}
	inf := &informer{l: r.l, k: k, sel: sel, transform: r.transformFor(k), lostAt: -1, items: map[types.NamespacedName]client.Object{}, indexes: map[string]*fieldIndex{}}
	r.by[k.gvk] = inf
	return inf, nil
}

func (r *cacheReader) selectorFor(k *kind) (*selector, error) {
	for o, by := range r.l.p.options.ByObject {
		if gvk, err := r.l.c.gvkOf(o); err != nil || gvk != k.gvk {
			continue
		}
		sel, err := newSelector(k, "", by.Label, by.Field)
		if err != nil {
			return nil, fmt.Errorf("cache of %s: %w", k.gvk.Kind, err)
		}
		if len(by.Namespaces) > 0 {
			sel.among = slices.Sorted(maps.Keys(by.Namespaces))
		}
		return sel, nil
	}
	return newSelector(k, "", nil, nil)
}

func (r *cacheReader) transformFor(k *kind) toolscache.TransformFunc {
	for o, by := range r.l.p.options.ByObject { // at most one is of the kind, in any order
		if gvk, err := r.l.c.gvkOf(o); err == nil && gvk == k.gvk {
			return by.Transform
		}
	}
	return nil
}

// startAll starts the informers that are not yet started, in order.
func (r *cacheReader) startAll() {
	for _, inf := range r.sorted() {
		if !inf.started {
			inf.lane = r.l.c.s.Lane()
		}
		inf.start(true)
	}
}

func (r *cacheReader) sorted() []*informer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.by), func(a, b *informer) int {
		return strings.Compare(a.k.gvk.String(), b.k.gvk.String())
	})
}

func (r *cacheReader) stop() {
	for _, inf := range r.sorted() {
		inf.disconnect()
	}
}

// cut breaks the watches of the kinds that which selects, nil: of all.
func (r *cacheReader) cut(expire bool, which func(*kind) bool) {
	for _, inf := range r.sorted() {
		if which == nil || which(inf.k) {
			inf.cut(expire)
		}
	}
}

// ready returns the informer once it has its first list. A task waits for
// that; the scheduler's side cannot and sees an empty cache.
func (r *cacheReader) ready(k *kind) (*informer, error) {
	if !r.l.alive {
		return nil, errDead
	}
	inf, err := r.informer(k)
	if err != nil {
		return nil, err
	}
	if inf.listed || !r.l.m.started {
		return inf, nil
	}
	if !inf.started {
		inf.lane = r.l.c.s.Lane()
		inf.start(false)
	}
	if t := r.l.c.s.Current(); t != nil {
		inf.readers = append(inf.readers, t)
		t.Park()
	}
	return inf, nil
}

func (r *cacheReader) get(k *kind, key client.ObjectKey, into client.Object, opts []client.GetOption) error {
	inf, err := r.ready(k)
	if err != nil {
		return err
	}
	o := inf.items[key]
	if o == nil {
		return apierrors.NewNotFound(k.gr, key.Name)
	}
	o = inf.view(o)
	if options := (&client.GetOptions{}).ApplyOptions(opts); options.UnsafeDisableDeepCopy != nil && *options.UnsafeDisableDeepCopy && reflect.TypeOf(into).Elem() == k.typ {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o).Elem())
		into.GetObjectKind().SetGroupVersionKind(k.gvk)
		return nil
	}
	return k.copyOut(into, o, true)
}

func (r *cacheReader) list(k *kind, into client.ObjectList, o *client.ListOptions) error {
	inf, err := r.ready(k)
	if err != nil {
		return err
	}
	if o.Continue != "" {
		return fmt.Errorf("continue list option is not supported by the cache")
	}
	from := inf.items
	if o.FieldSelector != nil {
		if from, err = inf.indexed(o.FieldSelector); err != nil {
			return err
		}
	}
	keys := make([]types.NamespacedName, 0, len(from))
	for key, x := range from {
		if (o.Namespace == "" || key.Namespace == o.Namespace) && (o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(x.GetLabels()))) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	if o.Limit > 0 && int64(len(keys)) > o.Limit {
		keys = keys[:o.Limit]
	}
	objects := make([]client.Object, len(keys))
	for i, key := range keys {
		objects[i] = inf.view(from[key])
	}
	into.SetResourceVersion(strconv.FormatUint(inf.rv, 10))
	return k.fill(into, objects, true, o.UnsafeDisableDeepCopy != nil && *o.UnsafeDisableDeepCopy)
}

// indexed answers an exact field selector from the indexes, which it needs as
// controller-runtime's cache does.
func (inf *informer) indexed(sel fields.Selector) (map[types.NamespacedName]client.Object, error) {
	from := inf.items
	for _, req := range sel.Requirements() {
		if req.Operator == selection.NotEquals {
			return nil, fmt.Errorf("non-exact field matches are not supported by the cache")
		}
		x := inf.indexes[req.Field]
		if x == nil {
			//lint:ignore ST1005 client-go's text
			return nil, fmt.Errorf("Index with name field:%s does not exist", req.Field)
		}
		found := x.values[req.Value]
		if len(from) == len(inf.items) {
			from = found
			continue
		}
		both := map[types.NamespacedName]client.Object{}
		for key, o := range found {
			if from[key] != nil {
				both[key] = o
			}
		}
		from = both
	}
	return from, nil
}

// Get reads from the cache.
func (r *cacheReader) Get(_ context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	k, err := r.l.c.kindOfObject(into)
	if err != nil {
		return err
	}
	return r.get(k, key, into, opts)
}

// List reads from the cache.
func (r *cacheReader) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	k, err := r.l.c.kindOfObject(into)
	if err != nil {
		return err
	}
	return r.list(k, into, (&client.ListOptions{}).ApplyOptions(opts))
}

func (r *cacheReader) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	r.mu.Lock() // kinds are made outside the baton here
	k, err := r.l.c.kindOfObject(o)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return r.informer(k)
}

func (r *cacheReader) GetInformerForKind(_ context.Context, gvk schema.GroupVersionKind, _ ...cache.InformerGetOption) (cache.Informer, error) {
	k, err := r.l.c.kindOf(gvk)
	if err != nil {
		return nil, err
	}
	return r.informer(k)
}

func (r *cacheReader) RemoveInformer(_ context.Context, o client.Object) error {
	k, err := r.l.c.kindOfObject(o)
	if err != nil {
		return err
	}
	if inf := r.by[k.gvk]; inf != nil {
		inf.disconnect()
		delete(r.by, k.gvk)
	}
	return nil
}

// IndexField adds an index. It must come before the informer starts, as in
// controller-runtime.
func (r *cacheReader) IndexField(_ context.Context, o client.Object, field string, of client.IndexerFunc) error {
	k, err := r.l.c.kindOfObject(o)
	if err != nil {
		return err
	}
	inf, err := r.informer(k)
	if err != nil {
		return err
	}
	if inf.started {
		return fmt.Errorf("index %s of %s: informer has already started", field, k.gvk.Kind)
	}
	if inf.indexes[field] != nil {
		return fmt.Errorf("indexer conflict: field:%s", field)
	}
	inf.indexes[field] = &fieldIndex{of: of, values: map[string]map[types.NamespacedName]client.Object{}}
	return nil
}

// Start and WaitForCacheSync have nothing to do: the process starts its
// informers, and its workers wait for them.
func (r *cacheReader) Start(context.Context) error           { return nil }
func (r *cacheReader) WaitForCacheSync(context.Context) bool { return true }

// freeze holds the events of the kinds that which selects, until thaw.
func (r *cacheReader) freeze(which func(*kind) bool) {
	for _, inf := range r.sorted() {
		if which(inf.k) {
			inf.frozen = 1
			inf.lostAt = r.l.c.s.Elapsed()
		}
	}
}

func (r *cacheReader) thaw(which func(*kind) bool) {
	for _, inf := range r.sorted() {
		if which(inf.k) && inf.frozen > 0 && !r.l.c.freezes(r.l.p, inf.k) {
			inf.thaw()
		}
	}
}
