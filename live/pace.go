// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/adit-hv/adit/internal/wiring"
	"github.com/adit-hv/adit/sim"
)

// pace lets a scheduler follow the wall clock, and ordinary goroutines into its
// world, one at a time. Its lock is the scheduler's baton for all that is not a
// task. Who made the world holds it, but for the time he spends in run.
type pace struct {
	speed float64
	s     *sim.Scheduler

	mu   sync.Mutex
	wake chan struct{} // told when an event may have come in
	over chan struct{} // closed with the world: nobody gets in any more

	began  atomic.Pointer[time.Time] // when its time began to pass; nil: not yet
	clocks map[any]*reading          // by the clock that is read

	notesMu sync.Mutex
	notes   []sim.Note // said by goroutines that did not wait for the lock
}

// note puts a note into the world's trace, soon.
func (p *pace) note(n sim.Note) {
	p.notesMu.Lock()
	p.notes = append(p.notes, n)
	p.notesMu.Unlock()
}

func newPace(speed float64) *pace {
	p := &pace{speed: speed, wake: make(chan struct{}, 1), over: make(chan struct{}), clocks: map[any]*reading{}}
	p.mu.Lock()
	return p
}

// at is the world's time at a moment of the wall clock.
func (p *pace) at(wall time.Time) time.Duration {
	began := p.began.Load()
	if began == nil {
		return 0
	}
	return max(0, time.Duration(float64(wall.Sub(*began))*p.speed))
}

// run plays the world until the virtual time until, or until ctx is done.
func (p *pace) run(ctx context.Context, until time.Duration) {
	now := time.Now()
	p.began.CompareAndSwap(nil, &now)
	for {
		now := min(p.at(time.Now()), until)
		p.advance(now)
		p.settle()
		if now >= until || ctx.Err() != nil {
			return
		}
		next := until
		if at, some := p.s.Next(); some {
			next = min(next, at)
		}
		wait := time.NewTimer(time.Duration(float64(next-now) / p.speed))
		p.mu.Unlock()
		select {
		case <-wait.C:
		case <-p.wake:
		case <-ctx.Done():
		}
		wait.Stop()
		p.mu.Lock()
	}
}

// advance lets everything happen that is due.
func (p *pace) advance(now time.Duration) {
	if now >= p.s.Elapsed() {
		p.s.Run(now)
	}
}

// do lets fn into the world, unless that is over.
func (p *pace) do(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.over:
		return
	default:
	}
	p.advance(p.at(time.Now()))
	fn()
	p.settle()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// close ends the world, and lets those who wait at its door go.
func (p *pace) close() {
	close(p.over)
	p.mu.Unlock()
}

// reading is a clock of the world, to be read from outside without the lock: who
// reads it may hold one that somebody inside waits for.
type reading struct {
	p     *pace
	clock func() time.Duration
	ahead atomic.Int64 // of the world's time, in nanoseconds
}

// follow returns the reading of a clock, which key names: one for all lives of all
// processes that go by it.
func (p *pace) follow(key any, clock func() time.Duration) *reading {
	if p.clocks[key] == nil {
		p.clocks[key] = &reading{p: p, clock: clock}
		p.clocks[key].settle()
	}
	return p.clocks[key]
}

func (r *reading) settle() { r.ahead.Store(int64(r.clock() - r.p.s.Elapsed())) }

func (r *reading) now() time.Duration {
	return r.p.at(time.Now()) + time.Duration(r.ahead.Load())
}

// settle takes over what was done to clocks, and what was noted.
func (p *pace) settle() {
	p.notesMu.Lock()
	notes := p.notes
	p.notes = nil
	p.notesMu.Unlock()
	for _, n := range notes {
		p.s.Note(n)
	}
	for _, r := range p.clocks {
		r.settle()
	}
}

// wallClock is a reading as a date.
type wallClock struct {
	*reading
	epoch time.Time
}

func (c wallClock) Now() time.Time                  { return c.epoch.Add(c.now()) }
func (c wallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// steadyKey names a steady clock, which may be the wall clock's value too.
type steadyKey struct{ wiring.Steady }

// steady is a reading as a time since some beginning.
type steady struct{ *reading }

func (s steady) Elapsed() time.Duration { return s.now() }
