// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/adit-hv/adit/sim"
)

// guard watches a reconciler: its panics, and requests that spin.
type guard struct {
	l          *life
	controller string
	inner      reconcile.Reconciler
	rates      map[reconcile.Request]*rate
	swept      time.Duration
}

type rate struct {
	second time.Duration
	times  int
}

// Reconcile reports a panic and then does as controller-runtime: it becomes an
// error. A goroutine that is killed passes unseen, as nothing is recovered.
func (g *guard) Reconcile(ctx context.Context, r reconcile.Request) (result reconcile.Result, err error) {
	g.clock(r)
	defer func() {
		if v := recover(); v != nil {
			g.report(r, v)
			err = fmt.Errorf("panic: %v [recovered]", v)
		}
	}()
	return g.inner.Reconcile(ctx, r)
}

func (g *guard) report(r reconcile.Request, v any) {
	c := g.l.c
	if !g.l.alive {
		return
	}
	c.s.Note(sim.Note{Host: g.l.p.options.Host, Component: g.l.p.name + "/" + g.controller, What: "panic", Object: r.String()})
	if c.OnPanic != nil {
		c.OnPanic(Panic{Process: g.l.p.name, Controller: g.controller, Request: r.String(), Value: v, Stack: string(debug.Stack()), At: c.s.Elapsed()})
	}
}

// clock counts reconciles of a request within the same second.
func (g *guard) clock(r reconcile.Request) {
	c := g.l.c
	second := c.s.Elapsed().Truncate(time.Second)
	if g.rates == nil || second-g.swept >= time.Minute { // forget the quiet ones
		g.rates, g.swept = map[reconcile.Request]*rate{}, second
	}
	n := g.rates[r]
	if n == nil {
		n = &rate{}
		g.rates[r] = n
	}
	if n.second != second {
		n.second, n.times = second, 0
	}
	if n.times++; n.times == c.o.HotLoop+1 && c.OnHotLoop != nil {
		c.OnHotLoop(HotLoop{Process: g.l.p.name, Controller: g.controller, Request: r.String(), Times: n.times, At: c.s.Elapsed()})
	}
}

// runContext is a plain runnable's. Waiting on its end must give the baton
// back, so asking for Done is where the runnable waits: a process ends only by
// being killed. The context package itself asks when contexts are derived, and
// gets the channel.
type runContext struct {
	context.Context
	t *sim.Task
}

func (r *runContext) Done() <-chan struct{} {
	var caller [1]uintptr
	runtime.Callers(2, caller[:])
	frame, _ := runtime.CallersFrames(caller[:]).Next()
	if !strings.HasPrefix(frame.Function, "context.") && !r.t.Killed() {
		r.t.Park()
	}
	return r.Context.Done()
}
