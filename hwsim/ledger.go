// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/adit-hv/adit/sim"
)

// Ledger is the truth: where each VM's copies ran, who could write each disk,
// how migrations and faults went. All times are virtual, since the run's start.
type Ledger struct {
	s          *sim.Scheduler
	on         func(LedgerEvent)
	segments   []Segment
	history    map[copyKey][]int // indices of a copy's segments
	open       map[copyKey]int   // index of a copy's last segment, while it has a QEMU
	copies     map[string][]string
	writers    map[string][]string
	migrations []Migration
	spans      []FaultSpan
	violations []Violation
}

type copyKey struct{ vm, host string }

// CopyState is what one copy of a VM is doing.
type CopyState string

// The states of a copy. A copy with none of them has no QEMU.
const (
	CopyRunning  CopyState = "running"
	CopyPaused   CopyState = "paused"
	CopyIncoming CopyState = "incoming"
	CopyGone     CopyState = "gone"
)

// Segment is a stretch of time in which one copy was in one state.
type Segment struct {
	VM    string // UUID
	Name  string
	Host  string
	State CopyState
	Token int64 // the run token it was defined with
	From  time.Duration
	To    time.Duration // of an open segment: zero
	Open  bool
}

// Migration is one move of a running VM.
type Migration struct {
	ID       string
	VM       string
	Name     string
	From, To string // hosts
	Start    time.Duration
	Switch   time.Duration // the source stopped; 0: never
	End      time.Duration // 0: under way
	Downtime time.Duration
	Bytes    uint64
	Rounds   uint64
	PostCopy bool
	Result   string // "", succeeded, failed, cancelled, lost
	Error    string
}

// FaultSpan is when a fault was active.
type FaultSpan struct {
	Fault string
	From  time.Duration
	To    time.Duration
	Open  bool
}

// Violation is something that must never be.
type Violation struct {
	At     time.Duration
	Rule   string // one of the Rule constants
	Object string // the VM's UUID or the volume
	Detail string
}

// The rules the ledger holds.
const (
	RuleSingleRun    = "single-run"           // one running copy of a VM; in post-copy it is the target's
	RuleSingleWriter = "single-writer"        // one host that can write a disk not meant to be shared
	RuleSourceStays  = "source-stays-stopped" // no source runs on once the target has taken over
)

// LedgerEvent is one change of the ledger. One of the fields is set.
type LedgerEvent struct {
	Segment   *Segment // a copy's new state; a CopyGone closes it
	Migration *Migration
	Fault     *FaultSpan
	Violation *Violation
}

func newLedger(s *sim.Scheduler, on func(LedgerEvent)) *Ledger {
	if on == nil {
		on = func(LedgerEvent) {}
	}
	return &Ledger{s: s, on: on, open: map[copyKey]int{}, history: map[copyKey][]int{}, copies: map[string][]string{}, writers: map[string][]string{}}
}

// Segments returns all segments in order of their start.
func (l *Ledger) Segments() []Segment { return l.segments }

// Migrations returns all migrations in order of their start.
func (l *Ledger) Migrations() []Migration { return l.migrations }

// Faults returns all faults in order of their start.
func (l *Ledger) Faults() []FaultSpan { return l.spans }

// Violations returns what went against the rules.
func (l *Ledger) Violations() []Violation { return l.violations }

// Running returns the hosts on which copies of the VM run, sorted.
func (l *Ledger) Running(vm string) []string { return l.copies[vm] }

// Copies returns the open segments: one for each QEMU there is, sorted by VM
// and host.
func (l *Ledger) Copies() []Segment {
	out := make([]Segment, 0, len(l.open))
	for _, i := range l.open {
		out = append(out, l.segments[i])
	}
	slices.SortFunc(out, func(a, b Segment) int {
		if c := strings.Compare(a.VM, b.VM); c != 0 {
			return c
		}
		return strings.Compare(a.Host, b.Host)
	})
	return out
}

