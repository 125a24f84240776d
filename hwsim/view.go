// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"context"
	"slices"
	"time"

	"github.com/adit-hv/adit/hardware"
)

// view is a host's hardware as one process sees it. How long calls take was
// measured on libvirt 9.0 over its RPC, without the client's own time.
type view struct {
	h   *Host
	who string
}

var _ hardware.Host = (*view)(nil)

const (
	defineTime  = 3 * time.Millisecond
	startTime   = 1150 * time.Millisecond // 0.24 s of it QEMU, the rest 410 QMP round trips
	killTime    = 15 * time.Second        // libvirt's wait for a QEMU that SIGKILL does not end
	destroyTime = 211 * time.Millisecond  // libvirt looks each 200 ms whether QEMU is gone
	monitorTime = 4 * time.Millisecond
	statsTime   = 15 * time.Millisecond
	agentTime   = 30 * time.Millisecond
	agentBlocks = 5 * time.Second // libvirt's wait for an agent that does not answer
)

// domainCall is a mutating call on a domain; callers change what differs.
func (h *Host) domainCall(name, attempt, uuid string) *call {
	return &call{name: name, object: uuid, attempt: attempt, on: "domain " + uuid, mutating: true, daemon: true}
}

func (h *Host) noDomain(c *call) error {
	return hardware.Fail(hardware.Refused, hardware.ReasonNoDomain, c.attempt, c.on, "no domain with matching uuid on %s", h.name)
}

// active finds a domain that has a QEMU and is not the half-made target of a
// migration.
func (h *Host) active(c *call, uuid string) (*domain, error) {
	d := h.domains[uuid]
	switch {
	case d == nil:
		return nil, h.noDomain(c)
	case d.q == nil:
		return nil, hardware.Fail(hardware.Refused, hardware.ReasonInvalidState, c.attempt, c.on, "domain is not running")
	case d.q.incoming:
		return nil, hardware.Fail(hardware.Refused, hardware.ReasonInvalidState, c.attempt, c.on, "domain is being migrated in")
	}
	return d, nil
}

// withGuest finds an active domain that has a guest: the source of a migration
// whose guest has left is no such.
func (h *Host) withGuest(c *call, uuid string) (*domain, error) {
	d, err := h.active(c, uuid)
	if err == nil && d.q.guest == nil {
		return nil, hardware.Fail(hardware.Refused, hardware.ReasonInvalidState, c.attempt, c.on, "the guest has left with a migration")
	}
	return d, err
}

// Domains implements hardware.Domains. What the result's specs point at is
// shared with later results and is not to be changed.
func (v *view) Domains(ctx context.Context) ([]hardware.Domain, error) {
	var out []hardware.Domain
	err := v.do(ctx, &call{name: "Domains", attempt: "list domains of", on: "host " + v.h.name, daemon: true, work: func() error {
		out = slices.Clone(v.h.domainList())
		return nil
	}})
	return out, err
}

func (h *Host) domainList() []hardware.Domain {
	if h.list == nil {
		h.list = make([]hardware.Domain, 0, len(h.sorted))
		for _, d := range h.sorted {
			h.list = append(h.list, d.read())
		}
	}
	return h.list
}

// Domain implements hardware.Domains.
func (v *view) Domain(ctx context.Context, uuid string) (out hardware.Domain, err error) {
	c := v.h.domainCall("Domain", "read", uuid)
	c.mutating = false
	c.work = func() error {
		d := v.h.domains[uuid]
		if d == nil {
			return v.h.noDomain(c)
		}
		out = d.read()
		return nil
	}
	err = v.do(ctx, c)
	return out, err
}

// Define implements hardware.Domains.
func (v *view) Define(ctx context.Context, spec hardware.DomainSpec) error {
	c := v.h.domainCall("Define", "define", spec.UUID)
	c.service = defineTime
	c.work = func() error { return v.h.define(c, spec) }
	return v.do(ctx, c)
}

