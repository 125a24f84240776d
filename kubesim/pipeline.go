// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pipeline is what the API server does to a custom object, made from its CRD
// with the API server's own libraries.
type pipeline struct {
	gvk        schema.GroupVersionKind
	structural *structuralschema.Structural
	internal   *apiextensions.JSONSchemaProps

	once      sync.Once // validators are built at the first use: CEL compiles for long
	onceErr   error
	validator validation.SchemaValidator
	rules     *cel.Validator

	onceTypes sync.Once
	types     managedfields.TypeConverter
	typesErr  error
}

func newPipeline(v *apiextensionsv1.CustomResourceDefinitionVersion, gvk schema.GroupVersionKind) (*pipeline, error) {
	p := &pipeline{gvk: gvk, internal: &apiextensions.JSONSchemaProps{}}
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("version %s has no schema", v.Name)
	}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, p.internal, nil); err != nil {
		return nil, err
	}
	var err error
	p.structural, err = structuralschema.NewStructural(p.internal)
	return p, err
}

func (p *pipeline) build() error {
	p.once.Do(func() {
		p.rules = cel.NewValidator(p.structural, true, celconfig.PerCallLimit)
		p.validator, _, p.onceErr = validation.NewSchemaValidator(p.internal)
	})
	return p.onceErr
}

// admit takes a new object through the pipeline: defaults, pruning, then the
// judgement in the API server's order. It returns the object as typed value
// and as JSON tree. old is the stored object's tree, nil for a creation.
func (p *pipeline) admit(k *facts, n client.Object, old map[string]any) (client.Object, map[string]any, error) {
	if err := p.build(); err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	u, err := k.tree(n)
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(u, p.structural)
	defaulting.Default(u, p.structural)
	pruning.Prune(u, p.structural, true)
	errs := p.validate(u, old)
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

func (p *pipeline) validate(u, old map[string]any) (errs field.ErrorList) {
	ctx := context.Background()
	errs = objectmeta.Validate(ctx, nil, u, p.structural, false)
	if old == nil {
		errs = append(errs, validation.ValidateCustomResource(nil, u, p.validator)...)
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, p.structural, u)...)
		if p.rules != nil && len(errs) == 0 {
			more, _ := p.rules.Validate(ctx, nil, p.structural, u, nil, celconfig.RuntimeCELCostBudget)
			errs = append(errs, more...)
		}
		return errs
	}
	correlated := common.NewCorrelatedObject(u, old, &model.Structural{Structural: p.structural})
	errs = append(errs, validation.ValidateCustomResourceUpdate(nil, u, old, p.validator, validation.WithRatcheting(correlated))...)
	if before := listtype.ValidateListSetsAndMaps(nil, p.structural, old); len(before) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, p.structural, u)...)
	}
	if p.rules != nil && len(errs) == 0 {
		more, _ := p.rules.Validate(ctx, nil, p.structural, u, old, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(correlated))
		errs = append(errs, more...)
	}
	return errs
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
