// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"container/heap"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/adit-hv/adit/sim"
)

// dispatchCost is the time between a request being ready and a worker taking
// it: a goroutine's wake-up.
const dispatchCost = 50 * time.Microsecond

// queue is controller-runtime's priority queue in virtual time: it removes
// duplicates, keeps the highest priority and the earliest time asked for, and
// gives equal priorities first in, first out.
type queue struct {
	l       *life
	name    string // process/controller
	limiter workqueue.TypedRateLimiter[reconcile.Request]
	workers int
	booted  chan struct{} // closed when all workers have asked for work

	boot sync.Mutex // the workers' first Get runs outside the baton
	idle []*worker
	of   map[*sim.Task]*worker

	items  map[reconcile.Request]*item
	ready  readyHeap
	busy   map[reconcile.Request]bool
	seq    uint64
	kicked bool
	down   bool
}

type worker struct {
	task     *sim.Task
	request  reconcile.Request
	priority int
}

type item struct {
	request  reconcile.Request
	priority int
	seq      uint64
	at       time.Duration
	ready    bool
	index    int // in the ready heap, -1 while not in it
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = (*queue)(nil)

func newQueue(l *life, name string, workers int, limiter workqueue.TypedRateLimiter[reconcile.Request], booted chan struct{}) *queue {
	return &queue{l: l, name: name, limiter: limiter, workers: workers, booted: booted,
		of: map[*sim.Task]*worker{}, items: map[reconcile.Request]*item{}, busy: map[reconcile.Request]bool{}}
}

// AddWithOpts adds requests; see priorityqueue.AddOpts.
func (q *queue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	if q.dead() {
		return
	}
	priority := 0
	if o.Priority != nil {
		priority = *o.Priority
	}
	for _, r := range requests {
		after := o.After
		if o.RateLimited {
			if limit := q.limiter.When(r); after <= 0 || limit < after {
				after = limit
			}
		}
		q.add(r, priority, after)
	}
}

func (q *queue) add(r reconcile.Request, priority int, after time.Duration) {
	at := q.l.c.s.Elapsed() + max(0, after)
	it := q.items[r]
	if it == nil {
		q.seq++
		it = &item{request: r, priority: priority, seq: q.seq, at: at, index: -1}
		q.items[r] = it
	} else {
		if priority > it.priority {
			q.seq++
			it.priority, it.seq = priority, q.seq
			if it.index >= 0 {
				heap.Fix(&q.ready, it.index)
			}
		}
		if it.ready || at >= it.at {
			return
		}
		it.at = at
	}
	if after <= 0 {
		q.makeReady(it)
		return
	}
	q.l.after(after, func() {
		// An earlier time may have been asked for since, or it has run.
		if q.items[r] == it && !it.ready && it.at == at {
			q.makeReady(it)
		}
	})
}

func (q *queue) makeReady(it *item) {
	q.seq++
	it.ready, it.seq = true, q.seq
	if !q.busy[it.request] {
		heap.Push(&q.ready, it)
		q.kick()
	}
}

func (q *queue) kick() {
	if q.kicked || len(q.idle) == 0 || len(q.ready) == 0 || q.l.unsynced > 0 {
		return
	}
	q.kicked = true
	q.l.after(dispatchCost, q.dispatch)
}

// dispatch hands the most urgent request to an idle worker.
func (q *queue) dispatch() {
	q.kicked = false
	if len(q.idle) == 0 || len(q.ready) == 0 || q.l.unsynced > 0 {
		return
	}
	it := heap.Pop(&q.ready).(*item)
	delete(q.items, it.request)
	w := q.idle[0]
	q.idle = append(q.idle[:0], q.idle[1:]...)
	q.busy[it.request] = true
	w.request, w.priority = it.request, it.priority
	q.kick()
	q.l.c.totals.Reconcile++
	name := it.request.Name
	if it.request.Namespace != "" {
		name = it.request.Namespace + "/" + name
	}
	q.l.c.s.Note(sim.Note{Host: q.l.p.options.Host, Component: q.name, What: "reconcile", Object: name})
	w.task.Resume()
}

// GetWithPriority waits for a request. It never reports a shutdown: the
// workers of a dead process are killed.
func (q *queue) GetWithPriority() (reconcile.Request, int, bool) {
	if w := q.adopt(); w != nil {
		w.task.Join()
		return w.request, w.priority, false
	}
	w := q.of[q.l.c.s.Current()]
	q.idle = append(q.idle, w)
	q.kick()
	w.task.Park()
	return w.request, w.priority, false
}

// adopt makes a worker of the calling goroutine, until there are enough.
func (q *queue) adopt() *worker {
	q.boot.Lock()
	defer q.boot.Unlock()
	if len(q.of) == q.workers {
		return nil
	}
	w := &worker{task: q.l.c.s.Adopt()}
	q.of[w.task] = w
	q.idle = append(q.idle, w)
	if len(q.of) == q.workers {
		close(q.booted)
	}
	return w
}

// Done lets a request be handed out again.
func (q *queue) Done(r reconcile.Request) {
	if q.dead() {
		return
	}
	delete(q.busy, r)
	if it := q.items[r]; it != nil && it.ready && it.index < 0 {
		heap.Push(&q.ready, it)
		q.kick()
	}
}

// dead: the deferred calls of a dying worker change nothing.
func (q *queue) dead() bool { return q.down || !q.l.alive }

func (q *queue) Get() (reconcile.Request, bool) {
	r, _, down := q.GetWithPriority()
	return r, down
}

func (q *queue) Add(r reconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, r) }

func (q *queue) AddAfter(r reconcile.Request, d time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: d}, r)
}

func (q *queue) AddRateLimited(r reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, r)
}

func (q *queue) Forget(r reconcile.Request) {
	if !q.dead() {
		q.limiter.Forget(r)
	}
}

func (q *queue) NumRequeues(r reconcile.Request) int { return q.limiter.NumRequeues(r) }
func (q *queue) Len() int                            { return len(q.ready) }

// ShutDown is called by a goroutine of the controller when its context ends,
// which is after the process has died.
func (q *queue) ShutDown()          {}
func (q *queue) ShutDownWithDrain() {}
func (q *queue) ShuttingDown() bool { return q.dead() }

type readyHeap []*item

func (h readyHeap) Len() int { return len(h) }
func (h readyHeap) Less(i, j int) bool {
	if h[i].priority != h[j].priority {
		return h[i].priority > h[j].priority
	}
	return h[i].seq < h[j].seq
}
func (h readyHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *readyHeap) Push(x any) {
	it := x.(*item)
	it.index = len(*h)
	*h = append(*h, it)
}
func (h *readyHeap) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	it.index = -1
	return it
}
