// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/testbed"
)

// TestHostileSchedules plays scenarios made of dice. One that fails is shrunk:
// what is printed is the least of it that fails still.
func TestHostileSchedules(t *testing.T) {
	first := count(t, "ADIT_HOSTILE_FROM", 1)
	for i := range count(t, "ADIT_HOSTILE", 15) {
		seed := uint64(first + i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			text := scenarios.Hostile(seed)
			file := filepath.Join(t.TempDir(), fmt.Sprintf("hostile-%d.yaml", seed))
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			s, err := scenarios.Load(file)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			r := s.Run(scenarios.Options{Seed: seed, T: t}).Record
			if r.Verdict == "pass" {
				return
			}
			report(t, r)
			rules := rulesOf(r)
			t.Logf("the least of it that breaks the same rule, under --seed %d:\n%s", seed, scenarios.Shrink(string(text), func(text string) bool {
				s, err := scenarios.Parse("less.yaml", []byte(text), os.ReadFile)
				if err != nil {
					return false
				}
				return slices.ContainsFunc(rulesOf(s.Run(scenarios.Options{Seed: seed, T: t}).Record), func(rule string) bool { return slices.Contains(rules, rule) })
			}))
		})
	}
}

func rulesOf(r reports.Record) (rules []string) {
	for _, v := range r.Violations {
		rules = append(rules, v.Rule)
	}
	return rules
}

func TestHostileScenariosAreGoodAndTheSameEachTime(t *testing.T) {
	kinds := map[string]bool{}
	for seed := range uint64(300) {
		text := scenarios.Hostile(seed)
		if !bytes.Equal(text, scenarios.Hostile(seed)) {
			t.Fatalf("seed %d gives two texts", seed)
		}
		s, err := scenarios.Parse("hostile.yaml", text, os.ReadFile)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		for _, step := range s.Timeline {
			kinds[strings.Fields(step.Text)[0]] = true
		}
	}
	// These need somebody who fences, or heartbeats to lose.
	ofHA := regexp.MustCompile(`^(bmc\..*|watchdog\.dead|clock\.jump|feed\.off|switch\.down|host\.flap|net\.oneway|storage\.hang)$`)
	for _, kind := range testbed.FaultKinds() {
		if !kinds[kind] && !ofHA.MatchString(kind) {
			t.Errorf("no seed has the fault %s", kind)
		}
	}
}

func TestShrinkKeepsWhatFails(t *testing.T) {
	const text = "about: x\ntimeline:\n- a\n- b\n  more of b\n- c\n- d\n- e\nexpect:\n- f\n- g\n"
	got := scenarios.Shrink(text, func(s string) bool { return strings.Contains(s, "of b") && strings.Contains(s, "- e") })
	if want := "about: x\ntimeline:\n- b\n  more of b\n- e\nexpect:\n- f\n"; got != want && got != strings.Replace(want, "- f", "- g", 1) {
		t.Errorf("shrunk to\n%s", got)
	}
}

// TestSeedsThatOnceFailed keeps what the dice have found.
func TestSeedsThatOnceFailed(t *testing.T) {
	for seed, what := range map[uint64]string{
		592:   "a leader stood still behind another task",
		1051:  "an orderly reboot was read as a guest's power-off",
		50986: "an eviction ended while a half of a VM was still there",
		51068: "a VM came and went between two reports of its host",
	} {
		t.Run(what, func(t *testing.T) {
			s, err := scenarios.HostileScenario(seed)
			if err != nil {
				t.Fatal(err)
			}
			report(t, s.Run(scenarios.Options{Seed: seed, T: t}).Record)
		})
	}
}
