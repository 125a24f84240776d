// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/sim"
)

// activeFault is a fault that lasts.
type activeFault struct {
	Fault
	record int // in the ledger
	timer  *sim.Timer
	end    func()
}

// unit is the state that a unit.state fault asks for.
func (a *activeFault) unit() hardware.Unit {
	return hardware.Unit{Name: a.Unit, Load: a.Load, Active: a.Active, Sub: a.Sub, Result: a.Result}
}

// Inject lets a fault begin. It returns an error for names the fleet does not
// have.
func (f *Fleet) Inject(fault Fault) error {
	if err := fault.Validate(); err != nil {
		return err
	}
	hosts, err := f.hostsOf(fault)
	if err != nil {
		return err
	}
	if fault.Pool != "" && f.pools[fault.Pool] == nil {
		return fmt.Errorf("fault %q: no pool %q; there are %v", fault, fault.Pool, slices.Sorted(maps.Keys(f.pools)))
	}
	instant := faultKinds[slices.IndexFunc(faultKinds, func(k faultKind) bool { return k.kind == fault.Kind })].instant
	a := &activeFault{Fault: fault}
	// What a fault strikes is decided before it is recorded: a fault on a VM
	// that does not run has not happened.
	begin, err := f.effect(a, hosts)
	if err != nil {
		return err
	}
	a.record = f.ledger.faultBegins(fault, instant)
	f.note("", "fault", "begins", "", fault.String())
	if !instant {
		f.faults = append(f.faults, a)
	}
	begin()
	if !instant && fault.For > 0 {
		a.timer = f.s.After(fault.For, func() { f.heal(a) })
	}
	return nil
}

