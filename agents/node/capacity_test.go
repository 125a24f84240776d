// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hardware/parse"
)

const gib = 1 << 20 // KiB

func hostCell(id uint64, memoryKiB uint64, cpus ...int) hardware.Cell {
	return hardware.Cell{ID: id, MemoryKiB: memoryKiB, CPUs: cpus}
}

func twoCells() []hardware.Cell {
	return []hardware.Cell{hostCell(0, 256*gib, 0, 1, 2, 3), hostCell(1, 256*gib, 4, 5, 6, 7)}
}

func pinAll(vcpus int, cpus ...int) map[int][]int {
	pinned := map[int][]int{}
	for v := range vcpus {
		pinned[v] = cpus
	}
	return pinned
}

func TestAllocationIsChargedWhereItIsBacked(t *testing.T) {
	for name, c := range map[string]struct {
		host []hardware.Cell
		vms  []hardware.DomainSpec
		want []load
	}{
		"a guest spread over two cells is halved": {
			twoCells(),
			[]hardware.DomainSpec{{VCPUs: 16, MemoryKiB: 128 * gib}},
			[]load{{8, 64 * gib}, {8, 64 * gib}},
		},
		"no remainder is lost": {
			twoCells(),
			[]hardware.DomainSpec{{VCPUs: 5, MemoryKiB: 1025}},
			[]load{{3, 513}, {2, 512}},
		},
		"many small guests do not pile up on the first cell": {
			twoCells(),
			[]hardware.DomainSpec{{VCPUs: 1, MemoryKiB: 1}, {VCPUs: 1, MemoryKiB: 1}, {VCPUs: 1, MemoryKiB: 1}, {VCPUs: 1, MemoryKiB: 1}},
			[]load{{2, 2}, {2, 2}},
		},
		"bound guest cells": {
			twoCells(),
			[]hardware.DomainSpec{{VCPUs: 3, MemoryKiB: 3 * gib, NUMA: []hardware.GuestCell{
				{ID: 0, MemoryKiB: gib, VCPUs: []int{0}, HostCell: 1},
				{ID: 1, MemoryKiB: 2 * gib, VCPUs: []int{1, 2}, HostCell: 0},
			}}},
			[]load{{2, 2 * gib}, {1, gib}},
		},
		"pins win over guest cells for CPUs": {
			twoCells(),
			[]hardware.DomainSpec{{VCPUs: 1, MemoryKiB: gib, Pinned: pinAll(1, 5), NUMA: []hardware.GuestCell{{MemoryKiB: gib, VCPUs: []int{0}, HostCell: 0}}}},
			[]load{{0, gib}, {1, 0}},
		},
		"a pinned guest without cells has its memory where it runs": {
			twoCells(),
			[]hardware.DomainSpec{{VCPUs: 2, MemoryKiB: 4 * gib, Pinned: pinAll(2, 4, 5)}},
			[]load{{0, 0}, {2, 4 * gib}},
		},
		"a guest with more cells than the host": {
			twoCells(),
			[]hardware.DomainSpec{{VCPUs: 4, MemoryKiB: 4 * gib, NUMA: []hardware.GuestCell{
				{ID: 0, MemoryKiB: gib, VCPUs: []int{0}, HostCell: 0}, {ID: 1, MemoryKiB: gib, VCPUs: []int{1}, HostCell: 1},
				{ID: 2, MemoryKiB: gib, VCPUs: []int{2}, HostCell: 2}, {ID: 3, MemoryKiB: gib, VCPUs: []int{3}, HostCell: 3},
			}}},
			[]load{{2, 2 * gib}, {2, 2 * gib}},
		},
		"guest cells that add up to too much": {
			twoCells(),
			[]hardware.DomainSpec{{VCPUs: 1, MemoryKiB: gib, NUMA: []hardware.GuestCell{{MemoryKiB: 3 * gib, VCPUs: []int{0}, HostCell: 1}}}},
			[]load{{0, 0}, {1, gib}},
		},
		"an unbound guest cell": {
			twoCells(),
			[]hardware.DomainSpec{{VCPUs: 2, MemoryKiB: 2 * gib, NUMA: []hardware.GuestCell{{MemoryKiB: 2 * gib, VCPUs: []int{0, 1}, HostCell: -1}}}},
			[]load{{1, gib}, {1, gib}},
		},
		"memory is never charged to cells without": {
			[]hardware.Cell{hostCell(0, 64*gib, 0, 1), hostCell(1, 0, 2, 3)},
			[]hardware.DomainSpec{{VCPUs: 2, MemoryKiB: gib}},
			[]load{{1, gib}, {1, 0}},
		},
		"pins to CPUs that the host has not": {
			twoCells(),
			[]hardware.DomainSpec{{VCPUs: 2, MemoryKiB: 2, Pinned: pinAll(2, 99)}},
			[]load{{1, 1}, {1, 1}},
		},
		"no cells at all": {nil, []hardware.DomainSpec{{VCPUs: 2, MemoryKiB: 2}}, []load{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := allocate(c.host, domainsOf(c.vms))
			if fmt.Sprint(got.cells) != fmt.Sprint(c.want) {
				t.Errorf("cells %v, want %v", got.cells, c.want)
			}
		})
	}
}

func domainsOf(specs []hardware.DomainSpec) []hardware.Domain {
	var list []hardware.Domain
	for i, s := range specs {
		list = append(list, hardware.Domain{UUID: strconv.Itoa(i), Spec: s, State: hardware.StateRunning})
	}
	return list
}

