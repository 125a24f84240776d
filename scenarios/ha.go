// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/adit-hv/adit/testbed"
)

// ha turns the file's section into what the testbed builds.
func (b *builder) ha(f *haFields) *testbed.HA {
	if f == nil {
		return nil
	}
	for _, n := range []struct {
		field     string
		value, to int
	}{
		{"replicas", f.Replicas, 9}, {"stormHosts", f.StormHosts, 10000}, {"fences", f.Fences, 10000},
		{"fencesPerZone", f.FencesPerZone, 10000}, {"perFleet", f.PerFleet, 200000}, {"perTarget", f.PerTarget, 10000},
	} {
		if n.value < 0 || n.value > n.to {
			b.fail("ha."+n.field, "%d; it is 1 to %d, or left out", n.value, n.to)
		}
	}
	if f.StormShare < 0 || f.StormShare > 1 {
		b.fail("ha.stormShare", "%v is no share; it is above 0 and up to 1, or left out", f.StormShare)
	}
	out := &testbed.HA{
		Replicas: f.Replicas, NoWatchdog: isFalse(f.Watchdog),
		Interval: time.Duration(f.Interval), Term: time.Duration(f.Term), Stop: time.Duration(f.Stop), Watchdog: time.Duration(f.WatchdogTimeout),
		Settle: time.Duration(f.Settle), Outage: time.Duration(f.Outage), Rejoin: time.Duration(f.Rejoin),
		StormShare: f.StormShare, StormHosts: f.StormHosts, Fences: f.Fences, FencesPerZone: f.FencesPerZone,
		PerFleet: f.PerFleet, PerTarget: f.PerTarget, HoldDown: time.Duration(f.HoldDown), PowerOn: f.PowerOn, Yields: f.Yields,
		Paused: f.Paused, DryRun: f.DryRun,
	}
	if err := out.Check(); err != nil {
		b.fail("ha", "%v", err)
	}
	return out
}

// isFalse says that a field whose default is true is there and says no.
func isFalse(v *bool) bool { return v != nil && !*v }

// maxDrift is ten times what the worst oscillator drifts, in millionths.
const maxDrift = 10000

func (b *builder) drift(path string, millionths int) {
	if millionths < -maxDrift || millionths > maxDrift {
		b.fail(path, "%d millionths; a clock drifts by at most %d, forward or back", millionths, maxDrift)
	}
}

// policy is what a group's VMs say about failures.
func (b *builder) policy(at func(string) string, g vmGroup) testbed.Policy {
	p := testbed.Policy{Restart: g.Restart, OnCrash: g.OnCrash, OnPanic: g.OnPanic, OnIOError: g.OnIOError}
	if g.Protected != nil {
		p.Protected = strconv.FormatBool(*g.Protected)
	}
	if g.Yields {
		p.Yields = "true"
	}
	for _, f := range []struct {
		field, value string
		words        []string
	}{
		{"restart", g.Restart, []string{"high", "medium", "low"}}, {"onCrash", g.OnCrash, []string{"restart", "fail"}},
		{"onPanic", g.OnPanic, []string{"restart", "keep", "fail"}}, {"onIOError", g.OnIOError, []string{"move", "wait"}},
	} {
		if f.value != "" && !slices.Contains(f.words, f.value) {
			b.fail(at(f.field), "%q; it is %s, or left out", shortened(f.value), strings.Join(f.words, ", "))
		}
	}
	return p
}
