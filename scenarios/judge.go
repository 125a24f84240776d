// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"time"

	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/sim"
	"github.com/adit-hv/adit/testbed"
)

// judge plays a scenario's timeline into a world and looks at its expectations
// whenever the world may have changed.
type judge struct {
	s          *Scenario
	w          *testbed.World
	expect     []Expectation
	until      time.Duration // the last look
	patience   time.Duration // how long an end may take to come true
	waiting    []*Step       // steps that wait for an expression
	states     []state
	seen       uint64 // the world's generation at the last look
	violations []reports.Violation
}

// state is how an expectation stands.
type state struct {
	done   bool // judged for good
	failed bool
	at     time.Duration
	looks  uint64
	judged bool  // some look was without an error
	err    error // of the last look
}

func newJudge(s *Scenario, o Options, w *testbed.World) *judge {
	all := s.expect(o)
	return &judge{
		s: s, w: w, expect: all, until: lastJudged(all, s.For), patience: o.slack(0),
		states: make([]state, len(all)), seen: ^uint64(0),
	}
}

// start puts the timeline into the scheduler and begins to look.
func (j *judge) start() {
	for i := range j.s.Timeline {
		step := &j.s.Timeline[i]
		j.w.Scheduler.At(step.At, func() {
			if step.When == nil {
				j.play(step)
				return
			}
			j.waiting = append(j.waiting, step)
		})
	}
	j.look()
}

func (j *judge) play(step *Step) {
	switch {
	case step.Heal:
		j.w.Heal()
	case step.Fault.String() != "":
		_ = j.w.Inject(step.Fault) // What is refused is noted, and may be what is to be seen.
	default:
		_ = j.w.Do(step.Do)
	}
}

// How often a world is looked at, at most: often enough that a step that waits
// for a phase of a migration finds it, and no oftener than its view costs.
const (
	lookClosely = 20 * time.Millisecond
	lookAround  = time.Second
	lookPerVM   = 2 * time.Millisecond // a view of 1,000 VMs takes that much longer
)

// look judges what can be judged now, and comes back.
func (j *judge) look() {
	if g := j.w.Generation(); g != j.seen || j.windowOpens() {
		j.seen = g
		j.judge()
	}
	next := max(lookAround, time.Duration(j.w.Created())*lookPerVM)
	if len(j.waiting) > 0 {
		next = lookClosely
	}
	if now := j.w.Scheduler.Elapsed(); now+next <= j.until {
		j.w.Scheduler.After(next, j.look)
	}
}

// windowOpens reports whether an expectation begins or ends to count between
// this look and the last, so that it is judged although nothing changed.
func (j *judge) windowOpens() bool {
	now := j.w.Scheduler.Elapsed()
	for i, e := range j.expect {
		if st := j.states[i]; !st.done && e.Kind != AtEnd && now >= e.From && (st.looks == 0 || now >= e.Until) {
			return true
		}
	}
	return false
}

func (j *judge) judge() {
	if !j.needed() {
		return
	}
	view := j.w.View()
	now := j.w.Scheduler.Elapsed()
	j.steps(view, now)
	for i, e := range j.expect {
		st := &j.states[i]
		if st.done || e.Kind == AtEnd || now < e.From {
			continue
		}
		j.judgeOne(i, e, view, now)
	}
}

func (j *judge) needed() bool {
	if len(j.waiting) > 0 {
		return true
	}
	now := j.w.Scheduler.Elapsed()
	for i, e := range j.expect {
		if !j.states[i].done && e.Kind != AtEnd && now >= e.From {
			return true
		}
	}
	return false
}

func (j *judge) steps(view map[string]any, now time.Duration) {
	still := j.waiting[:0]
	for _, step := range j.waiting {
		if holds, err := step.When.Holds(view); err != nil || !holds {
			still = append(still, step)
			continue
		}
		j.w.Scheduler.Note(sim.Note{Component: "scenario", What: "when", Object: step.Text})
		j.w.Scheduler.After(step.Delay, func() { j.play(step) })
	}
	j.waiting = still
}

