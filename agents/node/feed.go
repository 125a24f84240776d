// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/wiring"
)

type queue = workqueue.TypedRateLimitingInterface[wiring.Request]

// feed brings a host's events to one controller. The subscription may fail
// while the virtualisation daemon is down; the controller then tries again
// whenever it looks, so that an agent outlives a daemon that comes up late.
type feed struct {
	events hardware.Events

	// retry is asked for when subscribing at the start went wrong.
	retry wiring.Request

	// take is told each event on the caller's side: it takes note and returns.
	take func(hardware.Event, queue)

	mu         sync.Mutex
	ctx        context.Context // the source's, which ends the subscription
	queue      queue
	subscribed bool
}

// source returns what a controller watches.
func (f *feed) source() source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		f.mu.Lock()
		f.ctx, f.queue = ctx, q
		f.mu.Unlock()
		if err := f.subscribe(); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "No events yet")
			q.AddAfter(f.retry, unavailableIn)
		}
		return nil
	})
}

// subscribe does nothing when that has been done.
func (f *feed) subscribe() error {
	f.mu.Lock()
	ctx, q := f.ctx, f.queue
	try := !f.subscribed && q != nil
	f.subscribed = f.subscribed || try
	f.mu.Unlock()
	if !try {
		return nil
	}
	err := f.events.Subscribe(ctx, func(e hardware.Event) { f.take(e, q) })
	if err != nil {
		f.mu.Lock()
		f.subscribed = false
		f.mu.Unlock()
	}
	return err
}

// add asks the controller to reconcile a request.
func (f *feed) add(r wiring.Request) {
	f.mu.Lock()
	q := f.queue
	f.mu.Unlock()
	if q != nil {
		q.Add(r)
	}
}
