// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/sim"
)

// The invariants, held in every run. The first three are the ledger's.
const (
	RuleSingleRun    = hwsim.RuleSingleRun
	RuleSingleWriter = hwsim.RuleSingleWriter
	RuleSourceStays  = hwsim.RuleSourceStays
	RuleTerminalOnce = "migration-terminal" // each VMIM ends in one terminal phase, once
	RuleEmptied      = "evicted-is-empty"   // an evicted host is empty, an unfinished eviction says why
	RuleQuiet        = "quiet"              // a quiet fleet writes nothing but heartbeats
	RuleOwner        = "one-owner"          // each field has one writer
	RuleHotLoop      = "no-hot-loop"        // no reconcile spins
	RuleCapacity     = "capacity"           // what runs on a host fits it
	RuleToken        = "run-token"          // each start of a VM has a higher token than any before on another host
	RuleNoPanic      = "no-panic"           // no controller panics
)

// Rules lists the invariants with what they mean.
var Rules = slices.Concat(rules, haRules)

var rules = [][2]string{
	{RuleSingleRun, "no VM runs in two places"},
	{RuleSingleWriter, "no disk has two writers"},
	{RuleSourceStays, "no source runs on once the target has taken over"},
	{RuleTerminalOnce, "every migration ends in exactly one terminal state"},
	{RuleEmptied, "an evicted host ends empty, or its eviction says why not"},
	{RuleQuiet, "a quiet fleet writes nothing but heartbeats"},
	{RuleOwner, "no field is written by another than its owner"},
	{RuleHotLoop, "no reconcile runs in a hot loop"},
	{RuleCapacity, "the VMs of a host fit into its effective capacity"},
	{RuleToken, "a VM starts on another host only under a higher run token"},
	{RuleNoPanic, "no controller panics"},
}

// Violation is an invariant that did not hold.
type Violation struct {
	At   time.Duration
	Rule string
	Text string
}

// watch looks on: it counts, remembers and holds the invariants.
type watch struct {
	w          *World
	generation uint64 // moves whenever something may look different
	writes     uint64 // heartbeats left out
	lastWrite  time.Duration
	lastObject string // of the last write, to name what is not quiet
	violations []Violation
	checks     map[string]uint64
	seen       map[string]bool // violations reported once for one object

	moves, starts map[string]int            // by UUID
	tokens        map[string]int64          // highest token a VM has run under, by UUID
	lastHost      map[string]string         // where it last ran
	firstHost     map[string]string         // where it first ran
	final         map[types.UID]string      // terminal phases of VMIMs
	onHost        map[string]map[string]int // copies of our VMs: host → UUID → segments open
	perSlice      []uint64                  // writes in each slice of the run

	fences  map[string]int           // Evacuations made of each host
	proofs  int                      // that were found
	down    map[string]time.Duration // when a host last went down or hung
	falls   map[string]*fall         // of hosts that are not well
	rescues map[string]*rescue       // of VMs that are on their way, by UUID
	rescued []*rescue                // of those that run again

	marks   []mark
	faults  []span
	reached Reached
}

type mark struct {
	at             time.Duration
	kind, text, on string
}

type span struct {
	kind     string
	text     string
	on       []string
	from, to time.Duration
}

// slice is the width of one sample of the writes-over-time curve.
const slice = 10 * time.Second

func newWatch(w *World) watch {
	return watch{
		w: w, reached: newReached(), checks: map[string]uint64{}, seen: map[string]bool{}, moves: map[string]int{}, starts: map[string]int{},
		tokens: map[string]int64{}, lastHost: map[string]string{}, firstHost: map[string]string{}, final: map[types.UID]string{}, onHost: map[string]map[string]int{},
		fences: map[string]int{}, down: map[string]time.Duration{}, falls: map[string]*fall{}, rescues: map[string]*rescue{},
	}
}

func (w *World) now() time.Duration { return w.Scheduler.Elapsed() }

func (x *watch) changed() { x.generation++ }

func (x *watch) violate(rule, text string) {
	if key := rule + "\x00" + text; x.seen[key] {
		return
	} else {
		x.seen[key] = true
	}
	x.violations = append(x.violations, Violation{At: x.w.now(), Rule: rule, Text: text})
	x.w.Scheduler.Note(sim.Note{Component: "invariant", What: "violated", Object: rule, Detail: text})
}

func (x *watch) mark(kind, text, on string) {
	x.marks = append(x.marks, mark{at: x.w.now(), kind: kind, text: text, on: on})
}

func (x *watch) faultBegan(f Fault) {
	s := span{kind: f.verb, text: f.text, from: x.w.now(), to: -1}
	if f.args["on"] != "" {
		s.on = x.w.hosts(f.args["on"])
	}
	switch {
	case f.For > 0:
		s.to = x.w.now() + f.For
	case isProcessFault(f.verb):
		s.to = x.w.now() + restartAfter
	case !mayLast[f.verb]:
		s.to = x.w.now()
	}
	x.faults = append(x.faults, s)
}

