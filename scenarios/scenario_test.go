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
		{"a tab", "- {name: node, count: 2}", "\t- {name: node, count: 2}", "bad.yaml:4:1: ", "indent with blanks"},
		{"a key that stands twice", "for: 10m", "for: 10m\nfor: 11m", "bad.yaml:3:1: ", "leave one of them out"},
		{"a list for a time", "for: 10m", "for: [10m]", "bad.yaml:2:6: for: is a list", "a single value"},
		{"a mapping for a text", "about: A good one.", "about: {a: b}", "bad.yaml:1:8: about: is a mapping", "it is a text"},
		{"a number for a text", "{name: node, count: 2}", "{name: node, count: 2, dmi: {product_serial: 0123}}", "bad.yaml:4:", "in quotes"},
		{"a mapping for a list", "- {name: node, count: 2}", "  name: node\n  count: 2", "bad.yaml:4:3: fleet: is a mapping", "begin with a dash"},
		{"a text for a list", "fleet:\n- {name: node, count: 2}", "fleet: node", "bad.yaml:3:8: fleet: ", "begin with a dash"},
		{"an empty entry", "- {at: 1m, do: vm.delete vm=web-1}", "-", "bad.yaml:8:", "behind its dash"},
		{"an empty time", "for: 10m", "for:", "bad.yaml:2:", "give it a value"},
		{"half a host", "count: 2}\nworkload", "count: 2.5}\nworkload", "bad.yaml:4:23: fleet[0].count: ", "a whole number"},
		{"a number in quotes", "count: 2}\nworkload", "count: '2'}\nworkload", "bad.yaml:4:23: fleet[0].count: ", "a whole number"},
		{"a number in hexadecimal", "count: 2}\nworkload", "count: 0x2}\nworkload", "bad.yaml:4:23: ", "a whole number"},
		{"a number beyond 64 bits", "count: 2}\nworkload", "count: 99999999999999999999999}\nworkload", "bad.yaml:4:23: ", "too large"},
		{"hosts below none", "count: 2}\nworkload", "count: -2}\nworkload", "bad.yaml:4:23: ", "1 to 10000"},
		{"a size beyond all hosts", "memory: 1Gi", "memory: 9Ei", "bad.yaml:6:42: ", "at most 1Pi"},
		{"a size below nothing", "memory: 1Gi", "memory: -1Gi", "bad.yaml:6:42: ", "write it as 4Gi"},
		{"a time below nothing", "for: 10m", "for: -10m", "bad.yaml:2:6: ", "write it as 90s"},
		{"an alias", "- {name: node, count: 2}", "- &a {name: node, count: 2}\n- *a", "bad.yaml:4:3: ", "write it out"},
		{"a merge", "- {name: node, count: 2}", "- {<<: {count: 2}, name: node}", "bad.yaml:4:", "write it out"},
		{"a tag", "about: A", "about: !!int A", "bad.yaml:1:8: ", "leave it out"},
		{"an overcommit that is no number", "{name: node, count: 2}", "{name: node, count: 2, overcommit: {cpu: .nan}}", "bad.yaml:4:", "it is a number"},
		{"an overcommit of nothing known", "{name: node, count: 2}", "{name: node, count: 2, overcommit: {cpus: 2}}", "bad.yaml:4:", "cpu and memory can"},
		{"a label with blanks", "{name: node, count: 2}", "{name: node, count: 2, labels: {a: two words}}", "bad.yaml:4:", "alphanumeric"},
		{"a DMI file that no kernel has", "{name: node, count: 2}", "{name: node, count: 2, dmi: {product_name_: x}}", "bad.yaml:4:", "did you mean product_name?"},
		{"capabilities that are no XML", "{name: node, count: 2}", "{name: node, count: 2, capabilities: scenario_test.go}", "bad.yaml:4:40: fleet[0].capabilities: scenario_test.go: ", "as virsh prints it"},
		{"two groups that meet", "- {name: node, count: 2}", "- {name: node, count: 1001}\n- {name: node1, count: 3}", "bad.yaml:5:", "two hosts called node1001"},
		{"VMs on no host", "memory: 1Gi", "memory: 1Gi, host: node009", "bad.yaml:6:", "the hosts are node001, node002"},
		{"VMs made too late", "memory: 1Gi", "memory: 1Gi, every: 9m30s, at: 1m", "bad.yaml:6:", "after the end of the run"},
		{"a trait of two words", "memory: 1Gi", "memory: 1Gi, traits: [a b]", "bad.yaml:6:", "as CUSTOM_GPU"},
		{"a floor below none", "workload:", "operator: {floor: -1}\nworkload:", "bad.yaml:5:", "1 to 10000"},
		{"a pattern that is none", "vm.delete vm=web-1", "'vm.delete vm=[-1'", "bad.yaml:", "not closed"},
		{"a number of VMs beyond all", "vm.delete vm=web-1", "vm.create group=web count=999999999", "bad.yaml:8:", "1 to 200000"},
		{"a truth value that is none", "vm.delete vm=web-1", "host.update on=node001 version=1 reboot=maybe", "bad.yaml:8:", "neither true nor false"},
		{"an API fault on no process", "libvirtd.crash on=node001 for=5s", "api.5xx on=nova/node009", "bad.yaml:9:", "the processes are operator, node/node001"},
		{"an API fault of no verb", "libvirtd.crash on=node001 for=5s", "api.5xx verbs=write", "bad.yaml:9:", "the verbs are"},
		{"an API fault of no resource", "libvirtd.crash on=node001 for=5s", "api.5xx resources=vms", "bad.yaml:9:", "the resources are"},
		{"a chance that is none", "libvirtd.crash on=node001 for=5s", "api.5xx p=often", "bad.yaml:9:", "above 0 and up to 1"},
		{"a pool that is not there", "libvirtd.crash on=node001 for=5s", "storage.full pool=mine", "bad.yaml:9:", "shared"},
		{"a field that no VM has", "vms.size() == 1", "vms.all(v, v.runing)", "bad.yaml:11:", "undefined field 'runing'"},
		{"a truth value held to a number", "vms.size() == 1", "vms.all(v, v.running == 1)", "bad.yaml:11:", "no matching overload"},
		{"a VM that can never be", "vms.size() == 1", `vm["db-1"].running`, "bad.yaml:11:", "the groups are web"},
		{"a host that is not there", "vms.size() == 1", `host["node009"].ready`, "bad.yaml:11:", "the hosts are"},
		{"a when on a host that is not there", "{at: 1m, do", "{at: 1m, when: 'host[\"node009\"].ready', do", "bad.yaml:8:", "the hosts are"},
		{"an action that needs high availability", "vm.delete vm=web-1", "ha.pause", "bad.yaml:8:", "give the scenario a field ha"},
		{"a fault that needs high availability", "libvirtd.crash on=node001 for=5s", "ha.crash", "bad.yaml:9:", "give the scenario a field ha"},
		{"an HA agent in a fleet without", "libvirtd.crash on=node001 for=5s", "agent.crash on=node001 agent=ha", "bad.yaml:9:", "give the scenario a field ha"},
		{"an empty ha", "fleet:", "ha:\nfleet:", "bad.yaml:3:", "give it a value"},
		{"a lease that one lost report ends", "fleet:", "ha: {term: 8s}\nfleet:", "bad.yaml:3:", "two intervals"},
		{"a share of more than all", "fleet:", "ha: {stormShare: 25}\nfleet:", "bad.yaml:3:18: ha.stormShare", "up to 1"},
		{"a replica that is not there", "fleet:\n- {name: node, count: 2}\nworkload:\n- {name: web, count: 2, cpus: 1, memory: 1Gi}\ntimeline:\n- {at: 1m, do: vm.delete vm=web-1}", "ha: {replicas: 2}\nfleet:\n- {name: node, count: 2}\nworkload:\n- {name: web, count: 2, cpus: 1, memory: 1Gi}\ntimeline:\n- {at: 1m, fault: ha.crash replica=ha-2}", "bad.yaml:9:", "ha-0, ha-1 or leader"},
		{"a class of restart that is none", "memory: 1Gi", "memory: 1Gi, restart: first", "bad.yaml:6:", "high, medium, low"},
		{"a policy that changes nothing", "vm.delete vm=web-1", "vm.policy vm=web-1", "bad.yaml:8:", "changes nothing"},
		{"a policy of another word", "vm.delete vm=web-1", "vm.policy vm=web-1 onPanic=reboot", "bad.yaml:8:", "restart, keep, fail"},
		{"a clock that is wrong by a word", "{name: node, count: 2}", "{name: node, count: 2, clockSkew: late}", "bad.yaml:4:37: ", "write it as 90s, -1h"},
		{"a clock that nobody would sell", "{name: node, count: 2}", "{name: node, count: 2, drift: 20000}", "bad.yaml:4:", "at most 10000"},
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

