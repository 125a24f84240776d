// SPDX-License-Identifier: Apache-2.0

// Package explore looks for what nobody thought of: it draws scenarios from
// seeds, takes what a failing one does not need away, and counts what was met
// on the way.
//
// It owns the dice (which fleets, faults and orders of things there are), what
// must be true of any fleet whatever the dice said, the shrinking, and the books
// of an exploration: how far it came, what it reached and what it never did. It
// must never know how a scenario is played, and who plays how many at once.
package explore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/testbed"
)

// Draw returns a scenario made of dice: a fleet, VMs, and a time of trouble in
// which people and faults do what they can. Then the faults are over but for
// those that were drawn to stay, and in the time that is left all that can be
// well must be well. Which kinds of faults there are is drawn too: where all
// are, each hides the others (swarm testing, Groce et al. 2012).
//
// The same seed gives the same text.
func Draw(seed uint64) []byte {
	g := &gamble{Rand: rand.New(rand.NewPCG(seed, 0xad17))}
	g.highAvailability()
	g.fleet()
	g.workload()
	g.operator()
	g.trouble()
	return g.write(seed)
}

// Played is what became of a seed.
type Played struct {
	Record  reports.Record
	Reached testbed.Reached
	Text    string // of the scenario that was judged
}

// Play plays what a seed draws. A fleet that is unsafe has failed; one that is
// only not well in time is played once more, with patience.
func Play(seed uint64, o scenarios.Options) (Played, error) {
	o.Seed = seed
	text := string(Draw(seed))
	s, err := Parse(seed, text)
	if err != nil {
		return Played{Text: text}, fmt.Errorf("seed %d draws no good scenario: %w", seed, err)
	}
	out := s.Run(o)
	if impatient(out.Record) {
		text = Patient(text)
		if s, err = Parse(seed, text); err != nil {
			return Played{Text: text}, fmt.Errorf("seed %d, with patience: %w", seed, err)
		}
		out = s.Run(o)
	}
	return Played{out.Record, out.Reached, text}, nil
}

// impatient says whether only what has to be true in the end was not.
func impatient(r reports.Record) bool {
	return r.Verdict == "fail" && !slices.ContainsFunc(r.Violations, func(v reports.Violation) bool { return !strings.HasPrefix(v.Rule, "end: ") })
}

// Parse reads a drawn scenario, whole or shrunk.
func Parse(seed uint64, text string) (*scenarios.Scenario, error) {
	return scenarios.Parse(Name(seed)+".yaml", []byte(text), os.ReadFile)
}

// Name is what a seed's scenario is called.
func Name(seed uint64) string { return fmt.Sprintf("seed-%d", seed) }

// gamble is a scenario in the making.
type gamble struct {
	*rand.Rand
	hosts, vms                      []string // names
	racks                           [][]string
	fleetLines, groupLines, options []string
	steps                           []timed
	faults                          int // steps that are faults

	whole, heal time.Duration // of the run; of the trouble
	stays       bool          // maintenance and evictions outlast the trouble
	postCopy    bool

	ha      []string // what the HA service is told; nil: there is none
	locks   bool     // of the storage
	feeds   []string
	toggled bool // a person changed what high availability covers

	broken             []string // hosts with a fault that stays
	killed, poweredOff []string // VMs whose QEMU or guest a fault ends
	hostsDie           bool     // a host loses its VMs
	identities         bool     // a host turned into another
}

type timed struct {
	at   time.Duration
	line string
}

func (g *gamble) chance(p float64) bool { return g.Float64() < p }

func (g *gamble) span(from, to time.Duration) time.Duration {
	return from + time.Duration(g.Int64N(int64(to-from)+1)).Truncate(time.Second)
}

func one[T any](g *gamble, of ...T) T { return of[g.IntN(len(of))] }

func (g *gamble) host() string { return one(g, g.hosts...) }
func (g *gamble) vm() string   { return one(g, g.vms...) }

// rack is all hosts of a rack, as on= takes them.
func (g *gamble) rack() string { return join(one(g, g.racks...)) }

func join(hosts []string) string { return strings.Join(hosts, ",") }

func (g *gamble) write(seed uint64) []byte {
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("about: A fleet meets what the dice of seed %d have for it, and is then left in peace.", seed)
	line("why: Whatever comes together, nothing unsafe happens, and once it is over all that can be well is, or says why not.")
	line("for: %v", g.whole)
	line("fleet:\n%s", strings.Join(g.fleetLines, "\n"))
	line("workload:\n%s", strings.Join(g.groupLines, "\n"))
	if len(g.options) > 0 {
		line("operator: {%s}", strings.Join(g.options, ", "))
	}
	if g.ha != nil {
		line("ha: {%s}", strings.Join(g.ha, ", "))
	}
	if !g.locks {
		line("storage: {locks: false}")
	}
	slices.SortStableFunc(g.steps, func(a, b timed) int { return int(a.at - b.at) })
	line("timeline:")
	for _, s := range g.steps {
		line("- {at: %v, %s}", s.at, s.line)
	}
	line("expect:")
	for _, e := range g.expectations() {
		line("- {end: '%s', because: %q}", e[0], e[1])
	}
	return b.Bytes()
}
