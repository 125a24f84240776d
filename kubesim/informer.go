// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/sim"
)

// A reflector waits about this long before it connects again, doubled at each
// failure up to the limit (client-go tools/cache's backoff).
const (
	reconnectFirst = 800 * time.Millisecond
	reconnectLimit = 30 * time.Second
)

// informer is a process's view of one kind, some time behind the store. Its
// events come in the store's order; those of other kinds may overtake them.
type informer struct {
	l    *life
	k    *kind
	sel  *selector
	lane *sim.Lane

	transform toolscache.TransformFunc // nil: none

	mu       sync.Mutex // handlers are added outside the baton while starting
	handlers []*registration

	items   map[types.NamespacedName]client.Object
	indexes map[string]*fieldIndex
	rv      uint64 // of the last event delivered

	started, listed bool
	gates           bool // the workers wait for its first list
	connection      int  // grows with each cut, so that what was under way is lost
	watch           *watcher
	lostAt          time.Duration // when the connection broke, -1 while it stands
	frozen          int
	stuck           []func()
	failures        int
	readers         []*sim.Task // that wait for the first list
}

type registration struct {
	handler toolscache.ResourceEventHandler
	done    chan struct{}
}

func (r *registration) HasSynced() bool                          { return true }
func (r *registration) HasSyncedChecker() toolscache.DoneChecker { return r }
func (r *registration) Name() string                             { return "kubesim" }
func (r *registration) Done() <-chan struct{}                    { return r.done }

// start lists and watches. Handlers get their first events from the list.
func (inf *informer) start(gates bool) {
	if inf.started {
		return
	}
	inf.started, inf.gates = true, gates
	if gates {
		inf.l.unsynced++
	}
	inf.connect(0)
}

// connect opens the watch after a wait: from the last event, or by a list.
func (inf *informer) connect(wait time.Duration) {
	connection := inf.connection
	inf.l.after(wait, func() {
		c, p := inf.l.c, inf.l.p
		if connection != inf.connection {
			return
		}
		verb := "watch"
		if !inf.listed {
			verb = "list"
		}
		c.count(p.user(), verb, inf.k.gr.Resource, 0)
		hit := c.strike(p, verb, inf.k, "")
		inf.l.after(c.o.Latency(inf.l.random)+hit.delay, func() {
			if connection != inf.connection {
				return
			}
			if hit.err != nil || p.partitioned || c.watchesBlocked(p, inf.k) {
				inf.failures++
				inf.connect(min(reconnectLimit, reconnectFirst<<min(inf.failures, 6)))
				return
			}
			inf.failures = 0
			if !inf.resume() {
				inf.list()
			}
		})
	})
}

// resume watches on from the last event, if the window still holds it.
func (inf *informer) resume() bool {
	if !inf.listed {
		return false
	}
	missed, ok := inf.k.past.since(inf.rv)
	if !ok {
		inf.l.p.note("watch expired", inf.k.gr.Resource)
		return false
	}
	inf.open()
	for _, ch := range missed {
		was := ch.old != nil && inf.sel.matches(inf.k, ch.old)
		is := ch.new != nil && inf.sel.matches(inf.k, ch.new)
		if was || is {
			inf.receive(ch, is)
		}
	}
	return true
}

// list replaces all that is known by what the store holds now.
func (inf *informer) list() {
	c := inf.l.c
	if inf.listed { // a relist after an expired watch
		c.count(inf.l.p.user(), "list", inf.k.gr.Resource, 0)
	}
	initial := !inf.listed
	objects := inf.k.selected(inf.sel)
	inf.open()
	at := c.rv
	inf.lane.After(0, inf.guarded(func() {
		gone := maps.Clone(inf.items)
		for _, st := range objects {
			delete(gone, client.ObjectKeyFromObject(st.obj))
			inf.put(st.obj, initial)
		}
		for _, key := range slices.SortedFunc(maps.Keys(gone), compareKeys) {
			inf.drop(key, true)
		}
		inf.rv = max(inf.rv, at)
		inf.nowListed()
	}))
}

func (inf *informer) nowListed() {
	if inf.listed {
		return
	}
	inf.listed = true
	if inf.gates {
		inf.l.synced()
	}
	for _, t := range inf.readers {
		inf.l.after(0, t.Resume)
	}
	inf.readers = nil
}

func (inf *informer) open() {
	inf.lostAt = -1
	if c := inf.l.c; c.freezes(inf.l.p, inf.k) {
		inf.frozen, inf.lostAt = 1, c.s.Elapsed()
	}
	inf.watch = &watcher{sel: inf.sel, deliver: func(ch change, _, is bool) { inf.receive(ch, is) }}
	inf.k.watches.add(inf.watch)
}

// receive takes an event off the wire; the cache has it after some lag.
func (inf *informer) receive(ch change, is bool) {
	inf.lane.After(inf.l.c.o.CacheLag(inf.l.random), inf.guarded(func() {
		inf.l.c.totals.Watched++
		inf.rv = ch.rv
		switch {
		case is:
			inf.put(ch.new, false)
		case ch.new != nil:
			inf.drop(client.ObjectKeyFromObject(ch.new), false)
		default:
			inf.drop(client.ObjectKeyFromObject(ch.old), false)
		}
	}))
}

