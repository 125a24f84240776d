// SPDX-License-Identifier: Apache-2.0

package reports

// The limits of what the page and the trace draw. A page must open in a
// browser and pass through mail and CI artefact stores: under 10 MB in all.
const (
	maxFailures = 20      // runs that failed and are drawn
	maxDetails  = 6 << 20 // bytes of drawn runs in a page; the rows need the rest
)

// kept says which runs are drawn, by index: failed ones first, then of each
// scenario the first that passed in each mode. The others are rows only: seeds of one
// scenario look alike until one fails.
func kept(all []Record) []int {
	var out []int
	for i, r := range all {
		if r.Verdict == Fail && drawable(r) && len(out) < maxFailures {
			out = append(out, i)
		}
	}
	shown := map[[2]string]bool{}
	for i, r := range all {
		key := [2]string{r.Scenario, r.Mode}
		if r.Verdict != Fail && drawable(r) && !shown[key] {
			shown[key] = true
			out = append(out, i)
		}
	}
	return out
}

// drawable says whether a record has more than its line.
func drawable(r Record) bool {
	return len(r.Hosts)+len(r.VMs)+len(r.Migrations)+len(r.Spans)+len(r.Marks)+len(r.Expectations)+
		len(r.Invariants)+len(r.API)+len(r.WritesOver)+len(r.Percentiles)+len(r.LastNotes) > 0
}