func (h *Host) define(c *call, spec hardware.DomainSpec) error {
	if err := validate(&spec); err != nil {
		return hardware.Fail(hardware.Refused, hardware.ReasonInvalidSpec, c.attempt, c.on, "%w", err)
	}
	d := h.domains[spec.UUID]
	if other := h.byName[spec.Name]; other != nil && other != d {
		return hardware.Fail(hardware.Refused, hardware.ReasonInvalidSpec, c.attempt, c.on,
			"domain %q exists already with UUID %s", spec.Name, other.uuid)
	}
	if d != nil && d.name != spec.Name {
		return hardware.Fail(hardware.Refused, hardware.ReasonInvalidSpec, c.attempt, c.on,
			"the UUID is already that of domain %q", d.name)
	}
	detail := hardware.DetailUpdated
	if d == nil {
		d = &domain{h: h, uuid: spec.UUID, name: spec.Name, state: hardware.StateShutOff}
		d.def = clone(&spec)
		h.add(d)
		detail = hardware.DetailAdded
	}
	d.def = clone(&spec)
	h.list = nil
	h.emit(d, hardware.Event{Kind: hardware.EventDefined, Detail: detail})
	return nil
}

// Undefine implements hardware.Domains.
func (v *view) Undefine(ctx context.Context, uuid string) error {
	c := v.h.domainCall("Undefine", "undefine", uuid)
	c.service = defineTime
	c.work = func() error {
		d := v.h.domains[uuid]
		if d == nil || d.def == nil {
			return nil
		}
		v.h.emit(d, hardware.Event{Kind: hardware.EventUndefined, Detail: hardware.DetailRemoved})
		if d.q == nil {
			v.h.remove(d)
		}
		d.def = nil
		v.h.list = nil
		return nil
	}
	return v.do(ctx, c)
}

// Start implements hardware.Domains.
func (v *view) Start(ctx context.Context, uuid string, o hardware.StartOptions) error {
	c := v.h.domainCall("Start", "start", uuid)
	c.service = startTime
	c.storage = func() bool {
		d := v.h.domains[uuid]
		return d != nil && d.q == nil && v.h.hangsFor(d.def.Disks)
	}
	c.work = func() error { return v.h.start(c, uuid, o) }
	return v.do(ctx, c)
}

func (h *Host) start(c *call, uuid string, o hardware.StartOptions) error {
	d := h.domains[uuid]
	switch {
	case d == nil:
		return h.noDomain(c)
	case d.q != nil && d.q.incoming:
		return hardware.Fail(hardware.Refused, hardware.ReasonInvalidState, c.attempt, c.on, "domain is being migrated in")
	case d.q != nil:
		return nil
	}
	if err := h.room(d.def, c.attempt, c.on); err != nil {
		return err
	}
	if err := h.usable(d.def.Disks, c.attempt, c.on); err != nil {
		return err
	}
	d.launch(o.Paused)
	return nil
}

// withActive is a call on a domain whose QEMU has to do something.
func (v *view) withActive(ctx context.Context, name, attempt, uuid string, service time.Duration, do func(*call, *domain) error) error {
	c := v.h.domainCall(name, attempt, uuid)
	c.service = service
	return v.onActive(ctx, c, do)
}

func (v *view) onActive(ctx context.Context, c *call, do func(*call, *domain) error) error {
	c.monitor = c.object
	c.work = func() error {
		d, err := v.h.active(c, c.object)
		if err != nil {
			return err
		}
		return do(c, d)
	}
	return v.do(ctx, c)
}

// look is withActive for what changes nothing.
func (v *view) look(ctx context.Context, name, attempt, uuid string, do func(*call, *domain) error) error {
	c := v.h.domainCall(name, attempt, uuid)
	c.mutating, c.service = false, monitorTime
	return v.onActive(ctx, c, do)
}

