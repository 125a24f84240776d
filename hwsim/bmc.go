// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/sim"
)

// bmc is a host's management controller: a small computer of its own with its
// own network, on the host's power feed. It works whatever the host does.
type bmc struct {
	h    *Host
	rand *rand.Rand // made when first needed

	feedHolds int        // faults that take its power
	booting   *sim.Timer // after the power came back

	order    *powerOrder   // that is under way
	promised promise       // what it shows instead of the truth
	ordered  bool          // an order came that the script answers
	scripted time.Duration // when

	pending []func() // orders that came while it stood still

	faults map[string][]*activeFault // by kind, in the order they began
}

// powerOrder is an order that was accepted and is not done yet.
type powerOrder struct {
	on    bool
	timer *sim.Timer
}

// promise is a state that is shown as if it were reached.
type promise struct {
	state hardware.PowerState
	until time.Duration
}

// earlyFor is how long a controller that takes the wish for the fact does so:
// until it next looks at the machine.
const earlyFor = 5 * time.Second

func newBMC(h *Host) *bmc { return &bmc{h: h} }

// up reports whether the controller has power and runs.
func (b *bmc) up() bool {
	return !b.h.spec.NoBMC && b.feedHolds == 0 && b.booting == nil && !b.has("bmc.down")
}

func (b *bmc) has(kind string) bool { return len(b.faults[kind]) > 0 }

// latest is the youngest fault of that kind, or nil.
func (b *bmc) latest(kind string) *activeFault {
	if l := b.faults[kind]; len(l) > 0 {
		return l[len(l)-1]
	}
	return nil
}

// suffer begins or ends a fault of the controller.
func (b *bmc) suffer(a *activeFault, begin bool) {
	if b.faults == nil {
		b.faults = map[string][]*activeFault{}
	}
	l := slices.DeleteFunc(slices.Clone(b.faults[a.Kind]), func(o *activeFault) bool { return o == a })
	if begin {
		l = append(l, a)
	}
	b.faults[a.Kind] = l
	switch {
	case a.Kind == "bmc.script":
		b.ordered = false
	case a.Kind == "bmc.early" && !begin:
		b.promised = promise{}
	case a.Kind == "bmc.hang" && !b.has("bmc.hang"):
		pending := b.pending
		b.pending = nil
		for _, serve := range pending {
			serve()
		}
	case a.Kind == "bmc.down":
		b.pending = nil
		b.h.f.networkChanged()
	}
}

// draws is the controller's own stream of chance: a fleet whose controllers
// nobody calls draws nothing for them.
func (b *bmc) draws() *rand.Rand {
	if b.rand == nil {
		b.rand = b.h.f.s.Rand("hwsim/bmc/" + b.h.name)
	}
	return b.rand
}

// cutPower takes the controller's power. What it was about to do is forgotten;
// when the power is back it needs a minute to boot.
func (b *bmc) cutPower(begin bool) {
	b.feedHolds += sign(begin)
	b.booting.Stop()
	b.booting = nil
	if begin && b.order != nil {
		b.order.timer.Stop()
		b.order = nil
	}
	b.pending = nil
	if b.feedHolds == 0 {
		b.booting = b.h.f.s.After(between(b.draws(), 50*time.Second, 90*time.Second), func() {
			b.booting = nil
			b.h.f.networkChanged()
		})
	}
	b.h.f.networkChanged()
}

// behind is the controller that answers under this one's address.
func (b *bmc) behind() *bmc {
	if a := b.latest("bmc.wrong-host"); a != nil {
		return b.h.f.hosts[a.To[0]].bmc
	}
	if a := b.latest("bmc.twin"); a != nil && b.draws().IntN(2) == 0 {
		return b.h.f.hosts[a.To[0]].bmc
	}
	return b
}

// truth is what the machine does.
func (b *bmc) truth() hardware.PowerState {
	switch {
	case b.order != nil && b.order.on && b.h.state == HostOff:
		return hardware.PowerPoweringOn
	case b.order != nil && !b.order.on && b.h.state != HostOff:
		return hardware.PowerPoweringOff
	case b.h.state == HostOff:
		return hardware.PowerOff
	}
	return hardware.PowerOn
}

// state is what the controller says of its machine.
func (b *bmc) state() hardware.PowerState {
	now := b.h.f.s.Elapsed()
	if b.has("bmc.unknown") {
		says := []hardware.PowerState{hardware.PowerUnknown, "Error", ""}
		return says[b.draws().IntN(len(says))]
	}
	if a := b.latest("bmc.script"); a != nil && b.ordered {
		script, _ := parseScript(a.States) // it was read before
		if s, ok := script.at(now - b.scripted); ok {
			return s
		}
	}
	if now < b.promised.until {
		return b.promised.state
	}
	return b.truth()
}

// accept takes an order; a newer one replaces it. Most machines are off within
// seconds, some take most of a minute.
func (b *bmc) accept(on bool) {
	now := b.h.f.s.Elapsed()
	if a := b.latest("bmc.early"); a != nil {
		b.promised = promise{state: pick(on, hardware.PowerOn, hardware.PowerOff), until: now + earlyFor}
		if a.By > 0 {
			b.promised.until = now + a.By
		}
	}
	if b.has("bmc.script") && (on || !b.ordered) {
		b.ordered, b.scripted = !on, now
	}
	if b.has("bmc.ignore") || b.order != nil && b.order.on == on {
		return
	}
	if b.order != nil {
		b.order.timer.Stop()
	}
	takes := between(b.draws(), time.Second, 6*time.Second)
	if !on && b.draws().IntN(8) == 0 {
		takes = between(b.draws(), 6*time.Second, 50*time.Second)
	}
	if a := b.latest("bmc.slow"); a != nil {
		takes = a.By
	}
	o := &powerOrder{on: on}
	b.order = o
	o.timer = b.h.f.s.After(takes, func() {
		b.order = nil
		if on {
			b.h.PowerOn()
			return
		}
		b.h.orderedOff = true
		b.h.PowerOff()
	})
}

// identity is the machine as the controller knows it.
func (b *bmc) identity() hardware.Controller {
	id := b.h.facts.identity
	return hardware.Controller{SystemUUID: id.ProductUUID, Serial: id.Serial}
}
