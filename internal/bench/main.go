// SPDX-License-Identifier: Apache-2.0

// Command bench measures what Adit promises in figures and prints them as lines
// of name, value and unit, separated by tabs, to standard output and to a file.
//
// It measures and never judges: a figure that is worse than it was is for the
// reader to see. Ratios come from one run, side by side.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bench is one measurement; it prints figures by out.
type bench struct {
	name string
	help string
	run  func(*testing.T, *figures) error

	onlyNamed bool // not one of all
}

var benches = []bench{
	{name: "small", help: "seeds a minute of a small scenario, both tiers", run: small},
	{name: "fleet", help: "cost of 1,000 hosts and 20,000 VMs, and of 100 and 2,000", run: fleet},
	{name: "rack", help: "1,000 hosts and 20,000 VMs lose a rack: how soon its VMs run again, and what it costs", run: rack},
	{name: "writes", help: "API writes of a VM's creation, of a migration and of a quiet fleet", run: writes},
	{name: "object", help: "size of a Hypervisor with 500 VMs", run: object},
	{name: "determinism", help: "digests of every scenario, twice, under other GOMAXPROCS and GOGC", run: determinism},
	{name: "crash", help: "a process killed at each of its calls, in six scenarios", run: crash},
	{name: "ha-ingest", help: "the HA service under the reports of 1,000 hosts, over gRPC with mutual TLS", run: ingest},
	{name: "explore", help: "seeds a minute of an exploration", run: exploration},
	{name: "mutants", help: "seeds until an exploration finds each sabotage; only when it is named", run: mutants, onlyNamed: true},
}

var (
	outFile  = flag.String("out", "reports/bench.tsv", "file for the figures")
	only     = flag.String("only", "", "comma-separated measurements; empty is all")
	seeds    = flag.Int("seeds", 20, "seeds a scenario in the determinism measurement")
	maxSweep = flag.Int("sweep", 40, "crash points a process and scenario; 0 is all")
)

// main runs inside a test, as only a test can open synctest bubbles.
func main() {
	tuneMemory()
	testing.Init()
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: bench [flags]; the measurements are:")
		for _, b := range benches {
			fmt.Fprintf(os.Stderr, "  %-12s %s\n", b.name, b.help)
		}
		fmt.Fprintln(os.Stderr, "  -out FILE, -only NAME,..., -seeds N, -sweep N")
	}
	flag.Parse()
	any := func(_, _ string) (bool, error) { return true, nil }
	testing.Main(any, []testing.InternalTest{{Name: "bench", F: func(t *testing.T) {
		if err := runAll(t); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}}}, nil, nil)
}

func runAll(t *testing.T) error {
	f := &figures{}
	f.add("machine", machine(), "name")
	var failed error
	for _, b := range benches {
		named := slices.Contains(strings.Split(*only, ","), b.name)
		if !named && (*only != "" || b.onlyNamed) {
			continue
		}
		if err := b.run(t, f); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", b.name, err))
		}
	}
	if err := os.MkdirAll(filepath.Dir(*outFile), 0o755); err != nil {
		return err
	}
	return errors.Join(failed, os.WriteFile(*outFile, []byte(strings.Join(f.lines, "")), 0o644))
}

// figures prints each figure as it is known and keeps it for the file.
type figures struct{ lines []string }

func (f *figures) add(name string, value any, unit string) {
	if v, ok := value.(float64); ok {
		value = fmt.Sprintf("%.4g", v)
	}
	line := fmt.Sprintf("%s\t%v\t%s\n", name, value, unit)
	f.lines = append(f.lines, line)
	fmt.Print(line)
}
