// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/sim"
	"github.com/adit-hv/adit/testbed"
)

// runFlags are the flags of adit run.
type runFlags struct {
	seed     uint64
	seeds    int
	mode     string
	output   string
	report   string
	fidelity string
	jobs     int
	verify   bool
	crash    string
	trace    bool
	profile  string
	hostile  int
}

func newRun(t *testing.T) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [FILE|FOLDER|NAME]...",
		Short: "Play scenarios and judge them",
		Long: `Play scenarios: files, folders of them, or built-in ones by name; without any,
the whole built-in suite. Each is played with one or more seeds; a seed decides
every delay, every interleaving and every random fault.

  adit run                                  the suite, seed 1
  adit run drain-a-host --seeds 200         one scenario, 200 seeds
  adit run my.yaml --seed 17 --trace        one run, each step of it
  adit run --report out                     and a page to look at in out/index.html
  adit run -o json | jq .verdict            one object a run, for programs`,
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, args []string) error {
			return run(t, f, args, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().Uint64Var(&f.seed, "seed", 1, "the first seed")
	c.Flags().IntVar(&f.seeds, "seeds", 1, "how many seeds, counting up from --seed")
	c.Flags().StringVar(&f.mode, "mode", "sim", "what the scenarios are played on: sim")
	c.Flags().StringVarP(&f.output, "output", "o", "text", "what is printed: text, or json with one object a run")
	c.Flags().StringVar(&f.report, "report", "", "folder for the report: index.html, junit.xml, report.json, trace.json")
	c.Flags().StringVar(&f.fidelity, "fidelity", "typed", "of the simulated API: typed, or full with every CRD rule at each write")
	c.Flags().IntVarP(&f.jobs, "jobs", "j", runtime.GOMAXPROCS(0), "runs at once")
	c.Flags().BoolVar(&f.verify, "verify", false, "play each run twice and compare the digests")
	c.Flags().StringVar(&f.crash, "crash", "", "kill a process at one of its calls, as operator:17:after")
	c.Flags().BoolVar(&f.trace, "trace", false, "print each note of the trace (of one run)")
	c.Flags().IntVar(&f.hostile, "hostile", 0, "play so many scenarios made of dice, by seeds counting up from --seed")
	c.Flags().StringVar(&f.profile, "cpuprofile", "", "write a CPU profile to this file")
	for flag, values := range map[string][]string{"mode": {"sim"}, "output": {"text", "json"}, "fidelity": {"typed", "full"}} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return c
}

// check refuses flags that cannot be meant.
func (f runFlags) check() (scenarios.Options, error) {
	o := scenarios.Options{}
	switch {
	case f.mode != "sim":
		return o, fmt.Errorf("--mode %s is no mode; the modes are: sim", f.mode)
	case f.output != "text" && f.output != "json":
		return o, fmt.Errorf("-o %s is no output; it is text or json", f.output)
	case f.hostile < 0:
		return o, fmt.Errorf("--hostile %d plays nothing; give at least 1", f.hostile)
	case f.seeds < 1:
		return o, fmt.Errorf("--seeds %d plays nothing; give at least 1", f.seeds)
	case f.jobs < 1:
		return o, fmt.Errorf("--jobs %d plays nothing; give at least 1", f.jobs)
	}
	switch f.fidelity {
	case "typed":
		o.Fidelity = kubesim.Typed
	case "full":
		o.Fidelity = kubesim.Full
	default:
		return o, fmt.Errorf("--fidelity %s is no fidelity; it is typed or full", f.fidelity)
	}
	if f.crash != "" {
		crash, err := testbed.ParseCrash(f.crash)
		if err != nil {
			return o, fmt.Errorf("--crash: %w", err)
		}
		o.Crash = crash
	}
	return o, nil
}

// job is one run to be played.
type job struct {
	scenario *scenarios.Scenario
	options  scenarios.Options
}

func run(t *testing.T, f runFlags, args []string, stdout, stderr io.Writer) error {
	o, err := f.check()
	if err != nil {
		return err
	}
	var list []*scenarios.Scenario
	if f.hostile == 0 {
		if list, err = load(args); err != nil {
			return err
		}
	}
	if f.profile != "" {
		file, err := os.Create(f.profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	var jobs []job
	for _, s := range list {
		for i := range f.seeds {
			seeded := o
			seeded.Seed, seeded.T = f.seed+uint64(i), t
			seeded.Details = f.report != ""
			jobs = append(jobs, job{s, seeded})
		}
	}
	for i := range f.hostile {
		seeded := o
		seeded.Seed, seeded.T, seeded.Details = f.seed+uint64(i), t, f.report != ""
		s, err := scenarios.HostileScenario(seeded.Seed)
		if err != nil {
			return err
		}
		jobs = append(jobs, job{s, seeded})
	}
	if f.trace {
		if len(jobs) != 1 {
			return fmt.Errorf("--trace prints one run, and this would be %d; name one scenario and one seed", len(jobs))
		}
		jobs[0].options.OnNote = func(n sim.Note) { fmt.Fprintln(stdout, n) }
	}
	p := newPrinter(f, len(jobs), stdout, stderr)
	records := playAll(t, jobs, f, p.finished)
	suite := reports.Suite{Name: "Adit scenarios", Version: versionText(), Command: "adit run " + strings.Join(args, " "), Records: records}
	if f.report != "" {
		if err := reports.WriteAll(f.report, suite); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return p.end(suite, f.report)
}

// playAll plays the jobs, some at once, and returns their records in the
// jobs' order. done is called for each in that order too.
func playAll(t *testing.T, jobs []job, f runFlags, done func(int, reports.Record)) []reports.Record {
	records := make([]reports.Record, len(jobs))
	finished := make([]bool, len(jobs))
	next, printed := 0, 0
	var mu sync.Mutex
	var workers sync.WaitGroup
	at := min(f.jobs, len(jobs))
	for range at {
		workers.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(jobs) {
					return
				}
				r := play(jobs[i], f, at)
				mu.Lock()
				records[i], finished[i] = r, true
				for printed < len(jobs) && finished[printed] {
					done(printed, records[printed])
					printed++
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return records
}

func play(j job, f runFlags, share int) reports.Record {
	j.options.Share = share
	j.options.KeepNotes = f.verify
	first := j.scenario.Run(j.options)
	if !f.verify {
		return first.Record
	}
	second := j.scenario.Run(j.options)
	if first.Record.Digest != second.Record.Digest {
		i, a, b := sim.FirstDifference(first.Notes, second.Notes)
		first.Record.Verdict = "fail"
		first.Record.Violations = append(first.Record.Violations, reports.Violation{
			Rule: "determinism",
			Text: fmt.Sprintf("two runs of one seed differ first in note %d: %q and %q", i, a, b),
		})
	}
	return first.Record
}
