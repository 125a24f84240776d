// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/testbed"
)

// mirror is what the API server holds of a world, as fresh as watches are. It is
// read and changed with the pace's lock held.
type mirror struct {
	c       *cluster
	objects map[schema.GroupVersionKind]map[client.ObjectKey]client.Object
	writes  uint64
}

func newMirror(ctx context.Context, c *cluster) (*mirror, error) {
	m := &mirror{c: c, objects: map[schema.GroupVersionKind]map[client.ObjectKey]client.Object{}}
	watched, err := cache.New(c.config, cache.Options{Scheme: c.options.Scheme, DefaultTransform: c.r.dated})
	if err != nil {
		return nil, err
	}
	for _, o := range testbed.Watched() {
		gvk, err := apiutil.GVKForObject(o, c.options.Scheme)
		if err != nil {
			return nil, err
		}
		m.objects[gvk] = map[client.ObjectKey]client.Object{}
		informer, err := watched.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(n any) { m.changed(gvk, "create", nil, n) },
			UpdateFunc: func(old, n any) { m.changed(gvk, "update", old, n) },
			DeleteFunc: func(old any) {
				if last, missed := old.(toolscache.DeletedFinalStateUnknown); missed {
					old = last.Obj
				}
				m.changed(gvk, "delete", old, nil)
			},
		})
		if err != nil {
			return nil, err
		}
	}
	go func() { _ = watched.Start(ctx) }() // It fails when started twice, and else ends with ctx.
	if !watched.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("watch the objects of a world: %w", context.Cause(ctx))
	}
	return m, nil
}

// changed takes over what a watch tells, and tells the world.
func (m *mirror) changed(gvk schema.GroupVersionKind, verb string, old, now any) {
	before, _ := old.(client.Object)
	after, _ := now.(client.Object)
	if before != nil && after != nil && before.GetResourceVersion() == after.GetResourceVersion() {
		return // A list that was read again.
	}
	m.c.r.pace.do(func() {
		key := client.ObjectKeyFromObject(cmp.Or(after, before))
		if after == nil {
			delete(m.objects[gvk], key)
		} else {
			m.objects[gvk][key] = after
		}
		m.writes++
		m.c.options.OnWrite(kubesim.Write{Verb: verb, GVK: gvk, Old: before, New: after, At: m.c.r.pace.s.Elapsed()})
	})
}

// Lookup implements testbed.Cluster.
func (m *mirror) Lookup(gvk schema.GroupVersionKind, key client.ObjectKey) client.Object {
	return m.objects[gvk][key]
}

// Each implements testbed.Cluster.
func (m *mirror) Each(gvk schema.GroupVersionKind, fn func(client.Object)) {
	var all []client.Object
	for _, o := range m.objects[gvk] {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	for _, o := range all {
		fn(o)
	}
}

// dated puts the dates that the API server gave an object into the world's time.
// It is a cache's transform.
func (r *Runtime) dated(o any) (any, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return o, nil // A tombstone, which has no dates.
	}
	m.SetCreationTimestamp(metav1.NewTime(r.worldTime(m.GetCreationTimestamp().Time)))
	if at := m.GetDeletionTimestamp(); at != nil {
		deleted := metav1.NewTime(r.worldTime(at.Time))
		m.SetDeletionTimestamp(&deleted)
	}
	return o, nil
}
