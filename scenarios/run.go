// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/sim"
	"github.com/adit-hv/adit/testbed"
)

// Options say how a scenario is run; they change nothing it means.
type Options struct {
	Seed     uint64
	Fidelity kubesim.Fidelity

	// T holds the synctest bubble of the run; nil runs without one.
	T *testing.T

	Details     bool           // fill in what the page draws
	KeepNotes   bool           // return the trace
	OnNote      func(sim.Note) // see each note as it is made
	EagerLeases bool
	Crash       testbed.Crash

	// Share is how many runs share the processor's time, for CPUSeconds; 0 is 1.
	Share int

	// Live is where the world lives; nil is the simulator.
	Live *Live

	// SkipSettle leaves out the settling at the end, for measurements of the run
	// itself.
	SkipSettle bool
}

// Outcome is what a run leaves.
type Outcome struct {
	Record reports.Record
	Notes  []sim.Note
	Calls  map[string]int // crash points that each process passed
	Died   bool           // the process that Options.Crash names died at its instant

	Reached testbed.Reached
}

// Run plays the scenario once.
func (s *Scenario) Run(o Options) Outcome {
	var out Outcome
	before := cpuTime()
	if o.Live != nil {
		o.T = nil // Its goroutines and clocks are real.
	}
	inBubble(o.T, func(advance func(time.Duration)) { out = s.run(o, advance) })
	out.Record.CPUSeconds = (cpuTime() - before).Seconds() / float64(max(1, o.Share))
	return out
}

// LookAt plays the scenario up to a moment and shows the world as it is then.
func (s *Scenario) LookAt(o Options, at time.Duration, look func(*testbed.World)) (err error) {
	inBubble(o.T, func(advance func(time.Duration)) {
		var w *testbed.World
		if w, err = testbed.New(s.Spec, testbed.Options{Seed: o.Seed, Fidelity: o.Fidelity, Advance: advance}); err != nil {
			return
		}
		defer w.Close()
		newJudge(s, o, w).start()
		w.Run(at)
		look(w)
	})
	return err
}

// cpuTime is the processor time this program has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// lastNotes is how many notes of a failed run the report shows.
const lastNotes = 40

func (s *Scenario) run(o Options, advance func(time.Duration)) Outcome {
	recent := ring{}
	w, err := testbed.New(s.Spec, testbed.Options{
		Runtime: o.runtime(),
		Seed:    o.Seed, Fidelity: o.Fidelity, Advance: advance, KeepNotes: o.KeepNotes, EagerLeases: o.EagerLeases, Crash: o.Crash,
		OnNote: func(n sim.Note) {
			recent.add(n)
			if o.OnNote != nil {
				o.OnNote(n)
			}
		},
	})
	if err != nil {
		return Outcome{Record: s.finish(reports.Record{Seed: o.Seed, Mode: "sim", Violations: []reports.Violation{{Rule: "testbed", Text: err.Error()}}}, o)}
	}
	defer w.Close()
	j := newJudge(s, o, w)
	j.start()
	w.Run(s.For)
	j.end()
	if !o.SkipSettle {
		w.Settle()
	}
	if w.Over() {
		return Outcome{Record: s.NotRun(o, "interrupted")}
	}
	r := w.Record()
	r.Violations = append(r.Violations, j.violations...)
	r.Violations = append(r.Violations, s.overBudget(r, o)...)
	if o.Details {
		w.Details(&r)
		r.Expectations = j.checks()
	}
	r = s.finish(r, o)
	if r.Verdict == "fail" {
		r.LastNotes = recent.lines()
	}
	out := Outcome{Record: r, Notes: w.Scheduler.Notes(), Calls: map[string]int{}, Reached: w.Reached()}
	for _, name := range w.Processes() {
		p := w.Process(name)
		out.Calls[name] = p.Calls()
		out.Died = out.Died || name == o.Crash.Process && p.Restarts() > 0
	}
	return out
}

func (s *Scenario) finish(r reports.Record, o Options) reports.Record {
	r.Scenario, r.File, r.About = s.Name, s.File, s.About
	r.Mode = o.mode()
	r.Verdict = "pass"
	if len(r.Violations) > 0 {
		r.Verdict = "fail"
	}
	r.Replay = fmt.Sprintf("adit run %s --seed %d", s.asTyped(), o.Seed)
	if o.Live != nil {
		r.Replay += fmt.Sprintf(" --mode %s --speed %v", o.Live.Mode, o.Live.Speed)
	}
	if o.Fidelity == kubesim.Full {
		r.Replay += " --fidelity full"
	}
	if o.Crash.Process != "" {
		r.Replay += " --crash " + Quoted(o.Crash.String())
	}
	return r
}

func (s *Scenario) overBudget(r reports.Record, o Options) []reports.Violation {
	var out []reports.Violation
	if o.Live != nil {
		return nil // A budget counts what a seed decides.
	}
	for _, b := range []struct {
		name        string
		used, bound uint64
	}{{"apiWrites", r.APIWrites, s.Budget.APIWrites}, {"events", r.Events, s.Budget.Events}} {
		if b.bound > 0 && b.used > b.bound {
			out = append(out, reports.Violation{At: r.VirtualSeconds, Rule: "budget", Text: fmt.Sprintf("%d %s, and the budget is %d", b.used, b.name, b.bound)})
		}
	}
	return out
}

// ring keeps the last notes of a run.
type ring struct {
	notes [lastNotes]sim.Note
	n     int
}

func (r *ring) add(n sim.Note) {
	r.notes[r.n%lastNotes] = n
	r.n++
}

func (r *ring) lines() []string {
	var out []string
	for i := max(0, r.n-lastNotes); i < r.n; i++ {
		out = append(out, r.notes[i%lastNotes].String())
	}
	return slices.Clip(out)
}

// asTyped is the scenario as adit run takes it: a built-in one's name, or a file.
func (s *Scenario) asTyped() string {
	switch {
	case s.builtIn:
		return s.Name
	case strings.HasPrefix(s.File, "-"):
		return Quoted("./" + s.File)
	}
	return Quoted(s.File)
}

// Quoted is a word as a shell takes it.
func Quoted(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_./:@%+=,-", r))
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
