// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/testbed"
)

// Books are how far an exploration came and what it found. They hold exactly
// the seeds from From up to Next, so that it can go on from there.
type Books struct {
	Version string `json:"version"` // of the program; another one draws other scenarios
	From    uint64 `json:"from"`
	To      uint64 `json:"to"`   // the last seed wanted; 0: as many as there is time for
	Next    uint64 `json:"next"` // the first seed not played

	Passed   int       `json:"passed"`
	Failures []Failure `json:"failures"`

	Seconds        float64 `json:"seconds"` // spent
	CPUSeconds     float64 `json:"cpuSeconds"`
	VirtualSeconds float64 `json:"virtualSeconds"`

	Coverage *Coverage `json:"coverage"`
}

// Failure is a seed that did not pass.
type Failure struct {
	Seed   uint64            `json:"seed"`
	Rules  []string          `json:"rules"` // sorted, each once
	First  reports.Violation `json:"first"`
	File   string            `json:"file"`   // of the least that fails
	Whole  string            `json:"whole"`  // of all that was drawn
	Replay string            `json:"replay"` // the command
}

// NewBooks returns empty books for seeds from from to to; to 0 is no end.
func NewBooks(version string, from, to uint64) *Books {
	return &Books{Version: version, From: from, To: to, Next: from, Failures: []Failure{}, Coverage: NewCoverage()}
}

// OpenBooks reads books that were saved by the same version of the program.
func OpenBooks(file, version string) (*Books, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("there is nothing to resume: %w", err)
	}
	b := NewBooks("", 0, 0)
	if err := json.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("%s is not what adit explore writes: %w; begin anew, without --resume", file, err)
	}
	if b.Version != version {
		return nil, fmt.Errorf("%s was written by version %s, and this is %s, whose seeds mean other scenarios; begin anew, without --resume", file, b.Version, version)
	}
	return b, nil
}

// Save writes the books, wholly or not at all.
func (b *Books) Save(file string) error {
	data, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// Enter books the outcome of the next seed, and its failure if it has one.
func (b *Books) Enter(r reports.Record, reached testbed.Reached, failed *Failure) {
	b.Next++
	b.CPUSeconds += r.CPUSeconds
	b.VirtualSeconds += r.VirtualSeconds
	b.Coverage.Add(reached)
	if failed == nil {
		b.Passed++
		return
	}
	b.Failures = append(b.Failures, *failed)
}

// Played is how many seeds the books hold.
func (b *Books) Played() int { return b.Passed + len(b.Failures) }

// Rules are the rules a run broke, sorted, each once.
func Rules(r reports.Record) []string {
	var rules []string
	for _, v := range r.Violations {
		rules = append(rules, v.Rule)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// Worst is the rule of a failed run that matters most: what is unsafe before
// what is not well in the end, and what came first of these.
func Worst(r reports.Record) string {
	worst := ""
	for _, v := range r.Violations {
		if atEnd := strings.HasPrefix(v.Rule, "end: "); worst == "" || !atEnd && strings.HasPrefix(worst, "end: ") {
			worst = v.Rule
		}
	}
	return worst
}

// Minimise shrinks a text whose run broke a rule, as long as more allows, and
// returns the least that breaks it still. play runs a scenario under the seed.
func Minimise(text, rule string, play func(*scenarios.Scenario) reports.Record, more func() bool) string {
	return Shrink(text, func(text string) bool {
		if !more() {
			return false
		}
		s, err := scenarios.Parse("less.yaml", []byte(text), os.ReadFile)
		if err != nil {
			return false
		}
		return slices.Contains(Rules(play(s)), rule)
	})
}

// Write puts a failing seed's scenarios, all of it and the least of it, into a
// folder, and returns what there is to book. least may be empty.
func Write(folder string, seed uint64, r reports.Record, whole, least string) (Failure, error) {
	f := Failure{Seed: seed, Rules: Rules(r), Whole: filepath.Join(folder, Name(seed)+"-whole.yaml")}
	if len(r.Violations) > 0 {
		f.First = r.Violations[0]
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return f, err
	}
	if err := os.WriteFile(f.Whole, []byte(whole), 0o644); err != nil {
		return f, err
	}
	f.File = f.Whole
	if least != "" {
		f.File = filepath.Join(folder, Name(seed)+".yaml")
	}
	f.Replay = fmt.Sprintf("adit run %s --seed %d", scenarios.Quoted(f.File), seed)
	if least == "" {
		return f, nil
	}
	head := "# " + f.Replay + "\n"
	for _, v := range r.Violations {
		head += "# " + strings.ReplaceAll(fmt.Sprintf("at %.1f s: %s: %s", v.At, v.Rule, v.Text), "\n", " ") + "\n"
	}
	return f, os.WriteFile(f.File, []byte(head+least), 0o644)
}
