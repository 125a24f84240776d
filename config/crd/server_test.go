// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// server does to an object what the API server does for one resource, with the
// API server's own library and in its order.
type server struct {
	crd    *apiextensionsv1.CustomResourceDefinition
	schema *structuralschema.Structural
	fields validation.SchemaValidator
	rules  *cel.Validator
}

// serve stands up the server of a resource of config/crd.
func serve(t *testing.T, name string) *server {
	t.Helper()
	crds, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		if crd.Name != name {
			continue
		}
		props := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil); err != nil {
			t.Fatal(err)
		}
		schema, err := structuralschema.NewStructural(props)
		if err != nil {
			t.Fatalf("%s is not structural: %v", name, err)
		}
		if err := defaulting.PruneDefaults(schema); err != nil {
			t.Fatal(err)
		}
		fields, _, err := validation.NewSchemaValidator(props)
		if err != nil {
			t.Fatal(err)
		}
		return &server{crd, schema, fields, cel.NewValidator(schema, true, celconfig.PerCallLimit)}
	}
	t.Fatalf("config/crd has no %s", name)
	return nil
}

// create returns the object as stored, or the refusal.
func (s *server) create(obj map[string]any) (map[string]any, error) {
	obj = s.decode(obj)
	if s.crd.Spec.Versions[0].Subresources != nil {
		delete(obj, "status")
	}
	errs := validation.ValidateCustomResource(nil, obj, s.fields)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.schema, obj)...)
	more, _ := s.rules.Validate(context.Background(), nil, s.schema, obj, nil, celconfig.RuntimeCELCostBudget)
	return obj, append(errs, more...).ToAggregate()
}

// update returns the object as stored, or the refusal.
func (s *server) update(old, obj map[string]any) (map[string]any, error) {
	obj = s.decode(obj)
	if s.crd.Spec.Versions[0].Subresources != nil {
		obj["status"] = old["status"]
		if old["status"] == nil {
			delete(obj, "status")
		}
	}
	return obj, s.validateUpdate(old, obj)
}

// updateStatus is the same by way of the status subresource.
func (s *server) updateStatus(old, obj map[string]any) (map[string]any, error) {
	obj = s.decode(obj)
	obj["spec"] = old["spec"]
	if old["spec"] == nil {
		delete(obj, "spec")
	}
	return obj, s.validateUpdate(old, obj)
}

func (s *server) decode(obj map[string]any) map[string]any {
	obj = runtime.DeepCopyJSON(obj)
	pruning.Prune(obj, s.schema, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, s.schema)
	defaulting.Default(obj, s.schema)
	return obj
}

func (s *server) validateUpdate(old, obj map[string]any) error {
	errs := validation.ValidateCustomResourceUpdate(nil, obj, old, s.fields)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.schema, obj)...)
	more, _ := s.rules.Validate(context.Background(), nil, s.schema, obj, old, celconfig.RuntimeCELCostBudget)
	return append(errs, more...).ToAggregate()
}

// table is the header and the row kubectl prints, cells joined by " | "; wide is
// as `-o wide` has it.
func (s *server) table(t *testing.T, obj map[string]any, wide bool) (header, row string) {
	t.Helper()
	convertor, err := tableconvertor.New(s.crd.Spec.Versions[0].AdditionalPrinterColumns)
	if err != nil {
		t.Fatal(err)
	}
	table, err := convertor.ConvertToTable(context.Background(), &unstructured.Unstructured{Object: obj}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names, cells []string
	for i, column := range table.ColumnDefinitions {
		if column.Priority > 0 && !wide {
			continue
		}
		names = append(names, strings.ToUpper(column.Name))
		cells = append(cells, cell(table.Rows[0].Cells[i]))
	}
	return strings.Join(names, " | "), strings.Join(cells, " | ")
}

func cell(value any) string {
	if value == nil {
		return "<none>"
	}
	return fmt.Sprint(value)
}

// object reads an object and gives it what every object has.
func (s *server) object(t *testing.T, text string) map[string]any {
	t.Helper()
	obj := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &obj); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	obj = whole(obj).(map[string]any)
	u := &unstructured.Unstructured{Object: obj}
	u.SetKind(s.crd.Spec.Names.Kind)
	u.SetAPIVersion(s.crd.Spec.Group + "/" + s.crd.Spec.Versions[0].Name)
	if u.GetName() == "" {
		u.SetName("a")
	}
	return obj
}

// whole makes integers of whole numbers, as the API server's decoder does.
func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = whole(value)
		}
	case []any:
		for i, value := range v {
			v[i] = whole(value)
		}
	case float64:
		if n := int64(v); float64(n) == v {
			return n
		}
	}
	return v
}

// plain turns a typed object into what goes over the wire.
func plain(t *testing.T, typed any) map[string]any {
	t.Helper()
	text, err := yaml.Marshal(typed)
	if err != nil {
		t.Fatal(err)
	}
	obj := map[string]any{}
	if err := yaml.Unmarshal(text, &obj); err != nil {
		t.Fatal(err)
	}
	return whole(obj).(map[string]any)
}

func asYAML(v any) string {
	text, err := yaml.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
