// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"context"
	"slices"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim/precopy"
)

// abortTime is what libvirt and QEMU need to cancel a job, as measured.
const abortTime = 213 * time.Millisecond

// error is an error of the Migrate call that began the move.
func (mv *move) error(c hardware.Consequence, r hardware.Reason, format string, args ...any) error {
	return hardware.Fail(c, r, "migrate", "domain "+mv.sd.uuid+" to "+mv.o.Target, format, args...)
}

// Migrate implements hardware.Migrations.
func (v *view) Migrate(ctx context.Context, uuid string, o hardware.MigrateOptions) error {
	c := v.h.domainCall("Migrate", "migrate", uuid)
	c.on += " to " + o.Target
	c.monitor = uuid
	c.service = 20 * time.Millisecond
	c.start = func(answer func(error)) { v.h.migrate(c, uuid, o, answer) }
	return v.do(ctx, c)
}

func (h *Host) migrate(c *call, uuid string, o hardware.MigrateOptions, answer func(error)) {
	d, err := h.active(c, uuid)
	if err != nil {
		answer(err)
		return
	}
	if mv := d.q.move; mv != nil {
		if d == mv.sd && o.ID != "" && mv.o.ID == o.ID {
			answer(nil)
			return
		}
		answer(hardware.Fail(hardware.Refused, hardware.ReasonJobRunning, c.attempt, c.on, "migration %q of it runs", mv.o.ID))
		return
	}
	if err := h.mayLeave(c, d, o); err != nil {
		answer(err)
		return
	}
	h.f.moveSeq++
	mv := &move{f: h.f, seq: h.f.moveSeq, o: o, src: h, dst: h.f.hosts[o.Target], sd: d, started: h.f.s.Now(), answer: answer}
	mv.spec = clone(d.live)
	if o.Spec != nil {
		mv.spec = clone(o.Spec)
		mv.spec.UUID, mv.spec.Name = d.uuid, d.name
	}
	d.q.move = mv
	h.f.moves = append(h.f.moves, mv)
	mv.record = h.f.ledger.begin(Migration{ID: o.ID, VM: d.uuid, Name: d.name, From: h.name, To: o.Target})
	if c.task == nil {
		mv.prepared()
		return
	}
	mv.timer = h.f.s.After(mv.connectTime(), mv.prepared)
}

// connectTime is how long it takes until the target's QEMU listens (about 1 s,
// most of libvirt's P2P overhead as measured), or until it is clear that it
// will not.
func (mv *move) connectTime() time.Duration {
	switch {
	case !mv.dst.running():
		return 3 * time.Second // nobody answers ARP
	case !mv.f.Reach(mv.src, mv.dst, LinkMigration):
		return 10 * time.Second // packets vanish until the connect gives up
	case mv.dst.daemon == daemonHung:
		return keepalive
	case mv.dst.hangsFor(mv.spec.Disks):
		return mv.f.o.CallTimeout
	case mv.dst.daemon != daemonUp:
		return 5 * time.Millisecond
	}
	return between(mv.src.rand, 900*time.Millisecond, 1150*time.Millisecond)
}

// mayLeave says why a domain cannot be migrated from here, as libvirt does
// before it speaks with the target.
func (h *Host) mayLeave(c *call, d *domain, o hardware.MigrateOptions) error {
	refuse := func(r hardware.Reason, format string, args ...any) error {
		return hardware.Fail(hardware.Refused, r, c.attempt, c.on, format, args...)
	}
	switch {
	case o.Target == h.name:
		return refuse(hardware.ReasonOther, "attempt to migrate guest to the same host")
	case h.f.hosts[o.Target] == nil:
		return refuse(hardware.ReasonOther, "unknown host %q", o.Target)
	case d.state == hardware.StateCrashed, d.state == hardware.StateShuttingDown:
		return refuse(hardware.ReasonInvalidState, "the domain is %s", d.state)
	case d.state == hardware.StatePaused && d.detail == hardware.DetailIOError:
		return refuse(hardware.ReasonInvalidState, "the domain is paused by an I/O error")
	case d.q.torn:
		return refuse(hardware.ReasonInvalidState, "the domain is what a broken migration left")
	}
	for _, disk := range d.live.Disks {
		if disk.Volume == "" || disk.ReadOnly || o.CopyStorage {
			continue
		}
		if p, _, err := h.f.poolOf(disk.Volume); err == nil && !p.spec.Shared {
			return refuse(hardware.ReasonNoStorage, "disk %s: volume %s is not shared: copy it along", disk.Target, disk.Volume)
		}
	}
	return nil
}

