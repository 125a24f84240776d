// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
)

// patch applies a patch document to the stored object.
func (c *Cluster) patch(rq *request, k *kind, key types.NamespacedName, kindOfPatch types.PatchType, data []byte, force bool) (client.Object, error) {
	if kindOfPatch == types.ApplyPatchType {
		return c.apply(rq, k, key, data, force)
	}
	st, err := c.find(k, key)
	if err != nil {
		return nil, err
	}
	var n client.Object
	switch kindOfPatch {
	case types.MergePatchType:
		n = st.obj.DeepCopyObject().(client.Object)
		err = mergeInto(reflect.ValueOf(n).Elem(), data)
	case types.JSONPatchType, types.StrategicMergePatchType:
		n, err = k.patchJSON(st.obj, kindOfPatch, data)
	default:
		err = fmt.Errorf("unknown patch type %s", kindOfPatch)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if client.ObjectKeyFromObject(n) != key {
		return nil, apierrors.NewBadRequest("the name of the object does not match the name on the URL")
	}
	if err := c.precondition(k, metaOf(st.obj), metaOf(n)); err != nil {
		return nil, err
	}
	k.normalize(n)
	return c.replace(rq, k, st, n)
}

func (k *kind) patchJSON(old client.Object, kindOfPatch types.PatchType, data []byte) (client.Object, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	var after []byte
	if kindOfPatch == types.StrategicMergePatchType {
		if k.custom {
			return nil, fmt.Errorf("custom resources know no strategic merge patch")
		}
		after, err = strategicpatch.StrategicMergePatch(before, data, k.new())
	} else {
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(data); err == nil {
			after, err = patch.Apply(before)
		}
	}
	if err != nil {
		return nil, err
	}
	n := k.new()
	return n, kjson.UnmarshalCaseSensitivePreserveInts(after, n)
}

var null = []byte("null")

// mergeInto applies a JSON merge patch (RFC 7386) to a Go value that nobody
// else holds. Going through JSON instead would cost more than all the rest of
// a write.
func mergeInto(v reflect.Value, patch []byte) error {
	if bytes.Equal(patch, null) {
		v.SetZero()
		return nil
	}
	if v.CanAddr() {
		if _, own := v.Addr().Interface().(json.Unmarshaler); own {
			v.SetZero()
			return json.Unmarshal(patch, v.Addr().Interface())
		}
	}
	object := len(bytes.TrimLeft(patch, " \t\r\n")) > 0 && bytes.TrimLeft(patch, " \t\r\n")[0] == '{'
	switch {
	case v.Kind() == reflect.Pointer && object:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return mergeInto(v.Elem(), patch)
	case v.Kind() == reflect.Struct && object:
		return mergeStruct(v, patch)
	case v.Kind() == reflect.Map && object:
		return mergeMap(v, patch)
	}
	v.SetZero()
	return kjson.UnmarshalCaseSensitivePreserveInts(patch, v.Addr().Interface())
}

func mergeStruct(v reflect.Value, patch []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(patch, &members); err != nil {
		return err
	}
	fields := wireFields(v.Type())
	for _, name := range slices.Sorted(maps.Keys(members)) {
		index, known := fields[name]
		if !known {
			continue // as pruning would
		}
		if err := mergeInto(v.FieldByIndex(index), members[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func mergeMap(v reflect.Value, patch []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(patch, &members); err != nil {
		return err
	}
	if v.IsNil() {
		v.Set(reflect.MakeMapWithSize(v.Type(), len(members)))
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		member := members[name]
		key := reflect.ValueOf(name).Convert(v.Type().Key())
		if bytes.Equal(member, null) {
			v.SetMapIndex(key, reflect.Value{})
			continue
		}
		value := reflect.New(v.Type().Elem()).Elem()
		if have := v.MapIndex(key); have.IsValid() {
			value.Set(have)
		}
		if err := mergeInto(value, member); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		v.SetMapIndex(key, value)
	}
	return nil
}

// wire memoises a pure function of a type.
var wire sync.Map // reflect.Type -> map[string][]int

// wireFields are a struct's fields by wire name, inlined ones included.
func wireFields(t reflect.Type) map[string][]int {
	if known, ok := wire.Load(t); ok {
		return known.(map[string][]int)
	}
	fields := map[string][]int{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _ := jsonName(f)
		switch {
		case name != "":
			fields[name] = []int{i}
		case f.IsExported() && f.Type.Kind() == reflect.Struct && f.Tag.Get("json") != "-":
			for inner, index := range wireFields(f.Type) {
				if _, taken := fields[inner]; !taken {
					fields[inner] = append([]int{i}, index...)
				}
			}
		}
	}
	wire.Store(t, fields)
	return fields
}
