// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/adit-hv/adit/internal/equal"
)

// OwnerTable says which roles may make this change of a field. A nil answer
// means anybody, an empty one nobody. Fields are named as in
// "object" (creation or deletion), "spec.maintenance", "status.phase",
// "status.conditions[Ready]", "metadata.labels[key]",
// "metadata.annotations[key]", "metadata.finalizers[name]",
// "metadata.ownerReferences". A creation tells only "object", a removal after
// the last finalizer only the finalizers.
type OwnerTable func(w Write, field string) []string

// OwnerRule lets roles write a field and what lies below it. With '*' it is a
// pattern as of path.Match, with brackets taken literally and '*' for any
// characters.
type OwnerRule struct {
	Field string
	Roles []string
}

// OwnerRules is the plain table: the first rule of the kind that matches
// decides. A field no rule names is anybody's.
type OwnerRules map[schema.GroupKind][]OwnerRule

// Table makes an OwnerTable of the rules, for one cluster.
func (r OwnerRules) Table() OwnerTable {
	type key struct {
		kind  schema.GroupKind
		field string
	}
	known := map[key][]string{} // the same few fields are written over and over
	return func(w Write, field string) []string {
		at := key{w.GVK.GroupKind(), field}
		roles, ok := known[at]
		if !ok {
			for _, rule := range r[at.kind] {
				if matchField(rule.Field, field) {
					roles = rule.Roles
					break
				}
			}
			known[at] = roles
		}
		return roles
	}
}

func matchField(pattern, field string) bool {
	if !strings.Contains(pattern, "*") {
		below, ok := strings.CutPrefix(field, pattern)
		return ok && (below == "" || below[0] == '.' || below[0] == '[')
	}
	// Slashes of label keys are no separators here.
	plain := strings.NewReplacer("[", "\\[", "]", "\\]", "/", "\x00")
	ok, err := path.Match(plain.Replace(pattern), strings.ReplaceAll(field, "/", "\x00"))
	return ok && err == nil
}

func (c *Cluster) checkOwners(k *kind, w Write) {
	for _, field := range k.changedFields(w) {
		allowed := c.o.Owners(w, field)
		if allowed == nil || slices.Contains(allowed, w.Role) {
			continue
		}
		if c.OnForeignWrite != nil {
			c.OnForeignWrite(ForeignWrite{Write: w, Field: field, Allowed: allowed})
		}
	}
}

// changedFields names what a write changed.
func (k *kind) changedFields(w Write) []string {
	switch {
	case w.Old == nil:
		return []string{"object"}
	case w.New == nil && w.Verb != "delete":
		return finalizerChanges(metaOf(w.Old).Finalizers, nil)
	case w.New == nil:
		return []string{"object"}
	}
	var out []string
	a, b := metaOf(w.Old), metaOf(w.New)
	if w.Verb == "delete" {
		out = append(out, "object")
	} else {
		out = append(out, finalizerChanges(a.Finalizers, b.Finalizers)...)
	}
	out = append(out, mapChanges("metadata.labels", a.Labels, b.Labels)...)
	out = append(out, mapChanges("metadata.annotations", a.Annotations, b.Annotations)...)
	if !equal.Values(&a.OwnerReferences, &b.OwnerReferences) {
		out = append(out, "metadata.ownerReferences")
	}
	from, to := reflect.ValueOf(w.Old).Elem(), reflect.ValueOf(w.New).Elem()
	for _, i := range k.body {
		if !equal.Fields(from.Field(i), to.Field(i)) {
			name, _ := jsonName(k.typ.Field(i))
			if below := structChanges(name, from.Field(i), to.Field(i)); len(below) > 0 {
				out = append(out, below...)
				continue
			}
			out = append(out, name)
		}
	}
	if k.status >= 0 {
		before := from.Field(k.status)
		if before.IsZero() && !to.Field(k.status).IsZero() && k.statusDefaults != nil {
			// The first write of a status brings the schema's defaults with it.
			before = reflect.New(before.Type()).Elem()
			k.statusDefaults(before)
		}
		out = append(out, structChanges("status", before, to.Field(k.status))...)
	}
	return out
}

func finalizerChanges(a, b []string) (out []string) {
	for _, f := range a {
		if !slices.Contains(b, f) {
			out = append(out, "metadata.finalizers["+f+"]")
		}
	}
	for _, f := range b {
		if !slices.Contains(a, f) {
			out = append(out, "metadata.finalizers["+f+"]")
		}
	}
	return out
}

func mapChanges(field string, a, b map[string]string) (out []string) {
	if maps.Equal(a, b) {
		return nil
	}
	for key, value := range a {
		if now, ok := b[key]; !ok || now != value {
			out = append(out, field+"["+key+"]")
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			out = append(out, field+"["+key+"]")
		}
	}
	slices.Sort(out)
	return out
}

// structChanges looks one level deep, and two where a pointer leads to a
// struct whose fields have different owners (status.migrationState).
func structChanges(path string, a, b reflect.Value) (out []string) {
	if a.Kind() != reflect.Struct || equal.Fields(a, b) {
		return nil
	}
	for i := range a.NumField() {
		name, _ := jsonName(a.Type().Field(i))
		x, y := a.Field(i), b.Field(i)
		if name == "" || equal.Fields(x, y) {
			continue
		}
		field := path + "." + name
		switch {
		case name == "conditions" && x.Kind() == reflect.Slice:
			out = append(out, conditionChanges(field, x, y)...)
		case x.Kind() == reflect.Pointer && x.Type().Elem().Kind() == reflect.Struct && !strings.Contains(path, ".") && x.Type().Elem() != timeType:
			out = append(out, structChanges(field, orZero(x), orZero(y))...)
		default:
			out = append(out, field)
		}
	}
	return out
}

func orZero(pointer reflect.Value) reflect.Value {
	if pointer.IsNil() {
		return reflect.New(pointer.Type().Elem()).Elem()
	}
	return pointer.Elem()
}

// conditionChanges names the conditions that changed, by type.
func conditionChanges(field string, a, b reflect.Value) (out []string) {
	byType := func(v reflect.Value) map[string]reflect.Value {
		m := map[string]reflect.Value{}
		for i := range v.Len() {
			if v.Index(i).Kind() == reflect.Struct {
				m[v.Index(i).FieldByName("Type").String()] = v.Index(i)
			}
		}
		return m
	}
	before, after := byType(a), byType(b)
	for name, x := range before {
		if y, ok := after[name]; !ok || !equal.Fields(x, y) {
			out = append(out, field+"["+name+"]")
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			out = append(out, field+"["+name+"]")
		}
	}
	slices.Sort(out)
	return out
}
