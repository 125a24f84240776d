// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"cmp"
	"slices"
)

// The limits of one picture. They keep its data near 2 MB and its drawing at
// interactive speed in a browser on a laptop.
const (
	maxStretches  = 60_000 // above, hosts' occupancy is drawn instead of VMs
	maxMoves      = 4_000  // migrations: failed ones first, then the earliest
	maxRecoveries = 1_000  // VMs that ran again, listed: the slowest
	maxUUIDs      = 2_000  // VMs above which UUIDs are left out
	heatSlices    = 400    // of a run's time, when occupancy is drawn
	maxViolations = 50     // of one run; a broken invariant can repeat for ever
	fewViolations = 3      // of a run that is not drawn
	maxNotes      = 400    // of the end of a trace
)

// picture is what the page draws of one run, as its scripts read it. Times are
// milliseconds; hosts, VMs and states are indices into their lists.
type picture struct {
	End    int64       `json:"end"`
	Hosts  [][4]string `json:"hosts"` // name, zone, rack, model
	Lanes  []int       `json:"lanes"`
	VMs    [][3]string `json:"vms"` // name, group, UUID
	States []string    `json:"states"`
	// Copies is flat: VM, host, lane, from, length, state, and again.
	Copies []int64 `json:"copies"`
	Heat   *heat   `json:"heat,omitempty"`
	Total  int     `json:"total"` // stretches there are

	Moves           []move       `json:"moves"`
	TotalMoves      int          `json:"totalMoves"`
	Recoveries      []recovery   `json:"recoveries"` // the slowest
	TotalRecoveries int          `json:"totalRecoveries"`
	Spans           []span       `json:"spans"`
	Marks           []mark       `json:"marks"`
	Writes          [][2]float64 `json:"writes"` // milliseconds, value
	Expectations    []Check      `json:"expectations"`
	Invariants      []Check      `json:"invariants"`
	API             []APICount   `json:"api"`
	Percentiles     []Percentile `json:"percentiles"`
	Notes           []string     `json:"notes"`
}

// heat is how many VMs ran on each host in each slice of time, as pairs of
// a length and a value.
type heat struct {
	Slice int64     `json:"slice"`
	Rows  [][]int64 `json:"rows"`
	Max   int64     `json:"max"`
}

type move struct {
	VM         int     `json:"vm"` // -1: no VM of the record
	Name       string  `json:"name,omitempty"`
	From       int     `json:"from"` // -1: no host of the record
	To         int     `json:"to"`
	FromLane   int     `json:"fl"`
	ToLane     int     `json:"tl"`
	Start      int64   `json:"start"`
	Switched   int64   `json:"sw,omitempty"`
	End        int64   `json:"end"`
	Result     string  `json:"result"`
	Mode       string  `json:"mode,omitempty"`
	DowntimeMS float64 `json:"down,omitempty"`
	Bytes      uint64  `json:"bytes,omitempty"`
	Iterations uint64  `json:"rounds,omitempty"`
	Throttle   int     `json:"throttle,omitempty"`
	Error      string  `json:"error,omitempty"`
}

// recovery is one VM's way back with its length.
type recovery struct {
	Recovery
	Total float64 `json:"total"`
}

