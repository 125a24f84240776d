// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"time"

	"github.com/onsi/gomega"

	"github.com/adit-hv/adit/hardware"
)

func facts(s *suite) {
	s.it("a host knows who it is", func(l *lab) {
		id, err := l.a().Identity(l.ctx)
		l.ok(err)
		isTrue(id.Hostname != "", "no host name")
		isTrue(id.MachineID == "" || len(id.MachineID) == 32, "machine id %q", id.MachineID)
	})
	s.it("two hosts are told apart", func(l *lab) {
		a, err := l.a().Identity(l.ctx)
		l.ok(err)
		b, err := l.b().Identity(l.ctx)
		l.ok(err)
		isTrue(a.Hostname != b.Hostname || a.MachineID != b.MachineID, "both are %+v", a)
	})
	s.it("the system has an operating system and a kernel", func(l *lab) {
		sys, err := l.a().System(l.ctx)
		l.ok(err)
		isTrue(sys.OSRelease["ID"] != "", "no ID in os-release")
		isTrue(sys.KernelRelease != "", "no kernel release")
	})
	s.it("uptime grows and the boot id stays", func(l *lab) {
		first, err := l.a().Boot(l.ctx)
		l.ok(err)
		l.Pass(2 * time.Second)
		second, err := l.a().Boot(l.ctx)
		l.ok(err)
		equal(second.ID, first.ID)
		isTrue(second.Uptime >= first.Uptime+2*time.Second, "%v after %v", second.Uptime, first.Uptime)
	})
	s.it("capabilities name CPU, cells and versions, all sorted", func(l *lab) {
		c, err := l.a().Capabilities(l.ctx)
		l.ok(err)
		isTrue(c.Arch != "" && c.HypervisorType != "" && c.LibvirtVersion > 0 && c.HypervisorVersion > 0, "%+v", c)
		isTrue(len(c.Cells) > 0, "no cells")
		isTrue(slices.IsSortedFunc(c.Cells, func(a, b hardware.Cell) int { return int(a.ID) - int(b.ID) }), "cells are not sorted")
		for _, cell := range c.Cells {
			isTrue(slices.IsSorted(cell.CPUs), "the CPUs of cell %d are not sorted", cell.ID)
		}
		for _, list := range [][]string{c.CPU.Features, c.Devices, c.CPUModes, c.Features} {
			isTrue(slices.IsSorted(list), "%v is not sorted", list)
		}
	})
	s.it("each CPU stands in one cell", func(l *lab) {
		c, err := l.a().Capabilities(l.ctx)
		l.ok(err)
		seen := map[int]bool{}
		for _, cell := range c.Cells {
			for _, cpu := range cell.CPUs {
				isTrue(!seen[cpu], "CPU %d stands in two cells", cpu)
				seen[cpu] = true
			}
		}
		isTrue(len(seen) > 0, "no CPUs")
	})
	s.it("equal facts read equal", func(l *lab) {
		first, err := l.a().Capabilities(l.ctx)
		l.ok(err)
		second, err := l.a().Capabilities(l.ctx)
		l.ok(err)
		gomega.Expect(second).To(gomega.Equal(first))
	})
	s.it("capabilities need the daemon, identity does not", func(l *lab) {
		l.fault("libvirtd.crash on=%s", l.a().Name)
		_, err := l.a().Capabilities(l.ctx)
		l.consequence(err, hardware.Unavailable)
		_, err = l.a().Identity(l.ctx)
		l.ok(err)
	})
}

