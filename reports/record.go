// SPDX-License-Identifier: Apache-2.0

package reports

// Suite is what one call of the tool has run.
type Suite struct {
	Name    string   `json:"name"`
	Version string   `json:"version"` // of the tool
	Command string   `json:"command"` // as it was typed
	Records []Record `json:"records"` // sorted by scenario, then seed
}

// The verdicts of a run.
const (
	Pass   = "pass"
	Fail   = "fail"
	NotRun = "notrun"
)

// Record is one run: one scenario, one seed, one mode. Times are virtual
// seconds since the start of the run.
type Record struct {
	Scenario string `json:"scenario"`
	File     string `json:"file,omitempty"`
	About    string `json:"about,omitempty"`
	Seed     uint64 `json:"seed"`
	Mode     string `json:"mode"`
	Verdict  string `json:"verdict"` // Pass, Fail or NotRun
	Digest   string `json:"digest"`
	Reason   string `json:"reason,omitempty"` // of notrun

	Violations []Violation `json:"violations"`

	VirtualSeconds float64 `json:"virtualSeconds"`
	CPUSeconds     float64 `json:"cpuSeconds"`
	HostHours      float64 `json:"hostHours"`
	Events         uint64  `json:"events"`
	APIWrites      uint64  `json:"apiWrites"`

	Replay string `json:"replay"` // the command that repeats this run

	// What follows is for the page; a program that wants one line a run does
	// not read it.
	Hosts        []Host       `json:"hosts,omitempty"`
	VMs          []VM         `json:"vms,omitempty"`
	Migrations   []Migration  `json:"migrations,omitempty"`
	Spans        []Span       `json:"spans,omitempty"`
	Marks        []Mark       `json:"marks,omitempty"`
	Expectations []Check      `json:"expectations,omitempty"`
	Invariants   []Check      `json:"invariants,omitempty"`
	API          []APICount   `json:"api,omitempty"`
	WritesOver   []Sample     `json:"writesOver,omitempty"` // API writes in each slice of the run
	Recoveries   []Recovery   `json:"recoveries,omitempty"` // in the order in which the VMs ran again
	Percentiles  []Percentile `json:"percentiles,omitempty"`
	LastNotes    []string     `json:"lastNotes,omitempty"` // the end of the trace, on failure
}

// Violation is an expectation or invariant that did not hold.
type Violation struct {
	At   float64 `json:"at"`
	Rule string  `json:"rule"` // the invariant's name, or the expectation's text
	Text string  `json:"text"` // what was seen
}

// Host is a row of the picture.
type Host struct {
	Name  string `json:"name"`
	Zone  string `json:"zone,omitempty"`
	Rack  string `json:"rack,omitempty"`
	Model string `json:"model,omitempty"`
}

// VM is a VM's life, as the simulator's ledger saw it.
type VM struct {
	UUID     string    `json:"uuid"`
	Name     string    `json:"name"`
	Group    string    `json:"group,omitempty"`
	Segments []Segment `json:"segments"` // sorted by From
}

// Segment is a stretch of a VM's life on one host.
type Segment struct {
	Host  string  `json:"host"`
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	State string  `json:"state"` // running, paused, incoming, post-copy, ...
}

// Migration is one move between hosts.
type Migration struct {
	VM         string  `json:"vm"`
	From       string  `json:"from"`
	To         string  `json:"to"`
	Start      float64 `json:"start"`
	Switched   float64 `json:"switched,omitempty"` // when the target took over; 0: never
	End        float64 `json:"end"`
	Result     string  `json:"result"` // completed, failed, cancelled, running
	Mode       string  `json:"mode"`   // pre-copy, post-copy, cold
	DowntimeMS float64 `json:"downtimeMilliseconds"`
	Bytes      uint64  `json:"bytes"`
	Iterations uint64  `json:"iterations"`
	Throttle   int     `json:"throttlePercent"`
	Error      string  `json:"error,omitempty"`
}

// Span is a fault that lasted.
type Span struct {
	Text string   `json:"text"` // in the fault grammar
	On   []string `json:"on,omitempty"`
	From float64  `json:"from"`
	To   float64  `json:"to"`
}

// Mark is something that was done or happened at one instant.
type Mark struct {
	At   float64 `json:"at"`
	Kind string  `json:"kind"` // action, crash, start, ...
	Text string  `json:"text"`
	On   string  `json:"on,omitempty"` // a host, or "" for the whole fleet
}

// Check is an expectation or an invariant with its end.
type Check struct {
	Name   string  `json:"name"`
	Text   string  `json:"text,omitempty"`
	Result string  `json:"result"` // held, violated, notrun
	At     float64 `json:"at,omitempty"`
	Checks uint64  `json:"checks,omitempty"` // how often it was looked at
}

// APICount is how often one client did one thing to one kind of object.
type APICount struct {
	Client   string `json:"client"`
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
	Count    uint64 `json:"count"`
	Bytes    uint64 `json:"bytes"`
}

// Sample is a value at a time.
type Sample struct {
	At    float64 `json:"at"`
	Value float64 `json:"value"`
}

// Recovery is one VM's way from its host's loss until it ran elsewhere. What
// follows Lost are lengths; together they are the whole way.
type Recovery struct {
	VM         string  `json:"vm"`
	Priority   string  `json:"priority"`
	Host       string  `json:"host"` // that was lost
	Evacuation string  `json:"evacuation"`
	Lost       float64 `json:"lost"`   // when
	Detect     float64 `json:"detect"` // until the host was said to be silent
	Decide     float64 `json:"decide"` // until it was to be fenced
	Fence      float64 `json:"fence"`  // until that was proven
	Place      float64 `json:"place"`  // until the VM had another host
	Start      float64 `json:"start"`  // until it ran there
}

// Total is the whole way.
func (r Recovery) Total() float64 { return r.Detect + r.Decide + r.Fence + r.Place + r.Start }

// Percentile is a distribution of durations of one kind.
type Percentile struct {
	Name  string  `json:"name"` // start, migration, downtime, outage, recovery, ...
	Unit  string  `json:"unit"` // s or ms
	Count int     `json:"count"`
	Min   float64 `json:"min"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}
