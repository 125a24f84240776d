// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/scenarios"
)

// rackLost is when the rack loses its power.
const rackLost = 25 * time.Minute

// rackText is a fleet of 1,000 hosts with 20 VMs each, in 5 zones of 5 racks, of
// which one loses its power: its hosts and their management controllers at once.
func rackText() string {
	text := `
about: One of 25 racks with 40 hosts each loses its power, and 800 of 20,000 VMs run again elsewhere.
for: 35m
ha: {}
fleet:
`
	for rack := range 25 {
		text += fmt.Sprintf("- {name: r%02d-n, count: 40, zone: %c, rack: r%02d}\n", rack+1, 'a'+rune(rack/5), rack+1)
	}
	text += "workload:\n"
	for _, priority := range []struct {
		name  string
		count int
	}{{"high", 2000}, {"medium", 16000}, {"low", 2000}} {
		text += fmt.Sprintf("- {name: %s, count: %d, every: %dms, cpus: 2, memory: 4Gi, restart: %s}\n", priority.name, priority.count, 600000/priority.count, priority.name)
	}
	return text + fmt.Sprintf(`
timeline:
- {at: %v, fault: feed.off feed=r07}
expect:
- {end: 'vms.all(v, v.running && v.on.size() == 1)'}
- {end: 'hosts.filter(h, h.fences > 0).size() == 40 && fences == 40'}
`, rackLost)
}

// rack measures how a fleet comes through the loss of a rack.
func rack(t *testing.T, f *figures) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as the tool does for one run
	s, err := parse("rack", rackText())
	if err != nil {
		return err
	}
	start := time.Now()
	r := s.Run(scenarios.Options{Seed: 1, T: t, SkipSettle: true, Details: true}).Record
	for i, v := range r.Violations {
		if i < 3 {
			fmt.Fprintf(os.Stderr, "bench: rack: at %.1f s: %s: %s\n", v.At, v.Rule, v.Text)
		}
	}
	var total, proven []float64
	for _, way := range r.Recoveries {
		total = append(total, way.Total())
		proven = append(proven, way.Place+way.Start)
	}
	if len(total) == 0 {
		return fmt.Errorf("no VM ran again")
	}
	var quiet, writes float64
	for _, w := range r.WritesOver {
		switch {
		case w.At >= rackLost.Seconds():
			writes += w.Value
		case w.At >= (rackLost - 10*time.Minute).Seconds():
			quiet += w.Value
		}
	}
	f.add("rack.verdict", r.Verdict, "verdict")
	f.add("rack.recovered_vms", len(total), "VMs")
	for _, p := range []struct {
		name string
		of   reports.Percentile
	}{{"after_loss", reports.Percentiles("", "s", total)}, {"after_proof", reports.Percentiles("", "s", proven)}} {
		f.add("rack."+p.name+".p50", p.of.P50, "s")
		f.add("rack."+p.name+".p99", p.of.P99, "s")
		f.add("rack."+p.name+".max", p.of.Max, "s")
	}
	f.add("rack.quiet_10_minutes", quiet, "writes")
	f.add("rack.writes_per_recovered_vm", writes/float64(len(total)), "1/VM")
	f.add("rack.cpu", r.CPUSeconds, "s")
	f.add("rack.wall", time.Since(start).Seconds(), "s")
	f.add("rack.peak_memory", peakMiB(), "MiB")
	return nil
}
