// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/adit-hv/adit/reports"
)

// tool calls adit as a shell would and returns what it said.
func tool(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t, args, &out, &errs)
	return code, out.String(), errs.String()
}

const passing = `about: Two VMs start.
for: 2m
fleet:
- {name: node, count: 2}
workload:
- {name: web, count: 2, cpus: 1, memory: 1Gi}
expect:
- {end: 'vms.all(v, v.running)'}
`

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestBadInputIsNamedInOneLineBeforeAnythingIsRun(t *testing.T) {
	good := write(t, "good.yaml", passing)
	broken := write(t, "broken.yaml", strings.Replace(passing, "count: 2}", "count: two}", 1))
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no such command", []string{"play"}, "unknown command"},
		{"no such command below scenario", []string{"scenario", "bogus"}, "unknown command"},
		{"no such shell", []string{"completion", "tcsh"}, "unknown command"},
		{"no such flag", []string{"run", "--sede", "1"}, "see adit run --help"},
		{"a seed that is no number", []string{"run", "--seed", "x"}, "a whole number"},
		{"a seed below none", []string{"run", "--seed", "-1"}, "a whole number"},
		{"no seeds", []string{"run", "--seeds", "0"}, "at least 1"},
		{"fewer seeds than none", []string{"run", "--seeds", "-1"}, "at least 1"},
		{"seeds beyond all days", []string{"run", "--seeds", "999999999"}, "give fewer"},
		{"seeds beyond 64 bits", []string{"run", "--seed", "18446744073709551615", "--seeds", "2"}, "begin lower"},
		{"no jobs", []string{"run", "--jobs", "0"}, "at least 1"},
		{"an unknown mode", []string{"run", "--mode", "real"}, "the modes are"},
		{"an unknown output", []string{"run", "-o", "xml"}, "text or json"},
		{"an unknown fidelity", []string{"run", "--fidelity", "half"}, "typed or full"},
		{"a crash that is none", []string{"run", "--crash", "operator"}, "write PROCESS:CALL"},
		{"a crash of no process", []string{"run", good, "--crash", "nova/node009:1:after"}, "the processes are operator, node/node001"},
		{"a trace of many runs", []string{"run", good, "--seeds", "2", "--trace"}, "this would be 2"},
		{"a trace between objects", []string{"run", good, "--trace", "-o", "json"}, "leave out one"},
		{"a report into a file", []string{"run", good, "--report", good}, "is a file"},
		{"a report below a file", []string{"run", good, "--report", filepath.Join(good, "out")}, "--report"},
		{"a report that nobody can write", []string{"run", good, "--report", "/proc/out"}, "can be written"},
		{"a profile that nobody can write", []string{"run", good, "--cpuprofile", "/proc/nothing/p"}, "--cpuprofile"},
		{"a file that is not there", []string{"run", "./none.yaml"}, "is not there"},
		{"a name that nobody has", []string{"run", "drain-a-hos"}, "did you mean drain-a-host?"},
		{"a folder without scenarios", []string{"run", t.TempDir()}, "ending in .yaml"},
		{"a broken file", []string{"run", broken}, "broken.yaml:4:23: fleet[0].count: "},
		{"a broken file to validate", []string{"scenario", "validate", broken}, "broken.yaml:4:23: "},
		{"nothing to validate", []string{"scenario", "validate"}, "name a scenario file"},
		{"a file to show", []string{"scenario", "show", good}, "is no built-in scenario"},
		{"nothing to show", []string{"scenario", "show"}, "name one built-in scenario"},
		{"seeds of dice that are none", []string{"explore", "--seeds", "1-9"}, "write 1..1000"},
		{"seeds of dice that run backwards", []string{"explore", "--seeds", "9..1"}, "not below the first"},
		{"seeds of dice beyond all days", []string{"explore", "--seeds", "1..99999999"}, "give fewer"},
		{"seeds of dice beyond all bits", []string{"explore", "--seeds", "99999999999999999999"}, "give smaller ones"},
		{"dice and scenarios", []string{"explore", good}, "unknown command"},
		{"no dice at once", []string{"explore", "-j", "0"}, "at least 1"},
		{"an unknown output of dice", []string{"explore", "-o", "xml"}, "text or json"},
		{"a failure's folder that is a file", []string{"explore", "--out", good}, "is a file"},
		{"nothing to resume", []string{"explore", "--resume", "--out", t.TempDir()}, "nothing to resume"},
		{"other seeds to resume", []string{"explore", "--resume", "--seeds", "3"}, "leave out --seeds"},
		{"a seed to draw below none", []string{"explore", "--draw", "-4"}, "not below 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := tool(t, tt.args...)
			if code != exitBadInput || stdout != "" {
				t.Errorf("exit code %d, standard output %q", code, stdout)
			}
			if !strings.HasPrefix(stderr, "adit: ") || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.want) {
				t.Errorf("it says\n%swant one line with %q", stderr, tt.want)
			}
		})
	}
}