func (x *watch) healed(at time.Duration) {
	for i := range x.faults {
		if x.faults[i].to < 0 || x.faults[i].to > at {
			x.faults[i].to = at
		}
	}
}

// written sees each committed write.
func (x *watch) written(w kubesim.Write) {
	if w.GVK.Kind == "Lease" {
		return
	}
	x.changed()
	x.writes++
	x.lastWrite = x.w.now()
	o := w.New
	if o == nil {
		o = w.Old
	}
	x.lastObject = w.Process + " " + w.Verb + " " + w.GVK.Kind + " " + o.GetName()
	i := int(x.w.now() / slice)
	for len(x.perSlice) <= i {
		x.perSlice = append(x.perSlice, 0)
	}
	x.perSlice[i]++
	x.decided(w)
	switch n := w.New.(type) {
	case *kubevirtv1.VirtualMachineInstance:
		if x.w.ha != nil {
			old, _ := w.Old.(*kubevirtv1.VirtualMachineInstance)
			x.marked(old, n)
			x.moved(old, n)
		}
	case *kvmv1alpha1.Evacuation:
		if x.w.ha != nil {
			old, _ := w.Old.(*kvmv1alpha1.Evacuation)
			x.evacuationWritten(old, n)
		}
	case *kubevirtv1.VirtualMachineInstanceMigration:
		x.terminalOnce(n)
	case *kvmv1.Hypervisor:
		if w.Verb == "create" {
			x.w.Scheduler.After(0, func() { x.w.overcommit(n.Name) })
		}
		old, _ := w.Old.(*kvmv1.Hypervisor)
		if n.Status.Evicted && (old == nil || !old.Status.Evicted) {
			x.emptied(n.Name)
		}
		if x.w.ha != nil {
			x.aliveness(old, n)
		}
	}
}

func (x *watch) terminalOnce(m *kubevirtv1.VirtualMachineInstanceMigration) {
	phase, before := "", x.final[m.UID]
	if m.IsFinal() {
		phase = string(m.Status.Phase)
	}
	x.checks[RuleTerminalOnce]++
	if before != "" && phase != before {
		x.violate(RuleTerminalOnce, fmt.Sprintf("%s was %s and became %q", m.Name, before, m.Status.Phase))
	}
	if phase != "" {
		x.final[m.UID] = phase
	}
}

// emptied checks the claim that a host is evicted against the truth.
func (x *watch) emptied(host string) {
	x.checks[RuleEmptied]++
	if n := len(x.onHost[host]); n > 0 {
		x.violate(RuleEmptied, fmt.Sprintf("%s says it is evicted, and %d of its VMs have a QEMU there", host, n))
	}
}

// ledger sees each change of the truth.
func (x *watch) ledger(e hwsim.LedgerEvent) {
	x.changed()
	for _, rule := range []string{RuleSingleRun, RuleSingleWriter, RuleSourceStays} { // the ledger holds them at each change
		x.checks[rule]++
	}
	switch {
	case e.Violation != nil:
		name := e.Violation.Object
		if v := x.w.byUUID[name]; v != nil {
			name = v.name
		}
		x.violate(e.Violation.Rule, name+": "+e.Violation.Detail)
	case e.Segment != nil:
		x.segment(*e.Segment)
	case e.Migration != nil && e.Migration.Result == "succeeded":
		x.moves[e.Migration.VM]++
		x.lastHost[e.Migration.VM] = e.Migration.To
	}
}

func (x *watch) segment(s hwsim.Segment) {
	v := x.w.byUUID[s.VM]
	if v == nil {
		return
	}
	on := x.onHost[s.Host]
	if on == nil {
		on = map[string]int{}
		x.onHost[s.Host] = on
	}
	fresh := on[s.VM] == 0
	if s.State == hwsim.CopyGone {
		delete(on, s.VM)
		return
	}
	on[s.VM] = 1
	if fresh {
		x.capacity(s.Host)
		if s.State != hwsim.CopyIncoming {
			x.started(v, s)
		}
	}
	if s.State == hwsim.CopyRunning {
		if v.running == 0 {
			v.running = x.w.now()
		}
		x.runs(s)
	}
}

// started holds the rule of run tokens at each boot.
func (x *watch) started(v *vm, s hwsim.Segment) {
	x.starts[v.uuid]++
	if x.firstHost[v.uuid] == "" {
		x.firstHost[v.uuid] = s.Host
	}
	x.checks[RuleToken]++
	if last := x.lastHost[v.uuid]; last != "" && last != s.Host && s.Token <= x.tokens[v.uuid] {
		x.violate(RuleToken, fmt.Sprintf("%s starts on %s under token %d, and ran on %s under %d", v.name, s.Host, s.Token, last, x.tokens[v.uuid]))
	}
	x.tokens[v.uuid], x.lastHost[v.uuid] = max(x.tokens[v.uuid], s.Token), s.Host
}

