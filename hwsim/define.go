// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hardware/parse"
)

// clone copies a definition so deeply that no caller shares it.
func clone(s *hardware.DomainSpec) *hardware.DomainSpec {
	if s == nil {
		return nil
	}
	c := *s
	if s.Owner != nil {
		owner := *s.Owner
		c.Owner = &owner
	}
	c.CPU.Features = slices.Clone(s.CPU.Features)
	c.NUMA = slices.Clone(s.NUMA)
	for i := range c.NUMA {
		c.NUMA[i].VCPUs = slices.Clone(c.NUMA[i].VCPUs)
	}
	c.Pinned = maps.Clone(s.Pinned)
	c.Disks = slices.Clone(s.Disks)
	c.Interfaces = slices.Clone(s.Interfaces)
	return &c
}

// validate refuses definitions that libvirt refuses to define.
func validate(s *hardware.DomainSpec) error {
	switch {
	case !canonicalUUID(s.UUID):
		return fmt.Errorf("UUID %q is not of the form 01234567-89ab-cdef-0123-456789abcdef", s.UUID)
	case s.Name == "" || strings.ContainsRune(s.Name, '/') || strings.ContainsFunc(s.Name, unicode.IsControl):
		return fmt.Errorf("name %q: must not be empty nor hold \"/\" or control characters", s.Name)
	case s.MemoryKiB == 0:
		return fmt.Errorf("memory is 0 KiB")
	case s.VCPUs <= 0:
		return fmt.Errorf("%d vCPUs", s.VCPUs)
	}
	seen := map[string]bool{}
	for _, d := range s.Disks {
		if d.Target == "" || seen[d.Target] {
			return fmt.Errorf("disk target %q: is there twice or empty", d.Target)
		}
		seen[d.Target] = true
	}
	for _, n := range s.Interfaces {
		if n.MAC == "" || seen[n.MAC] {
			return fmt.Errorf("interface %q: the MAC address is there twice or empty", n.MAC)
		}
		seen[n.MAC] = true
	}
	if len(s.NUMA) > 0 {
		var kib uint64
		for _, cell := range s.NUMA {
			kib += cell.MemoryKiB
		}
		if kib != s.MemoryKiB {
			return fmt.Errorf("the NUMA cells have %d KiB together, the domain %d KiB", kib, s.MemoryKiB)
		}
	}
	return nil
}

func canonicalUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, r := range s {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (r == '-') || !dash && !strings.ContainsRune("0123456789abcdef", r) {
			return false
		}
	}
	return true
}

// room says why the host's memory and CPUs do not suffice for one more QEMU.
// libvirt itself lets memory be overcommitted until the kernel kills something;
// the simulator refuses what could never be backed.
func (h *Host) room(s *hardware.DomainSpec, attempt, on string) error {
	refuse := func(r hardware.Reason, format string, args ...any) error {
		return hardware.Fail(hardware.Refused, r, attempt, on, format, args...)
	}
	cells := h.facts.capabilities.Cells
	for _, vcpu := range sortedInts(s.Pinned) {

		for _, cpu := range s.Pinned[vcpu] {
			if !slices.ContainsFunc(cells, func(c hardware.Cell) bool { return slices.Contains(c.CPUs, cpu) }) {
				return refuse(hardware.ReasonInvalidSpec, "vCPU %d is pinned to CPU %d, which %s does not have", vcpu, cpu, h.name)
			}
		}
	}
	for _, g := range s.NUMA {
		if g.HostCell < 0 {
			continue
		}
		i := slices.IndexFunc(cells, func(c hardware.Cell) bool { return c.ID == uint64(g.HostCell) })
		if i < 0 || cells[i].MemoryKiB < g.MemoryKiB {
			return refuse(hardware.ReasonNoMemory, "guest cell %d: %d KiB do not fit into cell %d of %s", g.ID, g.MemoryKiB, g.HostCell, h.name)
		}
	}
	free := h.freeKiB(s.HugePageKiB)
	if s.MemoryKiB > free {
		return refuse(hardware.ReasonNoMemory, "%d KiB wanted, %d KiB free on %s", s.MemoryKiB, free, h.name)
	}
	return nil
}

// freeKiB is the memory in pages of that size that no QEMU has.
func (h *Host) freeKiB(pageKiB uint64) uint64 {
	var total, used uint64
	for _, c := range h.facts.capabilities.Cells {
		if pageKiB == 0 {
			total += c.MemoryKiB
		}
		for _, p := range c.Pages {
			switch {
			case p.SizeKiB <= 4: // ordinary pages are what is left
			case pageKiB == 0:
				total -= min(total, p.SizeKiB*p.Count)
			case p.SizeKiB == pageKiB:
				total += p.SizeKiB * p.Count
			}
		}
	}
	for _, d := range h.sorted {
		if d.q != nil && d.live.HugePageKiB == pageKiB {
			used += d.live.MemoryKiB
		}
	}
	return total - min(total, used)
}

// DefineXML defines a domain from libvirt's XML, as other programs do. Unless
// it carries our metadata it is foreign.
func (h *Host) DefineXML(doc []byte) error {
	spec, err := parse.Domain(doc)
	if err != nil {
		return fmt.Errorf("define on %s: %w", h.name, err)
	}
	return h.define(h.domainCall("Define", "define", spec.UUID), spec)
}

// StartByHand starts a domain outside of any agent, as a person with virsh.
// Disks whose volumes no pool has are taken as they are.
func (h *Host) StartByHand(uuid string) error {
	c := h.domainCall("Start", "start", uuid)
	d := h.domains[uuid]
	if d == nil {
		return h.noDomain(c)
	}
	if d.q != nil {
		return nil
	}
	if err := h.room(d.def, c.attempt, c.on); err != nil {
		return err
	}
	known := slices.DeleteFunc(slices.Clone(d.def.Disks), func(disk hardware.Disk) bool {
		_, _, err := h.f.poolOf(disk.Volume)
		return err != nil
	})
	if err := h.usable(known, c.attempt, c.on); err != nil {
		return err
	}
	d.launch(false)
	return nil
}

func sortedInts(m map[int][]int) []int {
	return slices.Sorted(maps.Keys(m))
}