func (f *Fleet) hostsOf(fault Fault) ([]*Host, error) {
	var hosts []*Host
	for _, name := range fault.To {
		if f.hosts[name] == nil && (name != Outside || fault.Kind != "net.oneway") {
			return nil, fmt.Errorf("fault %q: no host %q in the fleet", fault, name)
		}
	}
	for _, name := range append(slices.Clone(fault.On), fault.Between...) {
		if name == Outside && (fault.Kind == "net.cut" || fault.Kind == "net.oneway") {
			continue
		}
		h := f.hosts[name]
		if h == nil {
			return nil, fmt.Errorf("fault %q: no host %q in the fleet", fault, name)
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// Heal ends all active faults that print as this one.
func (f *Fleet) Heal(fault Fault) {
	for _, a := range slices.Clone(f.faults) {
		if a.String() == fault.String() {
			f.heal(a)
		}
	}
}

// HealAll ends all active faults, the oldest first: power returns, links and
// daemons come back.
func (f *Fleet) HealAll() {
	for _, a := range slices.Clone(f.faults) {
		f.heal(a)
	}
}

// ActiveFaults returns the faults that last, in the order they began.
func (f *Fleet) ActiveFaults() []Fault {
	out := make([]Fault, len(f.faults))
	for i, a := range f.faults {
		out[i] = a.Fault
	}
	return out
}

func (f *Fleet) heal(a *activeFault) {
	i := slices.Index(f.faults, a)
	if i < 0 {
		return
	}
	f.faults = slices.Delete(f.faults, i, i+1)
	a.timer.Stop()
	f.ledger.faultEnds(a.record)
	f.note("", "fault", "ends", "", a.String())
	if a.end != nil {
		a.end()
	}
}

// toggle is the begin of a fault that has the same effect on each of its hosts
// and is undone the same way.
func (a *activeFault) toggle(hosts []*Host, effect func(h *Host, begin bool)) func() {
	a.end = func() {
		for _, h := range hosts {
			effect(h, false)
		}
	}
	return func() {
		for _, h := range hosts {
			effect(h, true)
		}
	}
}

// effect returns what a fault does, and notes in it how it ends.
func (f *Fleet) effect(a *activeFault, hosts []*Host) (begin func(), err error) {
	switch a.Kind {
	case "host.power-off":
		return a.toggle(hosts, (*Host).cutPower), nil
	case "host.reboot":
		return each(hosts, (*Host).reboot), nil
	case "host.hang":
		return a.toggle(hosts, (*Host).hang), nil
	case "host.flap":
		return f.flapEffect(a, hosts), nil
	case "watchdog.dead":
		return a.toggle(hosts, func(h *Host, begin bool) { h.watchdog.dead += sign(begin) }), nil
	case "clock.jump":
		return a.toggle(hosts, func(h *Host, begin bool) { h.clockOff += time.Duration(sign(begin)) * a.By }), nil
	case "feed.off":
		return f.partEffect(a, a.Feed, "feed", (*Host).Feed, (*Host).cutFeed)
	case "switch.down":
		return f.partEffect(a, a.Switch, "switch", (*Host).Switch, (*Host).cutSwitch)
	case "libvirtd.crash":
		return a.toggle(hosts, func(h *Host, begin bool) { h.hold("crash", begin) }), nil
	case "libvirtd.hang":
		return a.toggle(hosts, func(h *Host, begin bool) { h.hold("hang", begin) }), nil
	case "libvirtd.stop":
		return a.toggle(hosts, func(h *Host, begin bool) { h.hold("stop", begin) }), nil
	case "net.cut":
		return f.cutEffect(a, hosts), nil
	case "net.oneway":
		return f.onewayEffect(a), nil
	case "net.slow":
		return a.toggle(hosts, func(h *Host, begin bool) { h.nics[a.Link].slowDown(float64(a.Bandwidth), begin) }), nil
	case "storage.lost":
		return a.toggle(hosts, func(h *Host, begin bool) { h.loseStorage(a.Pool, begin) }), nil
	case "storage.hang":
		if len(hosts) == 0 {
			hosts = f.order
		}
		return a.toggle(hosts, func(h *Host, begin bool) { h.hangStorage(a.Pool, begin) }), nil
	case "storage.full":
		return a.toggle(f.order, func(h *Host, begin bool) { h.fillStorage(a.Pool, begin) }), nil
	case "events.lost":
		return a.toggle(hosts, func(h *Host, begin bool) { h.eventFault.lost += sign(begin) }), nil
	case "events.dup":
		return a.toggle(hosts, func(h *Host, begin bool) { h.eventFault.dup += sign(begin) }), nil
	case "events.delay":
		return a.toggle(hosts, func(h *Host, begin bool) { h.eventFault.delay(a.By, begin) }), nil
	case "unit.fail":
		return a.toggle(hosts, func(h *Host, begin bool) { h.holdUnit(a.Unit, begin) }), nil
	case "unit.state":
		return a.toggle(hosts, func(h *Host, begin bool) { h.forceUnit(a, begin) }), nil
	case "update.fail":
		return a.toggle(hosts, func(h *Host, begin bool) { h.updates.fail += sign(begin) }), nil
	case "migration.fail":
		return func() {}, nil // moves look for it themselves
	case "memory.failure":
		return func() { f.memoryFails(a, hosts) }, nil
	}
	if strings.HasPrefix(a.Kind, "bmc.") {
		return a.toggle(hosts, func(h *Host, begin bool) { h.bmc.suffer(a, begin) }), nil
	}
	return f.domainEffect(a, hosts)
}

// domainEffect is the effect of a fault on one VM.
func (f *Fleet) domainEffect(a *activeFault, hosts []*Host) (begin func(), err error) {
	d := f.target(a.VM, hosts)
	if d == nil {
		return nil, fmt.Errorf("fault %q: no QEMU of VM %q runs there", a.Fault, a.VM)
	}
	q := d.q
	switch a.Kind {
	case "qemu.crash":
		return func() {
			if d.stalled() {
				q.killed = true // it ends once its I/O does
				return
			}
			d.die(hardware.DetailFailed, hardware.DetailCrashed)
		}, nil
	case "qemu.hang":
		a.end = func() {
			q.hung--
			if d.q == q && q.hung == 0 {
				d.set(d.state, d.detail)
				d.h.goOn()
			}
		}
		return func() { q.hung++; d.set(d.state, d.detail) }, nil
	}
	g := q.guest
	if g == nil || !d.cpusRun() {
		return nil, fmt.Errorf("fault %q: no guest of VM %q runs on %s", a.Fault, a.VM, d.h.name)
	}
	switch a.Kind {
	case "guest.panic":
		return d.panicked, nil
	case "guest.hang":
		a.end = g.unhang
		return g.hang, nil
	case "guest.power-off":
		return func() { d.guestGone(hardware.DetailGuest) }, nil
	case "guest.reset":
		return func() {
			g.disconnectAgent()
			d.resetEvents()
			g.boot()
		}, nil
	}
	return nil, fmt.Errorf("fault %q: nothing implements %s", a.Fault, a.Kind)
}

// target finds the QEMU a fault means: on the hosts named, else the one whose
// guest runs, else any.
func (f *Fleet) target(vm string, hosts []*Host) *domain {
	if len(hosts) == 0 {
		hosts = f.order
	}
	var found *domain
	for _, h := range hosts {
		d := h.domain(vm)
		if d == nil || d.q == nil {
			continue
		}
		if d.cpusRun() {
			return d
		}
		if found == nil || found.q.incoming {
			found = d
		}
	}
	return found
}

func each(hosts []*Host, do func(*Host)) func() {
	return func() {
		for _, h := range hosts {
			do(h)
		}
	}
}

func sign(begin bool) int {
	if begin {
		return 1
	}
	return -1
}

// forceUnit shows a unit in a state, or lets it be well again.
func (h *Host) forceUnit(a *activeFault, begin bool) {
	switch {
	case begin && h.running():
		h.SetUnit(a.unit())
	case !begin && h.running():
		delete(h.units, a.Unit)
		if slices.ContainsFunc(installed, func(u hardware.Unit) bool { return u.Name == a.Unit }) {
			h.runUnit(a.Unit)
		}
		if a.Unit == libvirtdUnit {
			h.daemonUnit()
		}
	}
}

// memoryFails is a memory error on each host: in a guest's memory, which gets it
// passed on, or in free memory, which nobody notices.
func (f *Fleet) memoryFails(a *activeFault, hosts []*Host) {
	for _, h := range hosts {
		for _, d := range h.sorted {
			if d.q == nil || d.q.incoming || a.VM != "" && a.VM != d.uuid && a.VM != d.name {
				continue
			}
			h.emit(d, hardware.Event{Kind: hardware.EventMemoryFailure, Detail: hardware.DetailGuest})
			break
		}
	}
}
