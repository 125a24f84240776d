// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/adit-hv/adit/internal/wiring"
)

// loop is a controller of nothing in the API: it runs when it is woken and when
// it has said that it wants to. Its requests are names.
type loop struct {
	name    string
	workers int
	starts  bool // it runs at the start, and not only when woken

	// do does one round. It says when it wants the next; 0 is when woken.
	do func(ctx context.Context, what string) (again time.Duration)

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[wiring.Request]
	life  context.Context // ends with the controller
}

// round is the request of a loop that has only one.
const round = "round"

func (l *loop) add(mgr manager.Manager) error {
	begin := source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[wiring.Request]) error {
		l.mu.Lock()
		l.queue, l.life = queue, ctx
		l.mu.Unlock()
		if l.starts {
			l.wake(round, 0)
		}
		return nil
	})
	o := wiring.Options(mgr, l.workers)
	o.NeedLeaderElection = ptr.To(false) // each host's agent works for itself
	o.SkipNameValidation = ptr.To(true)  // a lab runs many hosts' agents in one program
	return ctrl.NewControllerManagedBy(mgr).Named("ha-" + l.name).WatchesRawSource(begin).WithOptions(o).Complete(l)
}

// Reconcile does one round.
func (l *loop) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{RequeueAfter: l.do(ctx, r.Name)}, nil
}

// wake asks for a round in a while, at most. A loop that has not begun runs when
// it does.
func (l *loop) wake(what string, in time.Duration) {
	l.mu.Lock()
	queue := l.queue
	l.mu.Unlock()
	if queue == nil {
		return
	}
	r := wiring.Request{}
	r.Name = what
	if in > 0 {
		queue.AddAfter(r, in)
	} else {
		queue.Add(r)
	}
}

// lifetime is how long the loop runs.
func (l *loop) lifetime() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.life
}
