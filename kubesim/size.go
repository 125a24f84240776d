// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"encoding/json"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sizeOf is the object's size as JSON, or a cheap guess when that is far from
// the limit.
func (c *Cluster) sizeOf(o client.Object) int {
	guess := roughSize(reflect.ValueOf(o).Elem())
	// A field costs its name too, which the guess does not see: names are
	// short, so a tenth of the limit is still far away.
	if guess < c.o.MaxObjectBytes/10 {
		return guess
	}
	text, err := json.Marshal(o)
	if err != nil {
		return guess
	}
	return len(text)
}

// roughSize counts the bytes of strings and a few for each other value, which
// lists and maps can multiply.
func roughSize(v reflect.Value) int {
	switch v.Kind() {
	case reflect.String:
		return v.Len() + 2
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return roughSize(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v.Len() * 4 / 3
		}
		sum := 0
		for i := range v.Len() {
			sum += roughSize(v.Index(i)) + 1
		}
		return sum
	case reflect.Map:
		sum := 0
		for it := v.MapRange(); it.Next(); {
			sum += roughSize(it.Key()) + roughSize(it.Value()) + 2
		}
		return sum
	case reflect.Struct:
		if v.Type() == timeType || v.Type() == microTimeType {
			return 22
		}
		sum := 0
		for i := range v.NumField() {
			sum += roughSize(v.Field(i))
		}
		return sum
	}
	return 4
}
