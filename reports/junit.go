// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	File     string      `xml:"file,attr,omitempty"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`

	cpu float64
}

type junitCase struct {
	Name       string          `xml:"name,attr"`
	Class      string          `xml:"classname,attr"`
	Time       string          `xml:"time,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Skipped    *junitMessage   `xml:"skipped"`
	Failure    *junitMessage   `xml:"failure"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Body    string `xml:",chardata"`
}

// JUnit writes a test suite per scenario and in it a test case per run. A
// failed run's text is its violations and the command that repeats it.
func JUnit(w io.Writer, s Suite) error {
	all := junitSuites{Name: s.Name}
	index := map[string]int{}
	cpu := 0.0
	for _, r := range s.Records {
		n, known := index[r.Scenario]
		if !known {
			n = len(all.Suites)
			index[r.Scenario] = n
			all.Suites = append(all.Suites, junitSuite{Name: r.Scenario, File: r.File})
		}
		suite := &all.Suites[n]
		suite.add(r)
		cpu += r.CPUSeconds
	}
	for i := range all.Suites {
		suite := &all.Suites[i]
		suite.Time = seconds(suite.cpu)
		all.Tests += suite.Tests
		all.Failures += suite.Failures
		all.Skipped += suite.Skipped
	}
	all.Time = seconds(cpu)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (s *junitSuite) add(r Record) {
	c := junitCase{Name: strings.TrimSpace(fmt.Sprintf("seed %d %s", r.Seed, r.Mode)), Class: r.Scenario, Time: seconds(r.CPUSeconds)}
	for _, p := range []junitProperty{
		{"seed", strconv.FormatUint(r.Seed, 10)},
		{"mode", r.Mode},
		{"digest", r.Digest},
		{"virtualSeconds", seconds(r.VirtualSeconds)},
		{"hostHours", seconds(r.HostHours)},
		{"events", strconv.FormatUint(r.Events, 10)},
		{"apiWrites", strconv.FormatUint(r.APIWrites, 10)},
		{"replay", r.Replay},
	} {
		if p.Value != "" {
			c.Properties = append(c.Properties, p)
		}
	}
	s.Tests++
	s.cpu += r.CPUSeconds
	switch r.Verdict {
	case Pass:
	case Fail:
		s.Failures++
		c.Failure = failure(r)
	default:
		s.Skipped++
		c.Skipped = &junitMessage{Message: r.Reason}
	}
	s.Cases = append(s.Cases, c)
}

func failure(r Record) *junitMessage {
	m := &junitMessage{Message: r.Reason}
	var b strings.Builder
	for i, v := range r.Violations {
		if i == 0 {
			m.Message = v.Rule + ": " + v.Text
		}
		if i == maxViolations {
			fmt.Fprintf(&b, "and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(&b, "at %s s: %s: %s\n", seconds(v.At), v.Rule, v.Text)
	}
	if r.Replay != "" {
		fmt.Fprintf(&b, "replay: %s\n", r.Replay)
	}
	m.Body = b.String()
	return m
}

func seconds(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) }
