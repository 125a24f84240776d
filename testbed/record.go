// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"slices"
	"strings"
	"time"

	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/reports"
)

// Record returns what there is to tell of the run so far. Names, verdict and
// expectations are the scenario's to add.
func (w *World) Record() reports.Record {
	now := w.now()
	r := reports.Record{
		Seed:           w.options.Seed,
		Mode:           "sim",
		Digest:         w.Scheduler.Digest(),
		VirtualSeconds: now.Seconds(),
		HostHours:      now.Hours() * float64(len(w.Fleet.Hosts())),
		Events:         w.Scheduler.Events(),
		APIWrites:      w.watch.writes,
		Violations:     []reports.Violation{},
	}
	for _, v := range w.watch.violations {
		r.Violations = append(r.Violations, reports.Violation{At: v.At.Seconds(), Rule: v.Rule, Text: v.Text})
	}
	for _, call := range w.runtime.Refused() {
		r.Violations = append(r.Violations, reports.Violation{At: now.Seconds(), Rule: "rights", Text: call + ": its role in config/rbac does not allow it"})
	}
	return r
}

// Details adds to a record what the page draws.
func (w *World) Details(r *reports.Record) {
	for _, h := range w.Fleet.Hosts() {
		r.Hosts = append(r.Hosts, reports.Host{Name: h.Name(), Zone: h.Zone(), Rack: h.Rack(), Model: h.Model()})
	}
	r.VMs, r.Migrations = w.lives(), w.migrations()
	w.spans(r)
	for _, m := range w.watch.marks {
		r.Marks = append(r.Marks, reports.Mark{At: m.at.Seconds(), Kind: m.kind, Text: m.text, On: m.on})
	}
	totals := w.Cluster.Totals()
	w.watch.checks[RuleOwner], w.watch.checks[RuleHotLoop], w.watch.checks[RuleNoPanic] = totals.Writes, totals.Reconcile, totals.Reconcile
	for _, rule := range Rules {
		c := reports.Check{Name: rule[0], Text: rule[1], Result: "held", Checks: w.watch.checks[rule[0]]}
		if i := slices.IndexFunc(w.watch.violations, func(v Violation) bool { return v.Rule == rule[0] }); i >= 0 {
			c.Result, c.At = "violated", w.watch.violations[i].At.Seconds()
		}
		if slices.Contains(w.runtime.Unseen(), rule[0]) {
			c.Result, c.Checks = reports.NotRun, 0
		}
		r.Invariants = append(r.Invariants, c)
	}
	for _, c := range w.Cluster.Counts() {
		r.API = append(r.API, reports.APICount{Client: class(c.Client), Verb: c.Verb, Resource: c.Resource, Count: c.N, Bytes: c.Bytes})
	}
	r.API = merge(r.API)
	for i, n := range w.watch.perSlice {
		r.WritesOver = append(r.WritesOver, reports.Sample{At: (time.Duration(i) * slice).Seconds(), Value: float64(n)})
	}
	r.Recoveries = w.watch.recoveriesOf()
	r.Percentiles = w.percentiles(r)
}

// class is a client as the report counts it: all node agents together.
func class(process string) string {
	kind, _, _ := strings.Cut(process, "/")
	return kind
}

func merge(counts []reports.APICount) []reports.APICount {
	sum := map[[3]string]*reports.APICount{}
	for _, c := range counts {
		key := [3]string{c.Client, c.Verb, c.Resource}
		if sum[key] == nil {
			sum[key] = &reports.APICount{Client: c.Client, Verb: c.Verb, Resource: c.Resource}
		}
		sum[key].Count += c.Count
		sum[key].Bytes += c.Bytes
	}
	out := make([]reports.APICount, 0, len(sum))
	for _, c := range sum {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b reports.APICount) int {
		return strings.Compare(a.Client+" "+a.Verb+" "+a.Resource, b.Client+" "+b.Verb+" "+b.Resource)
	})
	return out
}

func (w *World) lives() []reports.VM {
	byUUID, order := map[string]*reports.VM{}, []string(nil)
	for _, s := range w.Fleet.Ledger().Segments() {
		v := byUUID[s.VM]
		if v == nil {
			v = &reports.VM{UUID: s.VM, Name: s.Name}
			if ours := w.byUUID[s.VM]; ours != nil {
				v.Name, v.Group = ours.name, ours.group
			}
			byUUID[s.VM] = v
			order = append(order, s.VM)
		}
		to := s.To
		if s.Open {
			to = w.now()
		}
		v.Segments = append(v.Segments, reports.Segment{Host: s.Host, From: s.From.Seconds(), To: to.Seconds(), State: string(s.State)})
	}
	out := make([]reports.VM, 0, len(order))
	for _, uuid := range order {
		out = append(out, *byUUID[uuid])
	}
	return out
}

func (w *World) migrations() []reports.Migration {
	var out []reports.Migration
	for _, m := range w.Fleet.Ledger().Migrations() {
		name := m.Name
		if v := w.byUUID[m.VM]; v != nil {
			name = v.name
		}
		r := reports.Migration{
			VM: name, From: m.From, To: m.To, Start: m.Start.Seconds(), Switched: m.Switch.Seconds(), End: m.End.Seconds(),
			Result: m.Result, Mode: "pre-copy", DowntimeMS: float64(m.Downtime) / float64(time.Millisecond),
			Bytes: m.Bytes, Iterations: m.Rounds, Error: m.Error,
		}
		if m.PostCopy {
			r.Mode = "post-copy"
		}
		if m.Result == "succeeded" {
			r.Result = "completed"
		}
		if m.End == 0 {
			r.End, r.Result = w.now().Seconds(), "running"
		}
		out = append(out, r)
	}
	return out
}

func (w *World) spans(r *reports.Record) {
	for _, s := range w.watch.faults {
		to := s.to
		if to < 0 || to > w.now() {
			to = w.now()
		}
		r.Spans = append(r.Spans, reports.Span{Text: s.text, On: s.on, From: s.from.Seconds(), To: to.Seconds()})
	}
}

func (w *World) percentiles(r *reports.Record) []reports.Percentile {
	var start, total, downtime []float64
	for _, name := range w.vmOrder {
		if v := w.vms[name]; v.running > 0 {
			start = append(start, (v.running - v.created).Seconds())
		}
	}
	for _, m := range r.Migrations {
		if m.Result == "completed" {
			total = append(total, m.End-m.Start)
			downtime = append(downtime, m.DowntimeMS)
		}
	}
	var out []reports.Percentile
	for _, p := range []struct {
		name, unit string
		values     []float64
	}{{"start", "s", start}, {"migration", "s", total}, {"downtime", "ms", downtime}, {"outage", "s", w.recoveries()}} {
		if len(p.values) > 0 {
			out = append(out, reports.Percentiles(p.name, p.unit, p.values))
		}
	}
	return append(out, reports.RecoveryPercentiles(r.Recoveries)...)
}

// recoveries are the times, in seconds, in which a VM had no running copy
// between two in which it had one, apart from switch-overs.
func (w *World) recoveries() []float64 {
	var out []float64
	ended := map[string]time.Duration{}
	for _, s := range w.Fleet.Ledger().Segments() {
		if s.State != hwsim.CopyRunning {
			continue
		}
		if gap := s.From - ended[s.VM]; ended[s.VM] > 0 && gap > 2*time.Second {
			out = append(out, gap.Seconds())
		}
		ended[s.VM] = s.To
	}
	return out
}
