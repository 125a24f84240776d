// SPDX-License-Identifier: Apache-2.0

// Package equal answers whether two API values say the same, as
// equality.Semantic does: empty lists are as good as none, quantities and
// times are compared by what they mean.
//
// A comparison is compiled once for each type. Semantic's own walk by
// reflection was a fifth of what a controller costs, and an idle fleet does
// little else than to find that nothing has changed.
package equal

import (
	"reflect"
	"sync"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Values reports whether a and b say the same.
func Values[T any](a, b *T) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	return comparerOf(reflect.TypeFor[T]())(unsafe.Pointer(a), unsafe.Pointer(b))
}

// Objects reports whether two values behind pointers of one type say the same,
// where the type is known only at run time.
func Objects(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if x.Type() != y.Type() || x.Kind() != reflect.Pointer {
		return equality.Semantic.DeepEqual(a, b)
	}
	if x.IsNil() || y.IsNil() {
		return x.IsNil() == y.IsNil()
	}
	return comparerOf(x.Type().Elem())(x.UnsafePointer(), y.UnsafePointer())
}

// Fields reports whether two addressable values of one type say the same.
func Fields(a, b reflect.Value) bool {
	return comparerOf(a.Type())(a.Addr().UnsafePointer(), b.Addr().UnsafePointer())
}

// A comparer looks at two values of the type it was compiled for.
type comparer func(a, b unsafe.Pointer) bool

// compiled memoises a pure function of a type.
var compiled sync.Map // reflect.Type -> comparer

func comparerOf(t reflect.Type) comparer {
	if known, ok := compiled.Load(t); ok {
		return known.(comparer)
	}
	c := compile(t, map[reflect.Type]*comparer{})
	compiled.Store(t, c)
	return c
}

func compile(t reflect.Type, open map[reflect.Type]*comparer) comparer {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return func(a, b unsafe.Pointer) bool { return (*metav1.Time)(a).UTC() == (*metav1.Time)(b).UTC() }
	case reflect.TypeFor[metav1.MicroTime]():
		return func(a, b unsafe.Pointer) bool { return (*metav1.MicroTime)(a).UTC() == (*metav1.MicroTime)(b).UTC() }
	case reflect.TypeFor[resource.Quantity]():
		return func(a, b unsafe.Pointer) bool {
			return (*resource.Quantity)(a).Cmp(*(*resource.Quantity)(b)) == 0
		}
	case reflect.TypeFor[metav1.FieldsV1]():
		return semantic(t)
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Uint8:
		return plain[uint8]
	case reflect.Int16, reflect.Uint16:
		return plain[uint16]
	case reflect.Int32, reflect.Uint32:
		return plain[uint32]
	case reflect.Int64, reflect.Uint64:
		return plain[uint64]
	case reflect.Int, reflect.Uint, reflect.Uintptr:
		return plain[uint]
	case reflect.Float32:
		return plain[float32]
	case reflect.Float64:
		return plain[float64]
	case reflect.String:
		return plain[string]
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Struct:
		return recursive(t, open)
	}
	return semantic(t)
}

func plain[T comparable](a, b unsafe.Pointer) bool { return *(*T)(a) == *(*T)(b) }

// recursive compiles what may contain its own type again, which is bound when
// it runs.
func recursive(t reflect.Type, open map[reflect.Type]*comparer) comparer {
	if c := open[t]; c != nil {
		return func(a, b unsafe.Pointer) bool { return (*c)(a, b) }
	}
	c := new(comparer)
	open[t] = c
	switch t.Kind() {
	case reflect.Pointer:
		*c = pointers(compile(t.Elem(), open))
	case reflect.Slice:
		*c = slices(compile(t.Elem(), open), t.Elem().Size())
	case reflect.Map:
		*c = maps(t)
	default:
		*c = structs(t, open)
	}
	delete(open, t)
	return *c
}

func pointers(elem comparer) comparer {
	return func(a, b unsafe.Pointer) bool {
		x, y := *(*unsafe.Pointer)(a), *(*unsafe.Pointer)(b)
		if x == y || x == nil || y == nil {
			return x == y
		}
		return elem(x, y)
	}
}

func slices(elem comparer, size uintptr) comparer {
	return func(a, b unsafe.Pointer) bool {
		x, y := *(*[]byte)(a), *(*[]byte)(b) // a header is the same for all types
		if len(x) != len(y) {
			return false
		}
		p, q := unsafe.Pointer(unsafe.SliceData(x)), unsafe.Pointer(unsafe.SliceData(y))
		if p == q {
			return true
		}
		for i := range uintptr(len(x)) {
			if !elem(unsafe.Add(p, i*size), unsafe.Add(q, i*size)) {
				return false
			}
		}
		return true
	}
}

// maps walks the maps of strings itself, which are nearly all there are.
func maps(t reflect.Type) comparer {
	if t.Key().Kind() == reflect.String && t.Elem().Kind() == reflect.String {
		return func(a, b unsafe.Pointer) bool {
			x, y := *(*map[string]string)(a), *(*map[string]string)(b)
			if *(*unsafe.Pointer)(a) == *(*unsafe.Pointer)(b) {
				return true // the same map
			}
			if len(x) != len(y) {
				return false
			}
			for key, value := range x {
				if other, ok := y[key]; !ok || other != value {
					return false
				}
			}
			return true
		}
	}
	if t.Key().Kind() == reflect.String && t.Elem() == reflect.TypeFor[resource.Quantity]() {
		return func(a, b unsafe.Pointer) bool {
			x, y := *(*map[string]resource.Quantity)(a), *(*map[string]resource.Quantity)(b)
			if *(*unsafe.Pointer)(a) == *(*unsafe.Pointer)(b) {
				return true // the same map
			}
			if len(x) != len(y) {
				return false
			}
			for key, value := range x {
				if other, ok := y[key]; !ok || value.Cmp(other) != 0 {
					return false
				}
			}
			return true
		}
	}
	return semantic(t)
}

func structs(t reflect.Type, open map[reflect.Type]*comparer) comparer {
	type step struct {
		at   uintptr
		same comparer
	}
	steps := make([]step, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && !f.Anonymous {
			return semantic(t)
		}
		if f.Type.Size() > 0 {
			steps = append(steps, step{f.Offset, compile(f.Type, open)})
		}
	}
	return func(a, b unsafe.Pointer) bool {
		for _, s := range steps {
			if !s.same(unsafe.Add(a, s.at), unsafe.Add(b, s.at)) {
				return false
			}
		}
		return true
	}
}

// semantic leaves the rare kinds of values to the reference.
func semantic(t reflect.Type) comparer {
	return func(a, b unsafe.Pointer) bool {
		return equality.Semantic.DeepEqual(reflect.NewAt(t, a).Interface(), reflect.NewAt(t, b).Interface())
	}
}
