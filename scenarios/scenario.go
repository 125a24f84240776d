// SPDX-License-Identifier: Apache-2.0

// Package scenarios reads scenario files, plays them in a testbed and judges
// what happened.
//
// A scenario is one YAML file: a fleet, a workload, a timeline of actions and
// faults, and what must hold. It owns the format and its errors, which name
// file, line, field and mend; the expectations, written in CEL over the state
// of the world; and the run's record. It must never know what lies below the
// testbed: how a host or an API is simulated.
package scenarios

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/adit-hv/adit/testbed"
)

// Scenario is a scenario file that was read and found good.
type Scenario struct {
	Name string // the file's name without its ending
	File string

	About    string
	Why      string
	For      time.Duration
	Spec     testbed.Spec
	Timeline []Step
	Expect   []Expectation
	Budget   Budget
	Modes    []string

	builtIn bool
}

// Step is one entry of the timeline: at a time, or once an expression holds,
// an action is done or a fault begins.
type Step struct {
	At    time.Duration
	When  *Program // nil: at At
	Delay time.Duration
	Do    testbed.Action
	Fault testbed.Fault
	Text  string
	Heal  bool
}

// Kind says how an expectation is judged.
type Kind string

// The kinds of expectations.
const (
	Eventually Kind = "eventually" // true at some instant of its window
	Always     Kind = "always"     // true at each look in its window
	Never      Kind = "never"      // false at each look in its window
	AtEnd      Kind = "end"        // true at the end of the run
)

// Expectation is something that must hold.
type Expectation struct {
	Kind    Kind
	Text    string
	Program *Program
	From    time.Duration
	Until   time.Duration
	Because string
}

// Budget bounds what a run may cost; zero is no bound.
type Budget struct {
	APIWrites uint64
	Events    uint64
}

// file is the shape of a scenario file.
type file struct {
	About    string         `yaml:"about"`
	Why      string         `yaml:"why"`
	For      Duration       `yaml:"for"`
	Modes    []string       `yaml:"modes"`
	Fleet    []hostGroup    `yaml:"fleet"`
	Workload []vmGroup      `yaml:"workload"`
	Operator operatorFields `yaml:"operator"`
	API      apiFields      `yaml:"api"`
	Storage  storageFields  `yaml:"storage"`
	HA       *haFields      `yaml:"ha"`
	Timeline []stepFields   `yaml:"timeline"`
	Expect   []expectFields `yaml:"expect"`
	Budget   budgetFields   `yaml:"budget"`
}

type hostGroup struct {
	Name         string             `yaml:"name"`
	Count        int                `yaml:"count"`
	Model        string             `yaml:"model"`
	Zone         string             `yaml:"zone"`
	Rack         string             `yaml:"rack"`
	Feed         string             `yaml:"feed"`
	Switch       string             `yaml:"switch"`
	Watchdog     *bool              `yaml:"watchdog"`
	BMC          *bool              `yaml:"bmc"`
	ClockSkew    Shift              `yaml:"clockSkew"`
	Drift        int                `yaml:"drift"`
	Capabilities string             `yaml:"capabilities"`
	OSRelease    string             `yaml:"osRelease"`
	DMI          map[string]string  `yaml:"dmi"`
	Labels       map[string]string  `yaml:"labels"`
	Migration    Size               `yaml:"migrationBandwidth"`
	Overcommit   map[string]float64 `yaml:"overcommit"`
}

type vmGroup struct {
	Name       string            `yaml:"name"`
	Count      int               `yaml:"count"`
	At         Duration          `yaml:"at"`
	Every      Duration          `yaml:"every"`
	CPUs       int               `yaml:"cpus"`
	Memory     Size              `yaml:"memory"`
	Labels     map[string]string `yaml:"labels"`
	Host       string            `yaml:"host"`
	Apart      string            `yaml:"apart"`
	Priority   string            `yaml:"priority"`
	Traits     []string          `yaml:"traits"`
	CPUModel   string            `yaml:"cpuModel"`
	NUMA       bool              `yaml:"numa"`
	Stopped    bool              `yaml:"stopped"`
	Pinned     bool              `yaml:"pinned"`
	Protected  *bool             `yaml:"protected"`
	Restart    string            `yaml:"restart"`
	Yields     bool              `yaml:"yields"`
	OnCrash    string            `yaml:"onCrash"`
	OnPanic    string            `yaml:"onPanic"`
	OnIOError  string            `yaml:"onIOError"`
	Grace      Duration          `yaml:"grace"`
	Boot       Duration          `yaml:"boot"`
	Used       Size              `yaml:"used"`
	DirtyRate  Size              `yaml:"dirtyRate"`
	WorkingSet Size              `yaml:"workingSet"`
	Agent      bool              `yaml:"agent"`
	Shutdown   Duration          `yaml:"shutdown"`
	Deaf       bool              `yaml:"deaf"`
}

