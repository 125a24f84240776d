// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/adit-hv/adit/testbed"
)

// nameShape is what the names of groups look like: they become parts of
// Kubernetes names.
var nameShape = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`)

// modes lists the ways a scenario can be played.
var modes = []string{"sim", "cluster"}

func (b *builder) scenario(f file) *Scenario {
	s := &Scenario{
		Name:  strings.TrimSuffix(filepath.Base(b.name), filepath.Ext(b.name)),
		File:  b.name,
		About: strings.TrimSpace(f.About),
		Why:   strings.TrimSpace(f.Why),
		For:   time.Duration(f.For),
		Modes: f.Modes,
	}
	if s.About == "" {
		b.fail("about", "is missing; say in a sentence what happens here")
	}
	if s.For <= 0 {
		b.fail("for", "is missing; say how long the run lasts, as 30m")
	}
	if s.For > 48*time.Hour {
		b.fail("for", "%v is longer than 48h; split the scenario", s.For)
	}
	for i, m := range f.Modes {
		if !slices.Contains(modes, m) {
			b.fail(fmt.Sprintf("modes[%d]", i), "%q is no mode; the modes are %s", m, strings.Join(modes, ", "))
		}
	}
	s.Spec.Hosts = b.hosts(f.Fleet)
	s.Spec.VMs = b.vms(f.Workload, s)
	b.operatorLimits(f.Operator)
	s.Spec.Operator = operator(f.Operator)
	s.Spec.Storage = testbed.Storage{NoLocks: isFalse(f.Storage.Locks), LockLease: time.Duration(f.Storage.LockLease)}
	s.Spec.HA = b.ha(f.HA)
	s.Spec.API = testbed.API{Latency: time.Duration(f.API.Latency), Lag: time.Duration(f.API.Lag), EagerLeases: f.API.EagerLeases}
	if f.Budget.APIWrites < 0 || f.Budget.Events < 0 {
		b.fail("budget", "is negative; leave a bound out to have none")
	}
	s.Budget = Budget{APIWrites: uint64(max(0, f.Budget.APIWrites)), Events: uint64(max(0, f.Budget.Events))}
	if b.err != nil {
		return nil // names in the timeline can only be checked against a good fleet
	}
	s.Timeline = b.timeline(f.Timeline, s)
	s.Expect = b.expect(f.Expect, s)
	return s
}

func (b *builder) hosts(groups []hostGroup) []testbed.HostGroup {
	if len(groups) == 0 {
		b.fail("fleet", "has no hosts; give at least one group, as - {name: node, count: 3}")
	}
	var out []testbed.HostGroup
	seen := map[string]bool{}
	for i, g := range groups {
		at := func(field string) string { return fmt.Sprintf("fleet[%d].%s", i, field) }
		if !nameShape.MatchString(g.Name) {
			b.fail(at("name"), "%q is no name for hosts; use lower-case letters, digits and dashes, as node", g.Name)
		}
		if seen[g.Name] {
			b.fail(at("name"), "%q names two groups; hosts are counted within their group, so give each its own name", g.Name)
		}
		seen[g.Name] = true
		if g.Count < 1 || g.Count > 10000 {
			b.fail(at("count"), "%d hosts; a group has 1 to 10000", g.Count)
		}
		if err := testbed.CheckModel(g.Model); err != nil {
			b.fail(at("model"), "%v", err)
		}
		b.overcommit(at("overcommit"), g.Overcommit)
		b.labels(at("labels"), g.Labels)
		b.label(at("zone"), g.Zone)
		b.label(at("rack"), g.Rack)
		b.label(at("feed"), g.Feed)
		b.label(at("switch"), g.Switch)
		b.drift(at("drift"), g.Drift)
		b.dmi(at("dmi"), g.DMI)
		out = append(out, testbed.HostGroup{
			Name: g.Name, Count: g.Count, Model: g.Model, Zone: g.Zone, Rack: g.Rack,
			Feed: g.Feed, Switch: g.Switch, NoWatchdog: isFalse(g.Watchdog), NoBMC: isFalse(g.BMC), Skew: time.Duration(g.ClockSkew), Drift: g.Drift,
			Capabilities: b.file(at("capabilities"), g.Capabilities), OSRelease: b.file(at("osRelease"), g.OSRelease),
			DMI: g.DMI, Labels: g.Labels, MigrationBandwidth: uint64(g.Migration), Overcommit: g.Overcommit,
		})
		b.buildable(fmt.Sprintf("fleet[%d]", i), out[len(out)-1], g)
	}
	b.hostNames(out)
	return out
}

func (b *builder) file(path, name string) []byte {
	if name == "" {
		return nil
	}
	data, err := b.read(name)
	if err != nil {
		b.fail(path, "%v; paths are relative to the scenario file", err)
	}
	return data
}

func (b *builder) vms(groups []vmGroup, s *Scenario) []testbed.VMGroup {
	var out []testbed.VMGroup
	seen := map[string]bool{}
	for i, g := range groups {
		at := func(field string) string { return fmt.Sprintf("workload[%d].%s", i, field) }
		if !nameShape.MatchString(g.Name) {
			b.fail(at("name"), "%q is no name for VMs; use lower-case letters, digits and dashes, as web", g.Name)
		}
		if seen[g.Name] {
			b.fail(at("name"), "%q names two groups; give each its own name", g.Name)
		}
		seen[g.Name] = true
		if g.Count < 0 || g.Count > 200000 {
			b.fail(at("count"), "%d VMs; a group has 0 to 200000 (0: created by the timeline)", g.Count)
		}
		if g.CPUs < 1 || g.CPUs > 1024 {
			b.fail(at("cpus"), "%d vCPUs; a VM has 1 to 1024", g.CPUs)
		}
		if g.Memory < 1<<20 {
			b.fail(at("memory"), "%d bytes; a VM has at least 1Mi, as 4Gi", g.Memory)
		}
		if last := g.At + g.Every*Duration(max(0, g.Count-1)); g.Count > 0 && (time.Duration(g.At) > s.For || time.Duration(g.Every) > s.For || time.Duration(last) > s.For) {
			b.fail(at("at"), "the last of the VMs is made after the end of the run (for: %v)", s.For)
		}
		b.vmWords(at, g, s.Spec)
		policy := b.policy(at, g)
		if g.Used > g.Memory || g.WorkingSet > g.Memory {
			b.fail(at("workingSet"), "used memory and working set lie within the VM's memory of %d bytes", g.Memory)
		}
		out = append(out, testbed.VMGroup{
			Name: g.Name, Count: g.Count, At: time.Duration(g.At), Every: time.Duration(g.Every),
			CPUs: g.CPUs, Memory: uint64(g.Memory), Labels: g.Labels, Host: g.Host, Apart: g.Apart,
			Priority: g.Priority, Traits: g.Traits, CPUModel: g.CPUModel, NUMA: g.NUMA, Stopped: g.Stopped,
			Grace: time.Duration(g.Grace), Pinned: g.Pinned, Policy: policy,
			Guest: testbed.Guest{
				Boot: time.Duration(g.Boot), Used: uint64(g.Used), DirtyRate: uint64(g.DirtyRate),
				WorkingSet: uint64(g.WorkingSet), Agent: g.Agent, Shutdown: time.Duration(g.Shutdown), Deaf: g.Deaf,
			},
		})
	}
	return out
}

func operator(f operatorFields) testbed.Operator {
	return testbed.Operator{
		Migrations: f.Migrations, PerHost: f.PerHost, PerTarget: f.PerTarget, Bandwidth: uint64(f.Bandwidth),
		CompletionPerGiB: time.Duration(f.CompletionPerGiB), Progress: time.Duration(f.Progress),
		AutoConverge: f.AutoConverge, PostCopy: f.PostCopy, WorkloadDisruption: f.WorkloadDisruption,
		Unschedulable: time.Duration(f.Unschedulable), Floor: f.Floor, Replicas: f.Replicas,
	}
}

func (b *builder) timeline(steps []stepFields, s *Scenario) []Step {
	var out []Step
	for i, f := range steps {
		at := func(field string) string { return fmt.Sprintf("timeline[%d].%s", i, field) }
		step := Step{At: time.Duration(f.At), Delay: time.Duration(f.Delay), Heal: f.Heal}
		said := 0
		if f.Do != "" {
			said++
			a, err := testbed.ParseAction(f.Do)
			if err == nil {
				err = a.Check(s.Spec)
			}
			if err != nil {
				b.fail(at("do"), "%v", err)
			}
			step.Do, step.Text = a, f.Do
		}
		if f.Fault != "" {
			said++
			fault, err := testbed.ParseFault(f.Fault)
			if err == nil {
				err = fault.Check(s.Spec)
			}
			if err != nil {
				b.fail(at("fault"), "%v", err)
			}
			step.Fault, step.Text = fault, f.Fault
		}
		if f.Heal {
			said++
			step.Text = "heal"
		}
		if said != 1 {
			b.fail(fmt.Sprintf("timeline[%d]", i), "a step has one of do, fault and heal, and this one has %d", said)
		}
		if f.When != "" {
			p, err := compile(f.When, s.Spec)
			if err != nil {
				b.fail(at("when"), "%v", err)
			}
			step.When = p
		}
		if step.At > s.For {
			b.fail(at("at"), "%v is after the end of the run (for: %v)", step.At, s.For)
		}
		out = append(out, step)
	}
	return out
}

func (b *builder) expect(fields []expectFields, s *Scenario) []Expectation {
	end, spec := s.For, s.Spec
	if len(fields) == 0 {
		b.fail("expect", "is empty; say at least one thing that must hold, as - end: vms.all(v, v.running)")
	}
	var out []Expectation
	for i, f := range fields {
		at := func(field string) string { return fmt.Sprintf("expect[%d].%s", i, field) }
		e := Expectation{From: time.Duration(f.From), Until: end, Because: strings.TrimSpace(f.Because)}
		said := 0
		for _, k := range []struct {
			kind Kind
			text string
		}{{Eventually, f.Eventually}, {Always, f.Always}, {Never, f.Never}, {AtEnd, f.End}} {
			if k.text == "" {
				continue
			}
			said++
			e.Kind, e.Text = k.kind, strings.TrimSpace(k.text)
			p, err := compile(k.text, spec)
			if err != nil {
				b.fail(at(string(k.kind)), "%v", err)
			}
			e.Program = p
		}
		if said != 1 {
			b.fail(fmt.Sprintf("expect[%d]", i), "an expectation has one of eventually, always, never and end, and this one has %d", said)
		}
		if f.Until != 0 {
			e.Until = time.Duration(f.Until)
		}
		if f.Within != 0 {
			e.Until = e.From + time.Duration(f.Within)
		}
		if e.From >= e.Until || e.Until > end {
			b.fail(fmt.Sprintf("expect[%d]", i), "the window from %v to %v is empty or ends after the run (for: %v)", e.From, e.Until, end)
		}
		out = append(out, e)
	}
	return out
}
