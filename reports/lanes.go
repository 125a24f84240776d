// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// fleet is a record's hosts and copies laid out in rows and lanes, as the page
// and the trace both draw them. Times are whole milliseconds.
type fleet struct {
	hosts  []Host // by zone, rack, name
	lanes  []int  // of each host
	copies []stretch
	host   map[string]int
	vm     map[string]int // by UUID and by name
}

// stretch is a segment in its place.
type stretch struct {
	vm, host, lane int
	from, to       int64
	state          string
}

// layOut gives each stretch the lowest lane of its host that is free; a VM that
// returns to a host gets its old lane if it can.
func layOut(r Record) fleet {
	f := fleet{hosts: slices.Clone(r.Hosts), host: map[string]int{}, vm: map[string]int{}}
	slices.SortStableFunc(f.hosts, func(a, b Host) int {
		return cmp.Or(natural(a.Zone, b.Zone), natural(a.Rack, b.Rack), natural(a.Name, b.Name))
	})
	for i, h := range f.hosts {
		f.host[h.Name] = i
	}
	for i, v := range r.VMs {
		if _, taken := f.vm[v.Name]; !taken {
			f.vm[v.Name] = i
		}
	}
	for i, v := range r.VMs {
		f.vm[v.UUID] = i
		for _, s := range v.Segments {
			h, known := f.host[s.Host]
			if !known { // a record whose hosts were not listed is still drawn
				h = len(f.hosts)
				f.host[s.Host] = h
				f.hosts = append(f.hosts, Host{Name: s.Host})
			}
			if s.State == "gone" || s.To < s.From {
				continue
			}
			f.copies = append(f.copies, stretch{vm: i, host: h, from: ms(s.From), to: ms(s.To), state: s.State})
		}
	}
	sortStretches(f.copies)
	f.lanes = make([]int, len(f.hosts))
	for first := 0; first < len(f.copies); {
		end := first
		for end < len(f.copies) && f.copies[end].host == f.copies[first].host {
			end++
		}
		f.lanes[f.copies[first].host] = pack(f.copies[first:end])
		first = end
	}
	return f
}

func sortStretches(all []stretch) {
	slices.SortStableFunc(all, func(a, b stretch) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.from, b.from), cmp.Compare(a.vm, b.vm))
	})
}

// pack sets the lanes of one host's stretches, which are sorted by time, and
// returns how many there are.
func pack(row []stretch) int {
	var free []int64 // when each lane's last stretch ends
	old := map[int]int{}
	for i := range row {
		s := &row[i]
		lane, known := old[s.vm]
		if !known || free[lane] > s.from {
			lane = slices.IndexFunc(free, func(end int64) bool { return end <= s.from })
		}
		if lane < 0 {
			lane = len(free)
			free = append(free, 0)
		}
		free[lane], old[s.vm], s.lane = s.to, lane, lane
	}
	return len(free)
}

// laneAt is the lane in which a VM is on a host at a time or, failing that,
// nearest to it; -1 when it never was there.
func (f fleet) laneAt(vm, host int, at int64) int {
	i, _ := slices.BinarySearchFunc(f.copies, host, func(s stretch, host int) int { return cmp.Compare(s.host, host) })
	best, lane := int64(math.MaxInt64), -1
	for ; i < len(f.copies) && f.copies[i].host == host; i++ {
		s := f.copies[i]
		if s.vm != vm {
			continue
		}
		if away := max(s.from-at, at-s.to, 0); away < best {
			best, lane = away, s.lane
		}
	}
	return lane
}

// ms is whole milliseconds of seconds; what is not a number is 0.
func ms(seconds float64) int64 {
	if math.IsNaN(seconds) || math.IsInf(seconds, 0) {
		return 0
	}
	return int64(math.Round(seconds * 1000))
}

// natural compares names so that host-9 comes before host-10.
func natural(a, b string) int {
	for a != "" && b != "" {
		if digit(a[0]) && digit(b[0]) {
			x, restA := number(a)
			y, restB := number(b)
			if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
				return c
			}
			a, b = restA, restB
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// number cuts the digits off the front, without leading zeros.
func number(s string) (digits, rest string) {
	n := 0
	for n < len(s) && digit(s[n]) {
		n++
	}
	return strings.TrimLeft(s[:n], "0"), s[n:]
}
