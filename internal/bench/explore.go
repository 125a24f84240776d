// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/scenarios/explore"
)

// exploreSeeds is how many runs the figure of explore rests on.
const exploreSeeds = 200

// exploration measures how many seeds a minute two cores explore.
func exploration(t *testing.T, f *figures) error {
	var next, failed atomic.Int64
	start, before := time.Now(), cpu()
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for n := uint64(next.Add(1)); n <= exploreSeeds; n = uint64(next.Add(1)) {
				played, err := explore.Play(n, scenarios.Options{T: t})
				if err == nil && played.Record.Verdict == "pass" {
					continue
				}
				failed.Add(1)
				fmt.Fprintf(os.Stderr, "bench: adit explore --seeds %d does not pass\n", n)
			}
		})
	}
	workers.Wait()
	f.add("explore.seeds_per_minute", exploreSeeds/time.Since(start).Minutes(), "1/min")
	f.add("explore.cpu_per_seed", (cpu()-before).Seconds()/exploreSeeds, "s")
	f.add("explore.failed", failed.Load(), "runs")
	return nil
}
