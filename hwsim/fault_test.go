// SPDX-License-Identifier: Apache-2.0

package hwsim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/adit-hv/adit/hwsim"
)

func TestFaultsAreReadAsTheyArePrinted(t *testing.T) {
	for _, text := range []string{
		"host.power-off on=node001 for=5m0s",
		"host.hang on=node001,node002",
		"qemu.crash vm=web-1",
		"net.cut link=migration between=node001,node002 for=30s",
		"net.slow link=migration on=node001 bandwidth=10000000 for=1m0s",
		"migration.fail vm=* phase=switch-over",
		"events.delay on=node001 by=2s",
		"net.cut link=management between=node001,outside",
		"net.oneway link=management on=node001 to=outside for=30s",
		"storage.hang pool=shared for=5m0s",
		"clock.jump on=node001 by=-1h0m0s",
		"host.flap on=node001 every=2m0s for=30m0s",
		"feed.off feed=rack-1,rack-2",
		"bmc.wrong-host on=node001 to=node002",
		"bmc.script on=node001 states=1s:Off,10s:PoweringOff,50s:Off",
		"unit.state on=node001 unit=libvirtd.service load=masked active=inactive sub=dead",
	} {
		f, err := hwsim.ParseFault(text)
		if err != nil {
			t.Error(err)
		} else if f.String() != text {
			t.Errorf("%q is printed as %q", text, f)
		}
	}
}

func TestFaultsOfAllKindsGoThere(t *testing.T) {
	help := map[string]string{}
	for _, h := range hwsim.FaultHelp() {
		kind, keys, _ := strings.Cut(h[0], " ")
		help[kind] = keys
		if h[1] == "" {
			t.Errorf("%s has no help", kind)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z][a-z0-9-]{0,8}`)
		f := hwsim.Fault{Kind: rapid.SampledFrom(hwsim.FaultKinds()).Draw(t, "kind")}
		set := func(key string) {
			switch key {
			case "on":
				f.On = rapid.SliceOfN(name, 1, 3).Draw(t, key)
			case "between":
				f.Between, f.On = rapid.SliceOfN(name, 2, 3).Draw(t, key), nil
			case "vm":
				f.VM = name.Draw(t, key)
			case "to":
				f.To = []string{name.Draw(t, key)}
			case "feed":
				f.Feed = name.Draw(t, key)
			case "switch":
				f.Switch = name.Draw(t, key)
			case "states":
				f.States = "1s:Off,10s:PoweringOff"
			case "every":
				f.Every = time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Hour)).Draw(t, key))
			case "pool":
				f.Pool = name.Draw(t, key)
			case "link":
				f.Link = rapid.SampledFrom([]string{hwsim.LinkMigration, hwsim.LinkManagement}).Draw(t, key)
			case "unit":
				f.Unit = name.Draw(t, key) + ".service"
			case "phase":
				f.Phase = rapid.SampledFrom([]string{"prepare", "setup", "active", "switch-over", "post-copy", "completed-error"}).Draw(t, key)
			case "load":
				f.Load = name.Draw(t, key)
			case "active":
				f.Active = name.Draw(t, key)
			case "sub":
				f.Sub = name.Draw(t, key)
			case "result":
				f.Result = name.Draw(t, key)
			case "bandwidth":
				f.Bandwidth = rapid.Uint64Range(1, 1<<50).Draw(t, key)
			case "by":
				f.By = time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, key))
			case "for":
				f.For = time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, key))
			default:
				t.Fatalf("unknown key %q", key)
			}
		}
		for _, word := range strings.Fields(help[f.Kind]) {
			optional := strings.HasPrefix(word, "[")
			key := strings.Trim(word, "[]=")
			if !optional || f.Kind == "net.cut" && key == "on" || rapid.Bool().Draw(t, "with "+key) {
				set(key)
			}
		}
		got, err := hwsim.ParseFault(f.String())
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if diff := cmp.Diff(f, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestBadFaultsSayWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                            "empty",
		"host.explode on=a":                           "unknown kind",
		"host.power-off":                              "needs on=",
		"host.power-off on=a vm=x":                    "takes no vm",
		"host.power-off on=a on=b":                    "twice",
		"host.power-off on":                           "not KEY=VALUE",
		"host.power-off on=a for=soon":                "duration",
		"host.power-off on=a for=0s":                  "longer than nothing",
		"host.reboot on=a for=1s":                     "takes no for",
		"net.cut link=migration":                      "needs on=",
		"net.cut link=carrier on=a":                   "unknown link",
		"net.cut link=migration between=a":            "two hosts",
		"migration.fail vm=a phase=sometime":          "unknown phase",
		"net.slow link=migration on=a bandwidth=fast": "80Mbit",
		"net.slow link=bmc on=a bandwidth=1MB":        "only the links",
		"net.cut link=storage between=a,b":            "on=",
		"net.cut link=bmc between=a,b":                "must have it",
		"host.reboot on=a by=-1s":                     "takes no by",
		"bmc.slow on=a by=-1s":                        "not negative",
		"host.flap on=a every=1ms":                    "a second or more",
		"bmc.wrong-host on=a to=b,c":                  "one host",
		"bmc.script on=a states=Off":                  "AT:STATE",
		"bmc.script on=a states=5s:Off,1s:On":         "growing",
	} {
		if _, err := hwsim.ParseFault(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	w := newWorld(t, 1)
	for text, want := range map[string]string{
		"host.hang on=z":             "no host",
		"storage.full pool=nowhere":  "no pool",
		"qemu.crash vm=nobody":       "no QEMU",
		"host.power-off on=a,nobody": "no host",
		"host.hang on=outside":       "no host",
		"bmc.twin on=a to=nobody":    "no host",
		"feed.off feed=nowhere":      "no host is on a feed",
		"switch.down switch=nowhere": "no host is on a switch",
	} {
		f, err := hwsim.ParseFault(text)
		w.must(err)
		if err := w.f.Inject(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	if n := len(w.f.Ledger().Faults()); n != 0 {
		t.Errorf("%d faults that did not happen are in the ledger", n)
	}
}

func TestBandwidthIsReadInBitsAndBytes(t *testing.T) {
	for text, want := range map[string]uint64{"80Mbit": 10_000_000, "10MB": 10_000_000, "1MiB": 1 << 20, "10MB/s": 10_000_000, "4096": 4096} {
		f, err := hwsim.ParseFault("net.slow link=migration on=a bandwidth=" + text)
		if err != nil || f.Bandwidth != want {
			t.Errorf("%s: %d, %v; want %d", text, f.Bandwidth, err, want)
		}
	}
}

func TestFaultsEndByThemselvesAndAreInTraceAndLedger(t *testing.T) {
	w := newWorld(t, 1)
	w.inject("libvirtd.crash on=a for=10s")
	w.inject("libvirtd.crash on=b")
	w.pass(time.Minute)
	if got := w.f.ActiveFaults(); len(got) != 1 || got[0].On[0] != "b" {
		t.Errorf("active: %v", got)
	}
	w.f.HealAll()
	spans := w.f.Ledger().Faults()
	if len(spans) != 2 || spans[0].To-spans[0].From != 10*time.Second || spans[1].Open {
		t.Errorf("spans: %+v", spans)
	}
	begins, ends := 0, 0
	for _, n := range w.s.Notes() {
		if n.Component == "fault" && n.What == "begins" {
			begins++
		}
		if n.Component == "fault" && n.What == "ends" {
			ends++
		}
	}
	if begins != 2 || ends != 2 {
		t.Errorf("%d begin and %d end in the trace", begins, ends)
	}
}