// Shutdown implements hardware.Domains.
func (v *view) Shutdown(ctx context.Context, uuid string) error {
	c := v.h.domainCall("Shutdown", "shut down", uuid)
	c.service, c.monitor = monitorTime, uuid
	c.work = func() error {
		d := v.h.domains[uuid]
		if d != nil && d.q == nil {
			return nil
		}
		d, err := v.h.withGuest(c, uuid)
		if err != nil {
			return err
		}
		d.q.guest.powerButton()
		return nil
	}
	return v.do(ctx, c)
}

// Destroy implements hardware.Domains. A hung QEMU is killed all the same; one
// whose I/O hangs ends only when that does.
func (v *view) Destroy(ctx context.Context, uuid string) error {
	c := v.h.domainCall("Destroy", "destroy", uuid)
	c.service = destroyTime
	c.start = func(answer func(error)) {
		d := v.h.domains[uuid]
		if d == nil {
			answer(v.h.noDomain(c))
			return
		}
		if !d.stalled() {
			d.die(hardware.DetailDestroyed, hardware.DetailDestroyed)
			answer(nil)
			return
		}
		q := d.q
		q.killed = true
		v.h.f.s.After(killTime, func() {
			if d.q == q {
				answer(c.fail(hardware.Unknown, "QEMU does not end: Device or resource busy"))
				return
			}
			answer(nil)
		})
	}
	return v.do(ctx, c)
}

// Reboot implements hardware.Domains.
func (v *view) Reboot(ctx context.Context, uuid string) error {
	return v.withActive(ctx, "Reboot", "reboot", uuid, monitorTime, func(c *call, d *domain) error {
		if _, err := v.h.withGuest(c, uuid); err != nil {
			return err
		}
		d.q.guest.rebootButton()
		return nil
	})
}

// Reset implements hardware.Domains.
func (v *view) Reset(ctx context.Context, uuid string) error {
	return v.withActive(ctx, "Reset", "reset", uuid, 16*time.Millisecond, func(c *call, d *domain) error {
		if _, err := v.h.withGuest(c, uuid); err != nil {
			return err
		}
		if d.state == hardware.StateCrashed || d.q.torn {
			return hardware.Fail(hardware.Refused, hardware.ReasonInvalidState, c.attempt, c.on, "domain is %s (%s)", d.state, d.detail)
		}
		d.q.guest.disconnectAgent()
		d.resetEvents()
		d.q.guest.boot()
		return nil
	})
}

// Suspend implements hardware.Domains.
func (v *view) Suspend(ctx context.Context, uuid string) error {
	c := v.h.domainCall("Suspend", "suspend", uuid)
	c.service = monitorTime
	c.storage = func() bool { // QEMU waits for its I/O before it stops
		d := v.h.domains[uuid]
		return d != nil && d.cpusRun() && d.stalled()
	}
	return v.onActive(ctx, c, func(c *call, d *domain) error {
		switch {
		case d.state == hardware.StatePaused:
			return nil
		case d.q.move != nil && d.q.move.switched():
			return hardware.Fail(hardware.Refused, hardware.ReasonInvalidState, c.attempt, c.on, "domain is in post-copy migration")
		case !d.cpusRun() || d.state == hardware.StateShuttingDown:
			return hardware.Fail(hardware.Refused, hardware.ReasonInvalidState, c.attempt, c.on, "domain is %s", d.state)
		}
		d.pause(hardware.DetailUser)
		return nil
	})
}

// Resume implements hardware.Domains.
func (v *view) Resume(ctx context.Context, uuid string) error {
	return v.withActive(ctx, "Resume", "resume", uuid, monitorTime, func(c *call, d *domain) error {
		switch {
		case d.cpusRun():
			return nil
		case d.state != hardware.StatePaused, d.q.torn,
			d.detail == hardware.DetailMigrating, d.detail == hardware.DetailPostCopy, d.detail == hardware.DetailPostCopyFailed:
			return hardware.Fail(hardware.Refused, hardware.ReasonInvalidState, c.attempt, c.on, "domain is %s (%s)", d.state, d.detail)
		}
		d.resume()
		return nil
	})
}
