// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/sim"
)

// ProcessOptions describe a process. All are optional.
type ProcessOptions struct {
	User string // of its requests and their field manager; default: the process's name
	Role string // class of field owners, as in "agents/node"
	Host string // that it runs on, for the trace

	// ByObject narrows the process's cache by label and field selectors, and by
	// transforms, which must leave what they are given as it is: others have it
	// too.
	ByObject map[client.Object]cache.ByObject
	// Clock is the wall clock of the machine it runs on; nil is virtual time.
	Clock clock.PassiveClock
	// QPS and Burst limit the client, as rest.Config's do. 0: no limit.
	QPS   float32
	Burst int
	// LeaderElection names the Lease (namespace/name, or a name in
	// kube-system) that replicas elect by. "": no election.
	LeaderElection string
	// OnExit is told when the process ends by itself: setup's error, a lost
	// lease, a runnable's error, a crash at one of its calls. RestartAfter,
	// when set, starts it again.
	OnExit       func(p *Process, why error)
	RestartAfter time.Duration
}

// Moment is a side of an API call.
type Moment int

const (
	Before Moment = iota // the call is not sent
	After                // the call took effect and nobody saw its answer
)

// Process is one operator replica or one host's agents.
type Process struct {
	c       *Cluster
	name    string
	options ProcessOptions
	setup   func(manager.Manager) error

	life        *life
	starts      int
	err         error
	partitioned bool
	calls       int
	crashAt     int // the crash point's number, 0: none
	crashWhen   Moment
}

// Process registers a process. It runs from Start on. Names are unique.
func (c *Cluster) Process(name string, o ProcessOptions, setup func(mgr manager.Manager) error) *Process {
	p := &Process{c: c, name: name, options: o, setup: setup}
	c.processes = append(c.processes, p)
	return p
}

// Name returns the process's name.
func (p *Process) Name() string { return p.name }

func (p *Process) user() string {
	if p.options.User != "" {
		return p.options.User
	}
	return p.name
}

func (p *Process) note(what, detail string) {
	p.c.s.Note(sim.Note{Host: p.options.Host, Component: p.name, What: what, Detail: detail})
}

// Clock is the process's wall clock, which may be wrong.
func (p *Process) Clock() clock.PassiveClock {
	if p.options.Clock != nil {
		return p.options.Clock
	}
	return p.c.s
}

// Start builds a new manager by setup and runs it. Starting a living process
// does nothing.
func (p *Process) Start() {
	if p.life != nil {
		return
	}
	p.starts++
	p.err = nil
	l := &life{p: p, c: p.c, alive: true, random: p.c.s.Rand("kubesim/process/" + p.name), tokens: float64(max(p.options.Burst, 1)), filled: p.c.s.Elapsed()}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.m = newManager(l)
	p.life = l
	p.note("start", "")
	l.start()
}

// Crash ends the process at once: nothing of it runs any more, not even its
// deferred calls have an effect.
func (p *Process) Crash() {
	if p.life != nil {
		p.life.end("crash")
	}
}

// Pause freezes the process (SIGSTOP, a stalled VM); Resume lets it go on.
func (p *Process) Pause() {
	if l := p.life; l != nil && !l.paused {
		l.paused = true
		for _, h := range l.beats {
			h.stop()
		}
		p.note("pause", "")
	}
}

// Resume lets a paused process go on with what has piled up.
func (p *Process) Resume() {
	l := p.life
	if l == nil || !l.paused {
		return
	}
	l.paused = false
	p.note("resume", "")
	held := l.held
	l.held = nil
	lane := p.c.s.Lane()
	for _, fn := range held {
		lane.After(0, func() { l.do(fn) })
	}
	for _, h := range l.beats {
		h.start()
	}
}

// Alive reports whether the process runs, paused or not.
func (p *Process) Alive() bool { return p.life != nil }

// Paused reports whether the process is frozen.
func (p *Process) Paused() bool { return p.life != nil && p.life.paused }

// Leads reports whether the process runs as a leader, which one without an
// election always does.
func (p *Process) Leads() bool { return p.life != nil && p.life.m.leading }

// CutWatch breaks all its watches. They reconnect with a back-off.
func (p *Process) CutWatch() {
	if p.life != nil {
		p.life.m.cache.cut(false, nil)
	}
}

// Partition cuts the process off from the API, or heals that.
func (p *Process) Partition(cut bool) {
	if p.partitioned == cut {
		return
	}
	p.partitioned = cut
	what := "heal"
	if cut {
		what = "partition"
	}
	p.note(what, "")
	l := p.life
	if l == nil {
		return
	}
	if cut {
		l.m.cache.cut(false, nil)
	}
	for _, h := range l.beats {
		if cut {
			h.stop()
		} else {
			h.start()
		}
	}
}

// Manager returns the manager of the current life, or nil.
func (p *Process) Manager() manager.Manager {
	if p.life == nil {
		return nil
	}
	return p.life.m
}

// Restarts counts the starts after the first.
func (p *Process) Restarts() int { return max(0, p.starts-1) }

// Calls counts the crash points passed so far in all lives: API calls, and
// Steps.
func (p *Process) Calls() int { return p.calls }

// CrashAt crashes the process at its nth crash point from now (1 is the next),
// before or after it takes effect.
func (p *Process) CrashAt(n int, when Moment) { p.crashAt, p.crashWhen = p.calls+n, when }

// Deliver hands the process what arrives from outside: fn runs now, once a
// paused process goes on, or never when there is none.
func (p *Process) Deliver(fn func()) {
	if p.life != nil {
		p.life.do(fn)
	}
}

// Step is a crash point for what is not an API call: a hardware call. Call it
// before the effect; it returns only if the process lives on. What it returns
// is called after the effect, and is the other side.
func (p *Process) Step(what string) (done func()) {
	p.c.dying()
	l := p.life
	if l == nil {
		return func() {}
	}
	l.standStill()
	n := l.before()
	return func() {
		l.past(n)
		l.standStill()
	}
}

// Err is why the process last ended by itself.
func (p *Process) Err() error { return p.err }
