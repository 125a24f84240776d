// SPDX-License-Identifier: Apache-2.0

package parse

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/adit-hv/adit/hardware"
)

// Capabilities reads libvirt's capabilities document: host UUID, CPU, cells.
// What the document does not hold (versions, domain capabilities) stays empty.
//
// Cells with CPUs and no memory, or no memory element at all, are valid: boards
// with empty memory controllers have them.
func Capabilities(doc []byte) (hardware.Capabilities, error) {
	var caps libvirtxml.Caps
	if err := decode(doc, &caps); err != nil {
		return hardware.Capabilities{}, fmt.Errorf("capabilities XML: %w", err)
	}
	if caps.Host.CPU == nil || caps.Host.CPU.Arch == "" {
		return hardware.Capabilities{}, fmt.Errorf("capabilities XML: host/cpu/arch is missing: take the document of `virsh capabilities` whole")
	}
	c := hardware.Capabilities{
		HostUUID: caps.Host.UUID,
		Arch:     caps.Host.CPU.Arch,
		CPU: hardware.CPU{
			Arch:   caps.Host.CPU.Arch,
			Model:  caps.Host.CPU.Model,
			Vendor: caps.Host.CPU.Vendor,
		},
	}
	for _, f := range caps.Host.CPU.FeatureFlags {
		c.CPU.Features = append(c.CPU.Features, f.Name)
	}
	slices.Sort(c.CPU.Features)
	c.HypervisorType = hypervisorType(caps)
	if caps.Host.NUMA == nil || caps.Host.NUMA.Cells == nil {
		return c, nil
	}
	owner := map[int]int{}
	for _, cell := range caps.Host.NUMA.Cells.Cells {
		parsed, err := numaCell(cell)
		if err != nil {
			return hardware.Capabilities{}, fmt.Errorf("capabilities XML: cell %d: %w", cell.ID, err)
		}
		for _, cpu := range parsed.CPUs {
			if other, taken := owner[cpu]; taken {
				return hardware.Capabilities{}, fmt.Errorf("capabilities XML: cell %d: CPU %d is in cell %d too; each CPU stands in one cell", cell.ID, cpu, other)
			}
			owner[cpu] = cell.ID
		}
		c.Cells = append(c.Cells, parsed)
	}
	slices.SortFunc(c.Cells, func(a, b hardware.Cell) int { return int(a.ID) - int(b.ID) })
	for i := 1; i < len(c.Cells); i++ {
		if c.Cells[i].ID == c.Cells[i-1].ID {
			return hardware.Capabilities{}, fmt.Errorf("capabilities XML: cell %d is there twice; cell ids are unique", c.Cells[i].ID)
		}
	}
	return c, nil
}

func numaCell(cell libvirtxml.CapsHostNUMACell) (hardware.Cell, error) {
	if cell.ID < 0 {
		return hardware.Cell{}, fmt.Errorf("the id is negative")
	}
	c := hardware.Cell{ID: uint64(cell.ID)}
	if cell.Memory != nil {
		kib, err := Memory(strconv.FormatUint(cell.Memory.Size, 10), cell.Memory.Unit)
		if err != nil {
			return c, err
		}
		c.MemoryKiB = kib
	}
	for _, p := range cell.PageInfo {
		size, err := Memory(strconv.Itoa(p.Size), p.Unit)
		if err != nil {
			return c, fmt.Errorf("pages: %w", err)
		}
		c.Pages = append(c.Pages, hardware.PagePool{SizeKiB: size, Count: p.Count})
	}
	if cell.CPUS != nil {
		for _, cpu := range cell.CPUS.CPUs {
			c.CPUs = append(c.CPUs, cpu.ID)
		}
		slices.Sort(c.CPUs)
	}
	return c, nil
}

// hypervisorType is the best domain type the host's own architecture offers.
func hypervisorType(caps libvirtxml.Caps) string {
	best := ""
	for _, g := range caps.Guests {
		if g.Arch.Name != caps.Host.CPU.Arch {
			continue
		}
		for _, d := range g.Arch.Domains {
			if d.Type == "kvm" || best == "" {
				best = d.Type
			}
		}
	}
	return best
}

// decode unmarshals a document and names the line where it goes wrong.
func decode(doc []byte, into any) error {
	d := xml.NewDecoder(strings.NewReader(string(doc)))
	err := d.Decode(into)
	line, _ := d.InputPos()
	var number *strconv.NumError
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("line %d: there is no XML up to here: take the document whole, as virsh prints it", line)
	case err != nil && strings.HasSuffix(err.Error(), "unexpected EOF"):
		return fmt.Errorf("line %d: the document ends too early: take it whole, as virsh prints it", line)
	case errors.As(err, &number):
		return fmt.Errorf("line %d: %q is no number that can stand here: take the document as virsh prints it", line, number.Num)
	case err != nil:
		return fmt.Errorf("line %d: %w: take the document as virsh prints it", line, err)
	}
	return nil
}
