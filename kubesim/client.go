// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// apiClient is one caller's way to the API. With a life its calls are
// scheduling points of that process; without, an outside actor's.
type apiClient struct {
	c     *Cluster
	l     *life
	by    request
	cache *cacheReader // nil: reads are live
}

// Client is an outside actor's: a person or the scenario. Its calls take no
// time, meet no faults and see the store itself.
func (c *Cluster) Client(user string) client.WithWatch {
	return &apiClient{c: c, by: request{by: user, manager: user}}
}

var _ client.WithWatch = (*apiClient)(nil)

// call sends one request. serve is the server's part; answer, which may be
// nil, is what the caller does with an answer that arrives.
func (a *apiClient) call(verb string, k *kind, sub string, bytes int, serve, answer func() error) error {
	var err error
	if a.l == nil {
		a.c.count(a.by.by, verb, k.resource(sub), bytes)
		err = serve()
	} else {
		err = a.l.call(verb, k, sub, bytes, serve)
	}
	if err != nil || answer == nil {
		return err
	}
	return answer()
}

func (a *apiClient) request(verb, sub, manager string, dryRun []string) *request {
	rq := a.by
	rq.verb, rq.sub, rq.dry = verb, sub, len(dryRun) > 0
	if manager != "" {
		rq.manager = manager
	}
	return &rq
}

// Get reads from the process's cache, or live where it has none.
func (a *apiClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	k, err := a.c.kindOfObject(into)
	if err != nil {
		return err
	}
	if a.cached(into) {
		return a.cache.get(k, key, into, opts)
	}
	var o client.Object
	return a.call("get", k, "", 0, func() error {
		if undone := a.stale(k); undone != nil {
			for _, was := range a.c.asOf(k, &selector{namespace: key.Namespace, name: key.Name, labelKey: ""}, undone) {
				if client.ObjectKeyFromObject(was) == key {
					o = was
				}
			}
		} else if st := k.objects[key]; st != nil {
			o = a.c.seen(st, a.c.s.Elapsed())
		}
		if o == nil {
			return apierrors.NewNotFound(k.gr, key.Name)
		}
		return nil
	}, func() error { return k.copyOut(into, o, false) })
}

// List reads from the process's cache, or live where it has none.
func (a *apiClient) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	k, err := a.c.kindOfObject(into)
	if err != nil {
		return err
	}
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if _, raw := into.(*unstructured.UnstructuredList); a.cache != nil && !raw {
		return a.cache.list(k, into, o)
	}
	var objects []client.Object
	var listMeta *metav1.ListMeta
	return a.call("list", k, "", 0, func() (err error) {
		objects, listMeta, err = a.c.list(k, o, a.stale(k))
		return err
	}, func() error {
		into.SetResourceVersion(listMeta.ResourceVersion)
		into.SetContinue(listMeta.Continue)
		into.SetRemainingItemCount(listMeta.RemainingItemCount)
		// Whoever lets a cache share its objects only reads: so may we.
		return k.fill(into, objects, false, o.UnsafeDisableDeepCopy != nil && *o.UnsafeDisableDeepCopy)
	})
}

// cached: controller-runtime's client reads unstructured objects live.
func (a *apiClient) cached(o client.Object) bool {
	_, raw := o.(*unstructured.Unstructured)
	return a.cache != nil && !raw
}

// Create stores a new object and reads it back into o.
func (a *apiClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	k, err := a.c.kindOfObject(o)
	if err != nil {
		return err
	}
	options := (&client.CreateOptions{}).ApplyOptions(opts)
	var stored client.Object
	return a.call("create", k, "", 0, func() error {
		n, err := k.copyIn(o)
		if err != nil {
			return err
		}
		stored, err = a.c.create(a.request("create", "", options.FieldManager, options.DryRun), k, n)
		return err
	}, func() error { return k.copyOut(o, stored, false) })
}

// Update replaces an object and reads it back into o.
func (a *apiClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	options := (&client.UpdateOptions{}).ApplyOptions(opts)
	return a.update(o, o, "", options)
}

func (a *apiClient) update(o, body client.Object, sub string, options *client.UpdateOptions) error {
	k, err := a.c.kindOfObject(o)
	if err != nil {
		return err
	}
	var stored client.Object
	return a.call("update", k, sub, 0, func() error {
		n, err := k.copyIn(body)
		if err != nil {
			return err
		}
		stored, err = a.c.update(a.request("update", sub, options.FieldManager, options.DryRun), k, n)
		return err
	}, func() error { return k.copyOut(o, stored, false) })
}

// Patch changes an object by a patch document and reads it back into o.
func (a *apiClient) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	options := (&client.PatchOptions{}).ApplyOptions(opts)
	return a.patch(o, o, patch, "", options)
}

func (a *apiClient) patch(o, body client.Object, patch client.Patch, sub string, options *client.PatchOptions) error {
	k, err := a.c.kindOfObject(o)
	if err != nil {
		return err
	}
	if patch.Type() == types.ApplyPatchType && o.GetObjectKind().GroupVersionKind().Empty() {
		o.GetObjectKind().SetGroupVersionKind(k.gvk)
	}
	// The full tier takes each patch as the document it is, and so checks the
	// shorter way of the other.
	if base, locked := k.mergeBase(patch, body); base != nil && a.c.o.Fidelity == Typed {
		return a.patchTyped(k, o, base, body, locked, patch, sub, options)
	}
	data, err := patch.Data(body)
	if err != nil {
		return err
	}
	verb := "patch"
	if patch.Type() == types.ApplyPatchType {
		verb = "apply"
	}
	key, force := client.ObjectKeyFromObject(o), options.Force != nil && *options.Force
	var stored client.Object
	return a.call(verb, k, sub, len(data), func() (err error) {
		stored, err = a.c.patch(a.request("patch", sub, options.FieldManager, options.DryRun), k, key, patch.Type(), data, force)
		return err
	}, func() error { return k.copyOut(o, stored, false) })
}

