// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var keep = flag.String("report", "", "directory that gets the sample report, to be looked at")

func TestSampleIsWritten(t *testing.T) {
	dir := *keep
	if dir == "" {
		dir = filepath.Join(t.TempDir(), "report")
	}
	if err := WriteAll(dir, sample()); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := os.Stat(filepath.Join(dir, f.name))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", f.name, info.Size())
	}
}

func render(t *testing.T, write func(io.Writer, Suite) error, s Suite) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTheSameSuiteGivesTheSameBytes(t *testing.T) {
	for _, f := range files {
		if first, second := render(t, f.write, sample()), render(t, f.write, sample()); first != second {
			t.Errorf("%s differs", f.name)
		}
	}
}

func TestWritingLeavesTheSuiteAsItWas(t *testing.T) {
	s := sample()
	s.Records[4].Violations = nil
	before := fmt.Sprintf("%+v", s)
	for _, f := range files {
		render(t, f.write, s)
	}
	if fmt.Sprintf("%+v", s) != before {
		t.Error("the suite has changed")
	}
}

func TestLineIsOneObjectWithEveryName(t *testing.T) {
	hostile := Record{Scenario: "a\nb\u2028\"</script>", Verdict: Fail, Seed: math.MaxUint64, Violations: []Violation{{At: 1.5, Rule: "r\r\n", Text: "\x00"}}}
	for _, r := range append(sample().Records, Record{}, hostile) {
		var b bytes.Buffer
		if err := Line(&b, r); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(b.String(), "\n"); n != 1 || !strings.HasSuffix(b.String(), "\n") {
			t.Fatalf("%d ends of line in %q", n, b.String())
		}
		got := map[string]json.RawMessage{}
		if err := json.Unmarshal(b.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		want := []string{"apiWrites", "cpuSeconds", "digest", "events", "hostHours", "mode", "reason", "replay", "scenario", "seed", "verdict", "violations", "virtualSeconds"}
		var names []string
		for name := range got {
			names = append(names, name)
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			t.Fatalf("names are %v", names)
		}
		if string(got["violations"])[0] != '[' {
			t.Fatalf("violations is %s", got["violations"])
		}
		var back Record
		if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.Seed != r.Seed {
			t.Fatalf("seed %d came back as %d, %v", r.Seed, back.Seed, err)
		}
	}
}

func TestJSONHoldsEverything(t *testing.T) {
	s := sample()
	var back Suite
	if err := json.Unmarshal([]byte(render(t, JSON, s)), &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Records) != len(s.Records) || len(back.Records[0].VMs) != 30 || back.Records[4].Violations == nil {
		t.Errorf("%d records, the first with %d VMs", len(back.Records), len(back.Records[0].VMs))
	}
	if got := render(t, JSON, Suite{}); got != `{"name":"","version":"","command":"","records":[]}`+"\n" {
		t.Errorf("empty suite: %s", got)
	}
}

func TestWriteAll(t *testing.T) {
	list := func(dir string) (names []string) {
		all, _ := os.ReadDir(dir)
		for _, e := range all {
			names = append(names, e.Name())
		}
		return names
	}
	ours := []string{PageFile, JUnitFile, JSONFile, TraceFile}
	bad := Suite{Records: []Record{{VirtualSeconds: math.NaN()}}} // JSON has no word for it

	t.Run("makes the directory with the four files and nothing else", func(t *testing.T) {
		top := t.TempDir()
		dir := filepath.Join(top, "a", "b")
		if err := WriteAll(dir, sample()); err != nil {
			t.Fatal(err)
		}
		if got := list(dir); !slices.Equal(got, ours) {
			t.Errorf("files are %v", got)
		}
		if got := list(filepath.Join(top, "a")); !slices.Equal(got, []string{"b"}) {
			t.Errorf("beside it is %v", got)
		}
	})
	t.Run("leaves nothing behind on an error", func(t *testing.T) {
		top := t.TempDir()
		err := WriteAll(filepath.Join(top, "r"), bad)
		if err == nil || len(list(top)) > 0 {
			t.Errorf("error %v, left %v", err, list(top))
		}
	})
	t.Run("an error leaves the earlier report and other files as they were", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "mine.txt"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := WriteAll(dir, Suite{Name: "first"}); err != nil {
			t.Fatal(err)
		}
		if err := WriteAll(dir, bad); err == nil {
			t.Fatal("no error")
		}
		text, _ := os.ReadFile(filepath.Join(dir, JSONFile))
		if !strings.Contains(string(text), "first") || len(list(dir)) != 5 {
			t.Errorf("%s in %v", text, list(dir))
		}
		if err := WriteAll(dir, Suite{Name: "suite two"}); err != nil {
			t.Fatal(err)
		}
		text, _ = os.ReadFile(filepath.Join(dir, PageFile))
		if !strings.Contains(string(text), "suite two") || len(list(dir)) != 5 {
			t.Errorf("the other report is not there: %v", list(dir))
		}
	})
	t.Run("a file that cannot be replaced puts the others back", func(t *testing.T) {
		dir := t.TempDir()
		if err := WriteAll(dir, Suite{Name: "first"}); err != nil {
			t.Fatal(err)
		}
		undone := errors.New("move refused")
		moves := 0
		move := func(from, to string) error {
			if moves++; moves == 6 { // the third file's new one
				return undone
			}
			return os.Rename(from, to)
		}
		if err := replace(dir, Suite{Name: "suite two"}, move); !errors.Is(err, undone) {
			t.Fatal(err)
		}
		for _, f := range files[:3] {
			text, err := os.ReadFile(filepath.Join(dir, f.name))
			if err != nil || strings.Contains(string(text), "suite two") {
				t.Errorf("%s is not the first: %v", f.name, err)
			}
		}
		if got := list(dir); !slices.Equal(got, ours) {
			t.Errorf("files are %v", got)
		}
	})
}