// targetTakes says why the target does not take the domain.
func (mv *move) targetTakes() error {
	t := mv.dst
	switch {
	case !t.running():
		return mv.error(hardware.Unavailable, hardware.ReasonOther, "connect to %s: no route to host", t.name)
	case !mv.f.Reach(mv.src, t, LinkMigration):
		return mv.error(hardware.Unavailable, hardware.ReasonOther, "connect to %s: connection timed out", t.name)
	case t.daemon == daemonHung:
		return mv.error(hardware.Unavailable, hardware.ReasonOther, "libvirtd on %s does not answer", t.name)
	case t.daemon != daemonUp:
		return mv.error(hardware.Unavailable, hardware.ReasonOther, "connect to libvirtd on %s: connection refused", t.name)
	}
	if t.hangsFor(mv.spec.Disks) {
		return mv.error(hardware.Unavailable, hardware.ReasonOther, "QEMU on %s does not come up: its storage does not answer", t.name)
	}
	if d := t.domains[mv.sd.uuid]; d != nil && d.q != nil {
		return mv.error(hardware.Refused, hardware.ReasonInvalidState, "the domain is active on %s", t.name)
	}
	if d := t.byName[mv.sd.name]; d != nil && d.uuid != mv.sd.uuid {
		return mv.error(hardware.Refused, hardware.ReasonInvalidSpec, "%s has another domain named %s, UUID %s", t.name, mv.sd.name, d.uuid)
	}
	if missing := mv.src.missingFeatures(t, mv.spec); missing != "" {
		return mv.error(hardware.Refused, hardware.ReasonIncompatible, "guest CPU is not compatible with host CPU of %s: %s", t.name, missing)
	}
	on := "domain " + mv.sd.uuid + " to " + t.name
	if err := t.room(mv.spec, "migrate", on); err != nil {
		return err
	}
	for _, disk := range mv.spec.Disks {
		if disk.Volume == "" {
			continue
		}
		if _, _, err := t.find(disk.Volume); err != nil {
			return hardware.Fail(hardware.Refused, hardware.ReasonNoStorage, "migrate", on, "disk %s: %w", disk.Target, err)
		}
	}
	return nil
}

// missingFeatures names what the guest's CPU has and the other host's has not.
func (h *Host) missingFeatures(t *Host, spec *hardware.DomainSpec) string {
	from, to := h.facts.capabilities.CPU, t.facts.capabilities.CPU
	switch spec.CPU.Mode {
	case "host-passthrough":
		if from.Model != to.Model {
			return "host-passthrough from " + from.Model + " to " + to.Model
		}
	case "custom":
		for _, f := range spec.CPU.Features {
			if !slices.Contains(to.Features, f) {
				return "missing feature " + f
			}
		}
		return ""
	}
	for _, f := range from.Features {
		if _, found := slices.BinarySearch(to.Features, f); !found {
			return "missing feature " + f
		}
	}
	if from.Vendor != to.Vendor && from.Vendor != "" && to.Vendor != "" {
		return from.Vendor + " to " + to.Vendor
	}
	return ""
}

// localBytes is how much of the disks lies on the source alone.
func (mv *move) localBytes() uint64 {
	var n uint64
	for _, disk := range mv.sd.live.Disks {
		if p, v, err := mv.src.find(disk.Volume); err == nil && !p.spec.Shared && !disk.ReadOnly {
			n += v.bytes
		}
	}
	return n
}

// Job implements hardware.Migrations.
func (v *view) Job(ctx context.Context, uuid string) (j hardware.Job, err error) {
	c := v.h.domainCall("Job", "read job of", uuid)
	c.mutating, c.monitor = false, uuid
	c.work = func() error {
		var ok bool
		if j, ok = v.h.readJob(uuid); ok {
			return nil
		}
		if v.h.domains[uuid] == nil {
			return v.h.noDomain(c)
		}
		return hardware.Fail(hardware.Refused, hardware.ReasonNoJob, c.attempt, c.on, "no job runs or has run")
	}
	err = v.do(ctx, c)
	return j, err
}

