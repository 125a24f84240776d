// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/adit-hv/adit/scenarios"
)

const good = `about: A good one.
for: 10m
fleet:
- {name: node, count: 2}
workload:
- {name: web, count: 2, cpus: 1, memory: 1Gi}
timeline:
- {at: 1m, do: vm.delete vm=web-1}
- {at: 2m, fault: libvirtd.crash on=node001 for=5s}
expect:
- {end: 'vms.size() == 1'}
`

func TestAGoodScenarioIsRead(t *testing.T) {
	s, err := scenarios.Parse("good.yaml", []byte(good), os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Spec.HostNames()) != 2 || len(s.Timeline) != 2 || len(s.Expect) != 1 {
		t.Errorf("read %d hosts, %d steps, %d expectations", len(s.Spec.HostNames()), len(s.Timeline), len(s.Expect))
	}
}

// TestAMistakeIsNamedWithItsPlaceAndItsMend changes one line of the good
// scenario at a time.
func TestAMistakeIsNamedWithItsPlaceAndItsMend(t *testing.T) {
	tests := []struct {
		name, old, new string
		want           string // begin of the error
		mend           string // part of it
	}{
		{"an unknown field", "for: 10m", "for: 10m\nfleets: []", "bad.yaml:3:1: ", "docs/scenarios.md"},
		{"a time without a unit", "for: 10m", "for: 10", "bad.yaml:2:6: ", "write it as 90s"},
		{"no end", "for: 10m\n", "", "bad.yaml:1:", "as 30m"},
		{"no about", "about: A good one.\n", "", "bad.yaml:1:", "say in a sentence"},
		{"a size in words", "memory: 1Gi", "memory: much", "bad.yaml:6:42: ", "write it as 4Gi"},
		{"a text for a number", "count: 2}\nworkload", "count: two}\nworkload", "bad.yaml:4:", ""},
		{"no hosts", "- {name: node, count: 2}", "[]", "bad.yaml:4:", "at least one group"},
		{"a group of no hosts", "{name: node, count: 2}", "{name: node, count: 0}", "bad.yaml:4:23: fleet[0].count", "1 to 10000"},
		{"an unknown model", "{name: node, count: 2}", "{name: node, count: 2, model: pdp11}", "bad.yaml:4:", "the models are"},
		{"a missing file", "{name: node, count: 2}", "{name: node, count: 2, capabilities: none.xml}", "bad.yaml:4:", "relative to the scenario file"},
		{"an unknown action", "do: vm.delete vm=web-1", "do: vm.remove vm=web-1", "bad.yaml:8:", "the actions are"},
		{"an action without its VM", "do: vm.delete vm=web-1", "do: vm.delete", "bad.yaml:8:", "needs vm="},
		{"an action with a stray word", "do: vm.delete vm=web-1", "do: vm.delete web-1", "bad.yaml:8:", "KEY=VALUE"},
		{"a VM of no group", "do: vm.delete vm=web-1", "do: vm.delete vm=db-1", "bad.yaml:8:", "the groups are web"},
		{"an unknown fault", "libvirtd.crash on", "libvirtd.explode on", "bad.yaml:9:", "the faults are"},
		{"a fault on no host", "on=node001", "on=node007", "bad.yaml:9:", "the hosts are node001, node002"},
		{"a step that does nothing", "do: vm.delete vm=web-1", "delay: 1s", "bad.yaml:8:", "one of do, fault and heal"},
		{"a step after the end", "{at: 1m,", "{at: 1h,", "bad.yaml:8:", "after the end of the run"},
		{"an expression with a mistake", "vms.size() == 1", "vms.size( == 1", "bad.yaml:11:", "CEL"},
		{"an expression over nothing", "vms.size() == 1", "machines.size() == 1", "bad.yaml:11:", "undeclared reference"},
		{"an expression that is no verdict", "vms.size() == 1", "vms.size()", "bad.yaml:11:", "true or false"},
		{"two kinds in one expectation", "{end: 'vms.size() == 1'}", "{end: 'true', always: 'true'}", "bad.yaml:11:", "this one has 2"},
		{"an empty window", "{end: 'vms.size() == 1'}", "{always: 'true', from: 5m, until: 4m}", "bad.yaml:11:", "is empty"},
		{"broken YAML", "- {name: node, count: 2}", "- {name: node, count: 2", "bad.yaml:", ""},
		{"two documents", "for: 10m", "for: 10m\n---\nabout: x", "bad.yaml:", "one scenario in one file"},
		{"an overcommit below one", "{name: node, count: 2}", "{name: node, count: 2, overcommit: {cpu: 0.5}}", "bad.yaml:4:", "below 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(good, tt.old, tt.new, 1)
			if text == good {
				t.Fatal("the mistake is not in the text")
			}
			_, err := scenarios.Parse("bad.yaml", []byte(text), os.ReadFile)
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.HasPrefix(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.mend) {
				t.Errorf("the error is\n  %v\nwant one that begins with %q and contains %q", err, tt.want, tt.mend)
			}
			var ours *scenarios.Error
			if !errors.As(err, &ours) || ours.Line == 0 {
				t.Errorf("the error has no place: %#v", err)
			}
		})
	}
}

func TestAnEmptyFileIsNamed(t *testing.T) {
	if _, err := scenarios.Parse("empty.yaml", nil, os.ReadFile); err == nil || !strings.Contains(err.Error(), "empty.yaml") {
		t.Errorf("the error is %v", err)
	}
}
