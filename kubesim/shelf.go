// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stored is an object's present version. The object is never changed, only
// replaced: whoever holds it may keep it.
type stored struct {
	obj  client.Object
	rv   uint64
	name string         // "Kind namespace/name", for notes
	tree map[string]any // the object as JSON, in the full tier
	beat *beat          // a lease that is renewed without writes
	// writers so far. Only an object that was applied carries managedFields;
	// the others' few writers are kept here.
	writers []writer
}

// shelf holds the objects of a kind, found by name and by label key.
type shelf struct {
	objects map[types.NamespacedName]*stored
	byLabel map[string]map[types.NamespacedName]*stored
	sorted  []types.NamespacedName // valid up to the pending ones
	pending []types.NamespacedName
	gone    int // sorted names that are deleted
}

func newShelf() shelf {
	return shelf{objects: map[types.NamespacedName]*stored{}, byLabel: map[string]map[types.NamespacedName]*stored{}}
}

func (s *shelf) put(key types.NamespacedName, old, n *stored) {
	if old == nil {
		s.pending = append(s.pending, key)
	}
	s.objects[key] = n
	after := metaOf(n.obj).Labels
	if old != nil {
		s.dropLabels(key, metaOf(old.obj).Labels, after)
	}
	for label := range after {
		shelf := s.byLabel[label]
		if shelf == nil {
			shelf = map[types.NamespacedName]*stored{}
			s.byLabel[label] = shelf
		}
		shelf[key] = n
	}
}

func (s *shelf) remove(key types.NamespacedName, old *stored) {
	delete(s.objects, key)
	s.gone++
	s.dropLabels(key, metaOf(old.obj).Labels, nil)
}

func (s *shelf) dropLabels(key types.NamespacedName, before, after map[string]string) {
	for label := range before {
		if _, kept := after[label]; kept {
			continue
		}
		if shelf := s.byLabel[label]; len(shelf) == 1 {
			delete(s.byLabel, label)
		} else {
			delete(shelf, key)
		}
	}
}

func compareKeys(a, b types.NamespacedName) int {
	if a.Namespace != b.Namespace {
		return cmp.Compare(a.Namespace, b.Namespace)
	}
	return cmp.Compare(a.Name, b.Name)
}

// keys returns all names in order. A burst of creations sorts once.
func (s *shelf) keys() []types.NamespacedName {
	if len(s.pending) == 0 && s.gone == 0 {
		return s.sorted
	}
	slices.SortFunc(s.pending, compareKeys)
	merged := make([]types.NamespacedName, 0, len(s.objects))
	a, b := s.sorted, s.pending
	for len(a)+len(b) > 0 {
		var next types.NamespacedName
		if len(b) == 0 || len(a) > 0 && compareKeys(a[0], b[0]) <= 0 {
			next, a = a[0], a[1:]
		} else {
			next, b = b[0], b[1:]
		}
		// A name that was deleted and created again stands in both.
		if s.objects[next] != nil && (len(merged) == 0 || merged[len(merged)-1] != next) {
			merged = append(merged, next)
		}
	}
	s.sorted, s.pending, s.gone = merged, nil, 0
	return merged
}

// selected returns the objects a selector matches, in order, looking only
// where the selector allows.
func (k *kind) selected(sel *selector) []*stored {
	var out []*stored
	if sel.name != "" && (sel.namespace != "" || !k.namespaced) {
		if st := k.objects[types.NamespacedName{Namespace: sel.namespace, Name: sel.name}]; st != nil && sel.matches(k, st.obj) {
			out = append(out, st)
		}
		return out
	}
	if sel.labelKey != "" {
		shelf := k.byLabel[sel.labelKey]
		keys := make([]types.NamespacedName, 0, len(shelf))
		for key, st := range shelf {
			if sel.matches(k, st.obj) {
				keys = append(keys, key)
			}
		}
		slices.SortFunc(keys, compareKeys)
		for _, key := range keys {
			out = append(out, shelf[key])
		}
		return out
	}
	keys := k.keys()
	if sel.namespace != "" {
		from := sort.Search(len(keys), func(i int) bool { return keys[i].Namespace >= sel.namespace })
		to := sort.Search(len(keys), func(i int) bool { return keys[i].Namespace > sel.namespace })
		keys = keys[from:to]
	}
	for _, key := range keys {
		if st := k.objects[key]; sel.all() || sel.matches(k, st.obj) {
			out = append(out, st)
		}
	}
	return out
}

// change is one event of a kind's past.
type change struct {
	rv       uint64
	at       time.Duration
	old, new client.Object
}

// history is the window a watch can be resumed over.
type history struct {
	limit     int
	changes   []change // oldest first
	compacted uint64   // the newest version that is gone
}

func (h *history) add(ch change) {
	h.changes = append(h.changes, ch)
	// Twice the window is kept before it is cut, so that cutting costs
	// nothing on average.
	if len(h.changes) >= 2*h.limit {
		h.cut(len(h.changes) - h.limit)
	}
}

func (h *history) cut(n int) {
	if n == 0 {
		return
	}
	h.compacted = h.changes[n-1].rv
	h.changes = slices.Clone(h.changes[n:])
}

// since returns the changes after a version, or false when some are gone.
func (h *history) since(rv uint64) ([]change, bool) {
	if rv < h.compacted {
		return nil, false
	}
	i := sort.Search(len(h.changes), func(i int) bool { return h.changes[i].rv > rv })
	return h.changes[i:], true
}
