// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var carried = regexp.MustCompile(`(?s)<script type="application/json" id="([^"]*)">(.*?)</script>`)

// carries returns the JSON that a page carries, by the id of its element.
func carries(t *testing.T, page string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range carried.FindAllStringSubmatch(page, -1) {
		if !json.Valid([]byte(m[2])) {
			t.Errorf("%s is no JSON", m[1])
		}
		out[m[1]] = m[2]
	}
	return out
}

func TestPageCarriesEachFailedRunAndOnePassedOfEachScenario(t *testing.T) {
	got := carries(t, render(t, Page, sample()))
	var ids []string
	for id := range got {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	// 0 passed and 1 failed of drain-under-faults; the 40 quiet runs have
	// nothing to draw; 43 is the rack.
	if want := []string{"run-0", "run-1", "run-43", "runs"}; !slices.Equal(ids, want) {
		t.Errorf("page carries %v", ids)
	}
	var all []row
	if err := json.Unmarshal([]byte(got["runs"]), &all); err != nil || len(all) != 45 {
		t.Errorf("%d rows, %v", len(all), err)
	}
}

func TestPageFetchesNothing(t *testing.T) {
	page := render(t, Page, sample())
	for _, word := range []string{"http://", "https://", "@import", "src=", "url(", "import(", "fetch("} {
		for _, at := range regexp.MustCompile(regexp.QuoteMeta(word)).FindAllStringIndex(page, -1) {
			around := page[max(at[0]-30, 0):min(at[1]+30, len(page))]
			if !strings.Contains(around, "http://www.w3.org/2000/svg") {
				t.Errorf("found %q in %q", word, around)
			}
		}
	}
}

func TestPageIsNotTakenOverByNames(t *testing.T) {
	const evil = `</script><script>alert(1)</script><img src=x onerror=alert(1)>"'` + "`${alert(1)}`<!--"
	r := drain(1, true)
	r.Scenario, r.About, r.Mode, r.Digest, r.File, r.Reason, r.Replay = evil, evil, evil, evil, evil, evil, evil
	r.Hosts[0].Name, r.Hosts[0].Zone, r.VMs[0].Name, r.VMs[0].Group = evil, evil, evil, evil
	r.VMs[0].Segments[0].Host, r.VMs[0].Segments[0].State, r.Migrations[0].Error = evil, evil, evil
	r.Spans[0].Text, r.Marks[0].Kind, r.Marks[0].Text, r.LastNotes = evil, evil, evil, []string{evil}
	r.Violations[0].Rule, r.Violations[0].Text = evil, evil
	page := render(t, Page, Suite{Name: evil, Version: evil, Command: evil, Records: []Record{r}})
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img") {
		t.Error("a name has become markup")
	}
	if n := strings.Count(page, "</script>"); n != 3 { // runs, one picture, the script
		t.Errorf("%d ends of scripts", n)
	}
	carries(t, page)
}

func TestEmptySuiteSaysSo(t *testing.T) {
	page := render(t, Page, Suite{})
	if !strings.Contains(page, "Nothing was run.") || carries(t, page)["runs"] != "[]" {
		t.Error("an empty suite is not a page that says so")
	}
	if !json.Valid([]byte(render(t, Perfetto, Suite{}))) {
		t.Error("its trace is no JSON")
	}
}

func TestPagesStaySmall(t *testing.T) {
	many := func(n int, scenario func(int) string, verdict string) (s Suite) {
		for i := range n {
			r := drain(uint64(i+1), verdict == Fail)
			r.Scenario = scenario(i)
			s.Records = append(s.Records, r)
		}
		return s
	}
	for name, s := range map[string]Suite{
		"300 seeds of one scenario":    many(300, func(int) string { return "drain" }, Pass),
		"300 scenarios":                many(300, func(i int) string { return fmt.Sprintf("scenario-%d", i) }, Pass),
		"300 failures":                 many(300, func(int) string { return "drain" }, Fail),
		"1000 hosts with 20000 VMs":    {Records: []Record{rackLoss(1000, 20, 1)}},
		"40 scenarios with 4000 VMs":   fleets(40),
		"a VM that moves all the time": {Records: []Record{restless(200_000)}},
	} {
		t.Run(name, func(t *testing.T) {
			page := render(t, Page, s)
			t.Logf("%d bytes", len(page))
			if len(page) >= 10_000_000 {
				t.Errorf("%d bytes", len(page))
			}
			carries(t, page)
		})
	}
}

