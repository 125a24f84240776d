// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// The links a host has. Behind that of the management controller is the
// controller, whatever the host does.
const (
	LinkMigration  = "migration"
	LinkManagement = "management"
	LinkBMC        = "bmc"
	LinkStorage    = "storage"
)

// Outside is who is no host: where the services run and people sit.
const Outside = "outside"

var links = []string{LinkMigration, LinkManagement, LinkBMC, LinkStorage}

// nic is a host's end of one link: so many bytes a second each way.
type nic struct {
	h         *Host
	link      string
	bandwidth float64
	latency   time.Duration
	slow      []float64 // faults that bound it
	cuts      int       // faults that cut it
	flows     []*flow   // in both directions, in order of their moves
	out, in   way
}

// flow is one migration's stream.
type flow struct {
	mv       *move
	from, to *nic
	share    float64
	frozen   bool // while shares are computed
}

// cut is a fault between hosts that are both otherwise well.
type cut struct {
	link  string
	hosts []string
}

// oneway is a fault that loses packets in one direction; no to is to all.
type oneway struct {
	link     string
	from, to []string
}

func newNICs(h *Host) map[string]*nic {
	const gbit = 1e9 / 8
	return map[string]*nic{
		LinkMigration: {
			h: h, link: LinkMigration,
			bandwidth: float64(cmp.Or(h.spec.MigrationBandwidth, uint64(25*gbit))),
			latency:   cmp.Or(h.spec.MigrationLatency, 200*time.Microsecond),
		},
		LinkManagement: {
			h: h, link: LinkManagement,
			bandwidth: 10 * gbit,
			latency:   cmp.Or(h.spec.ManagementLatency, 500*time.Microsecond),
		},
		LinkBMC:     {h: h, link: LinkBMC, bandwidth: gbit},
		LinkStorage: {h: h, link: LinkStorage, bandwidth: 25 * gbit},
	}
}

func (n *nic) capacity() float64 {
	c := n.bandwidth
	for _, s := range n.slow {
		c = min(c, s)
	}
	return c
}

// LinkUp reports whether the host's link works.
func (h *Host) LinkUp(link string) bool {
	powered := h.running()
	if link == LinkBMC {
		powered = h.bmc.up()
	}
	return powered && h.nics[link].cuts == 0
}

// AddressOf returns the address of the host on a link.
func (h *Host) AddressOf(link string) string {
	return fmt.Sprintf("10.%d.%d.%d", 100+slices.Index(links, link), h.index/250, h.index%250+1)
}

// Reach reports whether two hosts reach each other over a link.
func (f *Fleet) Reach(a, b *Host, link string) bool {
	return f.Reaches(a.name, b.name, link) && f.Reaches(b.name, a.name, link)
}

// Reaches reports whether packets of one host arrive at another over a link.
// Outside stands for all that is no host.
func (f *Fleet) Reaches(from, to, link string) bool {
	for _, name := range []string{from, to} {
		if name == Outside && f.outside[link] > 0 || name != Outside && !f.hosts[name].LinkUp(link) {
			return false
		}
	}
	for _, o := range f.oneways {
		if o.link == link && slices.Contains(o.from, from) && (o.to == nil || slices.Contains(o.to, to)) {
			return false
		}
	}
	for _, c := range f.cuts {
		if c.link == link && slices.Contains(c.hosts, from) && slices.Contains(c.hosts, to) {
			return false
		}
	}
	return true
}

// linksChanged tells all migrations of a host that it may have been cut off.
func (h *Host) linksChanged() {
	for _, mv := range slices.Clone(h.f.moves) {
		if mv.src == h || mv.dst == h {
			mv.linkChanged()
		}
	}
}

// open adds a flow to both its NICs, close removes it.
func (f *Fleet) open(fl *flow) {
	for _, n := range []*nic{fl.from, fl.to} {
		i, _ := slices.BinarySearchFunc(n.flows, fl.mv.seq, func(o *flow, seq uint64) int { return cmp.Compare(o.mv.seq, seq) })
		n.flows = slices.Insert(n.flows, i, fl)
	}
}

func (f *Fleet) close(fl *flow) {
	for _, n := range []*nic{fl.from, fl.to} {
		n.flows = slices.DeleteFunc(n.flows, func(o *flow) bool { return o == fl })
	}
	f.share(fl.from)
	f.share(fl.to)
}

// share divides the bandwidth anew among all flows that touch the NIC, directly
// or over others: max-min fair, each NIC with the same capacity each way.
func (f *Fleet) share(start *nic) {
	flows := component(start)
	shares := maxMin(flows)
	for i, fl := range flows {
		if math.Abs(fl.share-shares[i]) > 1e-6*max(1, shares[i]) || shares[i] == 0 && fl.share != 0 {
			fl.share = shares[i]
			fl.mv.granted(fl.share)
		}
	}
}

// component returns the flows that share NICs with each other, by move.
func component(start *nic) []*flow {
	seenNIC, seenFlow := map[*nic]bool{start: true}, map[*flow]bool{}
	queue := []*nic{start}
	var flows []*flow
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, fl := range n.flows {
			if seenFlow[fl] {
				continue
			}
			seenFlow[fl] = true
			flows = append(flows, fl)
			for _, o := range []*nic{fl.from, fl.to} {
				if !seenNIC[o] {
					seenNIC[o] = true
					queue = append(queue, o)
				}
			}
		}
	}
	slices.SortFunc(flows, func(a, b *flow) int { return cmp.Compare(a.mv.seq, b.mv.seq) })
	return flows
}

// way is one direction of one NIC while shares are computed.
type way struct {
	left  float64
	count int
}

// maxMin fills all flows evenly until a NIC or the flow's own demand is full,
// and goes on with the rest.
func maxMin(flows []*flow) []float64 {
	shares := make([]float64, len(flows))
	for _, fl := range flows {
		fl.frozen = false
		fl.from.out.left, fl.to.in.left = fl.from.capacity(), fl.to.capacity()
	}
	for remaining := len(flows); remaining > 0; {
		for _, fl := range flows {
			fl.from.out.count, fl.to.in.count = 0, 0
		}
		level := math.Inf(1)
		for i, fl := range flows {
			if !fl.frozen {
				level = min(level, fl.mv.demand()-shares[i])
				fl.from.out.count++
				fl.to.in.count++
			}
		}
		for _, fl := range flows {
			if !fl.frozen {
				level = min(level, fl.from.out.left/float64(fl.from.out.count), fl.to.in.left/float64(fl.to.in.count))
			}
		}
		level = max(0, level)
		for i, fl := range flows {
			if !fl.frozen {
				shares[i] += level
				fl.from.out.left -= level
				fl.to.in.left -= level
			}
		}
		for i, fl := range flows {
			if fl.frozen {
				continue
			}
			if fl.mv.demand()-shares[i] <= 1e-6 || fl.from.out.full(fl.from) || fl.to.in.full(fl.to) {
				fl.frozen = true
				remaining--
			}
		}
	}
	return shares
}

// full allows for what additions of floats leave over.
func (w way) full(n *nic) bool { return w.left <= 1e-6*n.capacity() }
