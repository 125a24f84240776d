// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	speed    float64
	cluster  clusterFlags
	output   string
	report   string
	fidelity string
	jobs     int
	verify   bool
	crash    string
	trace    bool
	profile  string
	command  string // as it was typed
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
  adit run -o json | jq .verdict            one object a run, for programs
  adit run drain-a-host --mode sim,cluster  in the simulator and on a real API server

In mode cluster the operator, the HA service and the agents run against a real
Kubernetes API server, with simulated hosts that follow the wall clock, --speed
times as fast. One is started for each run (make controlplane builds it), or
--kubeconfig names one, which must hold nothing of Adit and is left as it was.

Exit codes: 0, all passed; 1, something did not hold; 2, the input is wrong, and
nothing was run; 130, interrupted.`,
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, args []string) error {
			f.command = typed(c, args)
			if f.live() && !c.Flags().Changed("jobs") {
				f.jobs = 1 // A world on the wall clock needs the machine for itself.
			}
			return run(t, f, args, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().Uint64Var(&f.seed, "seed", 1, "the first seed")
	c.Flags().IntVar(&f.seeds, "seeds", 1, "how many seeds, counting up from --seed")
	c.Flags().StringVar(&f.mode, "mode", "sim", "what the scenarios are played on: sim, the simulator; cluster, a real Kubernetes API server with simulated hosts; or sim,cluster, one after the other")
	c.Flags().StringVar(&f.cluster.kubeconfig, "kubeconfig", "", "of --mode cluster: the kubeconfig of the cluster to play on; without one, a control plane is started for each run")
	c.Flags().StringVar(&f.cluster.context, "context", "", "of --kubeconfig: the context in it; its current one when left out")
	c.Flags().Float64Var(&f.speed, "speed", 10, "of --mode cluster: how much faster than the wall clock the world's time passes")
	c.Flags().StringVarP(&f.output, "output", "o", "text", "what is printed: text, or json with one object a run")
	c.Flags().StringVar(&f.report, "report", "", "folder for the report: index.html, junit.xml, report.json, trace.json")
	c.Flags().StringVar(&f.fidelity, "fidelity", "typed", "of the simulated API: typed, or full with every CRD rule at each write")
	c.Flags().IntVarP(&f.jobs, "jobs", "j", runtime.GOMAXPROCS(0), "runs at once")
	c.Flags().BoolVar(&f.verify, "verify", false, "play each run twice and compare the digests")
	c.Flags().StringVar(&f.crash, "crash", "", "kill a process at one of its calls, as operator:17:after")
	c.Flags().BoolVar(&f.trace, "trace", false, "print each note of the trace (of one run)")
	c.Flags().StringVar(&f.profile, "cpuprofile", "", "write a CPU profile to this file")
	for flag, values := range map[string][]string{"mode": {modeSim, modeCluster, modeSim + "," + modeCluster}, "output": {"text", "json"}, "fidelity": {"typed", "full"}} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return c
}

// The modes: in the simulator, and on a real Kubernetes API server.
const (
	modeSim     = "sim"
	modeCluster = "cluster"
)

// live says whether some runs are on a real API server.
func (f runFlags) live() bool { return strings.Contains(f.mode, modeCluster) }

// maxSpeed is where an API call of some milliseconds takes the world a second.
const maxSpeed = 100

// maxSeeds is how many seeds are played at once: a day's work.
const maxSeeds = 1_000_000

// check refuses flags that cannot be meant.
func (f runFlags) check() (scenarios.Options, error) {
	o := scenarios.Options{}
	switch {
	case !slices.Contains([]string{modeSim, modeCluster, modeSim + "," + modeCluster}, f.mode):
		return o, fmt.Errorf("--mode %s is no mode; the modes are: sim, cluster, and sim,cluster for both", f.mode)
	case f.live() && (f.speed <= 0 || f.speed > maxSpeed):
		return o, fmt.Errorf("--speed %v: give a number above 0 and up to %v; 1 is the wall clock's", f.speed, maxSpeed)
	case f.live() && (f.verify || f.crash != ""):
		return o, errors.New("--verify and --crash need a run that a seed decides; leave out --mode cluster")
	case !f.live() && f.cluster != (clusterFlags{}):
		return o, errors.New("--kubeconfig and --context say where --mode cluster plays; the simulator has an API of its own")
	case f.output != "text" && f.output != "json":
		return o, fmt.Errorf("-o %s is no output; it is text or json", f.output)
	case f.seeds < 1:
		return o, fmt.Errorf("--seeds %d plays nothing; give at least 1", f.seeds)
	case f.seeds > maxSeeds:
		return o, fmt.Errorf("more than %d seeds are more than one program plays; give fewer", maxSeeds)
	case f.seed+uint64(f.seeds)-1 < f.seed:
		return o, fmt.Errorf("--seed %d and those after it do not fit into 64 bits; begin lower", f.seed)
	case f.jobs < 1:
		return o, fmt.Errorf("--jobs %d plays nothing; give at least 1", f.jobs)
	case f.trace && f.output == "json":
		return o, errors.New("--trace prints lines between the objects of -o json; leave out one of the two")
	}
	switch f.fidelity {
	case "typed":
		o.Fidelity = kubesim.Typed
	case "full":
		o.Fidelity = kubesim.Full
	default:
		return o, fmt.Errorf("--fidelity %s is no fidelity; it is typed or full", f.fidelity)
	}
	if f.live() {
		o.Live = &scenarios.Live{Mode: modeCluster, Speed: f.speed}
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
	jobs, err := plan(t, f, args)
	if err != nil {
		return err
	}
	if f.report != "" {
		if err := canReport("--report", f.report); err != nil {
			return err
		}
	}
	if f.trace {
		jobs[0].options.OnNote = func(n sim.Note) { fmt.Fprintln(stdout, n) }
	}
	if f.profile != "" {
		file, err := os.Create(f.profile)
		if err != nil {
			return fmt.Errorf("--cpuprofile: %w", err)
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return fmt.Errorf("--cpuprofile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	p := newPrinter(f, len(jobs), stdout, stderr)
	records, interrupted := playAll(jobs, f, p.finished, interrupts)
	suite := reports.Suite{Name: "Adit scenarios", Version: versionText(), Command: f.command, Records: records}
	if interrupted {
		return p.interrupted(suite)
	}
	if f.report != "" {
		if err := reports.WriteAll(f.report, suite); err != nil {
			return err
		}
	}
	return p.end(suite, f.report)
}

// plan lists the runs, and refuses what can be refused before the first.
func plan(t *testing.T, f runFlags, args []string) ([]job, error) {
	o, err := f.check()
	if err != nil {
		return nil, err
	}
	var jobs []job
	add := func(s *scenarios.Scenario, seed uint64, mode string) {
		seeded := o
		seeded.Live = nil
		if mode == modeCluster {
			live := *o.Live // Each run has a runtime of its own.
			seeded.Live = &live
		}
		seeded.Seed, seeded.T, seeded.Details = seed, t, f.report != ""
		jobs = append(jobs, job{s, seeded})
	}
	list, err := load(args)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		for i := range f.seeds {
			for mode := range strings.SplitSeq(f.mode, ",") {
				add(s, f.seed+uint64(i), mode)
			}
		}
	}
	for _, j := range jobs {
		if process := o.Crash.Process; process != "" && !slices.Contains(j.scenario.Spec.Processes(), process) {
			return nil, fmt.Errorf("--crash: %s has no process %s; %s", j.scenario.Name, process, testbed.ProcessesSaid(j.scenario.Spec.Processes()))
		}
	}
	if f.trace && len(jobs) != 1 {
		return nil, fmt.Errorf("--trace prints one run, and this would be %d; name one scenario and one seed", len(jobs))
	}
	return jobs, nil
}

// canReport tries to write where a flag says the report is to be, so that no one
// waits an hour for runs whose report cannot be kept.
func canReport(flag, dir string) error {
	at := filepath.Clean(dir)
	for {
		info, err := os.Stat(at)
		switch {
		case err == nil && !info.IsDir():
			return fmt.Errorf("%s %s: %s is a file; name a folder", flag, dir, at)
		case err == nil:
			probe, err := os.MkdirTemp(at, ".report-*")
			if err != nil {
				return fmt.Errorf("%s %s: %w; name a folder that can be written", flag, dir, err)
			}
			return os.Remove(probe)
		case !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at):
			return fmt.Errorf("%s %s: %w; name a folder that can be written", flag, dir, err)
		}
		at = filepath.Dir(at)
	}
}

// typed is the command as a person would type it again.
func typed(c *cobra.Command, args []string) string {
	words := []string{"adit run"}
	for _, a := range args {
		words = append(words, scenarios.Quoted(a))
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		word := "--" + f.Name
		if f.Value.Type() != "bool" {
			word += " " + scenarios.Quoted(f.Value.String())
		}
		words = append(words, word)
	})
	return strings.Join(words, " ")
}

// playAll plays the jobs, some at once, and returns their records in the
// jobs' order. done is called for each in that order too. An interrupt ends it
// at once: the runs under way are left behind, but for those on a real API server,
// which are ended and cleaned up after; those that are done are returned.
func playAll(jobs []job, f runFlags, done func(int, reports.Record), interrupts <-chan os.Signal) (records []reports.Record, interrupted bool) {
	type result struct {
		i      int
		record reports.Record
	}
	at := min(f.jobs, len(jobs))
	if f.cluster != (clusterFlags{}) {
		at = 1 // One world a cluster.
	}
	if os.Getenv("GOMAXPROCS") == "" {
		// A run is one thread of events: a processor more than there are runs
		// only costs hand-overs.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(at))
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	results := make(chan result, len(jobs)) // Nobody waits for who listens no more.
	var next atomic.Int64
	var workers sync.WaitGroup
	for range at {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(jobs); i = int(next.Add(1)) - 1 {
				results <- result{i, play(ctx, jobs[i], f, at)}
			}
		})
	}
	early := map[int]reports.Record{} // done before one that was begun earlier
	for len(records) < len(jobs) {
		select {
		case <-interrupts:
			next.Store(int64(len(jobs)))
			if f.live() { // What it made in somebody's cluster has to go.
				end()
				workers.Wait()
			}
			return records, true
		case r := <-results:
			early[r.i] = r.record
		}
		for r, there := early[len(records)]; there; r, there = early[len(records)] {
			delete(early, len(records))
			done(len(records), r)
			records = append(records, r)
		}
	}
	return records, false
}

func play(ctx context.Context, j job, f runFlags, share int) reports.Record {
	j.options.Share = share
	if j.options.Live != nil {
		return playLive(ctx, j, f)
	}
	j.options.KeepNotes = f.verify
	first := j.scenario.Run(j.options)
	r := first.Record
	if crash := j.options.Crash; crash.Process != "" && !first.Died {
		r.Verdict = "notrun"
		r.Reason = fmt.Sprintf("--crash %s: %s made %d calls in this run; name one of them", crash, crash.Process, first.Calls[crash.Process])
	}
	if !f.verify {
		return r
	}
	j.options.OnNote = nil // the trace is of the first
	second := j.scenario.Run(j.options)
	r.Replay += " --verify"
	if r.Digest != second.Record.Digest {
		i, a, b := sim.FirstDifference(first.Notes, second.Notes)
		r.Verdict = "fail"
		r.Violations = append(r.Violations, reports.Violation{
			Rule: "determinism",
			Text: fmt.Sprintf("two runs of one seed differ first in note %d: %q and %q", i, a, b),
		})
	}
	return r
}
