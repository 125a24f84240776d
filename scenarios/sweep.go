// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"maps"
	"slices"

	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/testbed"
)

// SweepScenarios are the built-in scenarios whose processes are killed at each
// of their calls: one of each kind of work.
var SweepScenarios = []string{"sweep-place", "sweep-stop", "sweep-migrate", "sweep-cancel", "sweep-drain", "sweep-evacuate"}

// Sweep plays the scenario once for each crash point: each acting process is
// killed at each call of the API or the hardware that it made in the run
// without crashes, before the call and after it. With most above 0, that many
// of a process's points are taken, evenly spread. failed is called for each run
// that did not pass.
func Sweep(s *Scenario, o Options, most int, failed func(reports.Record)) (runs, failures int) {
	calls := s.Run(o).Calls
	for _, process := range slices.Sorted(maps.Keys(calls)) {
		n := calls[process]
		step := 1
		if most > 0 && n > most {
			step = (n + most - 1) / most
		}
		for i := 1; i <= n; i += step {
			for _, after := range []bool{false, true} {
				o.Crash = testbed.Crash{Process: process, Nth: i, After: after}
				r := s.Run(o).Record
				runs++
				if r.Verdict == "fail" {
					failures++
					failed(r)
				}
			}
		}
	}
	return runs, failures
}
