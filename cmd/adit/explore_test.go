// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/adit-hv/adit/scenarios/explore"
)

func TestAnExplorationSaysWhatItReached(t *testing.T) {
	folder := t.TempDir()
	code, stdout, stderr := tool(t, "explore", "--seeds", "3..4", "--out", folder, "-o", "json")
	var got struct {
		Passed   int
		Next     uint64
		Coverage struct {
			Faults map[string]int
			Points map[string]map[string]int
		}
		Blind          struct{ Points []string }
		SeedsPerMinute float64
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitPass {
		t.Fatalf("exit code %d, %v:\n%s%s", code, err, stdout, stderr)
	}
	if got.Passed != 2 || got.Next != 5 || len(got.Coverage.Faults) == 0 || len(got.Coverage.Points["vm Running"]) == 0 || got.SeedsPerMinute == 0 {
		t.Errorf("it says\n%s", stdout)
	}
}

// TestAnInterruptedExplorationGoesOn interrupts one after its third seed.
func TestAnInterruptedExplorationGoesOn(t *testing.T) {
	f := exploreFlags{seeds: "1..3", folder: t.TempDir(), jobs: 1, output: "text", shrink: 1}
	books, err := f.books(true)
	if err != nil {
		t.Fatal(err)
	}
	interrupts := make(chan os.Signal, 1)
	var out, errs bytes.Buffer
	e := &expedition{flags: f, t: t, books: books, said: newTeller(f, books, &out, &errs), shrunk: map[string]int{}}
	e.onBooked = func() {
		if books.Played() == 2 {
			interrupts <- os.Interrupt
		}
	}
	interrupted, err := e.run(interrupts)
	if !interrupted || err != nil || books.Played() < 2 || books.Played() == 3 {
		t.Fatalf("interrupted: %v, after %d seeds, %v", interrupted, books.Played(), err)
	}
	code, stdout, stderr := tool(t, "explore", "--resume", "--out", f.folder)
	if code != exitPass || !strings.Contains(stdout, "3 seeds: 3 passed") {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
	whole := explore.NewBooks("", 0, 0)
	if code, _, stderr := tool(t, "explore", "--seeds", "1..3", "--out", filepath.Join(f.folder, "whole")); code != exitPass {
		t.Fatal(stderr)
	}
	for file, into := range map[string]*explore.Books{f.state(): books, filepath.Join(f.folder, "whole", "books.json"): whole} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		*into = *explore.NewBooks("", 0, 0)
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := books.Coverage.States(), whole.Coverage.States(); a != b {
		t.Errorf("in two sittings it reached %d states, in one %d", a, b)
	}
}

func TestWhatASeedDrawsCanBeReadAndPlayed(t *testing.T) {
	_, text, _ := tool(t, "explore", "--draw", "4")
	file := write(t, "drawn.yaml", text)
	if code, stdout, stderr := tool(t, "scenario", "validate", file); code != exitPass {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}