// guarded drops fn when the connection it came by is cut, and holds it while
// the process stands or the stream is frozen.
func (inf *informer) guarded(fn func()) func() {
	connection := inf.connection
	var run func()
	run = func() {
		switch {
		case connection != inf.connection:
		case inf.frozen > 0 || len(inf.stuck) > 0: // behind those that came before
			inf.stuck = append(inf.stuck, run)
		default:
			fn()
		}
	}
	return func() { inf.l.do(run) }
}

// disconnect ends the watch. A reader sees what was known then.
func (inf *informer) disconnect() {
	if inf.watch != nil {
		inf.k.watches.remove(inf.watch)
		inf.watch = nil
	}
	if inf.lostAt < 0 {
		inf.lostAt = inf.l.c.s.Elapsed()
	}
	inf.connection++
	inf.stuck, inf.frozen = nil, 0
}

// cut breaks the connection; it comes back after a back-off. An expired one
// comes back with a list.
func (inf *informer) cut(expire bool) {
	if !inf.started {
		return
	}
	inf.disconnect()
	if expire {
		inf.rv = 0
		inf.k.past.compacted = max(inf.k.past.compacted, 1)
	}
	inf.connect(reconnectFirst + time.Duration(inf.l.random.Int64N(int64(reconnectFirst))))
}

func (inf *informer) thaw() {
	inf.frozen = 0
	if inf.watch != nil {
		inf.lostAt = -1
	}
	if len(inf.stuck) > 0 {
		inf.lane.After(0, func() { inf.l.do(inf.drain) })
	}
}

// drain takes in what was stuck, in its order.
func (inf *informer) drain() {
	if inf.frozen > 0 {
		return // again, and the next thaw drains
	}
	stuck := inf.stuck
	inf.stuck = nil
	for _, run := range stuck {
		run()
	}
}

func (inf *informer) put(o client.Object, initial bool) {
	key := client.ObjectKeyFromObject(o)
	was := inf.items[key]
	if was != nil && was.GetResourceVersion() == o.GetResourceVersion() {
		return // a relist's news that is none
	}
	if inf.transform != nil {
		if other, err := inf.transform(o); err == nil { // as client-go, which then takes it as it is
			o = other.(client.Object)
		}
	}
	inf.items[key] = o
	for _, x := range inf.indexes {
		x.move(key, was, o)
	}
	for _, r := range inf.handlers {
		if was == nil {
			r.handler.OnAdd(o, initial)
		} else {
			r.handler.OnUpdate(was, o)
		}
	}
}

func (inf *informer) drop(key types.NamespacedName, unseen bool) {
	was := inf.items[key]
	if was == nil {
		return
	}
	delete(inf.items, key)
	for _, x := range inf.indexes {
		x.move(key, was, nil)
	}
	var gone any = was
	if unseen {
		gone = toolscache.DeletedFinalStateUnknown{Key: key.String(), Obj: was}
	}
	for _, r := range inf.handlers {
		r.handler.OnDelete(gone)
	}
}

// view is an object as the cache shows it: a lease that beats is as fresh as
// the connection.
func (inf *informer) view(o client.Object) client.Object {
	if _, lease := o.(*coordinationv1.Lease); !lease {
		return o
	}
	st := inf.k.objects[client.ObjectKeyFromObject(o)]
	if st == nil || st.beat == nil || st.obj.GetUID() != o.GetUID() {
		return o
	}
	at := inf.l.c.s.Elapsed()
	if inf.lostAt >= 0 {
		at = inf.lostAt
	}
	return inf.l.c.seen(&stored{obj: o, beat: st.beat}, at)
}

func (inf *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return inf.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

func (inf *informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, _ time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return inf.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithOptions adds a handler. One that comes late is told of
// what is known already, in an event of its own: the caller is a goroutine of a
// starting controller, and the handler may read what has to be waited for.
func (inf *informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	r := &registration{handler: h, done: make(chan struct{})}
	close(r.done)
	if !inf.listed {
		inf.handlers = append(inf.handlers, r)
		return r, nil
	}
	inf.lane.After(0, func() {
		inf.l.do(func() {
			inf.handlers = append(inf.handlers, r)
			for _, key := range slices.SortedFunc(maps.Keys(inf.items), compareKeys) {
				h.OnAdd(inf.items[key], true)
			}
		})
	})
	return r, nil
}

func (inf *informer) RemoveEventHandler(r toolscache.ResourceEventHandlerRegistration) error {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.handlers = slices.DeleteFunc(inf.handlers, func(x *registration) bool { return toolscache.ResourceEventHandlerRegistration(x) == r })
	return nil
}

func (inf *informer) AddIndexers(toolscache.Indexers) error {
	return errors.New("kubesim: index fields with IndexField")
}

// HasSynced says yes at once: the workers are held back instead until the
// first list is in.
func (inf *informer) HasSynced() bool                          { return true }
func (inf *informer) HasSyncedChecker() toolscache.DoneChecker { return closedChecker() }
func (inf *informer) IsStopped() bool                          { return !inf.l.alive }

func closedChecker() toolscache.DoneChecker {
	r := &registration{done: make(chan struct{})}
	close(r.done)
	return r
}

var _ cache.Informer = (*informer)(nil)
