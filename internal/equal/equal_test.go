// SPDX-License-Identifier: Apache-2.0

package equal

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"
)

func TestAgreesWithSemanticOnAnyTwoValues(t *testing.T) {
	t.Run("Node", rapid.MakeCheck(agree[corev1.Node]))
	t.Run("VirtualMachineInstance", rapid.MakeCheck(agree[kubevirtv1.VirtualMachineInstance]))
	t.Run("VirtualMachineInstanceMigration", rapid.MakeCheck(agree[kubevirtv1.VirtualMachineInstanceMigration]))
	t.Run("a type that contains itself", rapid.MakeCheck(agree[chain]))
}

type chain struct {
	Next  *chain
	Side  []chain
	Free  any
	Times []metav1.MicroTime
}

// agree compares two values that one random stream made nearly alike.
func agree[T any](t *rapid.T) {
	seed := rapid.Uint64().Draw(t, "seed")
	other := rapid.Bool().Draw(t, "differs")
	a, b := new(T), new(T)
	filler{r: rand.New(rand.NewPCG(seed, 0)), odd: -1}.fill(reflect.ValueOf(a).Elem(), 0)
	f := filler{r: rand.New(rand.NewPCG(seed, 0)), odd: -1, seen: new(int)}
	if other {
		f.odd = rapid.IntRange(0, 400).Draw(t, "the odd leaf")
	}
	f.fill(reflect.ValueOf(b).Elem(), 0)
	want := equality.Semantic.DeepEqual(a, b)
	if got := Values(a, b); got != want {
		t.Fatalf("got %v, Semantic says %v:\n%+v\n%+v", got, want, a, b)
	}
	if got := Objects(a, b); got != want {
		t.Fatalf("by reflection: got %v, Semantic says %v", got, want)
	}
}

func TestNilAndEmptySayTheSame(t *testing.T) {
	a, b := &corev1.Node{}, &corev1.Node{}
	b.Labels, b.Finalizers = map[string]string{}, []string{}
	if !Values(a, b) {
		t.Error("an empty map or list differs from none")
	}
	if Values(a, nil) || !Values[corev1.Node](nil, nil) {
		t.Error("nil pointers are told apart wrongly")
	}
}

func TestQuantitiesAreNumbers(t *testing.T) {
	a, b := resource.MustParse("1Gi"), resource.MustParse("1024Mi")
	if !Values(&a, &b) {
		t.Error("1Gi differs from 1024Mi")
	}
}

// filler fills a value; its leaf number odd gets another content.
type filler struct {
	r    *rand.Rand
	odd  int
	seen *int
}

func (f filler) leaf() string {
	text := string(rune('a' + f.r.IntN(26)))
	if f.seen != nil {
		if *f.seen == f.odd {
			text += "!"
		}
		*f.seen++
	}
	return text
}

func (f filler) fill(v reflect.Value, depth int) {
	const deep = 7
	switch p := v.Addr().Interface().(type) {
	case *metav1.Time:
		p.Time = time.Unix(int64(len(f.leaf())*1000+f.r.IntN(2)), 0)
		return
	case *metav1.MicroTime:
		p.Time = time.Unix(int64(len(f.leaf())*1000), 0)
		return
	case *resource.Quantity:
		*p = *resource.NewQuantity(int64(len(f.leaf())*1000), resource.DecimalSI)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.leaf())
	case reflect.Bool:
		v.SetBool(len(f.leaf()) > 1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(len(f.leaf())))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(len(f.leaf())))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(len(f.leaf())))
	case reflect.Pointer:
		if depth < deep && f.r.IntN(3) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
		}
	case reflect.Slice:
		if depth < deep && f.r.IntN(2) == 0 {
			v.Set(reflect.MakeSlice(v.Type(), f.r.IntN(3), 3))
			for i := range v.Len() {
				f.fill(v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		if depth < deep && f.r.IntN(2) == 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range f.r.IntN(3) {
				key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				f.fill(key, depth+1)
				f.fill(value, depth+1)
				v.SetMapIndex(key, value)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i), depth+1)
			}
		}
	}
}
