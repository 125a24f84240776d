// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// traceEvent is one event of the Chrome trace format, which Perfetto reads.
// Times are microseconds. (Source: "Trace Event Format", the Chromium project.)
type traceEvent struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Time     int64          `json:"ts"`
	Length   *int64         `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	ID       int            `json:"id,omitempty"`
	Bind     string         `json:"bp,omitempty"`
	Scope    string         `json:"s,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// tracer numbers processes and flows through all runs of a trace.
type tracer struct {
	out   *bufio.Writer
	first bool
	err   error
	pid   int
	flow  int
}

// Perfetto writes the runs as Chrome trace events, to be opened in Perfetto or
// chrome://tracing: a process per host, a thread per lane of VMs, migrations as
// flows between them; faults, migrations and API writes are processes of their
// own. The runs are those that the page draws.
func Perfetto(w io.Writer, s Suite) error {
	t := &tracer{out: bufio.NewWriter(w), first: true}
	t.text(`{"displayTimeUnit":"ms","traceEvents":[`)
	runs := kept(s.Records)
	for _, i := range runs {
		prefix := ""
		if len(runs) > 1 {
			prefix = fmt.Sprintf("%s/%d ", s.Records[i].Scenario, s.Records[i].Seed)
		}
		t.run(s.Records[i], prefix)
	}
	t.text("\n]}\n")
	if t.err != nil {
		return t.err
	}
	return t.out.Flush()
}

func (t *tracer) text(s string) {
	if t.err == nil {
		_, t.err = t.out.WriteString(s)
	}
}

func (t *tracer) emit(e traceEvent) {
	if t.err != nil {
		return
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.err = err
		return
	}
	if !t.first {
		t.text(",")
	}
	t.first = false
	t.text("\n" + string(text))
}

// process names a new process and returns its number.
func (t *tracer) process(name string) int {
	t.pid++
	t.emit(traceEvent{Name: "process_name", Phase: "M", Process: t.pid, Args: map[string]any{"name": name}})
	t.emit(traceEvent{Name: "process_sort_index", Phase: "M", Process: t.pid, Args: map[string]any{"sort_index": t.pid}})
	return t.pid
}

func (t *tracer) thread(pid, tid int, name string) {
	t.emit(traceEvent{Name: "thread_name", Phase: "M", Process: pid, Thread: tid, Args: map[string]any{"name": name}})
}

// slice emits a complete event; times are milliseconds.
func (t *tracer) slice(pid, tid int, from, to int64, name, category string, args map[string]any) {
	length := (to - from) * 1000
	t.emit(traceEvent{Name: name, Category: category, Phase: "X", Time: from * 1000, Length: &length, Process: pid, Thread: tid, Args: args})
}

func (t *tracer) run(r Record, prefix string) {
	f := layOut(r)
	t.fleet(r, prefix)
	t.faults(r, prefix)
	first := t.pid + 1
	for i, h := range f.hosts {
		pid := t.process(prefix + strings.Join(append(nonEmpty(h.Zone, h.Rack), h.Name), " "))
		for lane := range f.lanes[i] {
			t.thread(pid, lane+1, fmt.Sprintf("lane %d", lane+1))
		}
	}
	for _, c := range f.copies {
		v := r.VMs[c.vm]
		t.slice(first+c.host, c.lane+1, c.from, c.to, v.Name, c.state, map[string]any{"state": c.state, "uuid": v.UUID, "group": v.Group})
	}
	for _, m := range r.Migrations {
		t.moved(f, f.move(m, true), first)
	}
	t.migrations(r, prefix)
}

// moved emits a migration's arrow from the source's lane to the target's.
func (t *tracer) moved(f fleet, m move, first int) {
	if m.FromLane < 0 || m.ToLane < 0 {
		return
	}
	t.flow++
	at := m.End
	if m.Switched > 0 {
		at = m.Switched
	}
	name := "migration " + m.Result
	t.emit(traceEvent{Name: name, Category: "migration", Phase: "s", Time: m.Start * 1000, Process: first + m.From, Thread: m.FromLane + 1, ID: t.flow})
	t.emit(traceEvent{Name: name, Category: "migration", Phase: "f", Bind: "e", Time: at * 1000, Process: first + m.To, Thread: m.ToLane + 1, ID: t.flow})
}

// fleet emits what concerns no single host: marks and the writes' counter.
func (t *tracer) fleet(r Record, prefix string) {
	pid := t.process(prefix + "fleet")
	t.thread(pid, 1, "events")
	for _, m := range r.Marks {
		args := map[string]any{"kind": m.Kind}
		if m.On != "" {
			args["on"] = m.On
		}
		t.emit(traceEvent{Name: m.Text, Category: m.Kind, Phase: "i", Scope: "p", Time: ms(m.At) * 1000, Process: pid, Thread: 1, Args: args})
	}
	for _, v := range r.Violations {
		t.emit(traceEvent{Name: "violated: " + v.Rule, Category: "violation", Phase: "i", Scope: "g", Time: ms(v.At) * 1000, Process: pid, Thread: 1, Args: map[string]any{"seen": v.Text}})
	}
	for _, s := range r.WritesOver {
		t.emit(traceEvent{Name: "API writes", Phase: "C", Time: ms(s.At) * 1000, Process: pid, Args: map[string]any{"writes": s.Value}})
	}
}

// faults emits each fault as a slice, those at the same time in lanes.
func (t *tracer) faults(r Record, prefix string) {
	if len(r.Spans) == 0 {
		return
	}
	t.lanes(prefix+"faults", len(r.Spans), func(i int) (int64, int64, string, string, map[string]any) {
		s := r.Spans[i]
		return ms(s.From), ms(s.To), s.Text, "fault", map[string]any{"on": strings.Join(s.On, ", ")}
	})
}

// migrations emits each migration's figures as a slice.
func (t *tracer) migrations(r Record, prefix string) {
	if len(r.Migrations) == 0 {
		return
	}
	t.lanes(prefix+"migrations", len(r.Migrations), func(i int) (int64, int64, string, string, map[string]any) {
		m := r.Migrations[i]
		args := map[string]any{
			"from": m.From, "to": m.To, "result": m.Result, "mode": m.Mode, "downtimeMilliseconds": m.DowntimeMS,
			"bytes": m.Bytes, "iterations": m.Iterations, "throttlePercent": m.Throttle,
		}
		if m.Error != "" {
			args["error"] = m.Error
		}
		return ms(m.Start), ms(m.End), fmt.Sprintf("%s: %s to %s", m.VM, m.From, m.To), "migration", args
	})
}

// lanes emits n slices, packed into as few threads as they need.
func (t *tracer) lanes(process string, n int, at func(int) (from, to int64, name, category string, args map[string]any)) {
	row := make([]stretch, n)
	for i := range row {
		from, to, _, _, _ := at(i)
		row[i] = stretch{vm: i, from: from, to: to}
	}
	sortStretches(row)
	pid := t.process(process)
	for lane := range pack(row) {
		t.thread(pid, lane+1, fmt.Sprintf("lane %d", lane+1))
	}
	for _, s := range row {
		from, to, name, category, args := at(s.vm)
		t.slice(pid, s.lane+1, from, to, name, category, args)
	}
}

func nonEmpty(all ...string) []string {
	var out []string
	for _, s := range all {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}
