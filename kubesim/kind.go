// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is one served kind: what the API says about it, and its objects.
type kind struct {
	*facts
	shelf
	watches watchIndex
	past    history
}

// facts are what the API says about a kind. They do not change, so that many
// clusters share them.
type facts struct {
	gvk        schema.GroupVersionKind
	gr         schema.GroupResource
	singular   string
	namespaced bool
	statusSub  bool // has the status subresource
	custom     bool // defined by a CRD
	// unconditional kinds accept an update without a resource version.
	unconditional  bool
	typ            reflect.Type // the Go struct
	status, spec   int          // field indexes, -1 where there is none
	body           []int        // fields that are neither metadata nor status
	normal         walker
	defaults       defaulter
	statusDefaults defaulter // of a status that is there
	schema         *pipeline
	selectable     map[string]func(reflect.Value) string
}

// Schemas are compiled kinds. Clusters of equal Scheme and CRDs may share one,
// also at the same time: compiling a CRD's rules takes longer than most runs.
type Schemas struct {
	mu    sync.Mutex
	facts map[schema.GroupVersionKind]*facts
}

// NewSchemas returns an empty store of compiled kinds.
func NewSchemas() *Schemas { return &Schemas{facts: map[schema.GroupVersionKind]*facts{}} }

func (s *Schemas) of(gvk schema.GroupVersionKind, compile func() (*facts, error)) (*facts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.facts[gvk]; f != nil {
		return f, nil
	}
	f, err := compile()
	if err == nil {
		s.facts[gvk] = f
	}
	return f, err
}

// builtin says what the API server's own code says of its kinds. Kinds of
// groups without a CRD that are missing here are namespaced, without status.
var builtin = map[schema.GroupKind]struct {
	cluster, status, conditional bool
	fields                       []string
}{
	{Kind: "Node"}:             {cluster: true, status: true, fields: []string{"spec.unschedulable"}},
	{Kind: "Namespace"}:        {cluster: true, status: true, fields: []string{"status.phase"}},
	{Kind: "Pod"}:              {status: true, fields: []string{"spec.nodeName", "status.phase"}},
	{Kind: "Secret"}:           {fields: []string{"type"}},
	{Kind: "Event"}:            {fields: []string{"involvedObject.kind", "involvedObject.name", "involvedObject.namespace", "reason", "type"}},
	{Kind: "Service"}:          {status: true},
	{Kind: "PersistentVolume"}: {cluster: true, status: true},
	{Group: "coordination.k8s.io", Kind: "Lease"}:                     {conditional: true},
	{Group: "events.k8s.io", Kind: "Event"}:                           {},
	{Group: "apps", Kind: "Deployment"}:                               {status: true},
	{Group: "apps", Kind: "DaemonSet"}:                                {status: true},
	{Group: "apps", Kind: "StatefulSet"}:                              {status: true},
	{Group: "policy", Kind: "PodDisruptionBudget"}:                    {status: true, conditional: true},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:         {cluster: true},
	{Group: "storage.k8s.io", Kind: "StorageClass"}:                   {cluster: true},
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:               {cluster: true},
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: {cluster: true, status: true},
}

// kindOf returns the kind of that name, or the error that a REST mapper gives.
func (c *Cluster) kindOf(gvk schema.GroupVersionKind) (*kind, error) {
	if k := c.kinds[gvk]; k != nil {
		return k, nil
	}
	f, err := c.o.Schemas.of(gvk, func() (*facts, error) { return c.compile(gvk) })
	if err != nil {
		return nil, err
	}
	k := &kind{facts: f, shelf: newShelf(), watches: newWatchIndex(), past: history{limit: c.o.History}}
	c.kinds[gvk] = k
	return k, nil
}

func (c *Cluster) compile(gvk schema.GroupVersionKind) (*facts, error) {
	noMatch := &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	sample, err := c.o.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	object, ok := sample.(client.Object)
	if _, accessor := sample.(metav1.ObjectMetaAccessor); !ok || !accessor {
		return nil, fmt.Errorf("kind %s is no object: %w", gvk, noMatch)
	}
	k := &facts{gvk: gvk, namespaced: true, unconditional: true}
	k.shape(reflect.TypeOf(object).Elem())
	var fields []string
	if crd := c.crds[gvk.GroupKind()]; crd != nil {
		version := versionOf(crd, gvk.Version)
		if version == nil {
			return nil, noMatch
		}
		k.custom, k.unconditional = true, false
		k.namespaced = crd.Spec.Scope != apiextensionsv1.ClusterScoped
		k.gr = schema.GroupResource{Group: gvk.Group, Resource: crd.Spec.Names.Plural}
		k.singular = crd.Spec.Names.Singular
		k.statusSub = version.Subresources != nil && version.Subresources.Status != nil
		for _, f := range version.SelectableFields {
			fields = append(fields, strings.TrimPrefix(f.JSONPath, "."))
		}
		if k.schema, err = newPipeline(version, gvk); err != nil {
			return nil, fmt.Errorf("compile the schema of %s: %w", gvk, err)
		}
		k.defaults = compileDefaults(k.schema.Structural, k.typ, true)
		if status, ok := k.schema.Structural.Properties["status"]; ok && k.status >= 0 {
			k.statusDefaults = compileDefaults(&status, k.typ.Field(k.status).Type, false)
		}
	} else {
		if strings.Contains(gvk.Group, ".") && !strings.HasSuffix(gvk.Group, ".k8s.io") {
			return nil, noMatch
		}
		facts := builtin[gvk.GroupKind()]
		k.namespaced, k.statusSub, k.unconditional, fields = !facts.cluster, facts.status, !facts.conditional, facts.fields
		plural, singular := meta.UnsafeGuessKindToResource(gvk)
		k.gr, k.singular = plural.GroupResource(), singular.Resource
	}
	k.selectable = map[string]func(reflect.Value) string{}
	for _, f := range fields {
		if get := fieldGetter(k.typ, strings.Split(f, ".")); get != nil {
			k.selectable[f] = get
		}
	}
	return k, nil
}