// TestABrokenCapturedFileIsNamedWithItsField changes a good capabilities
// document at one place each, and reads odd os-release files.
func TestABrokenCapturedFileIsNamedWithItsField(t *testing.T) {
	whole, err := os.ReadFile("suite/inputs/cells-without-memory.xml")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(whole)
	topology := doc[strings.Index(doc, "<topology>"):strings.Index(doc, "</topology>")]
	tests := []struct{ name, field, text, want string }{
		{"cut off", "capabilities", doc[:900], "ends too early"},
		{"empty", "capabilities", "", "no XML"},
		{"no XML", "capabilities", "hello\n", "no XML"},
		{"another document", "capabilities", "<domain/>", "expected element type <capabilities>"},
		{"no cells", "capabilities", strings.Replace(doc, topology, "<topology>", 1), "no VM would fit"},
		{"memory below nothing", "capabilities", strings.Replace(doc, "<memory unit='KiB'>", "<memory unit='KiB'>-", 1), "no number"},
		{"memory of an unknown unit", "capabilities", strings.Replace(doc, "<memory unit='KiB'>", "<memory unit='stone'>", 1), "write b, KiB"},
		{"no architecture", "capabilities", strings.Replace(doc, "<arch>x86_64</arch>", "", 1), "arch is missing"},
		{"lines that are no pairs", "osRelease", "ID\n", "line 1: \"ID\" is not KEY=VALUE"},
		{"an open quote", "osRelease", "ID=\"x\n", "not closed"},
		{"bytes", "osRelease", "\x00\x01=\n", "not KEY=VALUE"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(good, "count: 2}", "count: 2, "+tt.field+": input}", 1)
			_, err := scenarios.Parse("dir/bad.yaml", []byte(text), func(name string) ([]byte, error) {
				if name != "dir/input" {
					t.Errorf("it reads %s", name)
				}
				return []byte(tt.text), nil
			})
			if err == nil || !strings.HasPrefix(err.Error(), "dir/bad.yaml:4:") || !strings.Contains(err.Error(), "fleet[0]."+tt.field+": input: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestWhatIsNoTextIsNamed reads files of other programs.
func TestWhatIsNoTextIsNamed(t *testing.T) {
	for name, data := range map[string]string{
		"zeros": strings.Repeat("\x00", 100), "an image": "\x89PNG\r\n\x1a\n\x00", "UTF-16": "\xff\xfea\x00b\x00", "Latin-1": "about: g\xfcte\n",
		"too large": strings.Repeat("# \n", 1<<19), "too deep": strings.Repeat("[", 5000), "a word": "hello", "a list": "- a\n", "nothing": "null\n", "a comment": "# x\n",
	} {
		_, err := scenarios.Parse("x.yaml", []byte(data), os.ReadFile)
		if err == nil || !strings.HasPrefix(err.Error(), "x.yaml:1:") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if _, err := scenarios.Parse("x.yaml", []byte("\ufeff"+good), os.ReadFile); err != nil {
		t.Errorf("a byte order mark before a good one: %v", err)
	}
}

func TestAnEmptyFileIsNamed(t *testing.T) {
	if _, err := scenarios.Parse("empty.yaml", nil, os.ReadFile); err == nil || !strings.Contains(err.Error(), "empty.yaml") {
		t.Errorf("the error is %v", err)
	}
}