type operatorFields struct {
	Migrations         int      `yaml:"migrations"`
	PerHost            int      `yaml:"perHost"`
	PerTarget          int      `yaml:"perTarget"`
	Bandwidth          Size     `yaml:"bandwidth"`
	CompletionPerGiB   Duration `yaml:"completionPerGiB"`
	Progress           Duration `yaml:"progress"`
	AutoConverge       bool     `yaml:"autoConverge"`
	PostCopy           bool     `yaml:"postCopy"`
	WorkloadDisruption bool     `yaml:"workloadDisruption"`
	Unschedulable      Duration `yaml:"unschedulable"`
	Floor              int      `yaml:"floor"`
	Replicas           int      `yaml:"replicas"`
}

type apiFields struct {
	Latency     Duration `yaml:"latency"`
	Lag         Duration `yaml:"lag"`
	EagerLeases bool     `yaml:"eagerLeases"`
}

type storageFields struct {
	Locks     *bool    `yaml:"locks"`
	LockLease Duration `yaml:"lockLease"`
}

type haFields struct {
	Replicas        int      `yaml:"replicas"`
	Watchdog        *bool    `yaml:"watchdog"`
	Interval        Duration `yaml:"interval"`
	Term            Duration `yaml:"term"`
	Stop            Duration `yaml:"stop"`
	WatchdogTimeout Duration `yaml:"watchdogTimeout"`
	Settle          Duration `yaml:"settle"`
	Outage          Duration `yaml:"outage"`
	Rejoin          Duration `yaml:"rejoin"`
	StormShare      float64  `yaml:"stormShare"`
	StormHosts      int      `yaml:"stormHosts"`
	Fences          int      `yaml:"fences"`
	FencesPerZone   int      `yaml:"fencesPerZone"`
	PerFleet        int      `yaml:"perFleet"`
	PerTarget       int      `yaml:"perTarget"`
	HoldDown        Duration `yaml:"holdDown"`
	PowerOn         bool     `yaml:"powerOn"`
	Yields          bool     `yaml:"yields"`
	Paused          bool     `yaml:"paused"`
	DryRun          bool     `yaml:"dryRun"`
}

type stepFields struct {
	At    Duration `yaml:"at"`
	When  string   `yaml:"when"`
	Delay Duration `yaml:"delay"`
	Do    string   `yaml:"do"`
	Fault string   `yaml:"fault"`
	Heal  bool     `yaml:"heal"`
}

type expectFields struct {
	Eventually string   `yaml:"eventually"`
	Always     string   `yaml:"always"`
	Never      string   `yaml:"never"`
	End        string   `yaml:"end"`
	From       Duration `yaml:"from"`
	Until      Duration `yaml:"until"`
	Within     Duration `yaml:"within"`
	Because    string   `yaml:"because"`
}

type budgetFields struct {
	APIWrites int `yaml:"apiWrites"`
	Events    int `yaml:"events"`
}

// maxFile is how large a scenario may be: a hundred times what a person writes.
const maxFile = 1 << 20

// Load reads one scenario file.
func Load(path string) (*Scenario, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w; name a scenario file, a folder of them, or nothing for the built-in suite", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%w; name a scenario file, a folder of them, or nothing for the built-in suite", err)
	}
	return Parse(path, data, os.ReadFile)
}

// Parse reads a scenario from data. name is used in errors; read opens the
// files that it names, whose paths are relative to it.
func Parse(name string, data []byte, read func(string) ([]byte, error)) (s *Scenario, err error) {
	body, e := document(data)
	if e == nil {
		e = shape(body, reflect.TypeFor[file]())
	}
	if e != nil {
		e.File = name
		return nil, e
	}
	var f file
	if err := yaml.NodeToValue(body, &f, yaml.Strict()); err != nil {
		e := located(err)
		e.File = name
		return nil, e
	}
	b := builder{name: name, body: body, read: func(p string) ([]byte, error) {
		if !filepath.IsAbs(p) {
			p = filepath.Join(filepath.Dir(name), p)
		}
		return read(p)
	}}
	s = b.scenario(f)
	if b.err != nil {
		b.err.File = name
		return nil, b.err
	}
	return s, nil
}

// builder turns the file's fields into a Scenario and keeps the first mistake.
type builder struct {
	name string
	body ast.Node
	read func(string) ([]byte, error)
	err  *Error
}

// fail records a mistake at the node that path leads to, or at the nearest
// one above it.
func (b *builder) fail(path, format string, args ...any) {
	if b.err != nil {
		return
	}
	problem := fmt.Sprintf(format, args...)
	for p := path; ; {
		node := b.body
		if p != "" {
			if yp, err := yaml.PathString("$." + p); err == nil {
				if n, err := yp.FilterNode(b.body); err == nil && n != nil {
					node = n
				} else {
					node = nil
				}
			}
		}
		if node != nil && first(node).GetToken() != nil {
			position := first(node).GetToken().Position
			b.err = &Error{Line: position.Line, Column: position.Column, Problem: problem}
			if path != "" {
				b.err.Problem = path + ": " + problem
			}
			return
		}
		if p == "" {
			b.err = &Error{Problem: path + ": " + problem}
			return
		}
		if i := strings.LastIndexAny(p, ".["); i >= 0 {
			p = p[:i]
		} else {
			p = ""
		}
	}
}