func units(s *suite) {
	const libvirtd = "libvirtd.service"
	running := func(l *lab) bool {
		u, err := unitOf(l, libvirtd)
		l.ok(err)
		return u.Load == "loaded" && u.Active == "active" && u.Sub == "running"
	}
	s.it("the virtualisation daemon's unit runs", func(l *lab) { isTrue(running(l), "it does not") })
	s.it("a unit that is not installed is not-found, and no error", func(l *lab) {
		u, err := unitOf(l, "no-such-thing.service")
		l.ok(err)
		equal(u.Load, "not-found")
		equal(u.Active, "inactive")
	})
	s.it("starting a unit that is not installed is refused", func(l *lab) {
		l.refused(l.a().StartUnit(l.ctx, "no-such-thing.service"), hardware.ReasonOther)
	})
	s.it("starting a running unit changes nothing", func(l *lab) {
		l.ok(l.a().StartUnit(l.ctx, libvirtd))
		l.Pass(time.Second)
		isTrue(running(l), "it does not run")
	})
	s.it("stopping the daemon leaves guests running, and starting it finds them", func(l *lab) {
		d := l.started(l.a())
		l.ok(l.a().StopUnit(l.ctx, libvirtd))
		l.until(soon, "the daemon is gone", func() bool { _, err := l.a().Domains(l.ctx); return err != nil })
		_, err := l.a().Domains(l.ctx)
		l.consequence(err, hardware.Unavailable)
		l.ok(l.a().StartUnit(l.ctx, libvirtd))
		l.until(soon, "the daemon is back", func() bool { _, err := l.a().Domains(l.ctx); return err == nil })
		equal(l.domain(l.a(), d.UUID).State, hardware.StateRunning)
		isTrue(running(l), "the unit does not run")
	})
	s.it("a restart of the daemon comes back by itself", func(l *lab) {
		l.ok(l.a().RestartUnit(l.ctx, libvirtd))
		l.until(soon, "it runs", func() bool { return running(l) })
		l.until(soon, "it answers", func() bool { _, err := l.a().Domains(l.ctx); return err == nil })
	})
	s.it("a crash is seen in the unit", func(l *lab) {
		heal := l.fault("libvirtd.crash on=%s", l.a().Name)
		l.until(soon, "the unit does not run", func() bool { return !running(l) })
		heal()
		l.until(soon, "the unit runs", func() bool { return running(l) })
	})
	s.it("an update is a oneshot unit that works and ends, and the version shows after a reboot", func(l *lab) {
		l.fault("events.dup on=%s", l.a().Name) // only a subject that can break things may be rebooted
		unit := hardware.UpdateUnit("1877.2")
		l.ok(l.a().StartUpdate(l.ctx, "1877.2"))
		u, err := unitOf(l, unit)
		l.ok(err)
		equal(u.Active, "activating")
		isTrue(u.Oneshot, "it is no oneshot unit")
		l.ok(l.a().StartUpdate(l.ctx, "1877.2"))
		l.until(10*time.Minute, "the update ends", func() bool {
			u, err := unitOf(l, unit)
			l.ok(err)
			return u.Active == "inactive"
		})
		u, err = unitOf(l, unit)
		l.ok(err)
		equal(u.Result, "success")
		before, err := l.a().System(l.ctx)
		l.ok(err)
		isTrue(before.OSRelease["GARDENLINUX_VERSION"] != "1877.2", "the update shows before the reboot")
		l.rebooted(l.a())
		after, err := l.a().System(l.ctx)
		l.ok(err)
		equal(after.OSRelease["GARDENLINUX_VERSION"], "1877.2")
	})
	s.it("an update that fails leaves a failed unit", func(l *lab) {
		l.fault("update.fail on=%s", l.a().Name)
		l.ok(l.a().StartUpdate(l.ctx, "1877.2"))
		l.until(10*time.Minute, "the unit has failed", func() bool {
			u, err := unitOf(l, hardware.UpdateUnit("1877.2"))
			l.ok(err)
			return u.Active == "failed" && u.Result != "success"
		})
	})
	s.it("a reboot changes the boot id and starts nothing by itself", func(l *lab) {
		l.fault("events.dup on=%s", l.a().Name)
		d := l.started(l.a())
		first, err := l.a().Boot(l.ctx)
		l.ok(err)
		l.rebooted(l.a())
		second, err := l.a().Boot(l.ctx)
		l.ok(err)
		isTrue(second.ID != first.ID, "the boot id stays")
		isTrue(second.Uptime < first.Uptime || second.Uptime < 20*time.Minute, "uptime %v", second.Uptime)
		equal(l.domain(l.a(), d.UUID).Active(), false)
	})
}

// rebooted asks a host to reboot and waits until it is back.
func (l *lab) rebooted(h Host) {
	before, err := h.Boot(l.ctx)
	l.ok(err)
	_ = h.RebootHost(l.ctx) // the answer may never arrive
	l.until(20*time.Minute, "the host is back", func() bool {
		b, err := h.Boot(l.ctx)
		if err != nil || b.ID == before.ID {
			return false
		}
		_, err = h.Domains(l.ctx)
		return err == nil
	})
}

// unitOf reads one unit.
func unitOf(l *lab, name string) (hardware.Unit, error) {
	units, err := l.a().Units(l.ctx, name)
	if err != nil || len(units) != 1 {
		return hardware.Unit{}, err
	}
	return units[0], nil
}