// NA-01: a board with two empty memory controllers.
func TestCellsWithoutMemoryCount(t *testing.T) {
	doc, err := os.ReadFile("testdata/NA-01_capabilities_cells_without_memory.xml")
	if err != nil {
		t.Fatal(err)
	}
	capabilities, err := parse.Capabilities(doc)
	if err != nil {
		t.Fatal(err)
	}
	var status kvmv1.HypervisorStatus
	report(&status, facts{capabilities: &capabilities, domainsKnown: true, domains: domainsOf([]hardware.DomainSpec{{VCPUs: 1, MemoryKiB: 4 * gib}})}, nil)
	if got := asJSON(t, status.Capacity); got != `{"cpu":"32","memory":"131872248Ki"}` {
		t.Errorf("capacity %s", got)
	}
	if got := asJSON(t, status.Cells[1]); got != `{"cellID":1,"allocation":{"cpu":"0","memory":"0"},"capacity":{"cpu":"8","memory":"0"},"effectiveCapacity":{"cpu":"8","memory":"0"}}` {
		t.Errorf("cell 1 %s", got)
	}
	if len(status.Cells) != 4 {
		t.Errorf("%d cells, want 4", len(status.Cells))
	}
}

func TestOvercommitRoundsTheDecimalDown(t *testing.T) {
	for _, c := range []struct {
		n     int64
		ratio float64
		want  int64
	}{
		{64, 0, 64}, {64, 1, 64}, {64, 1.1, 70}, {100, 1.15, 115}, {10, 1.1, 11}, {3, 1.5, 4}, {1 << 53, 3, 3 << 53},
	} {
		if got := times(c.n, c.ratio); got != c.want {
			t.Errorf("%d × %g is %d, want %d", c.n, c.ratio, got, c.want)
		}
	}
}

func TestQuantitiesPrintAsCobaltCores(t *testing.T) {
	got := asJSON(t, load{cpus: 64, memoryKiB: 1056462864}.resources())
	if got != `{"cpu":"64","memory":"1056462864Ki"}` {
		t.Error(got)
	}
}

func asJSON(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func drawCells(t *rapid.T) []hardware.Cell {
	var cells []hardware.Cell
	cpu := 0
	for id := range rapid.IntRange(0, 5).Draw(t, "cells") {
		c := hardware.Cell{ID: uint64(id * 2), MemoryKiB: rapid.SampledFrom([]uint64{0, 1, 64 * gib}).Draw(t, "memory")}
		for range rapid.IntRange(0, 4).Draw(t, "cpus") {
			c.CPUs = append(c.CPUs, cpu)
			cpu++
		}
		cells = append(cells, c)
	}
	return cells
}

func drawDomain(t *rapid.T, i int) hardware.Domain {
	s := hardware.DomainSpec{
		Name:      fmt.Sprintf("vm-%d", rapid.IntRange(0, 3).Draw(t, "name")),
		VCPUs:     rapid.IntRange(0, 9).Draw(t, "vcpus"),
		MemoryKiB: rapid.Uint64Range(0, 1<<40).Draw(t, "memory"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "guest cells") {
		s.NUMA = append(s.NUMA, hardware.GuestCell{
			MemoryKiB: rapid.Uint64Range(0, 1<<39).Draw(t, "cell memory"),
			VCPUs:     rapid.SliceOfN(rapid.IntRange(0, 12), 0, 4).Draw(t, "cell vcpus"),
			HostCell:  rapid.IntRange(-1, 8).Draw(t, "host cell"),
		})
	}
	if rapid.Bool().Draw(t, "pinned") {
		s.Pinned = map[int][]int{}
		for v := range s.VCPUs {
			s.Pinned[v] = rapid.SliceOfN(rapid.IntRange(0, 25), 0, 3).Draw(t, "pins")
		}
	}
	state := rapid.SampledFrom([]hardware.State{hardware.StateRunning, hardware.StateShutOff, hardware.StatePaused}).Draw(t, "state")
	return hardware.Domain{UUID: fmt.Sprintf("u-%03d", i), Spec: s, State: state}
}

func TestCellsAddUpAndOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells := drawCells(t)
		var domains []hardware.Domain
		for i := range rapid.IntRange(0, 12).Draw(t, "domains") {
			domains = append(domains, drawDomain(t, i))
		}
		a := allocate(capacityOf(hardware.Capabilities{Cells: cells}).cells, domains)
		var sum load
		for _, c := range a.cells {
			sum.add(c)
		}
		if len(cells) > 0 && sum != a.total {
			t.Fatalf("cells %v add up to %v, total %v", a.cells, sum, a.total)
		}

		var one, other kvmv1.HypervisorStatus
		ratios := map[kvmv1.ResourceName]float64{kvmv1.ResourceCPU: 1.7}
		report(&one, facts{capabilities: &hardware.Capabilities{Cells: cells}, domains: domains, domainsKnown: true}, ratios)
		report(&other, facts{capabilities: &hardware.Capabilities{Cells: rapid.Permutation(cells).Draw(t, "cells again")},
			domains: rapid.Permutation(domains).Draw(t, "domains again"), domainsKnown: true}, ratios)
		x, _ := json.Marshal(one)
		y, _ := json.Marshal(other)
		if !bytes.Equal(x, y) {
			t.Fatalf("not the same:\n%s\n%s", x, y)
		}
	})
}