func (k *facts) shape(t reflect.Type) {
	k.typ, k.status, k.spec = t, -1, -1
	k.normal = compileNormal(t, map[reflect.Type]*walkNode{})
	for i := range t.NumField() {
		switch name, _ := jsonName(t.Field(i)); {
		case name == "metadata" || t.Field(i).Anonymous:
		case name == "status":
			k.status = i
		default:
			if name == "spec" {
				k.spec = i
			}
			k.body = append(k.body, i)
		}
	}
}

func versionOf(crd *apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	for i, v := range crd.Spec.Versions {
		if v.Name == name && v.Served {
			return &crd.Spec.Versions[i]
		}
	}
	return nil
}

// resource is the kind's name in requests, with its subresource.
func (k *facts) resource(sub string) string {
	if sub == "" {
		return k.gr.Resource
	}
	return k.gr.Resource + "/" + sub
}

func (k *facts) new() client.Object { return reflect.New(k.typ).Interface().(client.Object) }

// kindOfObject also finds the kind of lists and of untyped objects.
func (c *Cluster) kindOfObject(o runtime.Object) (*kind, error) {
	gvk, err := c.gvkOf(o)
	if err != nil {
		return nil, err
	}
	return c.kindOf(gvk)
}

func (c *Cluster) gvkOf(o runtime.Object) (schema.GroupVersionKind, error) {
	t := reflect.TypeOf(o)
	gvk, ok := c.gvks[t]
	if !ok {
		gvks, _, err := c.o.Scheme.ObjectKinds(o)
		if err != nil {
			gvk = o.GetObjectKind().GroupVersionKind() // unstructured, metadata only
			if gvk.Kind == "" {
				return gvk, err
			}
			gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
			return gvk, nil
		}
		gvk = gvks[0]
		for _, g := range gvks { // an alias in another group: the served one
			if c.crds[g.GroupKind()] != nil {
				gvk = g
			}
		}
		if _, isObject := o.(client.Object); !isObject {
			gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		}
		switch o.(type) {
		case runtime.Unstructured, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
			return gvk, nil // each value names its own kind
		}
		c.gvks[t] = gvk
	}
	return gvk, nil
}

// metaOf returns the object's metadata without reflection.
func metaOf(o client.Object) *metav1.ObjectMeta {
	return o.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
}

// jsonName returns a field's name on the wire and whether it is left out when
// empty. Inlined fields have no name.
func jsonName(f reflect.StructField) (name string, omitEmpty bool) {
	tag := f.Tag.Get("json")
	name, rest, _ := strings.Cut(tag, ",")
	if name == "-" || !f.IsExported() {
		return "", false
	}
	if name == "" && !f.Anonymous && !strings.Contains(rest, "inline") {
		name = f.Name
	}
	return name, strings.Contains(rest, "omitempty") || strings.Contains(rest, "omitzero")
}

// fieldByJSON finds a field by its wire name, through inlined structs.
func fieldByJSON(t reflect.Type, name string) (index []int, found reflect.StructField, ok bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		n, _ := jsonName(f)
		if n == name {
			return []int{i}, f, true
		}
		if n == "" && f.IsExported() && f.Type.Kind() == reflect.Struct {
			if rest, deep, ok := fieldByJSON(f.Type, name); ok {
				return append([]int{i}, rest...), deep, true
			}
		}
	}
	return nil, reflect.StructField{}, false
}

// fieldGetter reads a scalar by its path, "" where a parent is missing.
func fieldGetter(t reflect.Type, path []string) func(reflect.Value) string {
	if len(path) == 0 {
		return func(v reflect.Value) string {
			for v.Kind() == reflect.Pointer {
				if v.IsNil() {
					return ""
				}
				v = v.Elem()
			}
			return fmt.Sprint(v.Interface())
		}
	}
	if t.Kind() == reflect.Pointer {
		inner := fieldGetter(t.Elem(), path)
		if inner == nil {
			return nil
		}
		return func(v reflect.Value) string {
			if v.IsNil() {
				return ""
			}
			return inner(v.Elem())
		}
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	index, f, ok := fieldByJSON(t, path[0])
	if !ok {
		return nil
	}
	inner := fieldGetter(f.Type, path[1:])
	if inner == nil {
		return nil
	}
	return func(v reflect.Value) string { return inner(v.FieldByIndex(index)) }
}
