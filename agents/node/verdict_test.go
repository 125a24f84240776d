// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/adit-hv/adit/hardware"
)

// unitRow is a row of NA-12: unit states as systemd shows them, and the right
// verdict in words.
type unitRow struct {
	Unit, Load, Active, Sub, Result, Verdict string
	Nrestarts                                uint32
	SinceS                                   int `json:"since_s"`
	Also                                     map[string]string
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestVerdictsOfSystemdUnits(t *testing.T) {
	doc, err := os.ReadFile("testdata/NA-12_systemd_units.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var table struct{ Rows []unitRow }
	if err := yaml.Unmarshal(doc, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 12 {
		t.Fatalf("%d rows, want 12", len(table.Rows))
	}
	for _, row := range table.Rows {
		t.Run(row.Verdict, func(t *testing.T) {
			units := unitSet{row.Unit: {
				Name: row.Unit, Load: row.Load, Active: row.Active, Sub: row.Sub, Result: row.Result,
				Restarts: row.Nrestarts, ChangedAt: noon.Add(-time.Duration(row.SinceS) * time.Second),
			}}
			for name, state := range row.Also {
				a, b, _ := strings.Cut(state, "/")
				u := hardware.Unit{Name: name, Load: "loaded", Active: a, Sub: b}
				switch a {
				case "masked":
					u = hardware.Unit{Name: name, Load: "masked", Active: b, Sub: "dead"}
				case "not-found":
					u = hardware.Unit{Name: name, Load: "not-found", Active: "inactive", Sub: "dead"}
				}
				units[name] = u
			}
			var got judgement
			switch row.Unit {
			case unitLibvirtd, unitVirtqemud:
				got = judgeLibvirt(units, noon)
			case unitVswitchd:
				got = judgeOpenvswitch(units, noon)
			default:
				got = judge(units[row.Unit], noon)
			}
			if want := verdictOf(t, row.Verdict); got.verdict != want {
				t.Errorf("verdict %d (%s), want %d", got.verdict, got.why, want)
			}
			if unknown := strings.HasPrefix(row.Verdict, "unknown"); got.unknown != unknown {
				t.Errorf("unknown %t, want %t", got.unknown, unknown)
			}
		})
	}
}

func verdictOf(t *testing.T, words string) verdict {
	for _, v := range []struct {
		prefix  string
		verdict verdict
	}{
		{"healthy only for oneshot", failed},
		{"healthy", healthy},
		{"not usable", failed},
		{"not installed", absent},
		{"wait", waiting},
		{"keep", keep},
		{"unknown state word: keep", keep},
	} {
		if strings.HasPrefix(words, v.prefix) {
			return v.verdict
		}
	}
	t.Fatalf("no verdict in %q", words)
	return keep
}

func TestJudge(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	for name, c := range map[string]struct {
		unit hardware.Unit
		want verdict
		why  string
	}{
		"running":                         {hardware.Unit{Load: "loaded", Active: "active", Sub: "running"}, healthy, ""},
		"a oneshot has exited":            {hardware.Unit{Load: "loaded", Active: "active", Sub: "exited", Oneshot: true}, healthy, ""},
		"a person stopped it":             {hardware.Unit{Load: "loaded", Active: "inactive", Sub: "dead"}, stopped, ""},
		"starts for two minutes":          {hardware.Unit{Load: "loaded", Active: "activating", Sub: "start", ChangedAt: ago(2 * time.Minute)}, failed, "starting for longer than 1m30s"},
		"a oneshot works for two minutes": {hardware.Unit{Load: "loaded", Active: "activating", Sub: "start", Oneshot: true, ChangedAt: ago(2 * time.Minute)}, waiting, ""},
		"stops for two minutes":           {hardware.Unit{Load: "loaded", Active: "deactivating", Sub: "stop-sigterm", ChangedAt: ago(2 * time.Minute)}, failed, "stopping for longer than 1m30s"},
		"restarts for the second time":    {hardware.Unit{Load: "loaded", Active: "activating", Sub: "auto-restart", Restarts: 2, ChangedAt: ago(time.Second)}, waiting, ""},
		"systemd does not answer":         {hardware.Unit{}, keep, ""},
		"hit the start limit":             {hardware.Unit{Name: "x.service", Load: "loaded", Active: "failed", Sub: "failed", Result: "start-limit-hit"}, failed, "start-limit-hit: mend the cause, then `systemctl reset-failed x.service`"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judge(c.unit, noon); got.verdict != c.want || got.why != c.why {
				t.Errorf("verdict %d %q, want %d %q", got.verdict, got.why, c.want, c.why)
			}
		})
	}
}

func TestTheWorseOfTheSwitchsUnitsCounts(t *testing.T) {
	up := hardware.Unit{Load: "loaded", Active: "active", Sub: "exited", Oneshot: true}
	down := hardware.Unit{Load: "loaded", Active: "failed", Sub: "failed"}
	runs := hardware.Unit{Load: "loaded", Active: "active", Sub: "running"}
	for name, c := range map[string]struct {
		units unitSet
		want  verdict
	}{
		"umbrella alone":        {unitSet{unitOpenvswitch: up}, healthy},
		"daemon alone":          {unitSet{unitVswitchd: runs}, healthy},
		"both":                  {unitSet{unitOpenvswitch: up, unitVswitchd: runs}, healthy},
		"daemon died":           {unitSet{unitOpenvswitch: up, unitVswitchd: down}, failed},
		"umbrella failed":       {unitSet{unitOpenvswitch: down, unitVswitchd: runs}, failed},
		"neither is there":      {unitSet{}, absent},
		"umbrella not answered": {unitSet{unitOpenvswitch: {}, unitVswitchd: runs}, keep},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judgeOpenvswitch(c.units, noon); got.verdict != c.want {
				t.Errorf("verdict %d, want %d", got.verdict, c.want)
			}
		})
	}
}
