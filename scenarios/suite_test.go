// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/sim"
)

// count reads how much of a long test to run. Few by default: the whole is
// `make bench`.
func count(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	if v := os.Getenv(variable); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("%s=%s is no number", variable, v)
		}
		return n
	}
	return otherwise
}

func suite(t *testing.T) []*scenarios.Scenario {
	t.Helper()
	list, err := scenarios.Suite()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func report(t *testing.T, r reports.Record) {
	t.Helper()
	for _, v := range r.Violations {
		t.Errorf("at %.1f s: %s: %s", v.At, v.Rule, v.Text)
	}
	if r.Verdict == "fail" {
		t.Errorf("to repeat: %s", r.Replay)
	}
}

func TestEveryScenarioHolds(t *testing.T) {
	for _, s := range suite(t) {
		t.Run(s.Name, func(t *testing.T) {
			for seed := range uint64(count(t, "ADIT_SEEDS", 2)) {
				report(t, s.Run(scenarios.Options{Seed: seed + 1, T: t}).Record)
			}
		})
	}
}

// TestSameSeedSameRun plays each scenario twice, the second time under other
// settings of the runtime.
func TestSameSeedSameRun(t *testing.T) {
	for _, s := range suite(t) {
		t.Run(s.Name, func(t *testing.T) {
			o := scenarios.Options{Seed: 11, T: t, KeepNotes: true}
			first := s.Run(o)
			procs, gc := runtime.GOMAXPROCS(1), debug.SetGCPercent(50)
			second := s.Run(o)
			runtime.GOMAXPROCS(procs)
			debug.SetGCPercent(gc)
			if i, a, b := sim.FirstDifference(first.Notes, second.Notes); i >= 0 || first.Record.Digest != second.Record.Digest {
				t.Errorf("the runs differ first in note %d:\n  %s\n  %s", i, a, b)
			}
		})
	}
}

// TestBothTiersAreOneRun plays some scenarios with and without the CRDs' whole
// rules at each write.
func TestBothTiersAreOneRun(t *testing.T) {
	for _, name := range scenarios.SweepScenarios {
		t.Run(name, func(t *testing.T) {
			found, err := scenarios.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			typed := found[0].Run(scenarios.Options{Seed: 5, T: t, KeepNotes: true})
			full := found[0].Run(scenarios.Options{Seed: 5, T: t, KeepNotes: true, Fidelity: kubesim.Full})
			report(t, full.Record)
			if i, a, b := sim.FirstDifference(typed.Notes, full.Notes); i >= 0 {
				t.Errorf("the tiers differ first in note %d:\n  typed %s\n  full  %s", i, a, b)
			}
		})
	}
}

// TestACrashAtAnyCallBreaksNothing takes a few crash points of each process;
// all of them are in `make bench`.
func TestACrashAtAnyCallBreaksNothing(t *testing.T) {
	for _, name := range scenarios.SweepScenarios {
		t.Run(name, func(t *testing.T) {
			found, err := scenarios.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			runs, _ := scenarios.Sweep(found[0], scenarios.Options{Seed: 1, T: t}, count(t, "ADIT_SWEEP", 6), func(r reports.Record) { report(t, r) })
			t.Logf("%d runs", runs)
		})
	}
}

func TestHeartbeatsLeftOutChangeNothingElse(t *testing.T) {
	for _, name := range []string{"sweep-place", "sweep-drain", "silent-agent"} {
		t.Run(name, func(t *testing.T) {
			found, err := scenarios.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			report(t, found[0].Run(scenarios.Options{Seed: 3, T: t, EagerLeases: true}).Record)
			report(t, found[0].Run(scenarios.Options{Seed: 3, T: t}).Record)
		})
	}
}
