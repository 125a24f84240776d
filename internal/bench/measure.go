// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/sim"
	"github.com/adit-hv/adit/testbed"
)

// parse reads a scenario written here.
func parse(name, text string) (*scenarios.Scenario, error) {
	return scenarios.Parse(name+".yaml", []byte(text), os.ReadFile)
}

// smallSeeds is how many runs one figure of small rests on.
const smallSeeds = 100

// small measures how many seeds a minute two cores play of 5 hosts, 30 VMs, 30
// virtual minutes and one drain.
func small(t *testing.T, f *figures) error {
	found, err := scenarios.Find("drain-a-host")
	if err != nil {
		return err
	}
	s := found[0]
	for _, tier := range []struct {
		name     string
		fidelity kubesim.Fidelity
		runs     int
	}{{"typed", kubesim.Typed, smallSeeds}, {"full", kubesim.Full, smallSeeds / 10}} {
		var next, failed atomic.Int64
		start, before := time.Now(), cpu()
		var workers sync.WaitGroup
		for range 2 {
			workers.Go(func() {
				for n := next.Add(1); n <= int64(tier.runs); n = next.Add(1) {
					o := s.Run(scenarios.Options{Seed: uint64(n), Fidelity: tier.fidelity, T: t, SkipSettle: true})
					if o.Record.Verdict != "pass" {
						failed.Add(1)
					}
				}
			})
		}
		workers.Wait()
		f.add("small."+tier.name+".seeds_per_minute", float64(tier.runs)/time.Since(start).Minutes(), "1/min")
		f.add("small."+tier.name+".cpu_per_seed", (cpu()-before).Seconds()/float64(tier.runs), "s")
		f.add("small."+tier.name+".failed", failed.Load(), "runs")
	}
	return nil
}

// fleetText is a fleet of n hosts with 20 VMs each, of which a 25th is drained
// within one virtual hour.
func fleetText(hosts int) string {
	text := fmt.Sprintf(`
about: A fleet of %d hosts runs for an hour and drains some of them.
for: 1h
fleet:
- {name: node, count: %d}
workload:
- {name: vm, count: %d, every: %dms, cpus: 2, memory: 4Gi, dirtyRate: 10Mi, workingSet: 128Mi}
operator: {migrations: 80, perHost: 2, perTarget: 2}
timeline:
`, hosts, hosts, hosts*20, max(1, 600000/(hosts*20)))
	for i := range hosts / 25 {
		text += fmt.Sprintf("- {at: 15m, do: maintenance.start on=node%03d reason=bench}\n", i+1)
	}
	return text + fmt.Sprintf("expect:\n- {end: 'hosts.filter(h, h.evicted && h.vms == 0).size() == %d'}\n- {end: 'vms.all(v, v.running)'}\n", hosts/25)
}

// fleet measures the cost of large fleets.
func fleet(t *testing.T, f *figures) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as the tool does for one run
	cost := map[int]float64{}
	for _, hosts := range []int{100, 1000} {
		s, err := parse(fmt.Sprintf("fleet-%d", hosts), fleetText(hosts))
		if err != nil {
			return err
		}
		runtime.GC()
		start := time.Now()
		o := s.Run(scenarios.Options{Seed: 1, T: t, SkipSettle: true, Details: true})
		r, name := o.Record, fmt.Sprintf("fleet.%d_hosts", hosts)
		completed := 0
		for _, m := range r.Migrations {
			if m.Result == "completed" {
				completed++
			}
		}
		f.add(name+".host_hours_per_cpu_second", r.HostHours/r.CPUSeconds, "h/s")
		f.add(name+".cpu", r.CPUSeconds, "s")
		f.add(name+".wall", time.Since(start).Seconds(), "s")
		f.add(name+".events", r.Events, "events")
		f.add(name+".api_writes", r.APIWrites, "writes")
		f.add(name+".migrations", completed, "migrations")
		f.add(name+".verdict", r.Verdict, "verdict")
		f.add(name+".peak_memory", peakMiB(), "MiB")
		cost[hosts] = r.CPUSeconds / r.HostHours
		for i, v := range r.Violations {
			if i < 3 {
				fmt.Fprintf(os.Stderr, "bench: %s: %s: %s\n", name, v.Rule, v.Text)
			}
		}
	}
	f.add("fleet.cost_ratio_1000_to_100", cost[1000]/cost[100], "ratio")
	return nil
}

const writesText = `
about: VMs are created, rest, and are drained off one host.
for: 40m
fleet:
- {name: node, count: 5}
workload:
- {name: web, count: 100, at: 30s, every: 1s, cpus: 2, memory: 4Gi, dirtyRate: 20Mi, workingSet: 256Mi}
operator: {migrations: 5, perHost: 2}
timeline:
- {at: 20m, do: maintenance.start on=node001 reason=bench}
expect:
- {end: 'host["node001"].evicted && vms.all(v, v.running)'}
`