func (j *judge) judgeOne(i int, e Expectation, view map[string]any, now time.Duration) {
	st := &j.states[i]
	st.looks++
	holds, err := e.Program.Holds(view)
	st.judged, st.err = st.judged || err == nil, err
	switch {
	case e.Kind == Eventually && holds:
		st.done, st.at = true, now
	case e.Kind == Eventually && now >= e.Until:
		j.fail(i, now, fmt.Sprintf("was not true at any time from %v to %v%s", e.From, e.Until, because(err)))
	case e.Kind == Always && !holds:
		j.fail(i, now, "was not true"+because(err)+of(e, view))
	case e.Kind == Never && holds:
		j.fail(i, now, "was true")
	case e.Kind == Never && !st.judged && now >= e.Until:
		j.fail(i, now, "could not be judged at any look, and shows nothing"+because(st.err))
	case now >= e.Until:
		st.done, st.at = true, now
	}
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

func (j *judge) fail(i int, now time.Duration, text string) {
	e := j.expect[i]
	j.states[i].done, j.states[i].failed, j.states[i].at = true, true, now
	if e.Because != "" {
		text += "; it matters because " + e.Because
	}
	j.violations = append(j.violations, reports.Violation{At: now.Seconds(), Rule: string(e.Kind) + ": " + e.Text, Text: text})
	j.w.Scheduler.Note(sim.Note{Component: "scenario", What: "violated", Object: e.Text, Detail: text})
}

// undecided says whether something may still come true in time.
func (j *judge) undecided() bool {
	now := j.w.Scheduler.Elapsed()
	for i, e := range j.expect {
		if !j.states[i].done && e.Kind == Eventually && now < e.Until {
			return true
		}
	}
	return false
}

// ended says whether all is true that has to be at the end.
func (j *judge) ended() bool {
	view := j.w.View()
	for _, e := range j.expect {
		if e.Kind == AtEnd {
			if holds, err := e.Program.Holds(view); err != nil || !holds {
				return false
			}
		}
	}
	return true
}

// wait gives a live run the time that it may take longer.
func (j *judge) wait() {
	for j.w.Scheduler.Elapsed() < j.until && j.undecided() && !j.w.Over() {
		j.w.Run(j.w.Scheduler.Elapsed() + time.Second)
	}
	for patience := j.patience; patience > 0 && !j.w.Over() && !j.ended(); patience -= time.Second {
		j.w.Run(j.w.Scheduler.Elapsed() + time.Second)
	}
}

// end judges what is judged at the end of the run.
func (j *judge) end() {
	j.wait()
	view, now := j.w.View(), j.w.Scheduler.Elapsed()
	for i, e := range j.expect {
		st := &j.states[i]
		if st.done {
			continue
		}
		if e.Kind != AtEnd {
			j.judgeOne(i, e, view, max(now, e.Until))
			continue
		}
		st.looks++
		if holds, err := e.Program.Holds(view); holds {
			st.done, st.at = true, now
		} else {
			j.fail(i, now, "is not true at the end"+because(err)+of(e, view))
		}
	}
	for _, step := range j.waiting {
		j.violations = append(j.violations, reports.Violation{
			At: now.Seconds(), Rule: "timeline: " + step.Text,
			Text: fmt.Sprintf("never came: its condition %s did not hold; the run has not shown what it is for", step.When.text),
		})
	}
}

func (j *judge) checks() []reports.Check {
	var out []reports.Check
	for i, e := range j.expect {
		c := reports.Check{Name: string(e.Kind) + ": " + e.Text, Text: e.Because, Result: "held", At: j.states[i].at.Seconds(), Checks: j.states[i].looks}
		if j.states[i].failed {
			c.Result = "violated"
		}
		out = append(out, c)
	}
	return out
}
