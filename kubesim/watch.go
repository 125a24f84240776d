// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"errors"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// watchBuffer is how far behind a watcher may read before it is dropped.
	watchBuffer = 1 << 16
	// bookmarkEvery is the API server's period (apiserver storage/cacher).
	bookmarkEvery = time.Minute
)

// Watch streams changes into a buffered channel, for an outside actor. It
// begins with what is there, or after options.Raw.ResourceVersion.
func (a *apiClient) Watch(_ context.Context, into client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	if a.l != nil {
		return nil, errors.New("kubesim: a process watches through its cache")
	}
	k, err := a.c.kindOfObject(into)
	if err != nil {
		return nil, err
	}
	o := (&client.ListOptions{}).ApplyOptions(opts)
	sel, err := newSelector(k, o.Namespace, o.LabelSelector, o.FieldSelector)
	if err != nil {
		return nil, err
	}
	a.c.count(a.by.by, "watch", k.gr.Resource, 0)
	w := &stream{c: a.c, k: k, events: make(chan watch.Event, watchBuffer)}
	raw := metav1.ListOptions{}
	if o.Raw != nil {
		raw = *o.Raw
	}
	var missed []change
	switch raw.ResourceVersion {
	case "", "0":
		for _, st := range k.selected(sel) {
			w.send(watch.Added, a.c.seen(st, a.c.s.Elapsed()))
		}
	default:
		rv, err := strconv.ParseUint(raw.ResourceVersion, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest("invalid resource version: " + raw.ResourceVersion)
		}
		var ok bool
		if missed, ok = k.past.since(rv); !ok {
			return nil, apierrors.NewResourceExpired("too old resource version: " + raw.ResourceVersion)
		}
	}
	for _, ch := range missed {
		was := ch.old != nil && sel.matches(k, ch.old)
		is := ch.new != nil && sel.matches(k, ch.new)
		if was || is {
			w.change(ch, was, is)
		}
	}
	w.watcher = &watcher{sel: sel, deliver: w.change}
	k.watches.add(w.watcher)
	if raw.AllowWatchBookmarks {
		if raw.SendInitialEvents != nil && *raw.SendInitialEvents {
			w.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
		a.c.s.After(bookmarkEvery, w.bookmarks)
	}
	return w, nil
}

// stream is an outside watch.
type stream struct {
	c       *Cluster
	k       *kind
	watcher *watcher
	events  chan watch.Event
	stopped bool
}

func (w *stream) ResultChan() <-chan watch.Event { return w.events }

func (w *stream) Stop() {
	if !w.stopped {
		w.stopped = true
		if w.watcher != nil {
			w.k.watches.remove(w.watcher)
		}
		close(w.events)
	}
}

func (w *stream) change(ch change, was, is bool) {
	switch {
	case was && is:
		w.send(watch.Modified, ch.new)
	case is:
		w.send(watch.Added, ch.new)
	default:
		// An object that went, or left the selection, is shown as it last
		// matched, at the version of its leaving.
		gone := w.k.shallow(ch.old)
		metaOf(gone).ResourceVersion = strconv.FormatUint(ch.rv, 10)
		w.send(watch.Deleted, gone)
	}
}

func (w *stream) send(kind watch.EventType, o client.Object) {
	if w.stopped {
		return
	}
	if len(w.events) == cap(w.events) {
		w.Stop()
		return
	}
	w.events <- watch.Event{Type: kind, Object: o.DeepCopyObject()}
}

func (w *stream) bookmark(annotations map[string]string) {
	o := w.k.new()
	o.SetResourceVersion(strconv.FormatUint(w.c.rv, 10))
	o.SetAnnotations(annotations)
	w.send(watch.Bookmark, o)
}

func (w *stream) bookmarks() {
	if !w.stopped {
		w.bookmark(nil)
		w.c.s.After(bookmarkEvery, w.bookmarks)
	}
}
