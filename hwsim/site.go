// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/adit-hv/adit/sim"
)

// cutPower holds a host off: with two faults that do, it boots when both ended,
// unless its controller was told to switch it off.
func (h *Host) cutPower(begin bool) {
	h.powerHolds += sign(begin)
	if begin {
		h.PowerOff()
	} else if h.powerHolds == 0 && !h.orderedOff {
		h.PowerOn()
	}
}

// cutEffect takes a link from hosts, or the way between them.
func (f *Fleet) cutEffect(a *activeFault, hosts []*Host) func() {
	if len(a.Between) > 0 {
		c := &cut{link: a.Link, hosts: a.Between}
		changed := each(hosts, (*Host).linksChanged)
		a.end = func() {
			f.cuts = slices.DeleteFunc(f.cuts, func(o *cut) bool { return o == c })
			changed()
			f.networkChanged()
		}
		return func() {
			f.cuts = append(f.cuts, c)
			changed()
			f.networkChanged()
		}
	}
	cut := a.toggle(hosts, func(h *Host, begin bool) { h.cutLink(a.Link, begin) })
	if !slices.Contains(a.On, Outside) {
		return cut
	}
	heal := a.end
	a.end = func() {
		f.cutOutside(a.Link, false)
		heal()
	}
	return func() {
		f.cutOutside(a.Link, true)
		cut()
	}
}

// cutLink takes a link from a host, or gives it back.
func (h *Host) cutLink(link string, begin bool) {
	n := h.nics[link]
	n.cuts += sign(begin)
	h.linksChanged()
	if begin && n.cuts == 1 || !begin && n.cuts == 0 {
		for _, fn := range h.f.onLink {
			fn(h.name, link, !begin)
		}
	}
	if link == LinkStorage {
		h.storageHolds += sign(begin)
		h.storageChanged()
	}
	h.f.networkChanged()
}

// cutOutside takes a link from all that is no host.
func (f *Fleet) cutOutside(link string, begin bool) {
	f.outside[link] += sign(begin)
	f.networkChanged()
}

// onewayEffect loses packets in one direction.
func (f *Fleet) onewayEffect(a *activeFault) func() {
	o := &oneway{link: a.Link, from: a.On, to: a.To}
	changed := func() {
		for _, h := range f.order {
			h.linksChanged()
		}
		f.networkChanged()
	}
	a.end = func() {
		f.oneways = slices.DeleteFunc(f.oneways, func(other *oneway) bool { return other == o })
		changed()
	}
	return func() {
		f.oneways = append(f.oneways, o)
		changed()
	}
}

// partEffect strikes all hosts that hang on a part of the site: name is one
// part or more, of is which one a host hangs on.
func (f *Fleet) partEffect(a *activeFault, name, part string, of func(*Host) string, effect func(*Host, bool)) (func(), error) {
	var struck []*Host
	for _, one := range strings.Split(name, ",") {
		found := false
		for _, h := range f.order {
			if of(h) == one {
				found, struck = true, append(struck, h)
			}
		}
		if !found {
			return nil, fmt.Errorf("fault %q: no host is on a %s %q", a.Fault, part, one)
		}
	}
	return a.toggle(struck, effect), nil
}

// cutFeed takes the power from a host and its management controller.
func (h *Host) cutFeed(begin bool) {
	h.bmc.cutPower(begin)
	h.cutPower(begin)
}

// cutSwitch takes the links that go over the rack's switch.
func (h *Host) cutSwitch(begin bool) {
	h.cutLink(LinkManagement, begin)
	h.cutLink(LinkMigration, begin)
}

// flapEffect lets the power, or a link, go and come.
func (f *Fleet) flapEffect(a *activeFault, hosts []*Host) func() {
	down := false
	var timer *sim.Timer
	turn := func() {
		down = !down
		for _, h := range hosts {
			if a.Link != "" {
				h.cutLink(a.Link, down)
			} else {
				h.cutPower(down)
			}
		}
	}
	var next func()
	next = func() {
		turn()
		timer = f.s.After(a.Every, next)
	}
	a.end = func() {
		timer.Stop()
		if down {
			turn()
		}
	}
	return next
}

func (n *nic) slowDown(bytesPerSecond float64, begin bool) {
	if begin {
		n.slow = append(n.slow, bytesPerSecond)
	} else if i := slices.Index(n.slow, bytesPerSecond); i >= 0 {
		n.slow = slices.Delete(n.slow, i, i+1)
	}
	n.h.f.share(n)
}
