// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Note is one line of a run's trace: at that time, on that host, that component
// did what, to what.
type Note struct {
	At        time.Duration `json:"at"` // virtual nanoseconds since the start
	Host      string        `json:"host,omitempty"`
	Component string        `json:"component"`
	What      string        `json:"what"`
	Object    string        `json:"object,omitempty"`
	Detail    string        `json:"detail,omitempty"`
}

// String prints the note as one line of a log.
func (n Note) String() string {
	parts := []string{fmt.Sprintf("%12.6fs", n.At.Seconds())}
	for _, p := range []string{n.Host, n.Component, n.What, n.Object, n.Detail} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, " ")
}

type trace struct {
	keep   bool
	onNote func(Note)
	hash   *xxhash.Digest
	count  uint64
	notes  []Note
	marks  []uint64 // running digest after each markEvery notes
}

// markEvery is how many notes lie between two marks: few enough to search in,
// many enough that the marks of a million notes fit in 8 KiB.
const markEvery = 1024

// Note appends to the trace.
func (s *Scheduler) Note(n Note) {
	n.At = s.now
	t := &s.trace
	var at [8]byte
	binary.LittleEndian.PutUint64(at[:], uint64(n.At))
	t.hash.Write(at[:])
	for _, field := range []string{n.Host, n.Component, n.What, n.Object, n.Detail} {
		t.hash.WriteString(field)
		t.hash.Write([]byte{0}) // so that no two notes share their bytes
	}
	t.count++
	if t.count%markEvery == 0 {
		t.marks = append(t.marks, t.hash.Sum64())
	}
	if t.keep {
		t.notes = append(t.notes, n)
	}
	if t.onNote != nil {
		t.onNote(n)
	}
}

// Digest returns the running hash of the trace so far, as 16 hex digits.
func (s *Scheduler) Digest() string { return fmt.Sprintf("%016x", s.trace.hash.Sum64()) }

// Notes returns the kept notes. The slice is the scheduler's own.
func (s *Scheduler) Notes() []Note { return s.trace.notes }

// NoteCount returns how many notes were recorded, kept or not.
func (s *Scheduler) NoteCount() uint64 { return s.trace.count }

// Marks returns the running digest after each 1024 notes. The first mark in
// which two runs differ bounds where they parted.
func (s *Scheduler) Marks() []uint64 { return s.trace.marks }

// FirstDifference returns the index of the first note in which two kept traces
// differ, and both notes as text ("" where a trace has ended). It returns -1
// for equal traces.
func FirstDifference(a, b []Note) (index int, inA, inB string) {
	at := func(notes []Note, i int) string {
		if i < len(notes) {
			return notes[i].String()
		}
		return ""
	}
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i, at(a, i), at(b, i)
		}
	}
	return -1, "", ""
}
