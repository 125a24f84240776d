// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A walker brings a Go value into the form it would have after a journey over
// the wire: times are cut to what their text holds, empty lists that are left
// out become nil. So a controller cannot tell the typed store from a real one.
type walker func(reflect.Value)

type walkNode struct{ walk walker }

var (
	timeType      = reflect.TypeFor[metav1.Time]()
	microTimeType = reflect.TypeFor[metav1.MicroTime]()
)

// compileNormal returns nil for types in which there is nothing to do.
func compileNormal(t reflect.Type, seen map[reflect.Type]*walkNode) walker {
	switch t {
	case timeType:
		return func(v reflect.Value) { cutTime(&v.Addr().Interface().(*metav1.Time).Time, time.Second) }
	case microTimeType:
		return func(v reflect.Value) { cutTime(&v.Addr().Interface().(*metav1.MicroTime).Time, time.Microsecond) }
	}
	if node := seen[t]; node != nil { // a recursive type: bound when it runs
		return func(v reflect.Value) {
			if node.walk != nil {
				node.walk(v)
			}
		}
	}
	node := &walkNode{}
	seen[t] = node
	switch t.Kind() {
	case reflect.Pointer:
		if inner := compileNormal(t.Elem(), seen); inner != nil {
			node.walk = func(v reflect.Value) {
				if !v.IsNil() {
					inner(v.Elem())
				}
			}
		}
	case reflect.Slice:
		if inner := compileNormal(t.Elem(), seen); inner != nil {
			node.walk = func(v reflect.Value) {
				for i := range v.Len() {
					inner(v.Index(i))
				}
			}
		}
	case reflect.Map:
		if inner := compileNormal(t.Elem(), seen); inner != nil {
			node.walk = func(v reflect.Value) {
				for _, key := range v.MapKeys() {
					value := reflect.New(t.Elem()).Elem()
					value.Set(v.MapIndex(key))
					inner(value)
					v.SetMapIndex(key, value)
				}
			}
		}
	case reflect.Struct:
		node.walk = compileNormalStruct(t, seen)
	}
	delete(seen, t)
	return node.walk
}

func compileNormalStruct(t reflect.Type, seen map[reflect.Type]*walkNode) walker {
	type step struct {
		field int
		empty bool
		walk  walker
	}
	var steps []step
	for i := range t.NumField() {
		f := t.Field(i)
		name, omit := jsonName(f)
		if !f.IsExported() || name == "" && !f.Anonymous && f.Tag.Get("json") == "-" {
			continue
		}
		list := f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map
		s := step{field: i, empty: omit && list, walk: compileNormal(f.Type, seen)}
		if s.empty || s.walk != nil {
			steps = append(steps, s)
		}
	}
	if steps == nil {
		return nil
	}
	return func(v reflect.Value) {
		for _, s := range steps {
			f := v.Field(s.field)
			if s.empty && f.Len() == 0 {
				if !f.IsNil() {
					f.SetZero()
				}
				continue
			}
			if s.walk != nil {
				s.walk(f)
			}
		}
	}
}

// cutTime also moves to UTC, where the wire's reader would use the machine's
// zone: a run must not depend on that.
func cutTime(t *time.Time, unit time.Duration) {
	if !t.IsZero() {
		*t = t.UTC().Truncate(unit)
	}
}