// patchTyped makes the document only where the server needs it: the caller
// stands still until then, and so do its objects.
func (a *apiClient) patchTyped(k *kind, o, base, body client.Object, locked bool, patch client.Patch, sub string, options *client.PatchOptions) error {
	var stored client.Object
	return a.call("patch", k, sub, 0, func() (err error) {
		rq, done := a.request("patch", sub, options.FieldManager, options.DryRun), false
		if stored, done, err = a.c.mergeTyped(rq, k, base, body, locked); done {
			return err
		}
		data, err := patch.Data(body)
		if err != nil {
			return err
		}
		stored, err = a.c.patch(rq, k, client.ObjectKeyFromObject(o), patch.Type(), data, false)
		return err
	}, func() error { return k.copyOut(o, stored, false) })
}

// Apply is a server-side apply of an apply configuration.
func (a *apiClient) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	options := (&client.ApplyOptions{}).ApplyOptions(opts)
	return a.apply(o, "", options)
}

func (a *apiClient) apply(o runtime.ApplyConfiguration, sub string, options *client.ApplyOptions) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	head := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(data, head); err != nil {
		return fmt.Errorf("read apply configuration: %w", err)
	}
	k, err := a.c.kindOf(head.GroupVersionKind())
	if err != nil {
		return err
	}
	force := options.Force != nil && *options.Force
	var stored client.Object
	return a.call("apply", k, sub, len(data), func() (err error) {
		stored, err = a.c.apply(a.request("apply", sub, options.FieldManager, options.DryRun), k, client.ObjectKeyFromObject(head), data, force)
		return err
	}, func() error {
		tree, err := k.tree(stored)
		if err != nil {
			return err
		}
		text, err := json.Marshal(tree)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, o)
	})
}

// Delete deletes an object by its name.
func (a *apiClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	k, err := a.c.kindOfObject(o)
	if err != nil {
		return err
	}
	options, key := (&client.DeleteOptions{}).ApplyOptions(opts), client.ObjectKeyFromObject(o)
	return a.call("delete", k, "", 0, func() error {
		return a.c.delete(a.request("delete", "", "", options.DryRun), k, key, options)
	}, nil)
}

// DeleteAllOf deletes what matches.
func (a *apiClient) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	k, err := a.c.kindOfObject(o)
	if err != nil {
		return err
	}
	options := (&client.DeleteAllOfOptions{}).ApplyOptions(opts)
	return a.call("deletecollection", k, "", 0, func() error {
		sel, err := newSelector(k, options.Namespace, options.LabelSelector, options.FieldSelector)
		if err != nil {
			return err
		}
		for _, st := range k.selected(sel) {
			rq := a.request("delete", "", "", options.DryRun)
			if err := a.c.delete(rq, k, client.ObjectKeyFromObject(st.obj), &options.DeleteOptions); err != nil {
				return err
			}
		}
		return nil
	}, nil)
}

// Status returns the client of the status subresource.
func (a *apiClient) Status() client.SubResourceWriter { return a.SubResource("status") }

// SubResource returns the client of a subresource; status is the one served.
func (a *apiClient) SubResource(name string) client.SubResourceClient { return &subClient{a, name} }

func (a *apiClient) Scheme() *runtime.Scheme     { return a.c.o.Scheme }
func (a *apiClient) RESTMapper() meta.RESTMapper { return restMapper{a.c} }
func (a *apiClient) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, a.c.o.Scheme)
}
func (a *apiClient) IsObjectNamespaced(o runtime.Object) (bool, error) {
	k, err := a.c.kindOfObject(o)
	if err != nil {
		return false, err
	}
	return k.namespaced, nil
}

// subClient is the client of one subresource.
type subClient struct {
	a   *apiClient
	sub string
}

func (s *subClient) Get(ctx context.Context, o, sub client.Object, opts ...client.SubResourceGetOption) error {
	return fmt.Errorf("get %s: %w", s.sub, errNotServed)
}

func (s *subClient) Create(ctx context.Context, o, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return fmt.Errorf("create %s: %w", s.sub, errNotServed)
}

func (s *subClient) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	options := client.SubResourceUpdateOptions{}
	for _, opt := range opts {
		opt.ApplyToSubResourceUpdate(&options)
	}
	body := o
	if options.SubResourceBody != nil {
		body = options.SubResourceBody
	}
	return s.a.update(o, body, s.sub, &options.UpdateOptions)
}

func (s *subClient) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	options := client.SubResourcePatchOptions{}
	for _, opt := range opts {
		opt.ApplyToSubResourcePatch(&options)
	}
	body := o
	if options.SubResourceBody != nil {
		body = options.SubResourceBody
	}
	return s.a.patch(o, body, patch, s.sub, &options.PatchOptions)
}

func (s *subClient) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	options := client.SubResourceApplyOptions{}
	for _, opt := range opts {
		opt.ApplyToSubResourceApply(&options)
	}
	return s.a.apply(o, s.sub, &options.ApplyOptions)
}
