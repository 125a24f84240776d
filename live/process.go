// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/api/meta"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/adit-hv/adit/config/rbac"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/sim"
	"github.com/adit-hv/adit/testbed"
)

// process is a testbed.Process: a manager, and its goroutines. Its methods are
// called with the pace's lock held.
type process struct {
	c       *cluster
	name    string
	options kubesim.ProcessOptions
	onExit  func(testbed.Process)
	setup   func(manager.Manager) error

	life   *life
	starts int
	cut    bool
}

var _ testbed.Process = (*process)(nil)

// life is one from a start to an end.
type life struct {
	p      *process
	gate   *gate
	cancel context.CancelFunc
	ready  bool            // its controllers are there; until then nobody is in
	leads  <-chan struct{} // closed when it leads; nil: not yet known
	held   []func()        // what arrived while it was paused
	paused bool
}

// Name implements testbed.Process.
func (p *process) Name() string { return p.name }

// Start implements testbed.Process.
func (p *process) Start() {
	if p.life != nil {
		return
	}
	p.starts++
	p.c.r.pace.s.Note(sim.Note{Host: p.options.Host, Component: p.name, What: "start"})
	ctx, cancel := context.WithCancel(p.c.r.ctx)
	l := &life{p: p, gate: newGate(), cancel: cancel}
	l.gate.cut = p.cut
	p.life = l
	p.c.running.Go(func() {
		err := l.run(ctx)
		cancel()
		p.c.r.pace.do(func() {
			if p.life != l {
				return // It was killed.
			}
			p.end()
			p.c.r.pace.s.Note(sim.Note{Host: p.options.Host, Component: p.name, What: "exit", Detail: fmt.Sprint(err)})
			p.onExit(p)
		})
	})
}

func (l *life) run(ctx context.Context) error {
	c, o := l.p.c, l.p.options
	speed := c.r.o.Speed
	namespace, id, elects := strings.Cut(o.LeaderElection, "/")
	// controller-runtime's own times, as fast as the world; but a Lease counts whole
	// seconds, and an API server needs some milliseconds.
	lease, renew, retry := max(faster(15*time.Second, speed), 2*time.Second), max(faster(10*time.Second, speed), 1500*time.Millisecond), max(faster(2*time.Second, speed), 200*time.Millisecond)
	config := c.through(l.gate, l.p.name)
	user, err := rbac.User(o.Role)
	if err != nil {
		return err
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	var lock resourcelock.Interface
	if elects { // Under its own name, by which it finds itself in the Lease.
		coordination, err := coordinationv1.NewForConfig(config)
		if err != nil {
			return err
		}
		if lock, err = resourcelock.New(resourcelock.LeasesResourceLock, namespace, id, nil, coordination, resourcelock.ResourceLockConfig{Identity: l.p.name}); err != nil {
			return err
		}
	}
	m, err := manager.New(config, manager.Options{
		Scheme: c.options.Scheme, Logger: l.p.logger(),
		Metrics:        server.Options{BindAddress: "0"},
		Cache:          cache.Options{ByObject: o.ByObject, DefaultTransform: c.r.dated},
		LeaderElection: elects, LeaderElectionResourceLockInterface: lock,
		LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return c.mapper, nil },
	})
	if err != nil {
		return err
	}
	c.r.pace.do(func() {
		if l.p.life != l {
			err = errDead // Meanwhile.
		} else if err = l.p.setup(paced{m, speed}); err == nil {
			l.ready, l.leads = true, m.Elected()
		}
	})
	if err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return err
	}
	return errors.New("it ended by itself")
}

// logger puts what goes wrong into the world's trace.
func (p *process) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		if strings.Contains(args, `"error"=`) {
			p.c.r.pace.note(sim.Note{Host: p.options.Host, Component: p.name, What: "error", Detail: args})
		}
	}, funcr.Options{})
}

// end ends a life: what it still tries fails.
func (p *process) end() {
	l := p.life
	p.life = nil
	l.gate.set(func() { l.gate.dead = true })
	l.cancel()
}

// Crash implements testbed.Process.
func (p *process) Crash() {
	if p.life != nil {
		p.c.r.pace.s.Note(sim.Note{Host: p.options.Host, Component: p.name, What: "crash"})
		p.end()
	}
}

// Pause implements testbed.Process.
func (p *process) Pause() {
	if l := p.life; l != nil {
		l.paused = true
		l.gate.set(func() { l.gate.paused = true })
	}
}

// Resume implements testbed.Process.
func (p *process) Resume() {
	l := p.life
	if l == nil || !l.paused {
		return
	}
	l.paused = false
	l.gate.set(func() { l.gate.paused = false })
	held := l.held
	l.held = nil
	for _, fn := range held {
		p.c.r.pace.s.After(0, fn)
	}
}

// Partition implements testbed.Process.
func (p *process) Partition(cut bool) {
	p.cut = cut
	if l := p.life; l != nil {
		l.gate.set(func() {
			l.gate.cut = cut
			l.gate.connects++
		})
	}
}

// Alive implements testbed.Process. A process that only begins to start has not
// opened its doors.
func (p *process) Alive() bool { return p.life != nil && p.life.ready }

// Leads implements testbed.Process.
func (p *process) Leads() bool {
	if p.life == nil || p.life.leads == nil {
		return false
	}
	select {
	case <-p.life.leads:
		return true
	default:
		return false
	}
}

// Restarts implements testbed.Process.
func (p *process) Restarts() int { return max(0, p.starts-1) }

// Deliver implements testbed.Process.
func (p *process) Deliver(fn func()) {
	switch l := p.life; {
	case l == nil || !l.ready:
	case l.paused:
		l.held = append(l.held, fn)
	default:
		fn()
	}
}

// Calls, CrashAt and Step implement testbed.Process. Crash points are the
// simulation's: here nobody knows in which order calls are made.
func (p *process) Calls() int                  { return 0 }
func (p *process) CrashAt(int, kubesim.Moment) {}
func (p *process) Step(string) (done func())   { return func() {} }
