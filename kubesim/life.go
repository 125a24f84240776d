// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/adit-hv/adit/sim"
)

// errDead is what the deferred calls of a dying goroutine get to see.
var errDead = errors.New("kubesim: the process is dead")

// partitionTimeout is how long a call takes to fail when packets vanish
// (client-go's dial and TLS handshake time-outs are 30 s and 10 s).
const partitionTimeout = 10 * time.Second

// life is a process between a start and its end.
type life struct {
	p     *Process
	c     *Cluster
	alive bool

	paused bool
	held   []func() // what would have happened to a paused process

	ctx    context.Context
	cancel context.CancelFunc
	m      *simManager
	tasks  []*sim.Task
	ended  []<-chan struct{} // of the controllers' own goroutines

	random *rand.Rand
	beats  []*heartbeat

	tokens float64 // of the client's rate limit
	filled time.Duration

	unsynced int      // informers the workers wait for
	waiting  []func() // what starts once all are synced
	channels []func() // polls of channel sources
}

// do runs fn as the process: not if it is dead, later if it is paused.
func (l *life) do(fn func()) {
	switch {
	case !l.alive:
	case l.paused:
		l.held = append(l.held, fn)
	default:
		fn()
	}
}

func (l *life) after(d time.Duration, fn func()) *sim.Timer {
	return l.c.s.After(d, func() { l.do(fn) })
}

// task runs fn as a goroutine of the process.
func (l *life) task(fn func(t *sim.Task)) {
	var t *sim.Task
	t = l.c.s.Go(func(*sim.Task) {
		l.standStill()
		fn(t)
	})
	l.tasks = append(l.tasks, t)
}

// standStill keeps the running task of a paused process where it is until that
// goes on.
func (l *life) standStill() {
	for t := l.c.s.Current(); t != nil && l.paused; {
		l.held = append(l.held, t.Resume)
		t.Park()
	}
}

// sleep parks the running task. From the scheduler's side, where handlers and
// map functions run, nothing can wait.
func (l *life) sleep(d time.Duration) {
	t := l.c.s.Current()
	if t == nil {
		return
	}
	l.after(d, t.Resume)
	t.Park()
}

// call takes one request to the server and its answer back.
func (l *life) call(verb string, k *kind, sub string, bytes int, serve func() error) error {
	if !l.alive {
		return errDead
	}
	c, p := l.c, l.p
	n := l.before()
	c.count(p.user(), verb, k.resource(sub), bytes)
	hit := c.strike(p, verb, k, sub)
	total := c.o.Latency(l.random) + l.throttle() + hit.delay
	there := time.Duration(l.random.Float64() * float64(total))
	l.sleep(there)
	if p.partitioned {
		l.sleep(partitionTimeout)
		return unknown(verb, k, "no route to host")
	}
	if hit.err != nil && !hit.after {
		l.sleep(total - there)
		return hit.err
	}
	err := serve()
	l.past(n)
	l.sleep(total - there)
	switch {
	case hit.after:
		return hit.err
	case p.partitioned:
		l.sleep(partitionTimeout)
		return unknown(verb, k, "connection lost")
	}
	return err
}

// throttle is the wait that the client's own rate limit imposes.
func (l *life) throttle() time.Duration {
	o := &l.p.options
	if o.QPS <= 0 {
		return 0
	}
	now := l.c.s.Elapsed()
	l.tokens = min(float64(max(o.Burst, 1)), l.tokens+(now-l.filled).Seconds()*float64(o.QPS))
	l.filled = now
	l.tokens--
	if l.tokens >= 0 {
		return 0
	}
	return time.Duration(-l.tokens / float64(o.QPS) * float64(time.Second))
}

// before is the near side of a crash point; it returns the point's number.
func (l *life) before() int {
	l.p.calls++
	if l.p.calls == l.p.crashAt && l.p.crashWhen == Before {
		l.die()
	}
	return l.p.calls
}

// past is the far side of crash point n.
func (l *life) past(n int) {
	if n == l.p.crashAt && l.p.crashWhen == After {
		l.die()
	}
}

// die crashes the process from inside and does not return to it.
func (l *life) die() {
	l.p.crashAt = 0
	l.end("crash")
	l.tell(errCrashed)
	if t := l.c.s.Current(); t != nil {
		t.Park()
	}
}

// end takes the life out of the world at once. Its goroutines are stopped by
// the scheduler's side, which alone can do so.
func (l *life) end(what string) {
	if !l.alive {
		return
	}
	l.alive = false
	l.p.life = nil
	l.p.note(what, "")
	for _, h := range l.beats {
		h.stop()
	}
	l.m.cache.stop()
	if l.c.s.Current() == nil {
		l.reap()
	} else {
		l.c.s.After(0, l.reap)
	}
}

// reap kills the goroutines and waits for their deferred calls, which see a
// dead process and change nothing.
func (l *life) reap() {
	l.c.reaping = true
	for _, t := range l.tasks {
		t.Kill()
	}
	l.cancel()
	for _, done := range l.ended {
		<-done
	}
	l.c.reaping = false
	l.tasks, l.ended, l.held = nil, nil, nil
}

// dying ends a goroutine that is being reaped, should it try to go on.
func (c *Cluster) dying() {
	if c.reaping {
		runtime.Goexit()
	}
}

// errCrashed is why a process ends that dies at one of its own calls.
var errCrashed = errors.New("crashed")

// tell says that the process has ended by itself, and starts it again where
// that was asked for.
func (l *life) tell(why error) {
	p := l.p
	p.err = why
	l.c.s.After(0, func() {
		if p.options.OnExit != nil {
			p.options.OnExit(p, why)
		}
		if p.options.RestartAfter > 0 && p.life == nil {
			l.c.s.After(p.options.RestartAfter, p.Start)
		}
	})
}

// exit is an end of the process's own doing.
func (l *life) exit(why error) {
	l.end("exit")
	l.tell(why)
	if t := l.c.s.Current(); t != nil {
		t.Park()
	}
}

// start builds the manager and starts everything in it.
func (l *life) start() {
	if err := l.p.setup(l.m); err != nil {
		l.exit(fmt.Errorf("set up %s: %w", l.p.name, err))
		return
	}
	l.m.started = true
	if name := l.p.options.LeaderElection; name != "" {
		l.task(func(*sim.Task) { l.elect(name) })
	} else {
		l.m.lead()
	}
	l.m.startGroup(false)
}

// whenSynced runs fn once all informers asked for so far have their list.
func (l *life) whenSynced(fn func()) {
	if l.unsynced == 0 {
		fn()
		return
	}
	l.waiting = append(l.waiting, fn)
}

func (l *life) synced() {
	if l.unsynced--; l.unsynced > 0 {
		return
	}
	todo := l.waiting
	l.waiting = nil
	for _, fn := range todo {
		fn()
	}
}
