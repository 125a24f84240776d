// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/kubesim/crdschema"
)

// pipeline is what the API server does to a custom object.
type pipeline struct {
	*crdschema.Schema
	gvk schema.GroupVersionKind

	onceTypes sync.Once
	types     managedfields.TypeConverter
	typesErr  error
}

func newPipeline(v *apiextensionsv1.CustomResourceDefinitionVersion, gvk schema.GroupVersionKind) (*pipeline, error) {
	s, err := crdschema.New(v)
	return &pipeline{Schema: s, gvk: gvk}, err
}

// admit takes a new object through the pipeline. It returns the object as typed
// value and as JSON tree. old is the stored object's tree, nil for a creation;
// sub is the subresource that is written to.
func (p *pipeline) admit(k *facts, n client.Object, old map[string]any, sub string) (client.Object, map[string]any, error) {
	u, err := k.tree(n)
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	p.Complete(u)
	var errs field.ErrorList
	switch {
	case old == nil:
		errs = p.ValidateCreate(u)
	case sub == "status":
		errs = p.ValidateStatusUpdate(u, old)
	default:
		errs = p.ValidateUpdate(u, old)
	}
	if len(errs) > 0 {
		return nil, nil, apierrors.NewInvalid(k.gvk.GroupKind(), n.GetName(), errs)
	}
	out := k.new()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u, out); err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	*metaOf(out) = *metaOf(n) // no schema touches metadata; this spares its journey
	k.normalize(out)
	return out, u, nil
}

// tree is the object as JSON values, with its kind.
func (k *facts) tree(o client.Object) (map[string]any, error) {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	u["apiVersion"], u["kind"] = k.gvk.GroupVersion().String(), k.gvk.Kind
	if k.statusUnwritten(o) {
		delete(u, "status")
	}
	return u, nil
}