func fleets(n int) (s Suite) {
	for i := range n {
		r := rackLoss(200, 20, uint64(i))
		r.Scenario = fmt.Sprintf("fleet-%d", i)
		s.Records = append(s.Records, r)
	}
	return s
}

// restless has more stretches than a page draws.
func restless(n int) Record {
	r := Record{Scenario: "restless", Seed: 1, Mode: "sim", Verdict: Fail, VirtualSeconds: float64(n)}
	for i := range 100 {
		r.Hosts = append(r.Hosts, Host{Name: fmt.Sprintf("host-%d", i)})
		r.VMs = append(r.VMs, VM{UUID: fmt.Sprintf("u%d", i), Name: fmt.Sprintf("vm-%d", i)})
	}
	step := float64(n) / float64(n/100)
	for i := range n {
		v, k := i%100, i/100
		from, to := r.Hosts[(v+k)%100].Name, r.Hosts[(v+k+1)%100].Name
		r.VMs[v].Segments = append(r.VMs[v].Segments, Segment{Host: from, From: float64(k) * step, To: float64(k+1) * step, State: "running"})
		r.Migrations = append(r.Migrations, Migration{VM: r.VMs[v].Name, From: from, To: to, Start: float64(k)*step + 1, End: float64(k)*step + 9, Result: "completed"})
	}
	return r
}

func TestHugePictureCountsVMsInsteadOfDrawingThem(t *testing.T) {
	p := draw(restless(200_000))
	if p.Heat == nil || len(p.Copies) > 0 || p.Total != 200_000 {
		t.Fatalf("%d stretches drawn of %d, occupancy %v", len(p.Copies)/6, p.Total, p.Heat != nil)
	}
	for host, runs := range p.Heat.Rows {
		slices, sum := int64(0), int64(0)
		for k := 0; k < len(runs); k += 2 {
			slices += runs[k]
			sum += runs[k] * runs[k+1]
		}
		if slices != heatSlices || sum != heatSlices { // one VM is on each host at any time
			t.Fatalf("host %d: %d slices with %d VMs", host, slices, sum)
		}
	}
	if len(p.Moves) != maxMoves || p.TotalMoves != 200_000 {
		t.Errorf("%d migrations of %d", len(p.Moves), p.TotalMoves)
	}
}

func TestLanes(t *testing.T) {
	run := func(host string, from, to float64) Segment {
		return Segment{Host: host, From: from, To: to, State: "running"}
	}
	r := Record{
		Hosts: []Host{{Name: "h10", Zone: "a"}, {Name: "h9", Zone: "a"}},
		VMs: []VM{
			{UUID: "1", Name: "one", Segments: []Segment{run("h9", 0, 10), run("h9", 20, 30)}},
			{UUID: "2", Name: "two", Segments: []Segment{run("h9", 5, 30)}},
			{UUID: "3", Name: "three", Segments: []Segment{run("h9", 12, 15), run("unlisted", 15, 16), {Host: "h9", From: 16, To: 17, State: "gone"}}},
		},
	}
	f := layOut(r)
	var names []string
	for _, h := range f.hosts {
		names = append(names, h.Name)
	}
	if want := []string{"h9", "h10", "unlisted"}; !slices.Equal(names, want) {
		t.Errorf("hosts are %v, and numbers should count as numbers", names)
	}
	if want := []int{2, 0, 1}; !slices.Equal(f.lanes, want) {
		t.Errorf("lanes are %v", f.lanes)
	}
	if f.laneAt(0, 0, 25_000) != 0 || f.laneAt(1, 0, 25_000) != 1 || f.laneAt(2, 0, 13_000) != 0 || f.laneAt(2, 1, 0) != -1 {
		t.Errorf("stretches are %+v", f.copies)
	}
	for i, a := range f.copies {
		for _, b := range f.copies[i+1:] {
			if a.host == b.host && a.lane == b.lane && a.from < b.to && b.from < a.to {
				t.Errorf("%+v and %+v share a lane", a, b)
			}
		}
	}
}

