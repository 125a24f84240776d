// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
)

// load is an amount of the two resources that are counted.
type load struct {
	cpus      uint64
	memoryKiB uint64
}

func (l *load) add(m load) {
	l.cpus += m.cpus
	l.memoryKiB += m.memoryKiB
}

type resources = map[kvmv1.ResourceName]resource.Quantity

func (l load) resources() resources {
	return resources{
		kvmv1.ResourceCPU:    *resource.NewQuantity(clampInt64(l.cpus), resource.DecimalSI),
		kvmv1.ResourceMemory: *resource.NewQuantity(kibToBytes(l.memoryKiB), resource.BinarySI),
	}
}

func clampInt64(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func kibToBytes(kib uint64) int64 { return int64(min(kib, math.MaxInt64/1024) * 1024) }

// overcommitted returns the capacity times the ratios, rounded down. The ratio
// is taken as the decimal number a person wrote: 100 CPUs at 1.15 are 115,
// which in binary floating point would be 114.
func overcommitted(capacity resources, ratios map[kvmv1.ResourceName]float64) resources {
	if len(ratios) == 0 {
		return capacity // shared, as nobody changes what a report holds
	}
	effective := make(resources, len(capacity))
	for name, q := range capacity {
		effective[name] = *resource.NewQuantity(times(q.Value(), ratios[name]), q.Format)
	}
	return effective
}

func times(n int64, ratio float64) int64 {
	if !(ratio > 1) { // NaN, missing, or refused by the schema
		return n
	}
	factor, ok := new(big.Rat).SetString(strconv.FormatFloat(ratio, 'f', -1, 64))
	if !ok { // infinite
		return n
	}
	product := factor.Mul(factor, new(big.Rat).SetInt64(n))
	floor := new(big.Int).Quo(product.Num(), product.Denom())
	if !floor.IsInt64() {
		return math.MaxInt64
	}
	return floor.Int64()
}

// capacity is what a host's cells have, in all and by cell.
type capacity struct {
	total load
	cells []hardware.Cell // sorted by id
}

func capacityOf(c hardware.Capabilities) capacity {
	all := capacity{cells: slices.SortedFunc(slices.Values(c.Cells), func(a, b hardware.Cell) int { return cmp.Compare(a.ID, b.ID) })}
	for _, cell := range all.cells {
		all.total.add(cellLoad(cell))
	}
	return all
}

func cellLoad(c hardware.Cell) load {
	return load{cpus: uint64(len(c.CPUs)), memoryKiB: c.MemoryKiB}
}

// allocation is what domains have been promised. The loads of the cells, in the
// order of the host's, add up to the total.
type allocation struct {
	total load
	cells []load
}

// allocate charges the domains, running or not, ours or not, to the cells that
// back them. What a definition binds to a cell is charged there; what it binds
// to several, or to none, is first summed up over all domains and then split
// evenly among those cells, so that small guests do not pile up on the first.
func allocate(host []hardware.Cell, domains []hardware.Domain) allocation {
	all := allocation{cells: make([]load, len(host))}
	m := newCellMap(host)
	shared := map[string]*load{}
	charge := func(where []int, l load) {
		if len(where) == 1 {
			all.cells[where[0]].add(l)
			return
		}
		key := keyOf(where)
		if shared[key] == nil {
			shared[key] = &load{}
			m.sets[key] = where
		}
		shared[key].add(l)
	}
	for _, d := range domains {
		all.total.add(load{cpus: uint64(max(d.Spec.VCPUs, 0)), memoryKiB: d.Spec.MemoryKiB})
		if len(host) > 0 {
			m.chargeCPUs(d.Spec, charge)
			m.chargeMemory(d.Spec, charge)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(shared)) {
		m.split(all.cells, m.sets[key], *shared[key])
	}
	return all
}

// keyOf names a set of cells.
func keyOf(where []int) string {
	key := make([]byte, 0, 64)
	for _, i := range where {
		key = append(strconv.AppendInt(key, int64(i), 10), ' ')
	}
	return string(key)
}

// cellMap finds cells by id and by CPU. Positions are indexes of the sorted
// cells.
type cellMap struct {
	byID       map[uint64]int
	host       []hardware.Cell
	byCPU      map[int]int // made when the first pinned vCPU asks for it
	withMemory []int
	withCPUs   []int
	sets       map[string][]int
}

func newCellMap(host []hardware.Cell) *cellMap {
	m := &cellMap{host: host, byID: map[uint64]int{}, sets: map[string][]int{}}
	everywhere := make([]int, len(host))
	for i, cell := range host {
		everywhere[i] = i
		m.byID[cell.ID] = i
		if len(cell.CPUs) > 0 {
			m.withCPUs = append(m.withCPUs, i)
		}
		if cell.MemoryKiB > 0 {
			m.withMemory = append(m.withMemory, i)
		}
	}
	if m.withCPUs == nil {
		m.withCPUs = everywhere
	}
	if m.withMemory == nil {
		m.withMemory = everywhere
	}
	return m
}

// chargeCPUs charges each vCPU: to the cells of the CPUs it is pinned to, else
// to the cell its guest cell is bound to, else to all cells with CPUs.
func (m *cellMap) chargeCPUs(spec hardware.DomainSpec, charge func([]int, load)) {
	bound := map[int]int{}
	for _, g := range spec.NUMA {
		if cell, ok := m.bound(g); ok {
			for _, vcpu := range g.VCPUs {
				bound[vcpu] = cell
			}
		}
	}
	loose := uint64(0)
	for vcpu := range spec.VCPUs {
		if cells := m.cellsOf(spec.Pinned[vcpu]); len(cells) > 0 {
			charge(cells, load{cpus: 1})
		} else if cell, ok := bound[vcpu]; ok {
			charge([]int{cell}, load{cpus: 1})
		} else {
			loose++
		}
	}
	charge(m.withCPUs, load{cpus: loose})
}

// chargeMemory charges guest cells to the cells they are bound to. The rest
// comes from where the vCPUs run, when all are pinned (Linux allocates on the
// cell of the CPU that first touches a page), else from anywhere.
func (m *cellMap) chargeMemory(spec hardware.DomainSpec, charge func([]int, load)) {
	left := spec.MemoryKiB
	for _, g := range spec.NUMA {
		if cell, ok := m.bound(g); ok {
			// Guest cells can add up to more than the domain has been given.
			n := min(g.MemoryKiB, left)
			charge([]int{cell}, load{memoryKiB: n})
			left -= n
		}
	}
	if left == 0 {
		return
	}
	where := m.withMemory
	if near := m.near(spec); len(near) > 0 {
		where = near
	}
	charge(where, load{memoryKiB: left})
}

// bound returns the cell a guest cell is bound to. A guest may name cells that
// this host does not have: it was defined for another one.
func (m *cellMap) bound(g hardware.GuestCell) (int, bool) {
	if g.HostCell < 0 {
		return 0, false
	}
	i, ok := m.byID[uint64(g.HostCell)]
	return i, ok
}

func (m *cellMap) cellsOf(cpus []int) []int {
	if len(cpus) == 0 {
		return nil
	}
	if m.byCPU == nil {
		m.byCPU = map[int]int{}
		for i, cell := range m.host {
			for _, cpu := range cell.CPUs {
				m.byCPU[cpu] = i
			}
		}
	}
	var cells []int
	for _, cpu := range cpus {
		if cell, ok := m.byCPU[cpu]; ok {
			cells = append(cells, cell)
		}
	}
	slices.Sort(cells)
	return slices.Compact(cells)
}

// near returns the cells with memory that a fully pinned domain runs on.
func (m *cellMap) near(spec hardware.DomainSpec) []int {
	var cells []int
	for vcpu := range spec.VCPUs {
		of := m.cellsOf(spec.Pinned[vcpu])
		if len(of) == 0 {
			return nil
		}
		cells = append(cells, of...)
	}
	slices.Sort(cells)
	cells = slices.Compact(cells)
	return slices.DeleteFunc(cells, func(i int) bool { return !slices.Contains(m.withMemory, i) })
}

// split shares l out evenly; what does not divide goes to the first cells.
func (m *cellMap) split(cells []load, where []int, l load) {
	n := uint64(len(where))
	for k, i := range where {
		part := load{cpus: l.cpus / n, memoryKiB: l.memoryKiB / n}
		if uint64(k) < l.cpus%n {
			part.cpus++
		}
		if uint64(k) < l.memoryKiB%n {
			part.memoryKiB++
		}
		cells[i].add(part)
	}
}