// CopyAt returns what a host's copy of a VM was doing at a time of the run, up
// to now. A copy that runs or is paused has its disks open: it could write them
// then, or as soon as it runs on. At the instant of a change it is the new state.
func (l *Ledger) CopyAt(vm, host string, at time.Duration) CopyState {
	history := l.history[copyKey{vm, host}]
	i := sort.Search(len(history), func(i int) bool { return l.segments[history[i]].From > at })
	if i == 0 {
		return CopyGone
	}
	if s := l.segments[history[i-1]]; s.Open || at < s.To {
		return s.State
	}
	return CopyGone
}

// Writers returns the hosts that can write the volume, sorted.
func (l *Ledger) Writers(volume string) []string { return l.writers[volume] }

// set records a copy's state.
func (l *Ledger) set(d *domain, host string, state CopyState) {
	vm, key, now := d.uuid, copyKey{d.uuid, host}, l.s.Elapsed()
	i, open := l.open[key]
	if open && l.segments[i].State == state || !open && state == CopyGone {
		return
	}
	if open {
		l.segments[i].To, l.segments[i].Open = now, false
		delete(l.open, key)
	}
	seg := Segment{VM: vm, Name: d.name, Host: host, State: state, Token: d.token(), From: now, Open: state != CopyGone}
	if state != CopyGone {
		l.open[key] = len(l.segments)
		l.history[key] = append(l.history[key], len(l.segments))
		l.segments = append(l.segments, seg)
	}
	l.copies[vm] = without(l.copies[vm], host)
	if state == CopyRunning {
		l.copies[vm] = with(l.copies[vm], host)
	}
	if len(l.copies[vm]) == 0 {
		delete(l.copies, vm)
	}
	l.on(LedgerEvent{Segment: &seg})
	if state == CopyRunning && len(l.copies[vm]) > 1 {
		l.violate(RuleSingleRun, vm, fmt.Sprintf("%s runs on %s", d.name, strings.Join(l.copies[vm], " and ")))
	}
}

// write records that a host can, or no longer can, write a volume.
func (l *Ledger) write(volume, host string, can, shared bool) {
	if !can {
		if l.writers[volume] = without(l.writers[volume], host); len(l.writers[volume]) == 0 {
			delete(l.writers, volume)
		}
		return
	}
	l.writers[volume] = with(l.writers[volume], host)
	if !shared && len(l.writers[volume]) > 1 {
		l.violate(RuleSingleWriter, volume, "written from "+strings.Join(l.writers[volume], " and "))
	}
}

func (l *Ledger) violate(rule, object, detail string) {
	v := Violation{At: l.s.Elapsed(), Rule: rule, Object: object, Detail: detail}
	l.violations = append(l.violations, v)
	l.s.Note(sim.Note{Component: "ledger", What: "violation", Object: object, Detail: rule + ": " + detail})
	l.on(LedgerEvent{Violation: &v})
}

func (l *Ledger) begin(m Migration) int {
	m.Start = l.s.Elapsed()
	l.migrations = append(l.migrations, m)
	l.on(LedgerEvent{Migration: &m})
	return len(l.migrations) - 1
}

func (l *Ledger) migration(i int, change func(*Migration)) {
	change(&l.migrations[i])
	m := l.migrations[i]
	l.on(LedgerEvent{Migration: &m})
}

func (l *Ledger) faultBegins(f Fault, instant bool) int {
	span := FaultSpan{Fault: f.String(), From: l.s.Elapsed(), Open: !instant}
	if instant {
		span.To = span.From
	}
	l.spans = append(l.spans, span)
	l.on(LedgerEvent{Fault: &span})
	return len(l.spans) - 1
}

func (l *Ledger) faultEnds(i int) {
	l.spans[i].To, l.spans[i].Open = l.s.Elapsed(), false
	span := l.spans[i]
	l.on(LedgerEvent{Fault: &span})
}

// with and without keep a small sorted list of names; a new list each time, as
// callers keep what they were given.
func with(names []string, name string) []string {
	i, found := slices.BinarySearch(names, name)
	if found {
		return names
	}
	return slices.Insert(slices.Clone(names), i, name)
}

func without(names []string, name string) []string {
	i, found := slices.BinarySearch(names, name)
	if !found {
		return names
	}
	return slices.Delete(slices.Clone(names), i, i+1)
}
