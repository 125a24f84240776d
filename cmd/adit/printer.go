// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/scenarios"
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
	p := &printer{flags: f, total: total, stdout: stdout, stderr: stderr, live: isTerminal(stderr)}
	p.progress("")
	return p
}

// isTerminal says whether a line can be rewritten.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// finished prints one run's outcome.
func (p *printer) finished(_ int, r reports.Record) {
	p.done++
	if r.Verdict == "fail" {
		p.failed++
	}
	p.clear()
	if p.flags.output == "json" {
		_ = reports.Line(p.stdout, r)
	} else if p.flags.seeds == 1 || r.Verdict != "pass" {
		p.line(r)
	}
	p.progress(fmt.Sprintf(": %s seed %d", r.Scenario, r.Seed))
}

// width is what every terminal has: a longer line would wrap, and could not be
// rewritten.
const width = 79

func (p *printer) progress(last string) {
	if p.live && p.done < p.total {
		fmt.Fprintf(p.stderr, "%.*s", width, fmt.Sprintf("%d of %d runs, %d failed%s", p.done, p.total, p.failed, last))
	}
}

func (p *printer) clear() {
	if p.live {
		fmt.Fprint(p.stderr, "\r\033[K")
	}
}

// interrupted says how far it came. There is no report of half a suite.
func (p *printer) interrupted(s reports.Suite) error {
	p.clear()
	_ = p.end(s, "")
	fmt.Fprintf(p.stderr, "Interrupted: %d of %d runs were played; no report is written\n", len(s.Records), p.total)
	return errInterrupted
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
	passed, failed, notRun := 0, []reports.Record{}, []reports.Record{}
	for _, r := range s.Records {
		virtual += r.VirtualSeconds
		cpu += r.CPUSeconds
		switch r.Verdict {
		case "pass":
			passed++
		case "fail":
			failed = append(failed, r)
		default:
			notRun = append(notRun, r)
		}
	}
	out := p.stdout
	if p.flags.output == "json" {
		out = p.stderr
	}
	fmt.Fprintf(out, "\n%s: %d passed, %d failed", counted(len(s.Records), "run"), passed, len(failed))
	if len(notRun) > 0 {
		fmt.Fprintf(out, ", %d not run", len(notRun))
	}
	fmt.Fprintf(out, "; %.1f virtual hours in %.1f s of processor time\n", virtual/3600, cpu)
	if folder != "" {
		page := filepath.Join(folder, "index.html")
		if abs, err := filepath.Abs(page); err == nil {
			page = abs
		}
		fmt.Fprintf(out, "The report: %s\n", (&url.URL{Scheme: "file", Path: page}).String())
	}
	if len(failed) == 0 && len(notRun) > 0 {
		return errors.New(notRun[0].Reason)
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
	fmt.Fprintf(out, "Failed: %s\nTo repeat the first failure:\n%s\n", strings.Join(names, ", "), asCalled(failed[0].Replay))
	return errFailed
}

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// asCalled names the tool as it was called now, so that the line can be pasted:
// bin/adit, say.
func asCalled(replay string) string {
	if rest, ours := strings.CutPrefix(replay, "adit "); ours && filepath.Base(os.Args[0]) == "adit" {
		return scenarios.Quoted(os.Args[0]) + " " + rest
	}
	return replay
}
