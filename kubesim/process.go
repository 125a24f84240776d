// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// ProcessOptions describe a process. All are optional.
type ProcessOptions struct {
	User string // of its requests and their field manager; default: the process's name
	Role string // class of field owners, as in "agents/node"
	Host string // that it runs on, for the trace

	// ByObject narrows the process's cache by label and field selectors.
	ByObject map[client.Object]cache.ByObject
	// ClockSkew is added to virtual time by the process's Clock.
	ClockSkew time.Duration
	// QPS and Burst limit the client, as rest.Config's do. 0: no limit.
	QPS   float32
	Burst int
	// LeaderElection names the Lease (namespace/name, or a name in
	// kube-system) that replicas elect by. "": no election.
	LeaderElection string
	// OnExit is told when the process ends by itself: setup's error, a lost
	// lease, a runnable's error. RestartAfter, when set, starts it again.
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
}

// Process registers a process. It runs from Start on.
func (c *Cluster) Process(name string, o ProcessOptions, setup func(mgr manager.Manager) error) *Process {
	return &Process{c: c, name: name, options: o, setup: setup}
}

// Name returns the process's name.
func (p *Process) Name() string { return p.name }

// Clock is the process's own, skewed.
func (p *Process) Clock() clock.PassiveClock { return nil }

// Start builds a new manager by setup and runs it. Starting a living process
// does nothing.
func (p *Process) Start() {}

// Crash ends the process at once: nothing of it runs any more, not even its
// deferred calls have an effect.
func (p *Process) Crash() {}

// Pause freezes the process (SIGSTOP, a stalled VM); Resume lets it go on.
func (p *Process) Pause()  {}
func (p *Process) Resume() {}

// Alive reports whether the process runs, paused or not.
func (p *Process) Alive() bool { return false }

// CutWatch breaks all its watches. They reconnect with a back-off.
func (p *Process) CutWatch() {}

// Partition cuts the process off from the API, or heals that.
func (p *Process) Partition(bool) {}

// Manager returns the manager of the current life, or nil.
func (p *Process) Manager() manager.Manager { return nil }

// Restarts counts the starts after the first.
func (p *Process) Restarts() int { return 0 }

// Calls counts the crash points passed so far in all lives: API calls, and
// Steps.
func (p *Process) Calls() int { return 0 }

// CrashAt crashes the process at its nth crash point from now (1 is the next),
// before or after it takes effect.
func (p *Process) CrashAt(n int, when Moment) {}

// Step is a crash point for what is not an API call: a hardware call. Call it
// before the effect; it returns only if the process lives on. Done, called
// after the effect, is the other side.
func (p *Process) Step(what string) (done func()) { return func() {} }

// Err is why the process last ended by itself.
func (p *Process) Err() error { return nil }
