// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/operator/maintenance"
)

// host is what the ledger keeps of a Hypervisor, and the sums of what is
// placed on it. Memory is in bytes.
type host struct {
	name    string
	id      int32 // Its place in Fleet.hosts.
	hash    uint64
	version string
	known   bool // False: claimed by a VM, and its Hypervisor is not there.

	state   state
	fenced  bool // proven to run no protected VM
	labels  map[string]string
	traits  []string // Sorted.
	allowed []string // Projects; empty allows all.
	class   *class

	memory, cpus int64 // What may be promised: capacity with overcommit.
	cells        []cell
	cellsSilent  bool // The report does not say what the cells hold.

	// What the host's last report says is there, by domain UUID; true is active.
	instances                    map[string]bool
	reportedMemory, reportedCPUs int64

	claimedMemory, claimedCPUs     int64 // Of all our claims here.
	explainedMemory, explainedCPUs int64 // Of those the last report names.
	looseMemory                    int64 // Of those it does not name and that need no cell.
	pinned                         []*vm // Those that need one cell.
	incoming                       int32 // Migrations on their way here.
	starting                       int32 // VMs from dead hosts about to start here.
}

// cell is a NUMA cell. One without memory is valid; no VM that needs a cell
// fits into it.
type cell struct {
	memory, cpus       int64 // With overcommit.
	realCPUs           int64 // Without: what dedicated CPUs are taken from.
	inMemory, inCPUs   int64 // Allocated, as the host last reported.
	dueMemory, dueCPUs int64 // Claimed by VMs that report does not name.
}

// state is whether a host takes VMs.
type state uint8

const (
	absent state = iota
	notReady
	unheard // not known to be alive
	leaving // in maintenance, or about to be
	taking
)

func stateOf(hv *kvmv1.Hypervisor) state {
	conditions := hv.Status.Conditions
	switch {
	case hv.DeletionTimestamp != nil,
		hv.Spec.Maintenance != kvmv1.MaintenanceUnset && !maintenance.Waits(hv),
		meta.IsStatusConditionTrue(conditions, kvmv1.ConditionHypervisorDisabled),
		meta.IsStatusConditionTrue(conditions, kvmv1.ConditionTerminating):
		return leaving
	case !presumedAlive(conditions):
		return unheard
	case !meta.IsStatusConditionTrue(conditions, kvmv1.ConditionReady):
		return notReady
	}
	return taking
}

// presumedAlive says that the HA service hears a host, or does not speak of it.
func presumedAlive(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, kvmv1.ConditionHostAlive)
	return c == nil || c.Status == metav1.ConditionTrue
}

func newHost(name string, id int32) *host {
	return &host{name: name, id: id, hash: xxhash.Sum64String(name)}
}

// read takes over what a Hypervisor says, sums and claims apart, and tells
// whether something other than room and state changed.
func (h *host) read(hv *kvmv1.Hypervisor, class *class) (changed bool) {
	traits := slices.Concat(hv.Status.Traits, hv.Spec.CustomTraits)
	slices.Sort(traits)
	traits = slices.Compact(traits)
	changed = !h.known || h.class != class || !maps.Equal(h.labels, hv.Labels) ||
		!slices.Equal(h.traits, traits) || !slices.Equal(h.allowed, hv.Spec.AllowedProjects)

	h.known, h.version, h.state, h.class = true, hv.ResourceVersion, stateOf(hv), class
	h.fenced = meta.IsStatusConditionFalse(hv.Status.Conditions, kvmv1.ConditionHostAlive)
	h.labels, h.traits, h.allowed = hv.Labels, traits, hv.Spec.AllowedProjects
	status := &hv.Status
	h.memory = effective(kvmv1.ResourceMemory, status.EffectiveCapacity, status.Capacity, hv.Spec.Overcommit)
	h.cpus = effective(kvmv1.ResourceCPU, status.EffectiveCapacity, status.Capacity, hv.Spec.Overcommit)
	h.reportedMemory = value(status.Allocation, kvmv1.ResourceMemory)
	h.reportedCPUs = value(status.Allocation, kvmv1.ResourceCPU)

	h.cells, h.cellsSilent = h.cells[:0], false
	for i := range status.Cells {
		c := &status.Cells[i]
		h.cellsSilent = h.cellsSilent || c.Allocation == nil
		h.cells = append(h.cells, cell{
			memory:   effective(kvmv1.ResourceMemory, c.EffectiveCapacity, c.Capacity, hv.Spec.Overcommit),
			cpus:     effective(kvmv1.ResourceCPU, c.EffectiveCapacity, c.Capacity, hv.Spec.Overcommit),
			realCPUs: value(c.Capacity, kvmv1.ResourceCPU),
			inMemory: value(c.Allocation, kvmv1.ResourceMemory),
			inCPUs:   value(c.Allocation, kvmv1.ResourceCPU),
		})
	}
	return changed
}

