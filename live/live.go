// SPDX-License-Identifier: Apache-2.0

// Package live puts a testbed's world on a real Kubernetes API server and the
// wall clock: the same operator, HA service and agents, under controller-runtime's
// own manager, drive the same simulated hosts.
//
// It owns the pace at which the simulated hosts follow the wall clock, the
// processes as managers of their own, and what stands between a process and the
// rest of the world, by which it is cut off, frozen or killed. It must never know
// what the programs do, nor what a scenario demands.
package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/wiring"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/sim"
	"github.com/adit-hv/adit/testbed"
)

// Options say where a world lives.
type Options struct {
	// Config reaches an API server in which nothing of Adit's is in use.
	Config *rest.Config

	// Speed is how much faster than the wall clock the world's time passes. The
	// clocks of all programs, their waits and the dates of what they read follow
	// it; the API server does not.
	Speed float64
}

// Runtime is a testbed.Runtime for one world.
type Runtime struct {
	ctx     context.Context
	o       Options
	pace    *pace
	epoch   time.Time
	cluster *cluster
}

var _ testbed.Runtime = (*Runtime)(nil)

// New returns a runtime. Its world ends early when ctx does.
func New(ctx context.Context, o Options) (*Runtime, error) {
	if o.Speed <= 0 {
		return nil, fmt.Errorf("speed %v: time has to pass; 1 is the wall clock's", o.Speed)
	}
	r := &Runtime{ctx: ctx, o: o, epoch: time.Now().Truncate(time.Second)}
	r.pace = newPace(o.Speed)
	return r, nil
}

// Epoch implements testbed.Runtime.
func (r *Runtime) Epoch() time.Time { return r.epoch }

// Cluster implements testbed.Runtime.
func (r *Runtime) Cluster(s *sim.Scheduler, o kubesim.Options) (testbed.Cluster, error) {
	r.pace.s = s
	var err error
	if r.cluster, err = newCluster(r, o); err != nil {
		return nil, err
	}
	return r.cluster, nil
}

// Run implements testbed.Runtime.
func (r *Runtime) Run(_ *sim.Scheduler, until time.Duration) { r.pace.run(r.ctx, until) }

// Do calls fn between two events of the world, from any goroutine. It does not
// when the world is over.
func (r *Runtime) Do(fn func()) { r.pace.do(fn) }

// Clock implements testbed.Runtime.
func (r *Runtime) Clock(c clock.PassiveClock) clock.PassiveClock {
	return wallClock{r.pace.follow(c, func() time.Duration { return c.Now().Sub(r.epoch) }), r.epoch}
}

// Steady implements testbed.Runtime.
func (r *Runtime) Steady(s wiring.Steady) wiring.Steady {
	return steady{r.pace.follow(steadyKey{s}, s.Elapsed)}
}

// Hardware implements testbed.Runtime.
func (r *Runtime) Hardware(p testbed.Process, h hardware.Host) hardware.Host {
	return &host{r.callerOf(p), h}
}

// Caller implements testbed.Runtime.
func (r *Runtime) Caller(p testbed.Process) func(fn func()) { return r.callerOf(p).call }

func (r *Runtime) callerOf(p testbed.Process) caller {
	return caller{r.pace, p.(*process).life.gate}
}

// Over implements testbed.Runtime.
func (r *Runtime) Over() bool { return r.ctx.Err() != nil }

// Refused implements testbed.Runtime.
func (r *Runtime) Refused() []string {
	r.cluster.counts.mu.Lock()
	defer r.cluster.counts.mu.Unlock()
	return slices.Clone(r.cluster.counts.refused)
}

// Unseen implements testbed.Runtime: who wrote which field, and how often a
// controller runs, only the simulated API sees. A panic is the end of us all.
func (r *Runtime) Unseen() []string {
	return []string{testbed.RuleOwner, testbed.RuleHotLoop, testbed.RuleNoPanic}
}

// worldTime is a date of the API server, which has it from the wall clock, in the
// world's time.
func (r *Runtime) worldTime(wall time.Time) time.Time {
	return r.epoch.Add(r.pace.at(wall)).Truncate(time.Second)
}
