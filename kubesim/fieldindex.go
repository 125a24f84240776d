// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldIndex finds objects by the values a function takes from them.
type fieldIndex struct {
	of     client.IndexerFunc
	values map[string]map[types.NamespacedName]client.Object
}

func (x *fieldIndex) move(key types.NamespacedName, was, is client.Object) {
	var before, after []string
	if was != nil {
		before = x.of(was)
	}
	if is != nil {
		after = x.of(is)
	}
	for _, v := range before {
		if slices.Contains(after, v) {
			continue // as nearly always: the new version takes its place below
		}
		delete(x.values[v], key)
		if len(x.values[v]) == 0 {
			delete(x.values, v)
		}
	}
	for _, v := range after {
		if x.values[v] == nil {
			x.values[v] = map[types.NamespacedName]client.Object{}
		}
		x.values[v][key] = is
	}
}