// runningMove finds the move that a call on the source means.
func (h *Host) runningMove(c *call, uuid string) (*move, error) {
	d := h.domains[uuid]
	if d == nil {
		return nil, h.noDomain(c)
	}
	if d.q == nil || d.q.move == nil {
		return nil, hardware.Fail(hardware.Refused, hardware.ReasonNoJob, c.attempt, c.on, "no job is active on the domain")
	}
	if d != d.q.move.sd {
		return nil, hardware.Fail(hardware.Refused, hardware.ReasonInvalidState, c.attempt, c.on, "the job is run by %s", d.q.move.src.name)
	}
	return d.q.move, nil
}

// jobCall is a call on a running migration at its source.
func (v *view) jobCall(ctx context.Context, name, attempt, uuid string, service time.Duration, do func(*call, *move) error) error {
	c := v.h.domainCall(name, attempt, uuid)
	c.monitor, c.service = uuid, service
	c.work = func() error {
		mv, err := v.h.runningMove(c, uuid)
		if err != nil {
			return err
		}
		return do(c, mv)
	}
	return v.do(ctx, c)
}

// AbortJob implements hardware.Migrations.
func (v *view) AbortJob(ctx context.Context, uuid string) error {
	return v.jobCall(ctx, "AbortJob", "abort job of", uuid, abortTime, func(c *call, mv *move) error {
		if mv.switched() || mv.postCopy {
			return hardware.Fail(hardware.Refused, hardware.ReasonInvalidState, c.attempt, c.on, "the domain runs at %s already", mv.dst.name)
		}
		message := "operation aborted: job 'migration out' canceled by client"
		if mv.stage == stagePrepare {
			answer := mv.answer
			mv.fail(hardware.JobCancelled, message)
			if answer != nil {
				answer(mv.error(hardware.Refused, hardware.ReasonOther, "%s", message))
			}
			return nil
		}
		mv.fail(hardware.JobCancelled, message)
		return nil
	})
}

// StartPostCopy implements hardware.Migrations.
func (v *view) StartPostCopy(ctx context.Context, uuid string) error {
	return v.jobCall(ctx, "StartPostCopy", "start post-copy of", uuid, 5*time.Millisecond, func(c *call, mv *move) error {
		refuse := func(format string, args ...any) error {
			return hardware.Fail(hardware.Refused, hardware.ReasonInvalidState, c.attempt, c.on, format, args...)
		}
		switch {
		case mv.postCopy:
			return nil
		case !mv.o.PostCopy:
			return refuse("the migration was started without post-copy")
		case mv.m == nil || mv.failing:
			return refuse("%v", precopy.ErrNotCopying)
		}
		if err := mv.m.StartPostCopy(mv.now()); err != nil {
			return refuse("%v", err)
		}
		mv.postCopy = true
		mv.advance()
		mv.share()
		return nil
	})
}

// RecoverPostCopy implements hardware.Migrations.
func (v *view) RecoverPostCopy(ctx context.Context, uuid string) error {
	return v.jobCall(ctx, "RecoverPostCopy", "recover post-copy of", uuid, 300*time.Millisecond, func(c *call, mv *move) error {
		switch {
		case !mv.broken:
			return hardware.Fail(hardware.Refused, hardware.ReasonInvalidState, c.attempt, c.on, "QEMU reports migration is still running")
		case !mv.f.Reach(mv.src, mv.dst, LinkMigration):
			return hardware.Fail(hardware.Unavailable, hardware.ReasonOther, c.attempt, c.on, "connect to %s: connection timed out", mv.dst.name)
		case mv.dst.daemon != daemonUp:
			return hardware.Fail(hardware.Unavailable, hardware.ReasonOther, c.attempt, c.on, "connect to libvirtd on %s: connection refused", mv.dst.name)
		}
		mv.recovers()
		return nil
	})
}

// SetMigrationLimits implements hardware.Migrations.
func (v *view) SetMigrationLimits(ctx context.Context, uuid string, bytesPerSecond uint64, downtime time.Duration) error {
	return v.jobCall(ctx, "SetMigrationLimits", "set migration limits of", uuid, 5*time.Millisecond, func(c *call, mv *move) error {
		mv.o.BytesPerSecond = bytesPerSecond
		if downtime > 0 {
			mv.o.Downtime = downtime
		}
		if mv.m == nil {
			return nil // the QEMU still gets them when it starts
		}
		mv.m.SetLimits(mv.now(), downtime, float64(bytesPerSecond))
		mv.share()
		mv.schedule()
		return nil
	})
}
