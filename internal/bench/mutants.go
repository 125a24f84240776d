// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/adit-hv/adit/internal/sabotage"
	"github.com/adit-hv/adit/scenarios/explore"
)

// mutantSeeds is within how many seeds an exploration has to find a sabotage.
const mutantSeeds = 2000

// mutants builds the tool with sabotages and counts the seeds until an
// exploration finds each.
func mutants(_ *testing.T, f *figures) error {
	dir, err := os.MkdirTemp("", "adit-mutants-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tool := filepath.Join(dir, "adit")
	if out, err := exec.Command("go", "build", "-tags", "sabotage", "-o", tool, "./cmd/adit").CombinedOutput(); err != nil {
		return fmt.Errorf("go build -tags sabotage: %w\n%s", err, out)
	}
	var missed error
	for _, s := range sabotage.All {
		found, err := explored(tool, filepath.Join(dir, string(s.Name)), s.Name)
		if err != nil {
			return err
		}
		name := "mutants." + string(s.Name) + ".seeds"
		if found == nil {
			f.add(name, "none", fmt.Sprintf("of %d", mutantSeeds))
			missed = errors.Join(missed, fmt.Errorf("not found within %d seeds: %s", mutantSeeds, s.What))
			continue
		}
		f.add(name, found.Seed, "seeds")
		fmt.Fprintf(os.Stderr, "bench: %s: seed %d: %s: %s\n", s.What, found.Seed, found.First.Rule, found.First.Text)
	}
	return missed
}

// explored explores with a sabotage until something fails that does not fail
// without it; nil if nothing does.
func explored(tool, folder string, n sabotage.Name) (*explore.Failure, error) {
	for from := uint64(1); from <= mutantSeeds; {
		found, err := firstFailure(tool, folder, n, from, mutantSeeds)
		if found == nil || err != nil {
			return nil, err
		}
		without, err := firstFailure(tool, folder+"-without", "", found.Seed, found.Seed)
		if without == nil || err != nil {
			return found, err
		}
		fmt.Fprintf(os.Stderr, "bench: seed %d fails without %s, too\n", found.Seed, n)
		from = found.Seed + 1
	}
	return nil, nil
}

// firstFailure explores until something fails; nil if nothing does.
func firstFailure(tool, folder string, n sabotage.Name, from, to uint64) (*explore.Failure, error) {
	c := exec.Command(tool, "explore", "--seeds", fmt.Sprintf("%d..%d", from, to), "--first", "--shrink", "0", "--out", folder, "-o", "json")
	c.Env = append(os.Environ(), sabotage.Variable+"="+string(n))
	out, err := c.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return nil, fmt.Errorf("adit explore with %q: %w", n, err)
	}
	var books explore.Books
	if err := json.Unmarshal(out, &books); err != nil {
		return nil, fmt.Errorf("what adit explore -o json says with %q: %w", n, err)
	}
	if len(books.Failures) == 0 {
		return nil, nil
	}
	return &books.Failures[0], nil
}
