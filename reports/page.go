// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"bufio"
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
)

//go:embed page
var assets embed.FS

// scripts in the order in which they build on each other; the page runs them
// as one function.
var scripts = []string{"dom", "data", "scene", "paint", "moves", "picture", "strips", "tables", "run", "list", "main"}

var pageTemplate = template.Must(template.New("index.tmpl").ParseFS(assets, "page/index.tmpl"))

// pageData is what the template fills in.
type pageData struct {
	Suite     Suite
	CSS       template.CSS
	Script    template.JS
	Rows      template.JS // the suite's runs, as JSON
	Details   []detail
	Counts    verdicts
	Scenarios []scenarioRow
	Undrawn   bool // there are runs with rows only
}

type detail struct {
	ID   string
	JSON template.JS
}

type verdicts struct{ Pass, Fail, NotRun, All int }

func (v *verdicts) add(verdict string) {
	v.All++
	switch verdict {
	case Pass:
		v.Pass++
	case Fail:
		v.Fail++
	default:
		v.NotRun++
	}
}

// scenarioRow is a line of the list: the runs of one scenario in one mode.
type scenarioRow struct {
	Scenario, Mode, About string
	Counts                verdicts
	Verdict               string // the worst of its runs
	Runs                  []int  // indices into the suite's records
	First                 string // its first violation or the reason it was not run
	Violations            int
	Virtual, CPU          float64 // of all its runs
	Events, Writes        uint64
}

// row is a run as the page's scripts read it.
type row struct {
	Scenario   string      `json:"scenario"`
	Seed       string      `json:"seed"` // a script's numbers end at 2^53
	Mode       string      `json:"mode"`
	Verdict    string      `json:"verdict"`
	Digest     string      `json:"digest"`
	Reason     string      `json:"reason,omitempty"`
	File       string      `json:"file,omitempty"`
	About      string      `json:"about,omitempty"`
	Violations []Violation `json:"violations,omitempty"`
	More       int         `json:"more,omitempty"` // violations not listed
	Virtual    float64     `json:"virtual"`
	CPU        float64     `json:"cpu"`
	HostHours  float64     `json:"hostHours"`
	Events     uint64      `json:"events"`
	Writes     uint64      `json:"writes"`
	Replay     string      `json:"replay"`
	Drawn      bool        `json:"drawn,omitempty"`
}

// Page writes the suite as one self-contained HTML page: nothing is fetched,
// and the same suite gives the same bytes. Each failed run up to a limit and
// one passed run of each scenario are drawn; the others are rows.
func Page(w io.Writer, s Suite) error {
	d := pageData{Suite: s, Scenarios: scenarios(s.Records)}
	for _, r := range s.Records {
		d.Counts.add(r.Verdict)
	}
	drawn, err := d.draw(s.Records)
	if err != nil {
		return err
	}
	d.Undrawn = len(drawn) < len(s.Records)
	rows, err := json.Marshal(rows(s.Records, drawn))
	if err != nil {
		return err
	}
	// json.Marshal writes < as \u003c, so no text can end the script element.
	d.Rows = template.JS(rows)
	css, err := assets.ReadFile("page/style.css")
	if err != nil {
		return err
	}
	d.CSS = template.CSS(css)
	if d.Script, err = script(); err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	if err := pageTemplate.Execute(out, d); err != nil {
		return err
	}
	return out.Flush()
}

// draw adds the pictures, as far as there is room.
func (d *pageData) draw(all []Record) (map[int]bool, error) {
	drawn, size := map[int]bool{}, 0
	for _, i := range kept(all) {
		text, err := json.Marshal(draw(all[i]))
		if err != nil {
			return nil, fmt.Errorf("draw %s with seed %d: %w", all[i].Scenario, all[i].Seed, err)
		}
		if len(drawn) > 0 && size+len(text) > maxDetails {
			continue
		}
		size += len(text)
		drawn[i] = true
		d.Details = append(d.Details, detail{ID: "run-" + strconv.Itoa(i), JSON: template.JS(text)})
	}
	return drawn, nil
}

func rows(all []Record, drawn map[int]bool) []row {
	out := make([]row, 0, len(all))
	last := ""
	for i, r := range all {
		v := row{
			Scenario: r.Scenario, Seed: strconv.FormatUint(r.Seed, 10), Mode: r.Mode, Verdict: r.Verdict, Digest: r.Digest,
			Reason: r.Reason, Violations: r.Violations, Virtual: r.VirtualSeconds, CPU: r.CPUSeconds,
			HostHours: r.HostHours, Events: r.Events, Writes: r.APIWrites, Replay: r.Replay, Drawn: drawn[i],
		}
		if i == 0 || r.Scenario != last { // its first run speaks for the scenario
			v.File, v.About, last = r.File, r.About, r.Scenario
		}
		room := fewViolations
		if v.Drawn {
			room = maxViolations
		}
		if n := len(v.Violations) - room; n > 0 {
			v.Violations, v.More = v.Violations[:room], n
		}
		out = append(out, v)
	}
	return out
}

// scenarios groups the runs, failed ones first, then those not run.
func scenarios(all []Record) []scenarioRow {
	index := map[[2]string]int{}
	var out []scenarioRow
	for i, r := range all {
		key := [2]string{r.Scenario, r.Mode}
		n, known := index[key]
		if !known {
			n = len(out)
			index[key] = n
			about, _, _ := strings.Cut(strings.TrimSpace(r.About), "\n\n")
			out = append(out, scenarioRow{Scenario: r.Scenario, Mode: r.Mode, About: about})
		}
		g := &out[n]
		g.Counts.add(r.Verdict)
		g.Runs = append(g.Runs, i)
		g.Virtual += r.VirtualSeconds
		g.CPU += r.CPUSeconds
		g.Events += r.Events
		g.Writes += r.APIWrites
		g.Violations += len(r.Violations)
		if g.First == "" && len(r.Violations) > 0 {
			g.First = r.Violations[0].Rule + ": " + r.Violations[0].Text
		}
	}
	for i := range out {
		g := &out[i]
		switch {
		case g.Counts.Fail > 0:
			g.Verdict = Fail
		case g.Counts.Pass > 0:
			g.Verdict = Pass
		default:
			g.Verdict, g.First = NotRun, all[g.Runs[0]].Reason
		}
	}
	order := []string{Fail, NotRun, Pass}
	slices.SortStableFunc(out, func(a, b scenarioRow) int {
		return cmp.Compare(slices.Index(order, a.Verdict), slices.Index(order, b.Verdict))
	})
	return out
}

func script() (template.JS, error) {
	var b bytes.Buffer
	b.WriteString("(function () {\n\"use strict\";\n")
	for _, name := range scripts {
		text, err := assets.ReadFile("page/" + name + ".js")
		if err != nil {
			return "", err
		}
		b.Write(text)
	}
	b.WriteString("})();\n")
	return template.JS(b.String()), nil
}
