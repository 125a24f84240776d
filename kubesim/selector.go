// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// selector is a label and field selector, with what an index can use of it
// taken out.
type selector struct {
	namespace string   // "": all
	among     []string // namespaces, when there are several
	name      string   // the one metadata.name it demands, "": none
	labelKey  string   // a label every match carries, "": none
	labels    labels.Selector
	fields    fields.Requirements
}

func newSelector(k *kind, namespace string, l labels.Selector, f fields.Selector) (*selector, error) {
	s := &selector{namespace: namespace}
	if l != nil && !l.Empty() {
		s.labels = l
		requirements, selectable := l.Requirements()
		if !selectable {
			s.labelKey = "\x00nothing"
		}
		for _, r := range requirements {
			switch r.Operator() {
			case selection.Exists, selection.Equals, selection.DoubleEquals, selection.In:
				s.labelKey = r.Key()
			}
		}
	}
	if f == nil {
		return s, nil
	}
	for _, r := range f.Requirements() {
		equals := r.Operator == selection.Equals || r.Operator == selection.DoubleEquals
		switch {
		case r.Field == "metadata.name" && equals:
			s.name = r.Value
		case r.Field == "metadata.namespace" && equals && k.namespaced:
			s.namespace = r.Value
		case r.Field == "metadata.name", r.Field == "metadata.namespace", k.selectable[r.Field] != nil:
		default:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
		}
		s.fields = append(s.fields, r)
	}
	return s, nil
}

func (s *selector) all() bool {
	return s.labels == nil && s.fields == nil && s.namespace == "" && s.among == nil
}

func (s *selector) matches(k *kind, o client.Object) bool {
	m := metaOf(o)
	if s.namespace != "" && m.Namespace != s.namespace || s.among != nil && !slices.Contains(s.among, m.Namespace) {
		return false
	}
	if s.labels != nil && !s.labels.Matches(labels.Set(m.Labels)) {
		return false
	}
	for _, r := range s.fields {
		if (k.fieldOf(r.Field, o) == r.Value) == (r.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}

func (k *kind) fieldOf(field string, o client.Object) string {
	switch field {
	case "metadata.name":
		return o.GetName()
	case "metadata.namespace":
		return o.GetNamespace()
	}
	return k.selectable[field](reflect.ValueOf(o).Elem())
}
