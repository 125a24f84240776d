// SPDX-License-Identifier: Apache-2.0

package explore_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/scenarios/explore"
	"github.com/adit-hv/adit/testbed"
)

func report(t *testing.T, r reports.Record) {
	t.Helper()
	for _, v := range r.Violations {
		t.Errorf("at %.1f s: %s: %s", v.At, v.Rule, v.Text)
	}
}

func TestScenariosOfDiceHold(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		t.Run(explore.Name(seed), func(t *testing.T) {
			played, err := explore.Play(seed, scenarios.Options{T: t})
			if err != nil {
				t.Fatal(err)
			}
			report(t, played.Record)
			if t.Failed() {
				t.Logf("to shrink it: adit explore --seeds %d", seed)
			}
		})
	}
}

func TestScenariosOfDiceAreGoodAndTheSameEachTime(t *testing.T) {
	kinds := map[string]bool{}
	for seed := range uint64(300) {
		text := explore.Draw(seed)
		if !bytes.Equal(text, explore.Draw(seed)) {
			t.Fatalf("seed %d gives two texts", seed)
		}
		s, err := explore.Parse(seed, string(text))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		hosts, vms, faults := 0, 0, 0
		for _, g := range s.Spec.Hosts {
			hosts += g.Count
		}
		for _, g := range s.Spec.VMs {
			vms += g.Count
		}
		for _, step := range s.Timeline {
			kinds[strings.Fields(step.Text)[0]] = true
			if step.Fault.String() != "" {
				faults++
			}
		}
		if hosts < 8 || vms < 40 || faults < 5 {
			t.Errorf("seed %d has %d hosts, %d VMs and %d faults", seed, hosts, vms, faults)
		}
	}
	notYet := []string{"feed.off", "switch.down"} // a scenario's hosts have none
	for _, kind := range testbed.FaultKinds() {
		if !kinds[kind] && !slices.Contains(notYet, kind) {
			t.Errorf("no seed has the fault %s", kind)
		}
	}
}

// TestWhatWasFoundOnceHolds plays what explorations found, each under the seed
// its name begins with.
func TestWhatWasFoundOnceHolds(t *testing.T) {
	files, err := filepath.Glob("testdata/found/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		number, what, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "-")
		t.Run(what, func(t *testing.T) {
			seed, err := strconv.ParseUint(number, 10, 64)
			if err != nil {
				t.Fatalf("%s does not begin with its seed", file)
			}
			s, err := scenarios.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			report(t, s.Run(scenarios.Options{Seed: seed, T: t}).Record)
		})
	}
}

func TestShrinkKeepsWhatFails(t *testing.T) {
	const text = "about: x\ntimeline:\n- a\n- b\n  more of b\n- c\n- d\n- e\nexpect:\n- f\n- g\n"
	got := explore.Shrink(text, func(s string) bool { return strings.Contains(s, "of b") && strings.Contains(s, "- e") })
	if want := "about: x\ntimeline:\n- b\n  more of b\n- e\nexpect:\n- f\n"; got != want && got != strings.Replace(want, "- f", "- g", 1) {
		t.Errorf("shrunk to\n%s", got)
	}
}

const failing = `about: A VM is stopped among others.
for: 20m
fleet:
- {name: p, count: 3, model: lab, zone: b}
- {name: q, count: 2, model: lab}
workload:
- {name: web, count: 8, cpus: 1, memory: 1Gi, agent: true}
- {name: db, count: 3, cpus: 1, memory: 1Gi}
operator: {migrations: 1}
timeline:
- {at: 3m, fault: 'agent.pause on=q001 for=2m'}
- {at: 4m, do: vm.migrate vm=db-1}
- {at: 10m, do: vm.power vm=web-2 state=Stopped}
- {at: 12m, do: vm.migrate vm=web-3}
expect:
- {end: 'hosts.all(h, h.up)'}
- {end: 'vms.all(v, v.running)'}
`

// TestAFailureIsShrunkToWhatItNeeds takes a scenario that fails by one step.
func TestAFailureIsShrunkToWhatItNeeds(t *testing.T) {
	play := func(s *scenarios.Scenario) reports.Record { return s.Run(scenarios.Options{Seed: 3, T: t}).Record }
	s, err := scenarios.Parse("failing.yaml", []byte(failing), os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	record := play(s)
	rules := explore.Rules(record)
	if !slices.Equal(rules, []string{"end: vms.all(v, v.running)"}) {
		t.Fatalf("it breaks %q", rules)
	}
	runs := 0
	least := explore.Minimise(failing, explore.Worst(record), play, func() bool { runs++; return runs < 200 })
	for _, want := range []string{"- {name: p, count: 1}\n", "vm.power vm=web-2 state=Stopped", "vms.all(v, v.running)"} {
		if !strings.Contains(least, want) && !strings.Contains(least, strings.Replace(want, "p,", "q,", 1)) {
			t.Errorf("%s is not there", want)
		}
	}
	if strings.Count(least, "\n- ") != 4 || strings.Contains(least, "agent") || strings.Contains(least, "for: 20m") {
		t.Errorf("after %d runs it is\n%s", runs, least)
	}

	folder := t.TempDir()
	failure, err := explore.Write(folder, 3, record, failing, least)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("adit run %s/seed-3.yaml --seed 3", folder); failure.Replay != want {
		t.Errorf("the command is %q, want %q", failure.Replay, want)
	}
	if s, err = scenarios.Load(failure.File); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(explore.Rules(play(s)), rules) {
		t.Error("what was written does not fail as it did")
	}
}

func TestCoverageTellsWhatWasNeverSeen(t *testing.T) {
	c := explore.NewCoverage()
	before := c.Blind()
	c.Add(testbed.Reached{
		Places: map[testbed.Place]int{{Point: "vm Running"}: 2, {Point: "vm Running", State: "Suspect", Fault: "host.hang"}: 1},
		Faults: map[string]int{"host.hang": 1, "api.409": 3},
		Pairs:  map[[2]string]int{{"api.409", "host.hang"}: 1},
	})
	after := c.Blind()
	if len(before.Faults)-len(after.Faults) != 2 || len(before.Points)-len(after.Points) != 1 || len(before.Pairs)-len(after.Pairs) != 1 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	var out bytes.Buffer
	c.Table(&out)
	for _, want := range []string{`(?m)^vm Running +2 .* 1 `, `(?m)^vm Succeeded [ .]+$`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no line %s in\n%s", want, out.String())
		}
	}
}

func TestBooksGoOnWhereTheyEnded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "books.json")
	b := explore.NewBooks("v1", 10, 20)
	b.Enter(reports.Record{}, testbed.Reached{Faults: map[string]int{"api.409": 2}}, nil)
	b.Enter(reports.Record{}, testbed.Reached{}, &explore.Failure{Seed: 11})
	if err := b.Save(file); err != nil {
		t.Fatal(err)
	}
	again, err := explore.OpenBooks(file, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if again.Next != 12 || again.To != 20 || again.Passed != 1 || len(again.Failures) != 1 || again.Coverage.Injected() != 2 {
		t.Errorf("they hold %+v", again)
	}
	if _, err := explore.OpenBooks(file, "v2"); err == nil {
		t.Error("books of another version were opened")
	}
}