// writes measures how much is written to the API, by what it is for.
func writes(t *testing.T, f *figures) error {
	s, err := parse("writes", writesText)
	if err != nil {
		return err
	}
	w, err := testbed.New(s.Spec, testbed.Options{Seed: 1})
	if err != nil {
		return err
	}
	defer w.Close()
	w.Run(10 * time.Minute)
	byVerb := map[string]float64{}
	for _, c := range w.Cluster.Counts() {
		if c.Resource == "virtualmachineinstances" && c.Client != "user" {
			byVerb[c.Verb] += float64(c.N)
		}
	}
	f.add("writes.vmi_creation.patch", byVerb["patch"]/100, "1/VM")
	f.add("writes.vmi_creation.update", byVerb["update"]/100, "1/VM")
	quiet := w.Writes()
	w.Run(20 * time.Minute)
	f.add("writes.quiet_10_minutes", w.Writes()-quiet, "writes")
	before, moved := w.Writes(), w.OnHost("node001")
	a, err := testbed.ParseAction("maintenance.start on=node001 reason=bench")
	if err != nil {
		return err
	}
	w.Do(a)
	w.Run(40 * time.Minute)
	if moved == 0 || w.OnHost("node001") != 0 {
		return fmt.Errorf("the drain moved %d of %d VMs", moved-w.OnHost("node001"), moved)
	}
	f.add("writes.migrated_vm", float64(w.Writes()-before)/float64(moved), "1/VM")
	return nil
}

// object measures a Hypervisor's size with 500 VMs on it.
func object(t *testing.T, f *figures) error {
	s, err := parse("object", `
about: One host with 500 VMs.
for: 30m
fleet:
- {name: node, count: 1, overcommit: {cpu: 16}}
workload:
- {name: vm, count: 500, every: 100ms, cpus: 1, memory: 1Gi}
expect:
- {end: 'vms.all(v, v.running)'}
`)
	if err != nil {
		return err
	}
	w, err := testbed.New(s.Spec, testbed.Options{Seed: 1, Fidelity: kubesim.Full})
	if err != nil {
		return err
	}
	defer w.Close()
	w.Run(s.For)
	o := w.Hypervisor("node001")
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if o == nil || o.Status.NumInstances != 500 {
		return fmt.Errorf("the host does not report 500 instances")
	}
	f.add("object.hypervisor_500_vms", float64(len(data))/1024, "KiB")
	return nil
}

// determinism plays every scenario with every seed under each setting of the
// runtime, and compares digests. A pair that differs is played again to name
// the first note in which it does.
func determinism(t *testing.T, f *figures) error {
	list, err := scenarios.Suite()
	if err != nil {
		return err
	}
	var want []string
	differ := 0
	for _, setting := range settings {
		restore := setting.set()
		got := digests(t, list, *seeds)
		restore()
		if want == nil {
			want = got
			continue
		}
		for i := range got {
			if got[i] == want[i] {
				continue
			}
			differ++
			s, seed := list[i / *seeds], uint64(i%*seeds)+1
			at, a, b := firstDifference(t, s, seed, setting.set)
			fmt.Fprintf(os.Stderr, "bench: %s seed %d, %s: note %d: %q and %q\n", s.Name, seed, setting.name, at, a, b)
		}
	}
	f.add("determinism.scenarios", len(list), "scenarios")
	f.add("determinism.seeds", *seeds, "seeds")
	f.add("determinism.comparisons", len(want)*(len(settings)-1), "runs")
	f.add("determinism.differ", differ, "runs")
	if differ > 0 {
		return errors.New("two runs of one seed differ")
	}
	return nil
}

// digests plays all scenarios with seeds 1 to n, two at a time, and returns
// their digests by scenario and seed.
func digests(t *testing.T, list []*scenarios.Scenario, n int) []string {
	out := make([]string, len(list)*n)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(out); i = int(next.Add(1)) - 1 {
				out[i] = list[i/n].Run(scenarios.Options{Seed: uint64(i%n) + 1, T: t}).Record.Digest
			}
		})
	}
	workers.Wait()
	return out
}

func firstDifference(t *testing.T, s *scenarios.Scenario, seed uint64, set func() func()) (int, string, string) {
	o := scenarios.Options{Seed: seed, T: t, KeepNotes: true}
	first := s.Run(o)
	restore := set()
	second := s.Run(o)
	restore()
	return sim.FirstDifference(first.Notes, second.Notes)
}

// settings are the knobs of the runtime that must change nothing. All are
// compared with the first.
var settings = []struct {
	name string
	set  func() (restore func())
}{
	{"as it is", func() func() { return func() {} }},
	{"GOMAXPROCS=1", func() func() { n := runtime.GOMAXPROCS(1); return func() { runtime.GOMAXPROCS(n) } }},
	{"GOMAXPROCS=2", func() func() { n := runtime.GOMAXPROCS(2); return func() { runtime.GOMAXPROCS(n) } }},
	{"GOGC=50", func() func() { n := debug.SetGCPercent(50); return func() { debug.SetGCPercent(n) } }},
}

// crash kills each process at each of its calls.
func crash(t *testing.T, f *figures) error {
	runs, failed := 0, 0
	for _, name := range scenarios.SweepScenarios {
		found, err := scenarios.Find(name)
		if err != nil {
			return err
		}
		n, bad := scenarios.Sweep(found[0], scenarios.Options{Seed: 1, T: t}, *maxSweep, func(r reports.Record) {
			fmt.Fprintf(os.Stderr, "bench: %s: %s: %s\n", r.Replay, r.Violations[0].Rule, r.Violations[0].Text)
		})
		f.add("crash."+name+".runs", n, "runs")
		f.add("crash."+name+".failed", bad, "runs")
		runs, failed = runs+n, failed+bad
	}
	f.add("crash.runs", runs, "runs")
	f.add("crash.failed", failed, "runs")
	if failed > 0 {
		return errors.New("a crash broke an invariant or an expectation")
	}
	return nil
}