func TestEachBrokenFileOfAFolderIsNamed(t *testing.T) {
	folder := filepath.Dir(write(t, "a.yaml", "about: only"))
	for name, text := range map[string]string{"b.yaml": "for: 1", "c.yaml": passing} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code, _, stderr := tool(t, "scenario", "validate", folder)
	if code != exitBadInput || strings.Count(stderr, "\n") != 2 || !strings.Contains(stderr, "a.yaml:1:") || !strings.Contains(stderr, "b.yaml:1:") {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
}

func TestJSONIsOneObjectARunAndNothingElse(t *testing.T) {
	code, stdout, stderr := tool(t, "run", write(t, "good.yaml", passing), "-o", "json", "--seeds", "3")
	if code != exitPass || strings.Contains(stdout, "null") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, line := range lines {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"scenario", "seed", "mode", "verdict", "digest", "violations", "virtualSeconds", "cpuSeconds", "hostHours", "events", "apiWrites", "replay"} {
			if _, there := object[name]; !there {
				t.Errorf("no %s in %s", name, line)
			}
		}
	}
}

// TestTheLastLineOfAFailureRepeatsIt takes that line apart as a shell does.
func TestTheLastLineOfAFailureRepeatsIt(t *testing.T) {
	file := write(t, "with a blank/it's bad.yaml", strings.Replace(passing, "v.running", "!v.running", 1))
	code, stdout, stderr := tool(t, "run", file, "--seed", "7", "--seeds", "2", "--verify", "--fidelity", "full", "--crash", "operator:3:after")
	if code != exitFailed {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	last := lines[len(lines)-1]
	want := "adit run '" + strings.ReplaceAll(file, "'", `'\''`) + "' --seed 7 --fidelity full --crash operator:3:after --verify"
	if last != want {
		t.Fatalf("the last line is\n%s\nwant\n%s", last, want)
	}
	code, again, _ := tool(t, "run", file, "--seed", "7", "--fidelity", "full", "--crash", "operator:3:after", "--verify")
	digest := lines[0][strings.LastIndex(lines[0], " ")+1:]
	if code != exitFailed || !strings.Contains(again, digest) {
		t.Errorf("exit code %d, and %s is not in\n%s", code, digest, again)
	}
}

func TestACrashThatNeverCameIsNoPass(t *testing.T) {
	code, stdout, stderr := tool(t, "run", write(t, "good.yaml", passing), "--crash", "operator:99999:after", "-o", "json")
	if code != exitBadInput || !strings.Contains(stdout, `"verdict":"notrun"`) || !strings.Contains(stderr, "name one of them") {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
}

func TestAnInterruptEndsItAtOnceAndSaysHowFarItCame(t *testing.T) {
	interrupts := make(chan os.Signal, 1)
	f := runFlags{seeds: 1000, seed: 1, output: "text", mode: "sim", fidelity: "typed", jobs: 1}
	jobs, err := plan(t, f, []string{write(t, "good.yaml", passing)})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	p := newPrinter(f, len(jobs), &out, &errs)
	records, interrupted := playAll(jobs, f, func(i int, r reports.Record) {
		p.finished(i, r)
		if i == 2 {
			interrupts <- os.Interrupt
		}
	}, interrupts)
	if !interrupted || len(records) < 3 || len(records) > 6 {
		t.Errorf("interrupted: %v, after %d runs", interrupted, len(records))
	}
}

func TestHelpAndCompletionAreThere(t *testing.T) {
	for _, args := range [][]string{{}, {"run"}, {"explore"}, {"scenario"}, {"scenario", "validate"}, {"scenario", "list"}, {"scenario", "show"}, {"scenario", "words"}, {"version"}, {"completion"}} {
		if code, stdout, _ := tool(t, append(args, "--help")...); code != exitPass || !strings.Contains(stdout, "Usage:") {
			t.Errorf("adit %v --help: exit code %d, %s", args, code, stdout)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, stdout, _ := tool(t, "completion", shell); code != exitPass || len(stdout) < 1000 {
			t.Errorf("completion %s: exit code %d", shell, code)
		}
	}
	for _, tt := range [][]string{{"drain-a-host", "run", ""}, {"drain-a-host", "scenario", "show", ""}, {"sim", "run", "--mode", ""}, {"json", "run", "-o", ""}, {"full", "run", "--fidelity", ""}} {
		if _, stdout, _ := tool(t, append([]string{"__complete"}, tt[1:]...)...); !strings.Contains(stdout, tt[0]) {
			t.Errorf("%v does not complete to %s: %s", tt[1:], tt[0], stdout)
		}
	}
}
