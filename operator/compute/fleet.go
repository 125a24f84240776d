// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// Fleet is the ledger of hosts and of what is placed on them. It is kept up
// event by event and never rebuilt. Its methods may be called from anywhere;
// none calls the API.
//
// A host's used room is the sum of our claims on it and of what its last report
// holds beyond those of our claims that the same report names (host.foreign).
// A claim is what a VMI's object shows, or an assumption: a placement that was
// decided and that no event has shown yet. An assumption is dropped when the
// write surely did not happen (Release), or when a newer version of the VMI is
// seen: the write is locked to the version it was decided on, so a newer one
// shows it or proves that it never will be.
type Fleet struct {
	mu    sync.Mutex
	clock clock.PassiveClock

	hosts   []*host // Never shrinks: a host's place is its id.
	byName  map[string]*host
	known   int
	classes classes

	vms      map[types.UID]*vm
	byKey    map[types.NamespacedName]*vm
	byDomain map[string]*vm
	waiting  []*vm // In the order in which they are served.

	terms    map[string]*term
	groups   map[string]*group
	termsIn  map[string][]*term // By namespace; "" holds in each.
	groupsOf map[string][]*group

	synced bool
}

// NewFleet returns an empty fleet.
func NewFleet(c clock.PassiveClock) *Fleet {
	return &Fleet{
		clock:    c,
		byName:   map[string]*host{},
		classes:  classes{byKey: map[string]*class{}, follows: map[[2]*class]reason{}},
		vms:      map[types.UID]*vm{},
		byKey:    map[types.NamespacedName]*vm{},
		byDomain: map[string]*vm{},
		terms:    map[string]*term{},
		groups:   map[string]*group{},
		termsIn:  map[string][]*term{},
		groupsOf: map[string][]*group{},
	}
}

// Request asks for a host for a VM.
type Request struct {
	// VM is the object the decision is made on: what is decided must be written
	// with its resource version as lock.
	VM *kubevirtv1.VirtualMachineInstance

	// Source is the host a VM moves from: never the answer, and a live VM's
	// target must offer all that it offers. Empty for a VM that is on no host.
	Source string

	// Cold says that the VM does not run, so that any host it could start on
	// will do.
	Cold bool

	// NodeSelector restricts the hosts further than the VM's own.
	NodeSelector map[string]string

	// Exclude are hosts not to be taken.
	Exclude []string

	// MaxIncoming is how many migrations may be on their way to one host, this
	// one counted; 0 is any number.
	MaxIncoming int

	// MaxStarting says that the VM is about to start, and on how many others a
	// host may be doing so; 0 is any number, and the VM does not count.
	MaxStarting int
}

// Place reserves room for a VM and returns the host, or "" and why there is
// none. The reservation holds until an event shows it or the VMI's version
// moves on; a caller whose write surely did not happen gives it back with
// Release. Asked again before that, it answers the same host if it still will
// do.
func (f *Fleet) Place(r Request) (host string, why Refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.see(r.VM)
	a := f.askFor(v, r)
	for i := range v.claims {
		c := &v.claims[i]
		if !c.assumed || c.base != r.VM.ResourceVersion || slices.Contains(r.Exclude, c.host.name) {
			continue
		}
		if c.host.state == taking && (r.Source == "" || c.host.name != r.Source) {
			c.retried = true
			return c.host.name, Refusal{}
		}
	}
	best, why := f.choose(a)
	if best == nil {
		return "", why
	}
	f.claim(v, claim{host: best, cell: f.cellFor(v, best), incoming: r.Source != "", starting: r.MaxStarting > 0, assumed: true, base: r.VM.ResourceVersion})
	return best.name, Refusal{}
}

// Release gives back what Place reserved for a VM on a host, because the write
// surely did not happen. What an earlier write with an unknown end may have done
// stays reserved until an event tells.
func (f *Fleet) Release(uid types.UID, host string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, h := f.vms[uid], f.byName[host]
	if v == nil || h == nil {
		return
	}
	if c := v.claimOn(h); c != nil && c.assumed && !c.retried {
		f.unclaim(v, h)
	}
}

// Verdict says where a VM would go.
type Verdict struct {
	VM   types.NamespacedName
	UID  types.UID
	Host string // "": it has to stay.
	Why  string // Why it has to stay.
}

