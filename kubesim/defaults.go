// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// A defaulter sets the schema's defaults in a Go value, where the value's JSON
// would lack the field. It is the typed store's answer to the library's
// defaulting of JSON, which costs as much as the rest of a write.
type defaulter func(reflect.Value)

// compileDefaults returns nil when no default lies below.
func compileDefaults(s *structuralschema.Structural, t reflect.Type, root bool) defaulter {
	if s == nil {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		inner := compileDefaults(s, t.Elem(), false)
		if inner == nil {
			return nil
		}
		return func(v reflect.Value) {
			if !v.IsNil() {
				inner(v.Elem())
			}
		}
	case reflect.Slice:
		inner := compileDefaults(s.Items, t.Elem(), false)
		if inner == nil {
			return nil
		}
		return func(v reflect.Value) {
			for i := range v.Len() {
				inner(v.Index(i))
			}
		}
	case reflect.Map:
		if s.AdditionalProperties == nil {
			return nil
		}
		inner := compileDefaults(s.AdditionalProperties.Structural, t.Elem(), false)
		if inner == nil {
			return nil
		}
		return func(v reflect.Value) {
			for _, key := range v.MapKeys() {
				value := reflect.New(t.Elem()).Elem()
				value.Set(v.MapIndex(key))
				inner(value)
				v.SetMapIndex(key, value)
			}
		}
	case reflect.Struct:
		return compileDefaultsStruct(s, t, root)
	}
	return nil
}

func compileDefaultsStruct(s *structuralschema.Structural, t reflect.Type, root bool) defaulter {
	type step struct {
		index  []int
		omit   bool
		status bool
		gone   bool // a zero struct is left out of the JSON
		value  []byte
		inner  defaulter
	}
	var steps []step
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		index, f, ok := fieldByJSON(t, name)
		if !ok || root && name == "metadata" {
			continue
		}
		_, omit := jsonName(f)
		one := step{index: index, omit: omit, status: root && name == "status", gone: f.Type.Kind() == reflect.Struct && strings.Contains(f.Tag.Get("json"), "omitzero"), inner: compileDefaults(&property, f.Type, false)}
		if property.Default.Object != nil {
			one.value, _ = json.Marshal(property.Default.Object)
		}
		if one.value != nil || one.inner != nil {
			steps = append(steps, one)
		}
	}
	if steps == nil {
		return nil
	}
	return func(v reflect.Value) {
		for _, one := range steps {
			f := v.FieldByIndex(one.index)
			if one.status && f.IsZero() {
				continue // a status nobody wrote is not there
			}
			if one.gone && one.value == nil && f.IsZero() {
				continue // no defaults below what is not there
			}
			if one.value != nil && (one.gone && f.IsZero() || one.omit && empty(f) || f.Kind() == reflect.Pointer && f.IsNil()) {
				// The CRD was validated: its defaults fit its types.
				_ = json.Unmarshal(one.value, f.Addr().Interface())
			}
			if one.inner != nil {
				one.inner(f)
			}
		}
	}
}

// empty is encoding/json's idea of what omitempty leaves out.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}
