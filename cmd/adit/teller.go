// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/scenarios/explore"
)

// teller says how the exploration goes: a line that rewrites itself on a
// terminal, or one now and then, and each failure.
type teller struct {
	flags          exploreFlags
	stdout, stderr io.Writer
	live           bool
	first          uint64 // seeds in the books before
	began, told    time.Time
}

// tellEvery is how often a line is printed where none can be rewritten.
const tellEvery = 30 * time.Second

func newTeller(f exploreFlags, b *explore.Books, stdout, stderr io.Writer) *teller {
	return &teller{flags: f, stdout: stdout, stderr: stderr, live: isTerminal(stderr), first: uint64(b.Played()), began: time.Now(), told: time.Now()}
}

func (l *teller) booked(b *explore.Books, failed *explore.Failure) {
	if failed != nil {
		l.clear()
		out := l.stdout
		if l.flags.output == "json" {
			out = l.stderr
		}
		fmt.Fprintf(out, "fail  seed %d at %.1f s: %s\n        %s\n      %s\n", failed.Seed, failed.First.At, failed.First.Rule, failed.First.Text, asCalled(failed.Replay))
	}
	line := l.progress(b)
	switch {
	case l.live:
		fmt.Fprintf(l.stderr, "\r\033[K%.*s", width, line)
	case time.Since(l.told) > tellEvery:
		l.told = time.Now()
		fmt.Fprintln(l.stderr, line)
	}
}

func (l *teller) clear() {
	if l.live {
		fmt.Fprint(l.stderr, "\r\033[K")
	}
}

// progress is how far it came: seeds and their speed in this sitting, failures,
// states reached, and faults by what they strike.
func (l *teller) progress(b *explore.Books) string {
	perMinute := float64(uint64(b.Played())-l.first) / time.Since(l.began).Minutes()
	line := fmt.Sprintf("seed %d, %.0f a minute, %d failed, %d states, %d faults:", b.Next-1, perMinute, len(b.Failures), b.Coverage.States(), b.Coverage.Injected())
	for _, f := range b.Coverage.Families() {
		line += fmt.Sprintf(" %s %d", f.Name, f.Count)
	}
	return line
}

// end prints the sum, what was reached, and the command that repeats the first
// failure.
func (l *teller) end(b *explore.Books, interrupted bool) error {
	l.clear()
	out := l.stdout
	if l.flags.output == "json" {
		if err := json.NewEncoder(l.stdout).Encode(summary{b, b.Coverage.Blind(), perMinute(b)}); err != nil {
			return err
		}
		out = l.stderr
	} else {
		b.Coverage.Table(out)
	}
	fmt.Fprintf(out, "\n%s: %d passed, %d failed; %s, %d states; %.0f virtual hours, %.0f seeds a minute\n", counted(b.Played(), "seed"), b.Passed, len(b.Failures),
		counted(b.Coverage.Injected(), "fault"), b.Coverage.States(), b.VirtualSeconds/3600, perMinute(b))
	if interrupted || b.To == 0 || b.Next <= b.To {
		fmt.Fprintf(out, "To go on with seed %d: %s\n", b.Next, asCalled("adit explore --resume"+l.where()))
	}
	switch {
	case interrupted:
		return errInterrupted
	case len(b.Failures) == 0:
		return nil
	}
	for _, f := range b.Failures {
		fmt.Fprintf(out, "Failed: seed %d: %s\n", f.Seed, strings.Join(f.Rules, "; "))
	}
	fmt.Fprintf(out, "To repeat the first failure:\n%s\n", asCalled(b.Failures[0].Replay))
	return errFailed
}

func (l *teller) where() string {
	if l.flags.folder == "explore-failures" {
		return ""
	}
	return " --out " + scenarios.Quoted(l.flags.folder)
}

// summary is what -o json prints.
type summary struct {
	*explore.Books
	Blind     explore.Blind `json:"blind"`
	PerMinute float64       `json:"seedsPerMinute"`
}

func perMinute(b *explore.Books) float64 {
	if b.Seconds == 0 {
		return 0
	}
	return float64(b.Played()) / b.Seconds * 60
}
