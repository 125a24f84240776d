// SPDX-License-Identifier: Apache-2.0

// Package reports turns the records of runs into what people and programs
// read: one self-contained page, JUnit XML, JSON lines and a trace for
// Perfetto.
//
// It reads a Suite of Records and nothing else: no simulator, no Kubernetes,
// no clock. The same record gives the same bytes.
package reports

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// The names of a report's files in its directory.
const (
	PageFile  = "index.html"
	JUnitFile = "junit.xml"
	JSONFile  = "report.json"
	TraceFile = "trace.json"
)

// files is what WriteAll writes, in this order.
var files = []struct {
	name  string
	write func(io.Writer, Suite) error
}{
	{PageFile, Page},
	{JUnitFile, JUnit},
	{JSONFile, JSON},
	{TraceFile, Perfetto},
}

// WriteAll writes index.html, junit.xml, report.json and trace.json into dir,
// which it makes if need be: all of them, or, on an error, none, so that what
// an earlier run left there is whole. Other files in dir are left alone.
func WriteAll(dir string, s Suite) error {
	if err := writeAll(filepath.Clean(dir), s); err != nil {
		return fmt.Errorf("write report to %s: %w", dir, err)
	}
	return nil
}

func writeAll(dir string, s Suite) error {
	_, err := os.Stat(dir)
	if os.IsNotExist(err) {
		return writeNew(dir, s)
	}
	if err != nil {
		return err
	}
	return replace(dir, s, os.Rename)
}

// writeNew makes the directory beside its place and moves it there whole.
func writeNew(dir string, s Suite) error {
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	stage, err := os.MkdirTemp(parent, ".report-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(stage) }()
	if err := writeFiles(stage, s); err != nil {
		return err
	}
	// MkdirTemp makes it for its owner alone; a report is for reading.
	if err := os.Chmod(stage, 0o755); err != nil {
		return err
	}
	return os.Rename(stage, dir)
}

// replace moves new files over old ones. The stage is inside dir, as dir may
// be a mount point or its parent read-only. Old files wait in the stage, and
// go back if a move is refused.
func replace(dir string, s Suite, move func(from, to string) error) error {
	stage, err := os.MkdirTemp(dir, ".report-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(stage) }()
	if err := writeFiles(stage, s); err != nil {
		return err
	}
	var undo []func()
	for _, f := range files {
		place, old := filepath.Join(dir, f.name), filepath.Join(stage, f.name+".old")
		err := move(place, old)
		switch {
		case err == nil:
			undo = append(undo, func() { _ = os.Rename(old, place) })
		case os.IsNotExist(err):
			undo = append(undo, func() { _ = os.Remove(place) })
			err = nil
		}
		if err == nil {
			err = move(filepath.Join(stage, f.name), place)
		}
		if err != nil {
			for _, u := range slices.Backward(undo) {
				u()
			}
			return err
		}
	}
	return nil
}

func writeFiles(dir string, s Suite) error {
	for _, f := range files {
		if err := writeFile(filepath.Join(dir, f.name), s, f.write); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

func writeFile(path string, s Suite, write func(io.Writer, Suite) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	return write(f, s)
}

// line is the machine contract of one run. Names and their meaning stay; new
// ones may be added.
type line struct {
	Scenario       string      `json:"scenario"`
	Seed           uint64      `json:"seed"`
	Mode           string      `json:"mode"`
	Verdict        string      `json:"verdict"`
	Digest         string      `json:"digest"`
	Violations     []Violation `json:"violations"`
	VirtualSeconds float64     `json:"virtualSeconds"`
	CPUSeconds     float64     `json:"cpuSeconds"`
	HostHours      float64     `json:"hostHours"`
	Events         uint64      `json:"events"`
	APIWrites      uint64      `json:"apiWrites"`
	Reason         string      `json:"reason"`
	Replay         string      `json:"replay"`
}

// Line writes what a program wants to know of one run as one JSON object on
// one line. Every name is always there, and violations is a list even when
// empty.
func Line(w io.Writer, r Record) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(line{
		Scenario:       r.Scenario,
		Seed:           r.Seed,
		Mode:           r.Mode,
		Verdict:        r.Verdict,
		Digest:         r.Digest,
		Violations:     list(r.Violations),
		VirtualSeconds: r.VirtualSeconds,
		CPUSeconds:     r.CPUSeconds,
		HostHours:      r.HostHours,
		Events:         r.Events,
		APIWrites:      r.APIWrites,
		Reason:         r.Reason,
		Replay:         r.Replay,
	})
}

// JSON writes the whole suite, page-only data included, as one JSON object.
func JSON(w io.Writer, s Suite) error {
	s.Records = list(slices.Clone(s.Records))
	for i := range s.Records {
		s.Records[i].Violations = list(s.Records[i].Violations)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(s)
}

// list is never null in JSON.
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
