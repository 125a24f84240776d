// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hardware/parse"
	"github.com/adit-hv/adit/sim"
)

// installed are the units each host has, and what they are like when all is
// well.
var installed = []hardware.Unit{
	{Name: libvirtdUnit, Active: "active", Sub: "running"},
	{Name: "libvirtd.socket", Active: "active", Sub: "running"},
	{Name: "virtlogd.service", Active: "active", Sub: "running"},
	{Name: "virtlockd.service", Active: "active", Sub: "running"},
	{Name: "openvswitch-switch.service", Active: "active", Sub: "exited", Oneshot: true},
	{Name: "ovs-vswitchd.service", Active: "active", Sub: "running"},
	{Name: "ovsdb-server.service", Active: "active", Sub: "running"},
	{Name: "systemd-sysupdate.service", Active: "inactive", Sub: "dead", Oneshot: true},
	{Name: "systemd-sysupdate-reboot.target", Active: "inactive", Sub: "dead"},
	{Name: "virt-admin-server-update-tls.service", Active: "inactive", Sub: "dead", Oneshot: true},
}

// updates is the host's OS update: one at a time.
type updates struct {
	version string // under way
	unit    string
	timer   *sim.Timer
	staged  string // boots next
	fail    int    // faults that let updates fail
}

// latestVersion is what "latest" installs.
const latestVersion = "1877.3"

func (h *Host) installUnits() {
	h.units = map[string]*hardware.Unit{}
	for _, u := range installed {
		u.Load, u.Result, u.ChangedAt = "loaded", "success", h.f.s.Now()
		h.units[u.Name] = &u
	}
}

// bootUnits puts all units where a boot puts them; what a fault holds down
// fails.
func (h *Host) bootUnits() {
	h.installUnits()
	for _, name := range slices.Sorted(maps.Keys(h.units)) {
		if h.unitHolds[name] > 0 {
			h.unitFails(name)
		}
	}
	for _, a := range h.f.faults {
		if a.Kind == "unit.state" && slices.Contains(a.On, h.name) {
			h.SetUnit(a.unit())
		}
	}
}

// unit returns a unit to change, made if it was not installed.
func (h *Host) unit(name string) *hardware.Unit {
	u := h.units[name]
	if u == nil {
		u = &hardware.Unit{Name: name, Load: "loaded", Active: "inactive", Sub: "dead", Result: "success", ChangedAt: h.f.s.Now()}
		u.Oneshot = strings.HasPrefix(name, "systemd-sysupdate@")
		h.units[name] = u
	}
	return u
}

// SetUnit puts a unit of the host into a state, or installs it.
func (h *Host) SetUnit(u hardware.Unit) {
	u.Load = cmp.Or(u.Load, "loaded")
	u.ChangedAt = h.f.s.Now()
	h.units[u.Name] = &u
}

// change moves a unit into a state of systemd.
func (h *Host) change(name, active, sub, result string) {
	u := h.unit(name)
	u.Active, u.Sub, u.Result, u.ChangedAt = active, sub, result, h.f.s.Now()
	h.f.note(h.name, "systemd", active, name, strings.TrimSpace(sub+" "+result))
}

func (h *Host) unitFails(name string) {
	if name == libvirtdUnit {
		h.daemonDies("the unit has failed")
		return
	}
	h.change(name, "failed", "failed", "exit-code")
}

// holdUnit begins or ends a fault under which a unit cannot run. When it ends
// the unit stays failed until somebody starts it, as systemd has it, except for
// what boots and restarts by itself.
func (h *Host) holdUnit(name string, begin bool) {
	if !begin {
		h.unitHolds[name]--
		if name == libvirtdUnit {
			h.daemonStarts()
		} else if u := h.units[name]; u != nil && u.Active == "failed" && h.unitHolds[name] == 0 {
			h.runUnit(name)
		}
		return
	}
	h.unitHolds[name]++
	if h.running() {
		h.unitFails(name)
	}
}

// runUnit is the end of a successful start.
func (h *Host) runUnit(name string) {
	u := h.unit(name)
	for _, i := range installed {
		if i.Name == name {
			h.change(name, i.Active, i.Sub, "success")
			return
		}
	}
	if u.Oneshot {
		h.change(name, "inactive", "dead", "success")
		return
	}
	h.change(name, "active", "running", "success")
}

// Units implements hardware.Units.
func (v *view) Units(ctx context.Context, names ...string) (units []hardware.Unit, err error) {
	c := &call{name: "Units", object: names[0], attempt: "read", on: "units of " + v.h.name, work: func() error {
		units = make([]hardware.Unit, len(names))
		for i, name := range names {
			units[i] = v.h.unitState(name)
		}
		return nil
	}}
	err = v.do(ctx, c)
	return units, err
}

// unitState is what systemd says of a unit, installed or not.
func (h *Host) unitState(name string) hardware.Unit {
	if p := h.units[name]; p != nil {
		return *p
	}
	u := hardware.Unit{Name: name, Load: "not-found", Active: "inactive", Sub: "dead", Result: "success"}
	if strings.HasPrefix(name, "systemd-sysupdate@") {
		u.Load, u.Oneshot = "loaded", true // an instance of an installed template
	}
	return u
}

