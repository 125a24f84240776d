// SPDX-License-Identifier: Apache-2.0

package live

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/internal/wiring"
)

// paced is controller-runtime's manager, with controllers whose waits pass as
// fast as the world's time does.
type paced struct {
	manager.Manager
	speed float64
}

var (
	_ wiring.Runtime = paced{}
	_ wiring.Paced   = paced{}
)

// ControllerOptions implements wiring.Runtime.
func (p paced) ControllerOptions(workers int) controller.Options {
	yes := true
	return controller.Options{
		SkipNameValidation: &yes, // Many processes live in this one.
		UsePriorityQueue:   &yes, MaxConcurrentReconciles: workers,
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[wiring.Request]) workqueue.TypedRateLimitingInterface[wiring.Request] {
			return queue{priorityqueue.New(name, func(o *priorityqueue.Opts[wiring.Request]) {
				o.RateLimiter = pacedLimiter{limiter, p.speed}
			}), p.speed}
		},
	}
}

// Wait implements wiring.Paced.
func (p paced) Wait(d time.Duration) time.Duration { return faster(d, p.speed) }

// faster is a wait of the world in time of the wall clock.
func faster(d time.Duration, speed float64) time.Duration {
	return time.Duration(float64(d) / speed)
}

type queue struct {
	priorityqueue.PriorityQueue[wiring.Request]
	speed float64
}

func (q queue) AddAfter(item wiring.Request, d time.Duration) {
	q.PriorityQueue.AddAfter(item, faster(d, q.speed))
}

func (q queue) AddWithOpts(o priorityqueue.AddOpts, items ...wiring.Request) {
	o.After = faster(o.After, q.speed)
	q.PriorityQueue.AddWithOpts(o, items...)
}

type pacedLimiter struct {
	workqueue.TypedRateLimiter[wiring.Request]
	speed float64
}

func (l pacedLimiter) When(item wiring.Request) time.Duration {
	return faster(l.TypedRateLimiter.When(item), l.speed)
}
