// SPDX-License-Identifier: Apache-2.0

package kubevirt

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var quantityType = reflect.TypeFor[resource.Quantity]()

// place is where a value stands in the object. Nearly all values are as they
// should be, and only those that are not get a field.Path made of it.
type place struct {
	in    *place
	name  string // of a field
	key   string // of a map's value
	index int    // of a list's
	kind  reflect.Kind
}

func (p *place) path() *field.Path {
	switch {
	case p.in == nil:
		return field.NewPath(p.name)
	case p.kind == reflect.Slice:
		return p.in.path().Index(p.index)
	case p.kind == reflect.Map:
		return p.in.path().Key(p.key)
	}
	return p.in.path().Child(p.name)
}

// row is the name of the place's row in the table: the same but for the indices
// of lists.
func (p *place) row() string {
	switch {
	case p.in == nil:
		return p.name
	case p.kind == reflect.Slice:
		return p.in.row() + "[]"
	case p.kind == reflect.Map:
		return p.in.row() + "[" + p.key + "]"
	}
	return p.in.row() + "." + p.name
}

// judge walks what is set, and the table's rows with it.
func judge(v reflect.Value, at *place, r *row) field.ErrorList {
	if nothing(v) {
		return nil
	}
	switch {
	case r.rule != nil && r.rule.below:
		return nil
	case r.rule == nil && r.below == nil:
		if switchedOff(v) {
			return nil
		}
		return field.ErrorList{field.Forbidden(at.path(), mend(at.row()))}
	}

	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Type() == quantityType {
		return r.judge(v, at)
	}
	var errs field.ErrorList
	switch v.Kind() {
	case reflect.Struct:
		each(v, func(name string, value reflect.Value) bool {
			if !nothing(value) { // Most are.
				errs = append(errs, judge(value, &place{in: at, name: name}, r.of(name))...)
			}
			return true
		})
	case reflect.Slice:
		for i := range v.Len() {
			errs = append(errs, judge(v.Index(i), &place{in: at, kind: reflect.Slice, index: i}, r.of("[]"))...)
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			errs = append(errs, judge(v.MapIndex(key), &place{in: at, kind: reflect.Map, key: key.String()}, r.of("["+key.String()+"]"))...)
		}
	default:
		return r.judge(v, at)
	}
	return errs
}

// each yields the fields of a struct by their JSON names, those of inlined
// structs among them, until yield has had enough.
func each(v reflect.Value, yield func(string, reflect.Value) bool) bool {
	for i, name := range namesOf(v.Type()) {
		if name == "" {
			if !each(v.Field(i), yield) {
				return false
			}
			continue
		}
		if !yield(name, v.Field(i)) {
			return false
		}
	}
	return true
}

// fieldNames memoises a pure function of a type.
var fieldNames sync.Map // reflect.Type -> []string

// namesOf are the JSON names of a struct's fields.
func namesOf(t reflect.Type) []string {
	if known, ok := fieldNames.Load(t); ok {
		return known.([]string)
	}
	list := make([]string, t.NumField())
	for i := range list {
		list[i] = jsonName(t.Field(i))
	}
	fieldNames.Store(t, list)
	return list
}

// jsonName is a field's name on the wire, empty for an inlined struct.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" && !f.Anonymous {
		return f.Name
	}
	return name
}

// nothing says that a field is not set. A pointer is set as soon as it points: an
// empty struct behind it (masquerade: {}) asks for something.
func nothing(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
		if v.Type() == quantityType {
			return false // In a map: there it is set whatever it says.
		}
		return each(v, func(_ string, value reflect.Value) bool { return nothing(value) })
	default:
		return v.IsZero()
	}
}

func switchedOff(v reflect.Value) bool {
	return v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Bool && !v.Elem().Bool()
}

func mend(row string) string {
	if mend, known := mends[row]; known {
		return "not supported: " + mend
	}
	return "not supported: remove it"
}

// row is the table as a tree: what is listed of a field, and what below it.
type row struct {
	rule  *rule           // nil: not listed itself
	below map[string]*row // by a field's name, "[]" for a list's values, "[key]" for a map's
}

// rows is the root of the table's tree: the row of spec.
var rows = treeOf(supported).of("spec")

// treeOf splits the table's names at their dots and brackets.
func treeOf(table map[string]rule) *row {
	root := &row{}
	for name, rule := range table { // a tree, whatever the order
		r := root
		for _, step := range strings.FieldsFunc(strings.ReplaceAll(name, "[", ".["), func(c rune) bool { return c == '.' }) {
			if r.below == nil {
				r.below = map[string]*row{}
			}
			if r.below[step] == nil {
				r.below[step] = &row{}
			}
			r = r.below[step]
		}
		r.rule = &rule
	}
	return root
}

// unlisted is the row of all that the table does not name.
var unlisted = &row{}

func (r *row) of(step string) *row {
	if below := r.below[step]; below != nil {
		return below
	}
	return unlisted
}

func (r *row) judge(v reflect.Value, at *place) field.ErrorList {
	if r.rule == nil {
		return nil
	}
	if values := r.rule.values; values != nil && !slices.Contains(values, v.String()) {
		return field.ErrorList{field.NotSupported(at.path(), v.String(), values)}
	}
	if r.rule.check == nil {
		return nil
	}
	if mend := r.rule.check(v); mend != "" {
		return field.ErrorList{field.Invalid(at.path(), v.Interface(), mend)}
	}
	return nil
}
