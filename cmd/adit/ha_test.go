// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/operator/ha"
	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/testbed"
)

// dark has a host that loses its power and the controller that could tell, and no
// watchdog: there is no proof but a person.
const dark = `about: A host is dark.
for: 10m
ha: {watchdog: false}
fleet:
- {name: node, count: 3}
workload:
- {name: web, count: 2, cpus: 1, memory: 1Gi, host: node001}
- {name: spare, count: 1, cpus: 1, memory: 1Gi, host: node002}
timeline:
- {at: 2m, fault: bmc.down on=node001}
- {at: 2m, fault: host.power-off on=node001}
expect:
- {end: 'vms.exists(v, v.name == "web-1" && !v.running)'}
`

func TestWhatWasDecidedInARunCanBeReadBack(t *testing.T) {
	file := write(t, "dark.yaml", dark)
	code, out, errs := tool(t, "ha", "explain", "node001", "--run", file, "--at", "8m")
	if code != 0 || !strings.Contains(out, "Unproven") || !strings.Contains(out, "confirm") {
		t.Errorf("explain ended with %d and said:\n%s%s", code, out, errs)
	}
	code, out, errs = tool(t, "ha", "history", "node001", "--run", file)
	if code != 0 || !strings.Contains(out, "node001-1  made") {
		t.Errorf("history ended with %d and said:\n%s%s", code, out, errs)
	}
	if code, out, _ = tool(t, "ha", "history", "node003", "--run", file); code != 0 || !strings.Contains(out, "Nothing was ever decided") {
		t.Errorf("history of a host that is well ended with %d and said:\n%s", code, out)
	}
}

func TestAPersonsWordIsKeptAndMovesTheService(t *testing.T) {
	s, err := scenarios.Load(write(t, "dark.yaml", dark))
	if err != nil {
		t.Fatal(err)
	}
	w := word{who: "kim", reason: "the cable is in my hand", valid: time.Hour}
	err = s.LookAt(scenarios.Options{Seed: 1, T: t}, 8*time.Minute, func(world *testbed.World) {
		api, out := world.Cluster.Client("kim"), &bytes.Buffer{}
		say := func(host string) error {
			return confirm(context.Background(), api, host, w, world.Scheduler.Now(), out)
		}
		if err := say("node003"); err == nil || !strings.Contains(err.Error(), "it is not dead") {
			t.Errorf("a word about a host that reports is refused with %v", err)
		}
		if err := say("node009"); err == nil || !strings.Contains(err.Error(), "there is no Hypervisor") {
			t.Errorf("a word about no host is refused with %v", err)
		}
		hold := func(setting, value string) {
			if err := set(context.Background(), api, "kvm", map[string]string{setting: value}); err != nil {
				t.Fatal(err)
			}
		}
		hold("paused", "true")
		hold("dryRun", "true")
		hold("paused", "false")
		world.Run(8*time.Minute + 10*time.Second) // it looks once an interval
		if err := say("node001"); err != nil {
			t.Fatal(err)
		}
		world.Run(9 * time.Minute)
		h, found, err := lookUp(context.Background(), api, "node001")
		if err != nil || len(found) != 1 || found[0].Status.Phase != v1alpha1.EvacuationCancelled {
			t.Errorf("a dry run leaves %+v, %v", found, err)
		}
		var page strings.Builder
		ha.Explain(&page, h, found, world.Scheduler.Now())
		if !strings.Contains(page.String(), "would be fenced now and its 2 protected VMs started elsewhere, but this is a dry run") {
			t.Errorf("explain says:\n%s", &page)
		}
		hold("dryRun", "false")
		if !strings.Contains(out.String(), "Confirmed that node001") {
			t.Errorf("it says %q", out)
		}
		world.Run(10 * time.Minute)
		all := world.Evacuations("node001")
		if len(all) != 2 || all[1].Status.Proof == nil || all[1].Status.Proof.Kind != "Confirmed" || !strings.Contains(all[1].Status.Proof.Message, "kim") {
			t.Errorf("the word has not become a proof: %+v", all)
		}
		h, found, err = lookUp(context.Background(), api, "node001")
		if err != nil || h.Name != "node001" || len(found) != 2 {
			t.Errorf("looked up: %v, %d, %v", h, len(found), err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestBadWordsAboutHighAvailabilityAreRefused(t *testing.T) {
	plain := write(t, "plain.yaml", passing)
	dark := write(t, "dark.yaml", dark)
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no host", []string{"ha", "explain"}, "name one host"},
		{"two hosts", []string{"ha", "confirm", "node001", "node002"}, "name one host"},
		{"no command", []string{"ha", "explian", "node001"}, "explian"},
		{"a flag that is none", []string{"ha", "history", "--sead", "3", "node001"}, "--sead"},
		{"a dry run that is neither on nor off", []string{"ha", "dry-run", "maybe"}, "say on or off"},
		{"a dry run of nothing", []string{"ha", "dry-run"}, "say on or off"},
		{"a pause of one host", []string{"ha", "pause", "node001"}, "node001"},
		{"a run without high availability", []string{"ha", "explain", "node001", "--run", plain}, "no field ha"},
		{"a host that is not there", []string{"ha", "explain", "node009", "--run", dark}, "the hosts are node001"},
		{"a moment after the run", []string{"ha", "history", "node001", "--run", dark, "--at", "1h"}, "not within the run"},
		{"a moment of no run", []string{"ha", "history", "node001", "--at", "1m"}, "name it with --run"},
		{"a run and a cluster", []string{"ha", "history", "node001", "--run", dark, "--context", "x"}, "leave out one"},
		{"a kubeconfig that is not there", []string{"ha", "history", "node001", "--kubeconfig", "/nowhere"}, "no cluster to speak with"},
		{"a word without a reason", []string{"ha", "confirm", "node001", "--for", "1h"}, "how do you know"},
		{"a word without an end", []string{"ha", "confirm", "node001", "--reason", "x"}, "--for 1h"},
		{"a word for a week", []string{"ha", "confirm", "node001", "--reason", "x", "--for", "168h"}, "up to 24h"},
		{"a word in two lines", []string{"ha", "confirm", "node001", "--reason", "x\ny", "--for", "1h"}, "one line"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, _, errs := tool(t, tt.args...)
			if code != exitBadInput || !strings.Contains(errs, tt.want) {
				t.Errorf("it ends with %d and says %q, want %q", code, errs, tt.want)
			}
		})
	}
}
