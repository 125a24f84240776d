// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/adit-hv/adit/kubesim/crdschema"
)

// server does to an object what the API server does for one resource, in the way
// of the simulated API. Whatever it is asked, a real API server is asked too, and
// has to agree.
type server struct {
	t      *testing.T
	real   *real // nil for -short
	crd    *apiextensionsv1.CustomResourceDefinition
	schema *crdschema.Schema
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
		schema, err := crdschema.New(&crd.Spec.Versions[0])
		if err != nil {
			t.Fatal(err)
		}
		s := &server{t: t, crd: crd, schema: schema}
		if !testing.Short() {
			s.real = serveReal(t, crd)
		}
		return s
	}
	t.Fatalf("config/crd has no %s", name)
	return nil
}

// create returns the object as stored, or the refusal.
func (s *server) create(given map[string]any) (map[string]any, error) {
	obj := s.decode(given)
	if s.crd.Spec.Versions[0].Subresources != nil {
		delete(obj, "status")
	}
	err := s.schema.ValidateCreate(obj).ToAggregate()
	if s.real != nil {
		stored, realErr := s.real.create(s.t, given)
		agree(s.t, "create", obj, err, stored, realErr)
	}
	return obj, err
}

// update returns the object as stored, or the refusal.
func (s *server) update(old, given map[string]any) (map[string]any, error) {
	obj := s.decode(given)
	if s.crd.Spec.Versions[0].Subresources != nil {
		obj["status"] = old["status"]
		if old["status"] == nil {
			delete(obj, "status")
		}
	}
	err := s.schema.ValidateUpdate(obj, old).ToAggregate()
	if s.real != nil {
		stored, realErr := s.real.update(s.t, old, given)
		agree(s.t, "update", obj, err, stored, realErr)
	}
	return obj, err
}

// updateStatus is the same by way of the status subresource.
func (s *server) updateStatus(old, given map[string]any) (map[string]any, error) {
	obj := s.decode(given)
	obj["spec"] = old["spec"]
	if old["spec"] == nil {
		delete(obj, "spec")
	}
	err := s.schema.ValidateStatusUpdate(obj, old).ToAggregate()
	if s.real != nil {
		stored, realErr := s.real.update(s.t, old, given, "status")
		agree(s.t, "update of the status", obj, err, stored, realErr)
	}
	return obj, err
}

func (s *server) decode(obj map[string]any) map[string]any {
	obj = runtime.DeepCopyJSON(obj)
	s.schema.Complete(obj)
	return obj
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
	if s.real != nil {
		s.agreeOnTable(obj, wide, names, cells)
	}
	return strings.Join(names, " | "), strings.Join(cells, " | ")
}

// agreeOnTable holds the stock kubectl's table against ours. It prints an object
// that was made a moment ago, so its age differs.
func (s *server) agreeOnTable(obj map[string]any, wide bool, names, cells []string) {
	s.t.Helper()
	header, row := s.real.table(s.t, obj, wide)
	theirs := strings.Split(row, " | ")
	age := slices.IndexFunc(names, func(name string) bool { return name == "AGE" || name == "CREATED" })
	if age >= 0 && age < len(theirs) {
		if !regexp.MustCompile(`^\d+s$`).MatchString(theirs[age]) {
			s.t.Errorf("kubectl prints the age %q of a new object", theirs[age])
		}
		theirs[age] = cells[age]
	}
	if header != strings.Join(names, " | ") || !slices.Equal(theirs, cells) {
		s.t.Errorf("the library prints:\n%s\n%s\nkubectl prints:\n%s\n%s", strings.Join(names, " | "), strings.Join(cells, " | "), header, strings.Join(theirs, " | "))
	}
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