func TestJUnit(t *testing.T) {
	text := render(t, JUnit, sample())
	var got junitSuites
	if err := xml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.Tests != 45 || got.Failures != 1 || got.Skipped != 1 || len(got.Suites) != 4 {
		t.Fatalf("%d tests, %d failures, %d skipped, %d suites", got.Tests, got.Failures, got.Skipped, len(got.Suites))
	}
	failed := got.Suites[0].Cases[1]
	if failed.Name != "seed 2 sim" || failed.Failure == nil || !strings.Contains(failed.Failure.Body, "single-run") ||
		!strings.Contains(failed.Failure.Body, "replay: adit run scenarios/drain-under-faults.yaml --seed 2\n") {
		t.Errorf("failed case is %+v", failed)
	}
	if c := got.Suites[3].Cases[0]; c.Skipped == nil || !strings.Contains(c.Skipped.Message, "/dev/kvm") {
		t.Errorf("skipped case is %+v", c)
	}
	if !slices.Contains(failed.Properties, junitProperty{"digest", "3c6ef372fe94f82a"}) {
		t.Errorf("properties are %v", failed.Properties)
	}
	hostile := Suite{Name: "\x00<>&\"", Records: []Record{{Scenario: "]]>", Verdict: Fail, Violations: []Violation{{Rule: "\x1b[31m", Text: "</failure>"}}}}}
	if err := xml.Unmarshal([]byte(render(t, JUnit, hostile)), &got); err != nil {
		t.Errorf("hostile names: %v", err)
	}
	if err := xml.Unmarshal([]byte(render(t, JUnit, Suite{})), &got); err != nil {
		t.Errorf("empty suite: %v", err)
	}
}

func TestPercentiles(t *testing.T) {
	var hundred []float64
	for i := 100; i > 0; i-- {
		hundred = append(hundred, float64(i))
	}
	for name, c := range map[string]struct {
		values []float64
		want   Percentile
	}{
		"nothing is all zero":         {nil, Percentile{}},
		"one value is every figure":   {[]float64{3}, Percentile{Count: 1, Min: 3, P50: 3, P90: 3, P99: 3, Max: 3}},
		"ranks of a hundred":          {hundred, Percentile{Count: 100, Min: 1, P50: 50, P90: 90, P99: 99, Max: 100}},
		"what is not a number is not": {[]float64{2, math.NaN(), 1}, Percentile{Count: 2, Min: 1, P50: 1, P90: 2, P99: 2, Max: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Name, c.want.Unit = "start", "s"
			if got := Percentiles("start", "s", c.values); got != c.want {
				t.Errorf("got %+v", got)
			}
		})
	}
	if hundred[0] != 100 {
		t.Error("the values were sorted in place")
	}
}