func TestFaultsFindTheirHosts(t *testing.T) {
	f := layOut(Record{Hosts: []Host{{Name: "h1", Zone: "a", Rack: "r1"}, {Name: "h2", Zone: "a", Rack: "r2"}, {Name: "h3", Zone: "b", Rack: "r3"}}})
	for name, c := range map[string]struct {
		on   []string
		want []int
	}{
		"a host":              {[]string{"h2"}, []int{1}},
		"a rack and a zone":   {[]string{"r1", "b"}, []int{0, 2}},
		"the fleet":           {nil, nil},
		"nothing that we own": {[]string{"api", ""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := f.span(Span{On: c.on}).Hosts; !slices.Equal(got, c.want) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestTraceIsWellFormed(t *testing.T) {
	var trace struct {
		TraceEvents []traceEvent `json:"traceEvents"`
	}
	if err := json.Unmarshal([]byte(render(t, Perfetto, sample())), &trace); err != nil {
		t.Fatal(err)
	}
	type track struct{ pid, tid int }
	named, ends, flows, phases := map[track]string{}, map[track]int64{}, map[int]string{}, map[string]int{}
	processes := map[string]bool{}
	for _, e := range trace.TraceEvents {
		at := track{e.Process, e.Thread}
		phases[e.Phase]++
		switch e.Phase {
		case "M":
			if e.Name == "thread_name" {
				named[at] = e.Args["name"].(string)
			}
			if e.Name == "process_name" {
				processes[e.Args["name"].(string)] = true
			}
		case "X":
			if named[at] == "" {
				t.Fatalf("%s is on a thread without a name", e.Name)
			}
			if e.Time < ends[at] || *e.Length < 0 {
				t.Fatalf("%s at %d overlaps what ends at %d", e.Name, e.Time, ends[at])
			}
			ends[at] = e.Time + *e.Length
		case "s", "f":
			flows[e.ID] += e.Phase
		}
	}
	for id, both := range flows {
		if both != "sf" {
			t.Errorf("flow %d has %q", id, both)
		}
	}
	if !processes["drain-under-faults/2 zone a kvm-a1"] || !processes["rack-loss/1 faults"] {
		t.Errorf("processes are %v", processes)
	}
	if phases["C"] == 0 || phases["i"] == 0 || len(flows) < 60 {
		t.Errorf("%v, %d flows", phases, len(flows))
	}
}

func TestPageListsTheSlowestRecoveries(t *testing.T) {
	r := quiet("storm", 1)
	for i := range maxRecoveries + 500 {
		r.Recoveries = append(r.Recoveries, Recovery{VM: fmt.Sprintf("vm-%d", i), Priority: "medium", Host: "node-1", Detect: 15, Decide: 10, Fence: 12, Place: float64(i), Start: 3})
	}
	p := draw(r)
	if p.TotalRecoveries != maxRecoveries+500 || len(p.Recoveries) != maxRecoveries {
		t.Fatalf("%d of %d recoveries listed", len(p.Recoveries), p.TotalRecoveries)
	}
	if slowest := p.Recoveries[0]; slowest.VM != fmt.Sprintf("vm-%d", maxRecoveries+499) || slowest.Total != float64(15+10+12+maxRecoveries+499+3) {
		t.Errorf("the slowest is %+v", slowest)
	}
}

func TestRecoveryPercentilesTellPrioritiesAndParts(t *testing.T) {
	all := []Recovery{
		{Priority: "high", Detect: 15, Decide: 10, Fence: 20, Place: 1, Start: 4}, {Priority: "high", Detect: 15, Decide: 10, Fence: 30, Place: 1, Start: 4},
		{Priority: "low", Detect: 15, Decide: 10, Fence: 30, Place: 60, Start: 5},
	}
	got := map[string]Percentile{}
	for _, p := range RecoveryPercentiles(all) {
		got[p.Name] = p
	}
	if high, low := got["recovery, high"], got["recovery, low"]; high.Count != 2 || high.Max != 60 || low.Count != 1 || low.P50 != 120 {
		t.Errorf("high: %+v, low: %+v", high, low)
	}
	if _, there := got["recovery, medium"]; there {
		t.Error("a priority that nobody has is listed")
	}
	if place := got["of it: place"]; place.Count != 3 || place.Max != 60 || place.P50 != 1 {
		t.Errorf("place: %+v", place)
	}
}

// TestEachModeOfAScenarioIsDrawn: who played both wants to see both.
func TestEachModeOfAScenarioIsDrawn(t *testing.T) {
	run := func(mode string) Record {
		return Record{Scenario: "a", Mode: mode, Verdict: Pass, Hosts: []Host{{Name: "h"}}}
	}
	if got := kept([]Record{run("sim"), run("sim"), run("cluster")}); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("drawn are %v", got)
	}
}
