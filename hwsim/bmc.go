// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"math/rand/v2"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/sim"
)

// bmc is a host's management controller: a small computer of its own with its
// own network.
type bmc struct {
	h    *Host
	rand *rand.Rand // made when first needed

	order *powerOrder // that is under way
}

// powerOrder is an order that was accepted and is not done yet.
type powerOrder struct {
	on    bool
	timer *sim.Timer
}

func newBMC(h *Host) *bmc { return &bmc{h: h} }

// up reports whether the controller has power and runs.
func (b *bmc) up() bool { return !b.h.spec.NoBMC }

// draws is the controller's own stream of chance: a fleet whose controllers
// nobody calls draws nothing for them.
func (b *bmc) draws() *rand.Rand {
	if b.rand == nil {
		b.rand = b.h.f.s.Rand("hwsim/bmc/" + b.h.name)
	}
	return b.rand
}

// state is what the controller says of its machine.
func (b *bmc) state() hardware.PowerState {
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

// accept takes an order; a newer one replaces it. Most machines are off within
// seconds, some take most of a minute.
func (b *bmc) accept(on bool) {
	if b.order != nil && b.order.on == on {
		return
	}
	if b.order != nil {
		b.order.timer.Stop()
	}
	takes := between(b.draws(), time.Second, 6*time.Second)
	if !on && b.draws().IntN(8) == 0 {
		takes = between(b.draws(), 6*time.Second, 50*time.Second)
	}
	o := &powerOrder{on: on}
	b.order = o
	o.timer = b.h.f.s.After(takes, func() {
		b.order = nil
		if on {
			b.h.PowerOn()
		} else {
			b.h.PowerOff()
		}
	})
}

// identity is the machine as the controller knows it.
func (b *bmc) identity() hardware.Controller {
	id := b.h.facts.identity
	return hardware.Controller{SystemUUID: id.ProductUUID, Serial: id.Serial}
}
