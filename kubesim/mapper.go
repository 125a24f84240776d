// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var errNotServed = errors.New("the server could not find the requested resource")

// restMapper answers from the cluster's kinds, by kind. Nothing here looks
// resources up by their plural.
type restMapper struct{ c *Cluster }

func (m restMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) == 0 {
		for _, gv := range m.c.o.Scheme.PrioritizedVersionsForGroup(gk.Group) {
			versions = append(versions, gv.Version)
		}
	}
	var last error = &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions}
	for _, v := range versions {
		k, err := m.c.kindOf(gk.WithVersion(v))
		if err != nil {
			last = err
			continue
		}
		scope := meta.RESTScopeRoot
		if k.namespaced {
			scope = meta.RESTScopeNamespace
		}
		return &meta.RESTMapping{Resource: k.gr.WithVersion(v), GroupVersionKind: k.gvk, Scope: scope}, nil
	}
	return nil, last
}

func (m restMapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	one, err := m.RESTMapping(gk, versions...)
	if err != nil {
		return nil, err
	}
	return []*meta.RESTMapping{one}, nil
}

func (m restMapper) kindFor(r schema.GroupVersionResource) (*kind, error) {
	for _, k := range m.c.sortedKinds() {
		if (r.Resource == k.gr.Resource || r.Resource == k.singular) && (r.Group == "" || r.Group == k.gr.Group) && (r.Version == "" || r.Version == k.gvk.Version) {
			return k, nil
		}
	}
	return nil, &meta.NoResourceMatchError{PartialResource: r}
}

func (m restMapper) KindFor(r schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	k, err := m.kindFor(r)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return k.gvk, nil
}

func (m restMapper) KindsFor(r schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	gvk, err := m.KindFor(r)
	return []schema.GroupVersionKind{gvk}, err
}

func (m restMapper) ResourceFor(r schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	k, err := m.kindFor(r)
	if err != nil {
		return r, err
	}
	return k.gr.WithVersion(k.gvk.Version), nil
}

func (m restMapper) ResourcesFor(r schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	one, err := m.ResourceFor(r)
	return []schema.GroupVersionResource{one}, err
}

func (m restMapper) ResourceSingularizer(resource string) (string, error) {
	k, err := m.kindFor(schema.GroupVersionResource{Resource: resource})
	if err != nil {
		return resource, err
	}
	return k.singular, nil
}