// effective is the capacity with overcommit: as the host reports it, else
// reckoned as the host would, rounded down.
func effective(name kvmv1.ResourceName, effective, capacity map[kvmv1.ResourceName]resource.Quantity, overcommit map[kvmv1.ResourceName]float64) int64 {
	if q, said := effective[name]; said {
		return q.Value()
	}
	ratio, said := overcommit[name]
	if !said {
		ratio = 1
	}
	return int64(math.Floor(float64(value(capacity, name)) * ratio))
}

func value(of map[kvmv1.ResourceName]resource.Quantity, name kvmv1.ResourceName) int64 {
	q := of[name]
	return q.Value()
}

// foreign is what the host reports beyond what our claims explain: domains of
// others, and ours that have gone from the API and not yet from the host. A
// claim the report does not name is not in its sum either, so nothing counts
// twice and nothing is forgotten. A VM whose domain is smaller than its claim
// hides at most that difference.
func (h *host) foreign() (memory, cpus int64) {
	return max(0, h.reportedMemory-h.explainedMemory), max(0, h.reportedCPUs-h.explainedCPUs)
}

// free is what may still be promised. It is negative where too much is.
func (h *host) free() (memory, cpus int64) {
	foreignMemory, foreignCPUs := h.foreign()
	return h.memory - h.claimedMemory - foreignMemory, h.cpus - h.claimedCPUs - foreignCPUs
}

// cellFree is what a cell can still give a VM that needs one. VMs that need no
// cell and are not yet in the report are taken to lie in all cells alike.
func (h *host) cellFree(i int, dedicated bool) (memory, cpus int64) {
	c := &h.cells[i]
	cpus = c.cpus
	if dedicated {
		cpus = c.realCPUs
	}
	memory = c.memory - c.inMemory - c.dueMemory
	if h.looseMemory > 0 && h.memory > 0 {
		memory -= int64(float64(h.looseMemory) * min(1, float64(c.memory)/float64(h.memory)))
	}
	return memory, cpus - c.inCPUs - c.dueCPUs
}

// pickCell is the fullest cell that a VM fits into, so that the others stay
// whole for bigger ones. If it fits into none it is the emptiest, and fits is
// false.
func (h *host) pickCell(v *vm) (index int8, fits bool) {
	best, emptiest := -1, 0
	var bestFree, mostFree int64
	for i := range h.cells {
		memory, cpus := h.cellFree(i, v.dedicated)
		if i == 0 || memory > mostFree {
			emptiest, mostFree = i, memory
		}
		if memory < v.memory || cpus < v.cpus || h.cells[i].memory == 0 {
			continue
		}
		if best < 0 || memory < bestFree {
			best, bestFree = i, memory
		}
	}
	if best < 0 {
		return int8(emptiest), false
	}
	return int8(best), true
}

// class is what a host can give a VM besides room. Hosts of one kind share it.
type class struct {
	arch, hypervisor         string
	modes, features, devices map[string]struct{}
}

// classes keeps one class for each kind of host, and which may follow which.
type classes struct {
	byKey   map[string]*class
	follows map[[2]*class]reason
}

func (c *classes) of(hv *kvmv1.Hypervisor) *class {
	d := &hv.Status.DomainCapabilities
	arch := known(d.Arch)
	if arch == "" {
		arch = known(hv.Status.Capabilities.HostCPUArch)
	}
	key := strings.Join([]string{
		arch, d.HypervisorType,
		strings.Join(d.SupportedCPUModes, ","), strings.Join(d.SupportedFeatures, ","), strings.Join(d.SupportedDevices, ","),
	}, ";")
	if have := c.byKey[key]; have != nil {
		return have
	}
	made := &class{
		arch: arch, hypervisor: known(d.HypervisorType),
		modes: set(d.SupportedCPUModes), features: set(d.SupportedFeatures), devices: set(d.SupportedDevices),
	}
	c.byKey[key] = made
	return made
}

// known drops what the schema writes where the agent has not yet.
func known(s string) string {
	if s == "unknown" {
		return ""
	}
	return s
}

// follow says whether a running VM can move from a host of one class to one of
// another: the target offers all that the source does. It is CobaltCore's rule
// for live migration.
func (c *classes) follow(source, target *class) reason {
	if source == target || source == nil {
		return fits
	}
	pair := [2]*class{source, target}
	if verdict, judged := c.follows[pair]; judged {
		return verdict
	}
	verdict := fits
	switch {
	case target == nil:
		verdict = wrongCPU
	case source.arch != target.arch || source.hypervisor != target.hypervisor:
		verdict = wrongArch
	case !within(source.modes, target.modes):
		verdict = wrongCPU
	case !within(source.features, target.features):
		verdict = wrongFeatures
	case !within(source.devices, target.devices):
		verdict = wrongDevices
	}
	c.follows[pair] = verdict
	return verdict
}

func set(list []string) map[string]struct{} {
	s := make(map[string]struct{}, len(list))
	for _, item := range list {
		s[item] = struct{}{}
	}
	return s
}

func within(small, big map[string]struct{}) bool {
	for item := range small {
		if _, has := big[item]; !has {
			return false
		}
	}
	return true
}
