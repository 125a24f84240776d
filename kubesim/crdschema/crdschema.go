// SPDX-License-Identifier: Apache-2.0

// Package crdschema does to a custom object what the API server does to it
// before it stores it: defaults, pruning, and the judgement by the schema and the
// CEL rules of its CustomResourceDefinition, made with the API server's own
// libraries. It owns a compiled schema; it must never know where objects are
// kept. The order and the words are those of kube-apiserver 1.37
// (apiextensions-apiserver, pkg/registry/customresource), and tests hold them
// against a real one.
package crdschema

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
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// Schema is one version's of a CustomResourceDefinition. It may be used by many
// goroutines.
type Schema struct {
	// Structural is read only.
	Structural *structuralschema.Structural

	props *apiextensions.JSONSchemaProps

	once          sync.Once // Built at the first use: CEL compiles for long.
	onceErr       error
	whole, status validation.SchemaValidator
	rules         *cel.Validator
}

// New reads the schema of a version.
func New(v *apiextensionsv1.CustomResourceDefinitionVersion) (*Schema, error) {
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("version %s has no schema", v.Name)
	}
	s := &Schema{props: &apiextensions.JSONSchemaProps{}}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, s.props, nil); err != nil {
		return nil, err
	}
	var err error
	if s.Structural, err = structuralschema.NewStructural(s.props); err != nil {
		return nil, err
	}
	return s, defaulting.PruneDefaults(s.Structural)
}

// Build compiles what judges. Whoever did not call it pays at the first judgement.
func (s *Schema) Build() error {
	s.once.Do(func() {
		s.rules = cel.NewValidator(s.Structural, true, celconfig.PerCallLimit)
		if s.whole, _, s.onceErr = validation.NewSchemaValidator(s.props); s.onceErr != nil {
			return
		}
		if status, ok := s.props.Properties["status"]; ok {
			s.status, _, s.onceErr = validation.NewSchemaValidator(&status)
		}
	})
	return s.onceErr
}

// Complete changes obj, which somebody sent, into what would be stored.
func (s *Schema) Complete(obj map[string]any) {
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, s.Structural)
	defaulting.Default(obj, s.Structural)
	pruning.Prune(obj, s.Structural, true)
}

// ValidateCreate judges a new object.
func (s *Schema) ValidateCreate(obj map[string]any) (errs field.ErrorList) {
	if err := s.Build(); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	errs = append(errs, validation.ValidateCustomResource(nil, obj, s.whole)...)
	errs = append(errs, objectmeta.Validate(context.Background(), nil, obj, s.Structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.Structural, obj)...)
	return s.withRules(errs, obj, nil)
}

// ValidateUpdate judges a change. What was wrong before and stays is let be.
func (s *Schema) ValidateUpdate(obj, old map[string]any) (errs field.ErrorList) {
	if err := s.Build(); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	both := s.correlate(obj, old)
	errs = append(errs, validation.ValidateCustomResourceUpdate(nil, obj, old, s.whole, validation.WithRatcheting(both))...)
	errs = append(errs, objectmeta.Validate(context.Background(), nil, obj, s.Structural, false)...)
	errs = append(errs, s.newListErrors(obj, old)...)
	return s.withRules(errs, obj, old, cel.WithRatcheting(both))
}

// ValidateStatusUpdate judges a change by way of the status subresource.
func (s *Schema) ValidateStatusUpdate(obj, old map[string]any) (errs field.ErrorList) {
	if err := s.Build(); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	both := s.correlate(obj, old)
	if status, ok := obj["status"]; ok && s.status != nil {
		errs = append(errs, validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, old["status"], s.status, validation.WithRatcheting(both.Key("status")))...)
	}
	errs = append(errs, s.newListErrors(obj, old)...)
	return s.withRules(errs, obj, old, cel.WithRatcheting(both))
}

func (s *Schema) correlate(obj, old map[string]any) *common.CorrelatedObject {
	return common.NewCorrelatedObject(obj, old, &model.Structural{Structural: s.Structural})
}

// newListErrors are doubles in lists that had none.
func (s *Schema) newListErrors(obj, old map[string]any) field.ErrorList {
	if len(listtype.ValidateListSetsAndMaps(nil, s.Structural, old)) > 0 {
		return nil
	}
	return listtype.ValidateListSetsAndMaps(nil, s.Structural, obj)
}

// withRules adds what the CEL rules say, unless the object is so wrong that they
// cannot be asked.
func (s *Schema) withRules(errs field.ErrorList, obj, old map[string]any, options ...cel.Option) field.ErrorList {
	if s.rules == nil {
		return errs
	}
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return append(errs, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
		}
	}
	var before any
	if old != nil {
		before = old
	}
	broken, _ := s.rules.Validate(context.Background(), nil, s.Structural, obj, before, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, broken...)
}
