// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"runtime"
	"time"
)

// Task is a goroutine under the baton. It runs only between a Resume by the
// scheduler and its next Park, and nothing else runs meanwhile.
type Task struct {
	s      *Scheduler
	wake   chan bool // true: go on; false: die
	killed bool
	ended  bool
	owned  bool // started by Go, which hands the baton back when it ends
}

// Go starts fn as a task. It first runs in an event of its own, at the current
// instant, and is ended by returning or by Kill.
func (s *Scheduler) Go(fn func(*Task)) *Task {
	t := &Task{s: s, wake: make(chan bool), owned: true}
	go func() {
		defer func() {
			t.ended = true
			s.back <- struct{}{}
		}()
		if !<-t.wake {
			runtime.Goexit()
		}
		fn(t)
	}()
	s.After(0, t.Resume)
	return t
}

// Adopt makes a task of the calling goroutine, which some library started and
// which does not hold the baton. The scheduler must be standing still; it must
// stay so until the goroutine waits in Join.
func (s *Scheduler) Adopt() *Task { return &Task{s: s, wake: make(chan bool)} }

// Join waits on an adopted goroutine for the task's first Resume.
func (t *Task) Join() {
	if !<-t.wake {
		runtime.Goexit()
	}
}

// Current returns the running task, or nil when the scheduler itself runs.
func (s *Scheduler) Current() *Task { return s.current }

// Resume hands the baton to the task and returns when the task parks or ends.
// Only the scheduler's side calls it: from an event, never from a task.
func (t *Task) Resume() {
	if t.killed || t.ended {
		return
	}
	t.s.switches++
	t.s.current = t
	t.wake <- true
	<-t.s.back
	t.s.current = nil
}

// Park gives the baton back and waits for the next Resume. The task's own
// goroutine calls it. A killed task does not return: its goroutine exits, and
// recover cannot stop that.
func (t *Task) Park() {
	t.s.back <- struct{}{}
	if !<-t.wake {
		runtime.Goexit()
	}
}

// Sleep parks the task for d of virtual time.
func (t *Task) Sleep(d time.Duration) {
	t.s.After(d, t.Resume)
	t.Park()
}

// Kill ends a parked task: its goroutine exits from inside Park, running its
// deferred calls. Killing a task twice, or an ended one, does nothing. The
// goroutine of an adopted task may still be running its deferred calls when
// Kill returns: whoever adopted it knows how to wait for its end.
func (t *Task) Kill() {
	if t.killed || t.ended {
		return
	}
	t.killed = true
	t.wake <- false
	if t.owned {
		<-t.s.back
	}
}

// Killed reports whether Kill was called. A deferred call of a dying goroutine
// asks it before it would park again.
func (t *Task) Killed() bool { return t.killed }
