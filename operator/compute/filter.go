// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// reason is why a host cannot take a VM. A host has the first that applies, in
// this order: from what takes a person to what time may change.
type reason uint8

const (
	fits reason = iota
	isSource
	inMaintenance
	isUnheard
	isNotReady
	wrongNode
	wrongTraits
	wrongProject
	wrongArch
	wrongCPU
	wrongFeatures
	wrongDevices
	noAffinity
	antiAffinity
	noMemory
	noCPU
	noCell
	refused
	hasCopy
	busy
	reasons // Their number.
)

var reasonTexts = [reasons]string{
	isSource:      "its own host",
	inMaintenance: "in maintenance",
	isUnheard:     "not heard of",
	isNotReady:    "not ready",
	wrongNode:     "node selector or affinity",
	wrongTraits:   "required traits",
	wrongProject:  "reserved for other projects",
	wrongArch:     "architecture",
	wrongCPU:      "CPU model",
	wrongFeatures: "CPU or machine features",
	wrongDevices:  "devices",
	noAffinity:    "VM affinity",
	antiAffinity:  "VM anti-affinity",
	noMemory:      "not enough memory",
	noCPU:         "not enough CPU",
	noCell:        "no NUMA cell that fits",
	refused:       "refused it lately",
	hasCopy:       "still has a copy of it",
	busy:          "busy with others",
}

// ask is one question for a host, with all that does not depend on the host
// worked out.
type ask struct {
	now         time.Time
	vm          *vm
	source      *host
	cold        bool
	selector    []labels.Requirement
	exclude     []string
	maxIncoming int // 0: any number.
	maxStarting int // 0: any number.
	neighbours  neighbours
}

// refuse is why a host cannot take the VM. It is pure and does not allocate.
func (f *Fleet) refuse(h *host, a *ask) reason {
	v := a.vm
	switch {
	case h == a.source:
		return isSource
	case h.state == leaving:
		return inMaintenance
	case h.state == unheard:
		return isUnheard
	case h.state != taking:
		return isNotReady
	case !v.nodes.matches(h) || !match(a.selector, labels.Set(h.labels)):
		return wrongNode
	case !hasAll(h.traits, v.traits):
		return wrongTraits
	case len(h.allowed) > 0 && !slices.Contains(h.allowed, v.projects[0]) && !slices.Contains(h.allowed, v.projects[1]):
		return wrongProject
	}
	if why := f.cpuRefuses(h, a); why != fits {
		return why
	}
	if why := a.neighbours.refuse(h); why != fits {
		return why
	}
	memory, cpus := h.free()
	switch {
	case v.memory > memory:
		return noMemory
	case v.cpus > cpus:
		return noCPU
	}
	if v.pinned {
		if _, ok := h.pickCell(v); !ok {
			return noCell
		}
	}
	switch {
	case v.claimOn(h) != nil:
		return hasCopy
	case slices.Contains(a.exclude, h.name) || a.now.Before(v.avoid[h.name]):
		return refused
	case a.maxIncoming > 0 && int(h.incoming) >= a.maxIncoming,
		a.maxStarting > 0 && int(h.starting) >= a.maxStarting:
		return busy
	}
	return fits
}

// cpuRefuses judges what a guest sees of the host. What a host has not reported
// is not held against it: one that reports nothing has no capacity either.
func (f *Fleet) cpuRefuses(h *host, a *ask) reason {
	if a.source != nil && !a.cold {
		return f.classes.follow(a.source.class, h.class)
	}
	c := h.class
	if c == nil {
		return fits
	}
	if a.vm.arch != "" && c.arch != "" && a.vm.arch != c.arch {
		return wrongArch
	}
	if a.vm.mode != "" && len(c.modes) > 0 {
		if _, has := c.modes[a.vm.mode]; !has {
			return wrongCPU
		}
	}
	return fits
}

// hasAll expects has sorted.
func hasAll(has, wanted []string) bool {
	for _, item := range wanted {
		if _, found := slices.BinarySearch(has, item); !found {
			return false
		}
	}
	return true
}

// Refusal is why no host takes a VM: for each reason, how many hosts.
type Refusal struct {
	hosts  int
	counts [reasons]int
	other  string // What is wrong with the request itself.
}

// Busy says that a host would take the VM, but for the migrations it already
// takes in and the evacuated VMs it starts.
func (r *Refusal) Busy() bool { return r.counts[busy] > 0 }

// String says it for people: "0/12 hosts: 7 not enough memory, 3 in maintenance,
// 2 CPU model", most hosts first. It does not depend on the hosts' order.
func (r Refusal) String() string {
	if r.other != "" {
		return r.other
	}
	if r.hosts == 0 {
		return "0/0 hosts: there is no hypervisor"
	}
	order := make([]reason, 0, reasons)
	for why := fits + 1; why < reasons; why++ {
		if r.counts[why] > 0 {
			order = append(order, why)
		}
	}
	slices.SortStableFunc(order, func(a, b reason) int { return r.counts[b] - r.counts[a] })
	parts := make([]string, len(order))
	for i, why := range order {
		parts[i] = fmt.Sprintf("%d %s", r.counts[why], reasonTexts[why])
	}
	return fmt.Sprintf("0/%d hosts: %s", r.hosts, strings.Join(parts, ", "))
}
