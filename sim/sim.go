// SPDX-License-Identifier: Apache-2.0

// Package sim is virtual time: a discrete-event scheduler under which whole
// programs run as a function of one seed.
//
// It owns the clock, the order of events, the baton (exactly one of the
// scheduler and the goroutines it knows runs at any instant), every random
// stream and the trace of a run with its digest. Same seed, same digest,
// whatever GOMAXPROCS and the garbage collector do.
//
// It must never know what is simulated: no hosts, no Kubernetes, no files. It
// reads no wall clock; where a run lives in a testing/synctest bubble, the
// bubble's clock is moved along through Options.Advance.
package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Epoch is the first instant of every run that does not say another. It is the
// epoch of a synctest bubble, so that a library's stray time.Now agrees with the
// scheduler.
var Epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Options configure a Scheduler.
type Options struct {
	// Seed decides everything that is not decided by the program.
	Seed uint64

	// Epoch is the first instant; zero is the package's Epoch.
	Epoch time.Time

	// Advance, when set, is called before the clock moves by d, with nothing
	// else running. A run in a synctest bubble waits for stray goroutines to
	// settle and sleeps d here.
	Advance func(d time.Duration)

	// KeepNotes keeps every note in memory, for reports and for naming the
	// first note in which two runs differ. The digest needs no kept notes.
	KeepNotes bool

	// OnNote, when set, sees each note as it is recorded. It must not touch
	// the simulation.
	OnNote func(Note)
}

// Scheduler is the heap of events, the clock and the baton. Its methods are
// called by the goroutine that holds the baton and by no other; Run's caller
// holds it first.
type Scheduler struct {
	seed    uint64
	epoch   time.Time
	advance func(time.Duration)
	now     time.Duration
	events  eventHeap
	seq     uint64
	order   *rand.Rand
	streams map[string]*rand.Rand

	back    chan struct{} // a parked or ended task hands the baton back here
	current *Task
	halted  bool

	afterEach []func()

	fired    uint64
	switches uint64
	trace    trace
}

// New returns a scheduler at virtual time zero.
func New(o Options) *Scheduler {
	s := &Scheduler{
		seed:    o.Seed,
		epoch:   o.Epoch,
		advance: o.Advance,
		streams: map[string]*rand.Rand{},
		back:    make(chan struct{}),
		trace:   trace{keep: o.KeepNotes, onNote: o.OnNote, hash: xxhash.New()},
	}
	if s.epoch.IsZero() {
		s.epoch = Epoch
	}
	s.order = s.Rand("sim/order")
	return s
}

// Seed returns the seed the scheduler was made with.
func (s *Scheduler) Seed() uint64 { return s.seed }

// Now returns the current virtual time. It satisfies the PassiveClock that
// controllers take.
func (s *Scheduler) Now() time.Time { return s.epoch.Add(s.now) }

// Since returns the virtual time passed since t.
func (s *Scheduler) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// Elapsed returns the virtual time since the run began.
func (s *Scheduler) Elapsed() time.Duration { return s.now }

// Events returns how many events have fired, a measure of a run's size that
// does not depend on the machine.
func (s *Scheduler) Events() uint64 { return s.fired }

// Rand returns the random stream of that name, the same one at each call.
// Streams are independent: a draw added to one changes no other.
func (s *Scheduler) Rand(name string) *rand.Rand {
	r := s.streams[name]
	if r == nil {
		r = rand.New(rand.NewPCG(s.seed, xxhash.Sum64String(name)))
		s.streams[name] = r
	}
	return r
}

// Timer is an event that has not fired yet.
type Timer struct{ fn func() }

// Stop cancels the event and reports whether it was still to come.
func (t *Timer) Stop() bool {
	if t == nil || t.fn == nil {
		return false
	}
	t.fn = nil
	return true
}

// After calls fn once d of virtual time has passed. Events of one instant fire
// in an order drawn from the seed. A negative d counts as zero.
func (s *Scheduler) After(d time.Duration, fn func()) *Timer {
	return s.push(s.now+max(0, d), s.order.Uint64(), fn)
}

// At calls fn at the virtual time at after the start of the run, or now when
// that is past.
func (s *Scheduler) At(at time.Duration, fn func()) *Timer {
	return s.push(max(s.now, at), s.order.Uint64(), fn)
}

func (s *Scheduler) push(at time.Duration, priority uint64, fn func()) *Timer {
	s.seq++
	t := &Timer{fn: fn}
	s.events.push(event{at: at, priority: priority, seq: s.seq, timer: t})
	return t
}

// Lane keeps its events in the order they were added, as a connection does:
// an event never overtakes an earlier one of the same lane. Between lanes, the
// order within one instant is drawn from the seed.
type Lane struct {
	s        *Scheduler
	priority uint64
	last     time.Duration
}

// Lane returns a new lane.
func (s *Scheduler) Lane() *Lane { return &Lane{s: s, priority: s.order.Uint64()} }

// After adds fn to the lane, to fire in d or when the lane's last event fires,
// whichever is later.
func (l *Lane) After(d time.Duration, fn func()) *Timer {
	l.last = max(l.last, l.s.now+max(0, d))
	return l.s.push(l.last, l.priority, fn)
}

// Run fires events until none is left before the virtual time until, or Halt
// is called; the clock then stands at until, or where it was halted.
func (s *Scheduler) Run(until time.Duration) {
	for !s.halted && len(s.events) > 0 && s.events[0].at <= until {
		s.step()
	}
	if !s.halted {
		s.moveTo(until)
	}
}

// RunWhile fires events while more is true and one is left.
func (s *Scheduler) RunWhile(more func() bool) {
	for !s.halted && len(s.events) > 0 && more() {
		s.step()
	}
}

func (s *Scheduler) step() {
	e := s.events.pop()
	fn := e.timer.fn
	if fn == nil {
		return
	}
	e.timer.fn = nil
	s.moveTo(e.at)
	s.fired++
	fn()
	for _, look := range s.afterEach {
		look()
	}
}

// AfterEach calls look after each event from now on, with no task running: for
// those who must notice what happened outside the scheduler's sight.
func (s *Scheduler) AfterEach(look func()) { s.afterEach = append(s.afterEach, look) }

func (s *Scheduler) moveTo(at time.Duration) {
	if at <= s.now {
		return
	}
	if s.advance != nil {
		s.advance(at - s.now)
	}
	s.now = at
}

// Next returns the virtual time of the next event, if there is one.
func (s *Scheduler) Next() (at time.Duration, some bool) {
	if len(s.events) == 0 {
		return 0, false
	}
	return s.events[0].at, true
}

// Halt ends the run at the current instant: Run returns after the event that
// is firing.
func (s *Scheduler) Halt() { s.halted = true }

// String names the run, for errors.
func (s *Scheduler) String() string {
	return fmt.Sprintf("seed %d at %v, %d events", s.seed, s.now, s.fired)
}
