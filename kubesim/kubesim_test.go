// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/adit-hv/adit/sim"
)

func toyDigest(t testing.TB, seed uint64, o Options, more func(*Cluster, *Process)) (string, []sim.Note) {
	s := sim.New(sim.Options{Seed: seed, KeepNotes: true})
	c := playToy(t, s, o, more)
	settled(t, c)
	c.Close()
	return s.Digest(), s.Notes()
}

func sameRun(t *testing.T, what string, want []sim.Note, got []sim.Note) {
	t.Helper()
	if i, a, b := sim.FirstDifference(want, got); i >= 0 {
		t.Errorf("%s: note %d differs:\n  %s\n  %s", what, i, a, b)
	}
}

func TestARunIsAFunctionOfItsSeed(t *testing.T) {
	_, want := toyDigest(t, 7, Options{}, nil)
	if len(want) < 100 {
		t.Fatalf("only %d notes", len(want))
	}
	for range 3 {
		_, got := toyDigest(t, 7, Options{}, nil)
		sameRun(t, "again", want, got)
	}
	before := runtime.GOMAXPROCS(1)
	_, got := toyDigest(t, 7, Options{}, nil)
	runtime.GOMAXPROCS(before)
	sameRun(t, "GOMAXPROCS=1", want, got)
	percent := debug.SetGCPercent(50)
	_, got = toyDigest(t, 7, Options{}, nil)
	debug.SetGCPercent(percent)
	sameRun(t, "GOGC=50", want, got)
}

func TestSeedsDiffer(t *testing.T) {
	digests := map[string]uint64{}
	for seed := range uint64(20) {
		digest, _ := toyDigest(t, seed, Options{}, nil)
		if other, ok := digests[digest]; ok {
			t.Errorf("seeds %d and %d give the same trace", seed, other)
		}
		digests[digest] = seed
	}
}

func TestTheTiersGiveEqualTraces(t *testing.T) {
	for seed := range uint64(5) {
		_, typed := toyDigest(t, seed, Options{Fidelity: Typed}, nil)
		_, full := toyDigest(t, seed, Options{Fidelity: Full}, nil)
		sameRun(t, "typed and full", typed, full)
	}
}

func TestABubbleChangesNothing(t *testing.T) {
	_, want := toyDigest(t, 3, Options{}, nil)
	synctest.Test(t, func(t *testing.T) {
		s := sim.New(sim.Options{Seed: 3, KeepNotes: true, Advance: func(d time.Duration) {
			synctest.Wait()
			time.Sleep(d)
		}})
		c := playToy(t, s, Options{}, nil)
		c.Close()
		sameRun(t, "in a bubble", want, s.Notes())
	})
}
