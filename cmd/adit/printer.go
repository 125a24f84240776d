// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/adit-hv/adit/reports"
)

// printer says how the runs go: a line each when they are done, and while they
// are under way a line that rewrites itself, where there is a terminal for it.
type printer struct {
	flags          runFlags
	total          int
	stdout, stderr io.Writer
	live           bool
	done, failed   int
}

func newPrinter(f runFlags, total int, stdout, stderr io.Writer) *printer {
	p := &printer{flags: f, total: total, stdout: stdout, stderr: stderr}
	if file, ok := stderr.(*os.File); ok {
		info, err := file.Stat()
		p.live = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// finished prints one run's outcome.
func (p *printer) finished(_ int, r reports.Record) {
	p.done++
	if r.Verdict == "fail" {
		p.failed++
	}
	if p.live {
		fmt.Fprintf(p.stderr, "\r\033[K")
	}
	if p.flags.output == "json" {
		_ = reports.Line(p.stdout, r)
	} else if p.flags.seeds == 1 || r.Verdict == "fail" {
		p.line(r)
	}
	if p.live && p.done < p.total {
		fmt.Fprintf(p.stderr, "%d of %d runs, %d failed: %s seed %d", p.done, p.total, p.failed, r.Scenario, r.Seed)
	}
}

// maxShown is how many violations of one run are printed; the report has all.
const maxShown = 5

func (p *printer) line(r reports.Record) {
	fmt.Fprintf(p.stdout, "%-4s  %-44s seed %-4d %6.1f min virtual  %6.2f s cpu  %7d writes  %s\n",
		r.Verdict, r.Scenario, r.Seed, r.VirtualSeconds/60, r.CPUSeconds, r.APIWrites, r.Digest)
	for i, v := range r.Violations {
		if i == maxShown {
			fmt.Fprintf(p.stdout, "      and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(p.stdout, "      at %.1f s: %s\n        %s\n", v.At, v.Rule, v.Text)
	}
}

// end prints the sum and, when something failed, as the last line the command
// that repeats the first failure.
func (p *printer) end(s reports.Suite, folder string) error {
	var virtual, cpu float64
	failed := []reports.Record{}
	for _, r := range s.Records {
		virtual += r.VirtualSeconds
		cpu += r.CPUSeconds
		if r.Verdict == "fail" {
			failed = append(failed, r)
		}
	}
	out := p.stdout
	if p.flags.output == "json" {
		out = p.stderr
	}
	fmt.Fprintf(out, "\n%d runs: %d passed, %d failed; %.1f virtual hours in %.1f s of processor time\n", len(s.Records), len(s.Records)-len(failed), len(failed), virtual/3600, cpu)
	if folder != "" {
		page := filepath.Join(folder, "index.html")
		if abs, err := filepath.Abs(page); err == nil {
			page = abs
		}
		fmt.Fprintf(out, "The report: file://%s\n", page)
	}
	if len(failed) == 0 {
		return nil
	}
	names := []string{}
	for _, r := range failed {
		if !slices.Contains(names, r.Scenario) {
			names = append(names, r.Scenario)
		}
	}
	fmt.Fprintf(out, "Failed: %v\nTo repeat the first failure:\n%s\n", names, failed[0].Replay)
	return errFailed
}
