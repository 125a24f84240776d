// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/adit-hv/adit/testbed"
)

// Coverage counts what runs have been through: which decisions were written, in
// which state of the host they were about and under which faults, and which
// faults met. What it does not hold has never been tried.
type Coverage struct {
	Faults map[string]int            `json:"faults"` // begun, by kind
	Points map[string]map[string]int `json:"points"` // by decision: by "STATE FAULT", "-" for none
	Pairs  map[string]int            `json:"pairs"`  // by "KIND KIND" of which one began while the other lasted
}

// NewCoverage returns one that holds nothing.
func NewCoverage() *Coverage {
	return &Coverage{Faults: map[string]int{}, Points: map[string]map[string]int{}, Pairs: map[string]int{}}
}

// Add counts what one run has been through.
func (c *Coverage) Add(r testbed.Reached) {
	for kind, n := range r.Faults {
		c.Faults[kind] += n
	}
	for pair, n := range r.Pairs {
		c.Pairs[pair[0]+" "+pair[1]] += n
	}
	for place, n := range r.Places {
		under := c.Points[place.Point]
		if under == nil {
			under = map[string]int{}
			c.Points[place.Point] = under
		}
		under[cmp.Or(place.State, "-")+" "+cmp.Or(place.Fault, "-")] += n
	}
}

// Injected is how many faults have begun.
func (c *Coverage) Injected() (n int) {
	for _, k := range c.Faults {
		n += k
	}
	return n
}

// FamilyCount is how many faults have struck one kind of thing.
type FamilyCount struct {
	Name  string
	Count int
}

// Families are the faults that have begun by what they strike, by name.
func (c *Coverage) Families() (out []FamilyCount) {
	sums := map[string]int{}
	for kind, n := range c.Faults {
		sums[family(kind)] += n
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, FamilyCount{name, sums[name]})
	}
	return out
}

// States is how many different decisions, states and faults have come together.
func (c *Coverage) States() (n int) {
	for _, under := range c.Points {
		n += len(under)
	}
	return n
}

// Blind is what an exploration never saw.
type Blind struct {
	Faults []string `json:"faults"` // kinds that never began
	Points []string `json:"points"` // decisions that were never written
	Pairs  []string `json:"pairs"`  // kinds that never met
}

// Blind lists what was never seen, of what is known to be there.
func (c *Coverage) Blind() Blind {
	b := Blind{Faults: []string{}, Points: []string{}, Pairs: []string{}}
	kinds := slices.Sorted(slices.Values(testbed.FaultKinds()))
	for i, kind := range kinds {
		if c.Faults[kind] == 0 {
			b.Faults = append(b.Faults, kind)
		}
		for _, other := range kinds[i+1:] {
			if c.Pairs[kind+" "+other] == 0 {
				b.Pairs = append(b.Pairs, kind+" "+other)
			}
		}
	}
	for _, p := range testbed.Points {
		if len(c.Points[p]) == 0 {
			b.Points = append(b.Points, p)
		}
	}
	return b
}

// Table prints the coverage for people: each decision by the families of faults
// it was taken under, each family by those it met, and what was never seen.
func (c *Coverage) Table(w io.Writer) {
	families := families()
	var points []row
	for _, p := range slices.Sorted(maps.Keys(c.Points)) {
		r := row{name: p, counts: map[string]int{}}
		for under, n := range c.Points[p] {
			_, kind, _ := strings.Cut(under, " ")
			r.counts[family(kind)] += n
		}
		points = append(points, r)
	}
	c.known(&points)
	fmt.Fprintln(w, "Decisions, by the faults that lasted (- none):")
	print(w, append([]string{"-"}, families...), points)

	var pairs []row
	for _, f := range families {
		r := row{name: f, counts: map[string]int{}}
		for pair, n := range c.Pairs {
			a, b, _ := strings.Cut(pair, " ")
			if family(a) == f {
				r.counts[family(b)] += n
			}
			if family(b) == f && family(a) != f {
				r.counts[family(a)] += n
			}
		}
		pairs = append(pairs, r)
	}
	fmt.Fprintln(w, "\nFaults that met:")
	print(w, families, pairs)

	b := c.Blind()
	fmt.Fprintf(w, "\nNever seen: %d of %d pairs of faults\n", len(b.Pairs), pairsOf(len(testbed.FaultKinds())))
	for _, never := range []struct {
		what string
		list []string
	}{{"faults", b.Faults}, {"decisions", b.Points}} {
		if len(never.list) > 0 {
			fmt.Fprintf(w, "Never seen, %s: %s\n", never.what, strings.Join(never.list, ", "))
		}
	}
}

// known adds the decisions that were never written.
func (c *Coverage) known(rows *[]row) {
	for _, p := range c.Blind().Points {
		*rows = append(*rows, row{name: p})
	}
	slices.SortStableFunc(*rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
}

func families() (out []string) {
	for _, kind := range testbed.FaultKinds() {
		out = append(out, family(kind))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// family is what a kind of fault strikes.
func family(kind string) string {
	f, _, _ := strings.Cut(kind, ".")
	return f
}

func pairsOf(n int) int { return n * (n - 1) / 2 }

type row struct {
	name   string
	counts map[string]int
}

// column is how wide a column of numbers is.
const column = 7

func print(w io.Writer, columns []string, rows []row) {
	fmt.Fprintf(w, "%-26s", "")
	for _, c := range columns {
		fmt.Fprintf(w, "%*s", column, c[:min(len(c), column-1)])
	}
	fmt.Fprintln(w)
	for _, r := range rows {
		fmt.Fprintf(w, "%-26s", r.name)
		for _, c := range columns {
			fmt.Fprintf(w, "%*s", column, short(r.counts[c]))
		}
		fmt.Fprintln(w)
	}
}

// short is a count in six characters at most.
func short(n int) string {
	switch {
	case n == 0:
		return "."
	case n < 10_000:
		return fmt.Sprint(n)
	case n < 1_000_000:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprintf("%dM", n/1_000_000)
}
