// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/scenarios/explore"
	"github.com/adit-hv/adit/testbed"
)

// expedition plays seeds, some at once, and books them in their order.
type expedition struct {
	flags exploreFlags
	t     *testing.T
	books *explore.Books
	said  *teller

	onBooked func() // called after each seed is booked; may be nil

	next atomic.Uint64
	over atomic.Bool // no seed is begun any more

	mu     sync.Mutex
	shrunk map[string]int // failures shrunk, by what broke
}

// found is what became of one seed.
type found struct {
	seed    uint64
	record  reports.Record
	reached testbed.Reached
	failure *explore.Failure
	err     error
}

// saveEvery is how often the books are saved: what is lost when the machine
// goes down.
const saveEvery = 10 * time.Second

// run plays until there are no more seeds, no more time, or somebody interrupts;
// then the seeds under way are left behind, to be played again.
func (e *expedition) run(interrupts <-chan os.Signal) (interrupted bool, err error) {
	begun, before := time.Now(), e.books.Seconds
	e.next.Store(e.books.Next)
	results := make(chan found)
	var workers sync.WaitGroup
	for range e.flags.jobs {
		workers.Go(func() { e.work(results, begun) })
	}
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	early := map[uint64]found{} // played before one that was begun earlier
	for saved := begun; ; {
		select {
		case <-interrupts:
			e.over.Store(true)
			return true, e.books.Save(e.flags.state())
		case <-done:
			return false, e.books.Save(e.flags.state())
		case r := <-results:
			early[r.seed] = r
		}
		for r, there := early[e.books.Next]; there; r, there = early[e.books.Next] {
			if r.err != nil {
				return false, r.err
			}
			delete(early, e.books.Next)
			e.books.Enter(r.record, r.reached, r.failure)
			e.books.Seconds = before + time.Since(begun).Seconds()
			e.said.booked(e.books, r.failure)
			if e.onBooked != nil {
				e.onBooked()
			}
			if r.failure != nil && e.flags.first {
				e.over.Store(true)
				return false, e.books.Save(e.flags.state())
			}
		}
		if time.Since(saved) > saveEvery {
			saved = time.Now()
			if err := e.books.Save(e.flags.state()); err != nil {
				return false, err
			}
		}
	}
}

func (e *expedition) work(results chan<- found, begun time.Time) {
	for !e.over.Load() && (e.flags.span == 0 || time.Since(begun) < e.flags.span) {
		seed := e.next.Add(1) - 1
		if e.books.To > 0 && seed > e.books.To {
			return
		}
		results <- e.play(seed)
	}
}

// play plays a seed, and shrinks and writes down what fails.
func (e *expedition) play(seed uint64) found {
	o := scenarios.Options{Seed: seed, T: e.t, Share: e.flags.jobs}
	played, err := explore.Play(seed, o)
	r := found{seed: seed, record: played.Record, reached: played.Reached, err: err}
	if err == nil && e.flags.verify {
		r.record, r.err = e.again(played, o)
	}
	if r.err != nil || r.record.Verdict == "pass" {
		return r
	}
	least := ""
	if e.toShrink(r.record) {
		left := e.flags.shrink
		least = explore.Minimise(played.Text, explore.Worst(r.record), func(s *scenarios.Scenario) reports.Record { return s.Run(o).Record }, func() bool {
			left--
			return left >= 0 && !e.over.Load()
		})
	}
	failure, err := explore.Write(e.flags.folder, seed, r.record, played.Text, least)
	r.failure, r.err = &failure, err
	return r
}

// again plays a scenario once more, which must give the same run.
func (e *expedition) again(played explore.Played, o scenarios.Options) (reports.Record, error) {
	s, err := explore.Parse(o.Seed, played.Text)
	if err != nil {
		return played.Record, err
	}
	r := played.Record
	if r.Digest != s.Run(o).Record.Digest {
		r.Verdict = "fail"
		r.Violations = append(r.Violations, reports.Violation{Rule: "determinism", Text: "two runs of the seed differ; adit run --verify names where"})
	}
	return r, nil
}

// mostShrunk is how many failures of one rule are shrunk: shrinking takes a
// hundred times as long as finding, and the fourth says what the first did.
const mostShrunk = 3

var names = regexp.MustCompile(`\[[^\]]*\]`)

func (e *expedition) toShrink(r reports.Record) bool {
	if e.flags.shrink == 0 || len(r.Violations) == 0 || r.Violations[0].Rule == "determinism" {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	rule := names.ReplaceAllString(explore.Worst(r), "[]")
	e.shrunk[rule]++
	return e.shrunk[rule] <= mostShrunk
}