// unitJob queues a job for a unit; what it does comes after the answer.
func (v *view) unitJob(ctx context.Context, name, attempt, unit string, job func()) error {
	c := &call{name: name, object: unit, attempt: attempt, on: "unit " + unit, mutating: true, service: monitorTime}
	c.work = func() error {
		u := v.h.units[unit]
		switch {
		case u == nil:
			return hardware.Fail(hardware.Refused, hardware.ReasonOther, attempt, c.on, "Unit %s not found.", unit)
		case u.Load == "masked":
			return hardware.Fail(hardware.Refused, hardware.ReasonOther, attempt, c.on, "Unit %s is masked.", unit)
		}
		job()
		return nil
	}
	return v.do(ctx, c)
}

// StartUnit implements hardware.Units.
func (v *view) StartUnit(ctx context.Context, name string) error {
	return v.unitJob(ctx, "StartUnit", "start", name, func() { v.h.startUnit(name) })
}

func (h *Host) startUnit(name string) {
	u := h.unit(name)
	switch {
	case name == "systemd-sysupdate-reboot.target":
		h.goDown()
	case name == libvirtdUnit:
		if h.daemonHolds["stopped"] > 0 {
			h.daemonHolds["stopped"] = 0
		}
		h.daemonStarts()
	case u.Active == "active" || u.Active == "activating":
	case h.unitHolds[name] > 0:
		h.change(name, "failed", "failed", "exit-code")
	default:
		h.change(name, "activating", "start", "success")
		h.f.s.After(between(h.rand, 50*time.Millisecond, 300*time.Millisecond), func() {
			if u := h.unit(name); u.Active == "activating" && u.Sub == "start" && h.running() {
				h.runUnit(name)
			}
		})
	}
}

// StopUnit implements hardware.Units. Stopping libvirtd leaves guests running.
func (v *view) StopUnit(ctx context.Context, name string) error {
	return v.unitJob(ctx, "StopUnit", "stop", name, func() { v.h.stopUnit(name) })
}

func (h *Host) stopUnit(name string) {
	if name == libvirtdUnit {
		h.daemonHolds["stopped"] = 1
		h.daemonDies("the daemon is stopping")
		return
	}
	if u := h.unit(name); u.Active != "inactive" {
		h.change(name, "inactive", "dead", "success")
	}
}

// RestartUnit implements hardware.Units.
func (v *view) RestartUnit(ctx context.Context, name string) error {
	return v.unitJob(ctx, "RestartUnit", "restart", name, func() {
		v.h.stopUnit(name)
		v.h.startUnit(name)
	})
}

// ReloadUnit implements hardware.Units.
func (v *view) ReloadUnit(ctx context.Context, name string) error {
	return v.unitJob(ctx, "ReloadUnit", "reload", name, func() {
		h := v.h
		if u := h.unit(name); u.Active != "active" {
			return
		}
		h.change(name, "reloading", "reload", "success")
		h.f.s.After(between(h.rand, 50*time.Millisecond, 500*time.Millisecond), func() {
			if u := h.unit(name); u.Active == "reloading" {
				h.runUnit(name)
			}
		})
	})
}

// RebootHost implements hardware.Units.
func (v *view) RebootHost(ctx context.Context) error {
	h := v.h
	return v.do(ctx, &call{name: "RebootHost", attempt: "reboot", on: "host " + h.name, mutating: true, work: func() error {
		h.goDown()
		return nil
	}})
}

// StartUpdate implements hardware.Units.
func (v *view) StartUpdate(ctx context.Context, version string) error {
	h := v.h
	unit := hardware.UpdateUnit(version)
	c := &call{name: "StartUpdate", object: version, attempt: "start update of", on: "host " + h.name + " to " + version, mutating: true, service: monitorTime}
	c.work = func() error {
		if version == "" || strings.ContainsAny(version, "/ \n") {
			return hardware.Fail(hardware.Refused, hardware.ReasonInvalidSpec, c.attempt, c.on, "%q is no version", version)
		}
		return h.startUpdate(c, version, unit)
	}
	return v.do(ctx, c)
}

func (h *Host) startUpdate(c *call, version, unit string) error {
	if h.updates.version == version {
		return nil
	}
	if h.updates.version != "" {
		return hardware.Fail(hardware.Refused, hardware.ReasonJobRunning, c.attempt, c.on, "the update to %s runs", h.updates.version)
	}
	h.updates.version, h.updates.unit = version, unit
	h.change(unit, "activating", "start", "success")
	// A download of a gigabyte or so, and writing it to the other partition.
	h.updates.timer = h.f.s.After(between(h.rand, 60*time.Second, 180*time.Second), func() {
		h.updates.version = ""
		if h.updates.fail > 0 {
			h.change(unit, "failed", "failed", "exit-code")
			return
		}
		if h.updates.staged = version; version == "latest" {
			h.updates.staged = latestVersion
		}
		h.change(unit, "inactive", "dead", "success")
	})
	return nil
}

// boot is the part of a boot in which a staged update becomes the system. An
// update under way is lost with the power.
func (u *updates) boot(h *Host) {
	u.timer.Stop()
	u.version = ""
	if u.staged == "" {
		return
	}
	release, err := parse.OSRelease(gardenLinux(u.staged))
	if err == nil {
		h.facts.system.OSRelease = release
	}
	u.staged = ""
}
