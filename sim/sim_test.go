// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/adit-hv/adit/sim"
)

// program is a small world with everything in it: tasks that sleep, lanes,
// random draws, a task that dies.
func program(s *sim.Scheduler) string {
	lane := s.Lane()
	for i := range 20 {
		name := fmt.Sprint("task-", i)
		task := s.Go(func(t *sim.Task) {
			r := s.Rand(name)
			for range 50 {
				t.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
				s.Note(sim.Note{Component: name, What: "woke"})
				lane.After(time.Duration(r.IntN(10))*time.Millisecond, func() {
					s.Note(sim.Note{Component: "lane", What: name})
				})
			}
		})
		if i%5 == 0 {
			s.After(10*time.Second, task.Kill)
		}
	}
	s.Run(time.Hour)
	return s.Digest()
}

func TestSameSeedSameDigest(t *testing.T) {
	want := program(sim.New(sim.Options{Seed: 7}))
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	for _, procs := range []int{1, 2, 4} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		if got := program(sim.New(sim.Options{Seed: 7})); got != want {
			t.Errorf("with GOMAXPROCS=%d the digest is %s, want %s", procs, got, want)
		}
	}
}

func TestOtherSeedOtherDigest(t *testing.T) {
	seen := map[string]uint64{}
	for seed := range uint64(40) {
		digest := program(sim.New(sim.Options{Seed: seed}))
		if other, ok := seen[digest]; ok {
			t.Errorf("seeds %d and %d share the digest %s", seed, other, digest)
		}
		seen[digest] = seed
	}
}

func TestBubbleChangesNothing(t *testing.T) {
	want := program(sim.New(sim.Options{Seed: 3}))
	synctest.Test(t, func(t *testing.T) {
		s := sim.New(sim.Options{Seed: 3, Advance: func(d time.Duration) {
			synctest.Wait()
			time.Sleep(d)
		}})
		if got := program(s); got != want {
			t.Errorf("inside a bubble the digest is %s, outside %s", got, want)
		}
		if !s.Now().Equal(time.Now()) {
			t.Errorf("the scheduler says %v, the bubble %v", s.Now(), time.Now())
		}
	})
}

func TestStreamsAreIndependent(t *testing.T) {
	a, b := sim.New(sim.Options{Seed: 1}), sim.New(sim.Options{Seed: 1})
	b.Rand("another").Uint64()
	if x, y := a.Rand("mine").Uint64(), b.Rand("mine").Uint64(); x != y {
		t.Errorf("a draw from another stream changed mine: %d, %d", x, y)
	}
}

func TestEventsFireInOrderOfTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := sim.New(sim.Options{Seed: rapid.Uint64().Draw(t, "seed")})
		var fired []time.Duration
		for _, d := range rapid.SliceOf(rapid.Int64Range(-5, 100)).Draw(t, "delays") {
			s.After(time.Duration(d), func() { fired = append(fired, s.Elapsed()) })
		}
		s.Run(100)
		if !slices.IsSorted(fired) {
			t.Fatalf("fired out of order: %v", fired)
		}
	})
}

func TestLaneNeverReorders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := sim.New(sim.Options{Seed: rapid.Uint64().Draw(t, "seed")})
		lane, n, fired := s.Lane(), 0, []int(nil)
		for _, d := range rapid.SliceOf(rapid.Int64Range(0, 10)).Draw(t, "delays") {
			i := n
			n++
			lane.After(time.Duration(d), func() { fired = append(fired, i) })
		}
		s.Run(1000)
		if len(fired) != n || !slices.IsSorted(fired) {
			t.Fatalf("fired %v of %d", fired, n)
		}
	})
}

func TestStoppedTimerDoesNotFire(t *testing.T) {
	s := sim.New(sim.Options{})
	timer := s.After(time.Second, func() { t.Error("fired") })
	if !timer.Stop() || timer.Stop() {
		t.Error("Stop does not say whether the event was still to come")
	}
	s.Run(time.Minute)
}

func TestKilledTaskRunsItsDeferredCallsAndNoMore(t *testing.T) {
	s := sim.New(sim.Options{})
	var trail []string
	task := s.Go(func(task *sim.Task) {
		defer func() { trail = append(trail, "deferred") }()
		defer func() { _ = recover() }() // cannot stop a kill
		trail = append(trail, "ran")
		task.Sleep(time.Minute)
		trail = append(trail, "lived on")
	})
	s.After(time.Second, task.Kill)
	s.Run(time.Hour)
	if want := []string{"ran", "deferred"}; !slices.Equal(trail, want) {
		t.Errorf("trail %v, want %v", trail, want)
	}
}

func TestFirstDifferenceNamesTheNote(t *testing.T) {
	note := func(what string) sim.Note { return sim.Note{Component: "c", What: what} }
	a := []sim.Note{note("x"), note("y")}
	if i, _, _ := sim.FirstDifference(a, a); i != -1 {
		t.Errorf("equal traces differ at %d", i)
	}
	if i, _, inB := sim.FirstDifference(a, a[:1]); i != 1 || inB != "" {
		t.Errorf("a trace that ends early differs at %d with %q", i, inB)
	}
}

func BenchmarkEvents(b *testing.B) {
	s := sim.New(sim.Options{})
	var tick func()
	tick = func() { s.After(time.Millisecond, tick) }
	for range 1000 {
		tick()
	}
	b.ResetTimer()
	s.Run(time.Duration(b.N) * time.Microsecond)
}

func BenchmarkTaskSwitch(b *testing.B) {
	s := sim.New(sim.Options{})
	t := s.Go(func(t *sim.Task) {
		for {
			t.Sleep(time.Microsecond)
		}
	})
	s.Run(time.Duration(b.N) * time.Microsecond)
	t.Kill()
}
