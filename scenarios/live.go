// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"slices"
	"strings"
	"time"

	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/testbed"
)

// Live puts a run on something else than simulation, where the API server and
// the machine take time that no seed decides.
type Live struct {
	Mode    string
	Speed   float64 // of its time
	Runtime testbed.Runtime
}

func (o Options) mode() string {
	if o.Live == nil {
		return "sim"
	}
	return o.Live.Mode
}

func (o Options) runtime() testbed.Runtime {
	if o.Live == nil {
		return nil
	}
	return o.Live.Runtime
}

// What is judged more leniently in a live run. A deadline that is missed by less
// than its slack, or an end that comes true within it, is held; what holds always
// from a moment on begins to count later by settling.
const (
	slackShare = 0.5              // of the time allowed
	slackLeast = 30 * time.Second // and this much more
	settling   = 15 * time.Second
)

// slack is how much longer something may take that may take d.
func (o Options) slack(d time.Duration) time.Duration {
	if o.Live == nil {
		return 0
	}
	return time.Duration(slackShare*float64(d)) + slackLeast
}

// expect returns what a run is held to.
func (s *Scenario) expect(o Options) []Expectation {
	if o.Live == nil {
		return s.Expect
	}
	all := slices.Clone(s.Expect)
	for i := range all {
		switch e := &all[i]; {
		case e.Kind == Eventually:
			e.Until += o.slack(e.Until - e.From)
		case e.Kind != AtEnd && e.From > 0:
			e.From = min(e.From+settling, e.Until)
		}
	}
	return all
}

// lastJudged is when the last expectation of a run is judged at the latest.
func lastJudged(all []Expectation, end time.Duration) time.Duration {
	for _, e := range all {
		if e.Kind == Eventually {
			end = max(end, e.Until)
		}
	}
	return end
}

// NotRun is the record of a run that was not played.
func (s *Scenario) NotRun(o Options, reason string) reports.Record {
	r := s.finish(reports.Record{Seed: o.Seed}, o)
	r.Verdict, r.Reason = reports.NotRun, reason
	return r
}

// NotLive says what of a scenario cannot be played on a real API server; empty
// when all can.
func (s *Scenario) NotLive(mode string) string {
	if len(s.Modes) > 0 && !slices.Contains(s.Modes, mode) {
		return "its file says that it is for " + strings.Join(s.Modes, ", ")
	}
	var what []string
	for i := range s.Timeline {
		if f := s.Timeline[i].Fault; f.OfSimulatedAPI() && !slices.Contains(what, f.Verb()) {
			what = append(what, f.Verb())
		}
	}
	if len(what) > 0 {
		return "a real API server does not take the faults " + strings.Join(what, ", ")
	}
	return ""
}