func (x *watch) capacity(host string) {
	hv, _ := x.w.Cluster.Lookup(kindHypervisor, client.ObjectKey{Name: host}).(*kvmv1.Hypervisor)
	if hv == nil || len(hv.Status.EffectiveCapacity) == 0 {
		return
	}
	x.checks[RuleCapacity]++
	var sum uint64
	for uuid := range x.onHost[host] { // a sum: the order is nothing
		sum += x.w.byUUID[uuid].memory
	}
	effective := hv.Status.EffectiveCapacity[kvmv1.ResourceMemory]
	if sum > uint64(effective.Value()) {
		x.violate(RuleCapacity, fmt.Sprintf("the VMs on %s need %d MiB of %d", host, sum>>20, effective.Value()>>20))
	}
}

func (x *watch) hotLoop(h kubesim.HotLoop) {
	x.violate(RuleHotLoop, fmt.Sprintf("%s reconciles %s %s %d times within a second", h.Process, h.Controller, h.Request, h.Times))
}

func (x *watch) foreignWrite(f kubesim.ForeignWrite) {
	x.violate(RuleOwner, fmt.Sprintf("%s writes %s of %s, which is written by %s", f.Process, f.Field, f.GVK.Kind, strings.Join(f.Allowed, " or ")))
}

func (x *watch) panicked(p kubesim.Panic) {
	x.violate(RuleNoPanic, fmt.Sprintf("%s %s %s: %v\n%s", p.Process, p.Controller, p.Request, p.Value, p.Stack))
}

// Violations returns the invariants that did not hold so far.
func (w *World) Violations() []Violation { return w.watch.violations }

// Generation moves whenever the view may have changed.
func (w *World) Generation() uint64 { return w.watch.generation }

// Writes is the number of API writes so far, heartbeats left out.
func (w *World) Writes() uint64 { return w.watch.writes }

// QuietFor is how long nothing but heartbeats was written.
func (w *World) QuietFor() time.Duration { return w.now() - w.watch.lastWrite }

// settle is how long a world may take to come to rest once all faults are
// over; quietFor is how long nothing may then be written: longer than every
// agent's resync, so that a write at each resync shows.
const (
	settle   = 30 * time.Minute
	quietFor = 7 * time.Minute
)

// Settle ends what lasts, waits until no host boots and the fleet is quiet,
// and holds the invariants of a world at rest. Where a fault lasted until now,
// some of what waited for its end comes minutes later, as agents do that had
// given somebody up, and the HA service holds hosts down for minutes: then the
// fleet has more than one try.
func (w *World) Settle() {
	patient := len(w.watch.lasting("")) > 0 || w.ha != nil
	deadline := w.now() + settle
	w.Heal()
	for healed := w.now(); w.now() < deadline && !w.Over(); {
		if w.boots() {
			healed = w.now() // a host that boots writes nothing yet
		} else if min(w.QuietFor(), w.now()-healed) >= 60*time.Second {
			break
		}
		w.Run(w.now() + 10*time.Second)
	}
	w.watch.checks[RuleQuiet]++
	if w.QuietFor() < 60*time.Second {
		w.watch.violate(RuleQuiet, fmt.Sprintf("%v after the last fault the API is still written to, last by %s", settle, w.watch.lastObject))
		return
	}
	before := w.watch.writes
	w.Run(w.now() + quietFor)
	for ; patient && w.watch.writes != before && w.now() < deadline && !w.Over(); w.Run(w.now() + quietFor) {
		before = w.watch.writes
	}
	if after := w.watch.writes; after != before {
		w.watch.violate(RuleQuiet, fmt.Sprintf("%d writes after a minute of quiet, last: %s", after-before, w.watch.lastObject))
	}
	w.atRest()
}

// boots says whether a host is on its way. One that stays off was told to by its
// controller.
func (w *World) boots() bool {
	return slices.ContainsFunc(w.Fleet.Hosts(), func(h *hwsim.Host) bool { return h.State() == hwsim.HostBooting })
}

// atRest holds what must be true of a world in which nothing happens any more.
func (w *World) atRest() {
	w.Cluster.Each(kindVMIM, func(o client.Object) {
		if m := o.(*kubevirtv1.VirtualMachineInstanceMigration); !m.IsFinal() && w.isPlaced(m.Spec.VMIName) {
			w.watch.violate(RuleTerminalOnce, fmt.Sprintf("%s is still %q in a fleet at rest", m.Name, m.Status.Phase))
		}
	})
	for _, r := range first(w.rowsOfEvictions()) {
		w.watch.checks[RuleEmptied]++
		if r["state"] == kvmv1.ReasonRunning && len(r["stuck"].([]string)) == 0 && r["message"] == "" {
			w.watch.violate(RuleEmptied, fmt.Sprintf("eviction %s is not done in a fleet at rest and names no reason", r["name"]))
		}
	}
	w.haAtRest()
}

func (w *World) isPlaced(vmi string) bool {
	o, _ := w.Cluster.Lookup(kindVMI, client.ObjectKey{Namespace: Namespace, Name: vmi}).(*kubevirtv1.VirtualMachineInstance)
	return o != nil && o.Status.NodeName != ""
}

func first[A, B any](a A, _ B) A { return a }