// WhatIf says where each VM of a host would go if they left it in this order,
// one after another, with nothing else going on. It judges room and hosts, not
// whether a VM may be migrated at all, and reserves nothing. Stopped VMs are
// told by their phase: they may go where a running one may not.
func (f *Fleet) WhatIf(vms []*kubevirtv1.VirtualMachineInstance, excluding string) []Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	verdicts := make([]Verdict, 0, len(vms))
	var undo []func()
	for _, vmi := range vms {
		v := f.see(vmi)
		a := f.askFor(v, Request{VM: vmi, Source: excluding, Cold: vmi.Status.Phase == kubevirtv1.Scheduled})
		best, why := f.choose(a)
		verdict := Verdict{VM: v.key, UID: v.uid}
		if best == nil {
			verdict.Why = why.String()
			verdicts = append(verdicts, verdict)
			continue
		}
		verdict.Host = best.name
		verdicts = append(verdicts, verdict)
		if from := v.claimOn(a.source); from != nil {
			was := *from
			f.unclaim(v, a.source)
			undo = append(undo, func() { f.claim(v, was) })
		}
		f.claim(v, claim{host: best, cell: f.cellFor(v, best)})
		undo = append(undo, func() { f.unclaim(v, best) })
	}
	for _, back := range slices.Backward(undo) {
		back()
	}
	return verdicts
}

// HostTakes says whether a host is there, ready and not in maintenance.
func (f *Fleet) HostTakes(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.byName[name]
	return h != nil && h.state == taking
}

// HostFenced says whether a host is proven to run no protected VM: the HA service
// has the proof. Of VMs that are not protected it says nothing.
func (f *Fleet) HostFenced(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.byName[name]
	return h != nil && h.known && h.fenced
}

// HostReports says whether a host's last report names a VM's domain, and
// whether as active: running, paused or on its way in.
func (f *Fleet) HostReports(name string, vmi *kubevirtv1.VirtualMachineInstance) (listed, active bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.byName[name]; h != nil {
		active, listed = h.instances[domainOf(vmi)]
	}
	return listed, active
}

// Synced says whether the fleet has been filled. Before that nothing may be
// placed.
func (f *Fleet) Synced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.synced
}

func (f *Fleet) markSynced() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = true
}

// see is the VM's record, made if no event has brought it yet.
func (f *Fleet) see(vmi *kubevirtv1.VirtualMachineInstance) *vm {
	if v := f.vms[vmi.UID]; v != nil {
		return v
	}
	f.observe(vmi)
	return f.vms[vmi.UID]
}

func (f *Fleet) askFor(v *vm, r Request) *ask {
	a := &ask{
		now: f.clock.Now(), vm: v, cold: r.Cold, exclude: r.Exclude, maxIncoming: r.MaxIncoming, maxStarting: r.MaxStarting,
		selector: requirementsOf(restricting(r.NodeSelector, r.VM.Spec.NodeSelector)),
	}
	if r.Source != "" {
		a.source = f.host(r.Source)
	}
	a.neighbours = f.neighboursOf(v)
	return a
}

// restricting is what an added selector adds: a key the VM itself has keeps the
// VM's value.
func restricting(added, own map[string]string) map[string]string {
	left := labels.Set{}
	for key, value := range added {
		if _, has := own[key]; !has {
			left[key] = value
		}
	}
	return left
}

// choose is the best host of those that fit. It does not depend on the order in
// which the fleet came to know them.
func (f *Fleet) choose(a *ask) (best *host, why Refusal) {
	why.hosts = f.known
	if a.vm.broken != "" {
		why.other = a.vm.broken
		return nil, why
	}
	var bestScore int64
	var bestTie uint64
	for _, h := range f.hosts {
		if !h.known {
			continue
		}
		if no := f.refuse(h, a); no != fits {
			why.counts[no]++
			continue
		}
		score, t := a.weigh(h), tie(a.vm, h)
		if best == nil || score > bestScore || score == bestScore && (t > bestTie || t == bestTie && h.name < best.name) {
			best, bestScore, bestTie = h, score, t
		}
	}
	return best, why
}

func (f *Fleet) cellFor(v *vm, h *host) int8 {
	if !v.pinned || len(h.cells) == 0 {
		return -1
	}
	cell, _ := h.pickCell(v)
	return cell
}

func (f *Fleet) host(name string) *host {
	if h := f.byName[name]; h != nil {
		return h
	}
	h := newHost(name, int32(len(f.hosts)))
	f.hosts = append(f.hosts, h)
	f.byName[name] = h
	return h
}

// Avoid keeps a VM off a host that refused it, until then.
func (f *Fleet) avoid(uid types.UID, host string, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.vms[uid]; v != nil {
		if v.avoid == nil {
			v.avoid = map[string]time.Time{}
		}
		v.avoid[host] = until
	}
}

// newer says whether version a is later than b. Versions that are no numbers
// cannot be ordered; another one is then taken for a later one.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return order > 0
}

// Ahead says whether the ledger has seen a later version of a VMI than this, so
// that a decision on this one would only end in a conflict.
func (f *Fleet) Ahead(vmi *kubevirtv1.VirtualMachineInstance) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.vms[vmi.UID]
	return v != nil && v.version != vmi.ResourceVersion && newer(v.version, vmi.ResourceVersion)
}
