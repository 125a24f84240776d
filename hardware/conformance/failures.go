// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"time"

	"github.com/adit-hv/adit/hardware"
)

// underWay is a migration from a to b that takes its time.
func (l *lab) underWay(o hardware.MigrateOptions) hardware.DomainSpec {
	spec := l.booted(l.a())
	o.ID, o.Target, o.BytesPerSecond = "m", l.b().Name, slow
	l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
	l.Pass(2 * time.Second)
	return spec
}

func failures(s *suite) {
	s.it("an abort leaves the domain running at the source and nothing at the target", func(l *lab) {
		spec := l.underWay(hardware.MigrateOptions{})
		l.ok(l.a().AbortJob(l.ctx, spec.UUID))
		l.stays(spec.UUID, l.a(), l.b())
		j, err := l.a().Job(l.ctx, spec.UUID)
		l.ok(err)
		equal(j.Type, hardware.JobCancelled)
	})
	s.it("an aborted domain can be migrated again", func(l *lab) {
		spec := l.underWay(hardware.MigrateOptions{})
		l.ok(l.a().AbortJob(l.ctx, spec.UUID))
		l.stays(spec.UUID, l.a(), l.b())
		l.ok(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "again")))
		l.moved(spec.UUID, l.a(), l.b())
	})
	s.it("an abort is told at the target as stopped", func(l *lab) {
		target := l.listen(l.b())
		spec := l.underWay(hardware.MigrateOptions{})
		l.ok(l.a().AbortJob(l.ctx, spec.UUID))
		l.until(soon, "it is told", func() bool { return slices.Contains(target.of(spec.UUID, 0), "stopped/failed") })
	})
	for _, phase := range []string{"setup", "active", "switch-over"} {
		s.it("a failure in phase "+phase+" leaves the domain running at the source", func(l *lab) {
			spec := l.booted(l.a())
			l.fault("migration.fail vm=%s phase=%s", spec.UUID, phase)
			l.ok(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")))
			l.stays(spec.UUID, l.a(), l.b())
			j, err := l.a().Job(l.ctx, spec.UUID)
			l.ok(err)
			isTrue(j.Type == hardware.JobFailed && j.Error != "" && j.ID == "m", "%+v", j)
			l.agentAnswers(l.a(), spec.UUID)
		})
	}
	s.it("a failed switch-over is told at the source as suspended, then resumed", func(l *lab) {
		j := l.listen(l.a())
		spec := l.booted(l.a())
		l.fault("migration.fail vm=%s phase=switch-over", spec.UUID)
		l.Pass(time.Second)
		mark := j.mark()
		l.ok(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")))
		l.stays(spec.UUID, l.a(), l.b())
		l.Pass(time.Second)
		equal(j.of(spec.UUID, mark, hardware.EventSuspended, hardware.EventResumed), []string{"suspended/migrated", "resumed/migrated"})
	})
	s.it("the source keeps its disk's lock after a failure", func(l *lab) {
		spec := l.booted(l.a())
		l.fault("migration.fail vm=%s phase=switch-over", spec.UUID)
		l.ok(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")))
		l.stays(spec.UUID, l.a(), l.b())
		l.ok(l.b().Define(l.ctx, spec))
		l.refused(l.b().Start(l.ctx, spec.UUID, hardware.StartOptions{}), hardware.ReasonStorageLocked)
	})
	s.it("a target that cannot prepare refuses the call", func(l *lab) {
		spec := l.booted(l.a())
		l.fault("migration.fail vm=%s phase=prepare", spec.UUID)
		l.refused(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")), hardware.ReasonOther)
		l.stays(spec.UUID, l.a(), l.b())
	})
	s.it("an error after the switch-over leaves the domain running at the target alone", func(l *lab) {
		spec := l.booted(l.a())
		l.fault("migration.fail vm=%s phase=completed-error", spec.UUID)
		l.ok(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")))
		l.until(moveTime, "the job has failed", func() bool {
			j, err := l.a().Job(l.ctx, spec.UUID)
			return err == nil && j.Type == hardware.JobFailed && j.Error != ""
		})
		equal(l.domain(l.b(), spec.UUID).State, hardware.StateRunning)
		d := l.domain(l.a(), spec.UUID) // the leftover
		isTrue(!d.Active() && d.Persistent, "%+v", d)
		l.refused(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}), hardware.ReasonStorageLocked)
		l.ok(l.a().Undefine(l.ctx, spec.UUID))
	})
	s.it("a target without its daemon is unavailable", func(l *lab) {
		spec := l.booted(l.a())
		l.fault("libvirtd.crash on=%s", l.b().Name)
		l.consequence(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")), hardware.Unavailable)
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateRunning)
	})
	s.it("a target without power is unavailable", func(l *lab) {
		spec := l.booted(l.a())
		l.fault("host.power-off on=%s", l.b().Name)
		l.consequence(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")), hardware.Unavailable)
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateRunning)
	})
	s.it("a target that loses power leaves the source running", func(l *lab) {
		spec := l.underWay(hardware.MigrateOptions{})
		l.fault("host.power-off on=%s", l.b().Name)
		l.until(soon, "the job has failed", func() bool {
			j, err := l.a().Job(l.ctx, spec.UUID)
			return err == nil && j.Type == hardware.JobFailed
		})
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateRunning)
	})
	s.it("a target whose daemon dies leaves the source running", func(l *lab) {
		spec := l.underWay(hardware.MigrateOptions{})
		heal := l.fault("libvirtd.crash on=%s", l.b().Name)
		l.until(soon, "the job has failed", func() bool {
			j, err := l.a().Job(l.ctx, spec.UUID)
			return err == nil && j.Type == hardware.JobFailed
		})
		heal()
		l.Pass(2 * time.Second)
		l.stays(spec.UUID, l.a(), l.b())
	})
	s.it("a target whose QEMU dies leaves the source running", func(l *lab) {
		spec := l.underWay(hardware.MigrateOptions{})
		l.fault("qemu.crash vm=%s on=%s", spec.UUID, l.b().Name)
		l.stays(spec.UUID, l.a(), l.b())
	})
	s.it("a source whose QEMU dies is down everywhere", func(l *lab) {
		spec := l.underWay(hardware.MigrateOptions{})
		l.fault("qemu.crash vm=%s on=%s", spec.UUID, l.a().Name)
		l.state(l.a(), spec.UUID, soon, hardware.StateShutOff, hardware.DetailCrashed)
		l.gone(l.b(), spec.UUID, soon)
	})
	s.it("a source whose daemon dies cancels the job when it is back", func(l *lab) {
		spec := l.underWay(hardware.MigrateOptions{})
		l.fault("libvirtd.crash on=%s", l.a().Name)()
		l.until(soon, "the daemon is back", func() bool { _, err := l.a().Domains(l.ctx); return err == nil })
		l.stays(spec.UUID, l.a(), l.b())
	})
	s.it("a link cut for a moment delays, one cut for longer fails", func(l *lab) {
		spec := l.underWay(hardware.MigrateOptions{})
		heal := l.fault("net.cut link=migration between=%s,%s", l.a().Name, l.b().Name)
		l.Pass(3 * time.Second)
		heal()
		l.Pass(8 * time.Second)
		j, err := l.a().Job(l.ctx, spec.UUID)
		l.ok(err)
		isTrue(j.Running(), "%+v", j)
		l.fault("net.cut link=migration between=%s,%s", l.a().Name, l.b().Name)
		l.Pass(9 * time.Second)
		l.stays(spec.UUID, l.a(), l.b())
	})
	s.it("destroying the domain at the source ends its migration", func(l *lab) {
		spec := l.underWay(hardware.MigrateOptions{})
		l.ok(l.a().Destroy(l.ctx, spec.UUID))
		l.state(l.a(), spec.UUID, soon, hardware.StateShutOff, hardware.DetailDestroyed)
		l.gone(l.b(), spec.UUID, soon)
	})
}

func postCopy(s *suite) {
	allowed := hardware.MigrateOptions{PostCopy: true}
	// broken is a post-copy that lost its link, and how that is healed.
	broken := func(l *lab) (spec hardware.DomainSpec, heal func()) {
		spec = l.underWay(allowed)
		widen := l.fault("net.slow link=migration on=%s bandwidth=1MiB", l.a().Name)
		l.ok(l.a().StartPostCopy(l.ctx, spec.UUID))
		l.until(soon, "the target runs", func() bool { return l.domain(l.b(), spec.UUID).State == hardware.StateRunning })
		cut := l.fault("net.cut link=migration between=%s,%s", l.a().Name, l.b().Name)
		l.state(l.a(), spec.UUID, 20*time.Second, hardware.StatePaused, hardware.DetailPostCopyFailed)
		l.state(l.b(), spec.UUID, 20*time.Second, hardware.StatePaused, hardware.DetailPostCopyFailed)
		return spec, func() { cut(); widen() }
	}
	s.it("a migration switches to post-copy and ends there", func(l *lab) {
		spec := l.underWay(allowed)
		l.ok(l.a().StartPostCopy(l.ctx, spec.UUID))
		l.ok(l.a().SetMigrationLimits(l.ctx, spec.UUID, 0, 0))
		l.moved(spec.UUID, l.a(), l.b())
		equal(l.domain(l.b(), spec.UUID).Detail, hardware.DetailMigrated)
	})
	s.it("the switch is told on both sides as post-copy", func(l *lab) {
		source, target := l.listen(l.a()), l.listen(l.b())
		spec := l.underWay(allowed)
		l.ok(l.a().StartPostCopy(l.ctx, spec.UUID))
		l.until(soon, "the source is suspended", func() bool { return slices.Contains(source.of(spec.UUID, 0), "suspended/post-copy") })
		l.until(soon, "the target runs", func() bool { return slices.Contains(target.of(spec.UUID, 0), "resumed/post-copy") })
	})
	s.it("a migration that does not allow it is not switched", func(l *lab) {
		spec := l.underWay(hardware.MigrateOptions{})
		l.refused(l.a().StartPostCopy(l.ctx, spec.UUID), hardware.ReasonInvalidState)
	})
	s.it("post-copy cannot be aborted, and its source cannot be resumed", func(l *lab) {
		spec := l.underWay(allowed)
		l.fault("net.slow link=migration on=%s bandwidth=1MiB", l.a().Name)
		l.ok(l.a().StartPostCopy(l.ctx, spec.UUID))
		l.until(soon, "the target runs", func() bool { return l.domain(l.b(), spec.UUID).State == hardware.StateRunning })
		l.refused(l.a().AbortJob(l.ctx, spec.UUID), hardware.ReasonInvalidState)
		l.refused(l.a().Resume(l.ctx, spec.UUID), hardware.ReasonInvalidState)
	})
	s.it("while the memory follows, the target shows the job, whatever its guest does", func(l *lab) {
		spec := l.underWay(allowed)
		l.fault("net.slow link=migration on=%s bandwidth=1MiB", l.a().Name)
		l.ok(l.a().StartPostCopy(l.ctx, spec.UUID))
		l.until(soon, "the target runs", func() bool { return l.domain(l.b(), spec.UUID).State == hardware.StateRunning })
		j, err := l.b().Job(l.ctx, spec.UUID)
		l.ok(err)
		isTrue(j.Running() && j.PostCopy && j.Operation == hardware.OperationMigrationIn, "%+v", j)
	})
	s.it("after post-copy the target has no figures, the source has", func(l *lab) {
		spec := l.underWay(allowed)
		l.ok(l.a().StartPostCopy(l.ctx, spec.UUID))
		l.moved(spec.UUID, l.a(), l.b())
		_, err := l.b().Job(l.ctx, spec.UUID)
		l.refused(err, hardware.ReasonNoJob)
		j, err := l.a().Job(l.ctx, spec.UUID)
		l.ok(err)
		isTrue(j.Type == hardware.JobCompleted && j.PostCopy, "%+v", j)
	})
	s.it("a lost link pauses both sides and keeps the job on both", func(l *lab) {
		spec, _ := broken(l)
		for _, h := range []Host{l.a(), l.b()} {
			j, err := h.Job(l.ctx, spec.UUID)
			l.ok(err)
			isTrue(j.Running(), "on %s: %+v", h.Name, j)
		}
	})
	s.it("neither side of a broken post-copy can be resumed", func(l *lab) {
		spec, _ := broken(l)
		l.refused(l.a().Resume(l.ctx, spec.UUID), hardware.ReasonInvalidState)
		l.refused(l.b().Resume(l.ctx, spec.UUID), hardware.ReasonInvalidState)
	})
	s.it("it does not recover by itself, nor while the link is cut", func(l *lab) {
		spec, heal := broken(l)
		l.consequence(l.a().RecoverPostCopy(l.ctx, spec.UUID), hardware.Unavailable)
		heal()
		l.Pass(30 * time.Second)
		equal(l.domain(l.b(), spec.UUID).Detail, hardware.DetailPostCopyFailed)
	})
	s.it("with the link back it is recovered and completes", func(l *lab) {
		spec, heal := broken(l)
		heal()
		l.ok(l.a().RecoverPostCopy(l.ctx, spec.UUID))
		l.moved(spec.UUID, l.a(), l.b())
	})
	s.it("one that is not broken refuses to recover", func(l *lab) {
		spec := l.underWay(allowed)
		l.refused(l.a().RecoverPostCopy(l.ctx, spec.UUID), hardware.ReasonInvalidState)
	})
	s.it("when the source dies the target stands still for good", func(l *lab) {
		spec, _ := broken(l)
		l.fault("qemu.crash vm=%s on=%s", spec.UUID, l.a().Name)
		l.Pass(time.Second)
		equal(l.domain(l.b(), spec.UUID).State, hardware.StatePaused)
		l.refused(l.b().Resume(l.ctx, spec.UUID), hardware.ReasonInvalidState)
		l.ok(l.b().Destroy(l.ctx, spec.UUID))
	})
}

func daemons(s *suite) {
	s.it("guests survive a crash of the daemon", func(l *lab) {
		spec := l.booted(l.a())
		since := l.domain(l.a(), spec.UUID).StartedAt
		l.fault("libvirtd.crash on=%s", l.a().Name)()
		l.until(soon, "the daemon is back", func() bool { _, err := l.a().Domains(l.ctx); return err == nil })
		d := l.domain(l.a(), spec.UUID)
		isTrue(d.State == hardware.StateRunning && d.StartedAt.Equal(since), "%+v", d)
	})
	s.it("without the daemon reads and changes are unavailable: nothing has happened", func(l *lab) {
		spec := l.defined(l.a())
		heal := l.fault("libvirtd.crash on=%s", l.a().Name)
		_, err := l.a().Domains(l.ctx)
		l.consequence(err, hardware.Unavailable)
		l.consequence(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}), hardware.Unavailable)
		heal()
		l.until(soon, "the daemon is back", func() bool { _, err := l.a().Domains(l.ctx); return err == nil })
		equal(l.domain(l.a(), spec.UUID).Active(), false)
	})
	s.it("a daemon that hangs leaves reads unavailable and changes unknown, in bounded time", func(l *lab) {
		spec := l.started(l.a())
		boot, err := l.a().Boot(l.ctx)
		l.ok(err)
		l.fault("libvirtd.hang on=%s", l.a().Name)
		_, err = l.a().Domains(l.ctx)
		l.consequence(err, hardware.Unavailable)
		l.consequence(l.a().Suspend(l.ctx, spec.UUID), hardware.Unknown)
		after, err := l.a().Boot(l.ctx)
		l.ok(err)
		isTrue(after.Uptime-boot.Uptime < 3*time.Minute, "two calls took %v", after.Uptime-boot.Uptime)
	})
	s.it("a short hang of the daemon only delays", func(l *lab) {
		spec := l.started(l.a())
		l.fault("libvirtd.hang on=%s for=3s", l.a().Name)
		l.ok(l.a().Suspend(l.ctx, spec.UUID))
		equal(l.domain(l.a(), spec.UUID).State, hardware.StatePaused)
	})
	s.it("events of a short hang come late and in order", func(l *lab) {
		j := l.listen(l.a())
		spec := l.booted(l.a())
		l.Pass(time.Second)
		mark := j.mark()
		heal := l.fault("libvirtd.hang on=%s", l.a().Name)
		l.fault("guest.power-off vm=%s", spec.UUID)
		l.Pass(3 * time.Second)
		equal(len(j.of(spec.UUID, mark)), 0)
		heal()
		l.until(soon, "it is told", func() bool { return j.count(spec.UUID, mark, hardware.EventStopped) > 0 })
		equal(j.of(spec.UUID, mark, hardware.EventShutdown, hardware.EventStopped), []string{"shutdown/guest", "stopped/shutdown"})
	})
	s.it("a hung QEMU blocks what needs it, not the list", func(l *lab) {
		spec := l.started(l.a())
		l.fault("qemu.hang vm=%s", spec.UUID)
		_, err := l.a().Stats(l.ctx, spec.UUID)
		l.consequence(err, hardware.Unavailable)
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateRunning)
		l.ok(l.a().Destroy(l.ctx, spec.UUID))
	})
	s.it("a transient domain whose QEMU dies behind the daemon's back vanishes", func(l *lab) {
		spec := l.started(l.a())
		l.ok(l.a().Undefine(l.ctx, spec.UUID))
		heal := l.fault("libvirtd.crash on=%s", l.a().Name)
		l.fault("qemu.crash vm=%s", spec.UUID)
		heal()
		l.until(soon, "the daemon is back", func() bool { _, err := l.a().Domains(l.ctx); return err == nil })
		isTrue(!l.has(l.a(), spec.UUID), "it is still there")
	})
	s.it("after a power cycle definitions are there and nothing runs", func(l *lab) {
		spec, transient := l.started(l.a()), l.started(l.a())
		l.ok(l.a().Undefine(l.ctx, transient.UUID))
		heal := l.fault("host.power-off on=%s", l.a().Name)
		_, err := l.a().Identity(l.ctx)
		l.consequence(err, hardware.Unavailable)
		heal()
		l.until(20*time.Minute, "the host is back", func() bool { _, err := l.a().Domains(l.ctx); return err == nil })
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateShutOff)
		isTrue(!l.has(l.a(), transient.UUID), "the transient domain is still there")
		l.ok(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}))
	})
	s.it("a host without power frees its disks", func(l *lab) {
		spec := l.started(l.a())
		l.ok(l.b().Define(l.ctx, spec))
		l.fault("host.power-off on=%s", l.a().Name)
		l.until(3*time.Minute, "it starts elsewhere", func() bool {
			return l.b().Start(l.ctx, spec.UUID, hardware.StartOptions{}) == nil
		})
	})
}
