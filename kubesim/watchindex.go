// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"cmp"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watcher receives the changes its selector concerns.
type watcher struct {
	seq int // order among the watchers of one change
	sel *selector
	// deliver is called at the commit, for an object that matches now (new),
	// did before (old), or both.
	deliver func(ch change, was, is bool)
}

// watchIndex finds a change's watchers without asking each: of two thousand
// agents, a VM concerns one or two.
type watchIndex struct {
	next    int
	all     []*watcher
	byName  map[string][]*watcher
	byLabel map[string][]*watcher
}

func newWatchIndex() watchIndex {
	return watchIndex{byName: map[string][]*watcher{}, byLabel: map[string][]*watcher{}}
}

func (x *watchIndex) add(w *watcher) {
	x.next++
	w.seq = x.next
	switch {
	case w.sel.name != "":
		x.byName[w.sel.name] = append(x.byName[w.sel.name], w)
	case w.sel.labelKey != "":
		x.byLabel[w.sel.labelKey] = append(x.byLabel[w.sel.labelKey], w)
	default:
		x.all = append(x.all, w)
	}
}

func (x *watchIndex) remove(w *watcher) {
	is := func(o *watcher) bool { return o == w }
	switch {
	case w.sel.name != "":
		x.byName[w.sel.name] = slices.DeleteFunc(x.byName[w.sel.name], is)
	case w.sel.labelKey != "":
		x.byLabel[w.sel.labelKey] = slices.DeleteFunc(x.byLabel[w.sel.labelKey], is)
	default:
		x.all = slices.DeleteFunc(x.all, is)
	}
}

func (k *kind) fanOut(ch change) {
	x := &k.watches
	candidates := slices.Clone(x.all)
	one := ch.new
	if one == nil {
		one = ch.old
	}
	candidates = append(candidates, x.byName[one.GetName()]...)
	if len(x.byLabel) > 0 {
		for _, o := range []client.Object{ch.new, ch.old} {
			if o == nil {
				continue
			}
			for label := range metaOf(o).Labels {
				candidates = append(candidates, x.byLabel[label]...)
			}
		}
		slices.SortFunc(candidates, func(a, b *watcher) int { return cmp.Compare(a.seq, b.seq) })
		candidates = slices.Compact(candidates)
	}
	for _, w := range candidates {
		was := ch.old != nil && w.sel.matches(k, ch.old)
		is := ch.new != nil && w.sel.matches(k, ch.new)
		if was || is {
			w.deliver(ch, was, is)
		}
	}
}