type span struct {
	Text  string `json:"text"`
	On    string `json:"on,omitempty"` // as given, for people
	Hosts []int  `json:"hosts,omitempty"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
}

type mark struct {
	At   int64  `json:"at"`
	Kind string `json:"kind"`
	Text string `json:"text"`
	On   string `json:"on,omitempty"`
	Host int    `json:"host"` // -1: the fleet
}

// draw makes a record's picture.
func draw(r Record) picture {
	f := layOut(r)
	p := picture{
		End: ms(r.VirtualSeconds), Lanes: f.lanes, Total: len(f.copies), TotalMoves: len(r.Migrations),
		Hosts: [][4]string{}, VMs: [][3]string{}, States: []string{}, Copies: []int64{}, Moves: []move{},
		Spans: []span{}, Marks: []mark{}, Writes: [][2]float64{},
		Expectations: list(r.Expectations), Invariants: list(r.Invariants), API: list(r.API),
		Percentiles: list(r.Percentiles), Notes: list(r.LastNotes[max(len(r.LastNotes)-maxNotes, 0):]),
	}
	for _, h := range f.hosts {
		p.Hosts = append(p.Hosts, [4]string{h.Name, h.Zone, h.Rack, h.Model})
	}
	for _, c := range f.copies {
		p.End = max(p.End, c.to)
	}
	if len(f.copies) > maxStretches {
		p.Heat = occupancy(f, p.End)
	} else {
		p.copies(r, f)
	}
	for _, m := range worthMoves(r.Migrations) {
		p.Moves = append(p.Moves, f.move(m, p.Heat == nil))
	}
	p.Recoveries, p.TotalRecoveries = slowest(r.Recoveries), len(r.Recoveries)
	for _, s := range r.Spans {
		p.Spans = append(p.Spans, f.span(s))
	}
	for _, m := range r.Marks {
		host, known := f.host[m.On]
		if !known {
			host = -1
		}
		p.Marks = append(p.Marks, mark{At: ms(m.At), Kind: m.Kind, Text: m.Text, On: m.On, Host: host})
	}
	for _, s := range r.WritesOver {
		p.Writes = append(p.Writes, [2]float64{float64(ms(s.At)), s.Value})
	}
	return p
}

// copies lists each stretch.
func (p *picture) copies(r Record, f fleet) {
	for _, v := range r.VMs {
		uuid := v.UUID
		if len(r.VMs) > maxUUIDs {
			uuid = ""
		}
		p.VMs = append(p.VMs, [3]string{v.Name, v.Group, uuid})
	}
	states := map[string]int{}
	for _, c := range f.copies {
		state, known := states[c.state]
		if !known {
			state = len(p.States)
			states[c.state] = state
			p.States = append(p.States, c.state)
		}
		p.Copies = append(p.Copies, int64(c.vm), int64(c.host), int64(c.lane), c.from, c.to-c.from, int64(state))
	}
}

// occupancy counts for each host and slice of time the VMs that ran, by the
// time they had of it.
func occupancy(f fleet, end int64) *heat {
	h := &heat{Slice: max((end+heatSlices-1)/heatSlices, 1)}
	busy := make([][heatSlices]int64, len(f.hosts))
	for _, c := range f.copies {
		if c.state == "incoming" {
			continue
		}
		for at := c.from; at < c.to; {
			i := min(at/h.Slice, heatSlices-1)
			next := min((i+1)*h.Slice, c.to)
			if i == heatSlices-1 {
				next = c.to
			}
			busy[c.host][i] += next - at
			at = next
		}
	}
	for _, row := range busy {
		runs := []int64{}
		for i, b := range row {
			n := (b + h.Slice/2) / h.Slice
			h.Max = max(h.Max, n)
			if i > 0 && runs[len(runs)-1] == n {
				runs[len(runs)-2]++
			} else {
				runs = append(runs, 1, n)
			}
		}
		h.Rows = append(h.Rows, runs)
	}
	return h
}

// slowest are the recoveries that a page lists, the slowest first.
func slowest(all []Recovery) []recovery {
	out := make([]recovery, 0, len(all))
	for _, r := range all {
		out = append(out, recovery{r, r.Total()})
	}
	slices.SortStableFunc(out, func(a, b recovery) int { return cmp.Compare(b.Total, a.Total) })
	return out[:min(len(out), maxRecoveries)]
}

// worthMoves cuts the migrations down to maxMoves.
func worthMoves(all []Migration) []Migration {
	if len(all) <= maxMoves {
		return all
	}
	var out []Migration
	for _, m := range all {
		if m.Result != "completed" && len(out) < maxMoves {
			out = append(out, m)
		}
	}
	for _, m := range all {
		if m.Result == "completed" && len(out) < maxMoves {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b Migration) int { return int(ms(a.Start) - ms(b.Start)) })
	return out
}

func (f fleet) move(m Migration, known bool) move {
	find := func(index map[string]int, name string) int {
		if i, ok := index[name]; ok {
			return i
		}
		return -1
	}
	out := move{
		VM: find(f.vm, m.VM), From: find(f.host, m.From), To: find(f.host, m.To), FromLane: -1, ToLane: -1,
		Start: ms(m.Start), Switched: ms(m.Switched), End: ms(m.End), Result: m.Result, Mode: m.Mode,
		DowntimeMS: m.DowntimeMS, Bytes: m.Bytes, Iterations: m.Iterations, Throttle: m.Throttle, Error: m.Error,
	}
	if !known || out.VM < 0 { // an occupancy picture does not list VMs
		out.VM, out.Name = -1, m.VM
		return out
	}
	if out.From >= 0 {
		out.FromLane = f.laneAt(out.VM, out.From, out.Start)
	}
	if out.To >= 0 {
		out.ToLane = f.laneAt(out.VM, out.To, max(out.Switched, out.End))
	}
	return out
}

// span finds the rows a fault strikes; its On may name hosts, racks or zones.
func (f fleet) span(s Span) span {
	out := span{Text: s.Text, From: ms(s.From), To: ms(s.To)}
	for i, h := range f.hosts {
		if slices.ContainsFunc(s.On, func(on string) bool {
			return on != "" && (on == h.Name || on == h.Zone || on == h.Rack)
		}) {
			out.Hosts = append(out.Hosts, i)
		}
	}
	for i, on := range s.On {
		if i > 0 {
			out.On += ", "
		}
		if i == 8 { // enough to be recognised
			out.On += "…"
			break
		}
		out.On += on
	}
	return out
}
