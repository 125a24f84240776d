// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"time"

	"github.com/onsi/gomega"

	"github.com/adit-hv/adit/hardware"
)

// to is how a domain goes to a host.
func to(h Host, id string) hardware.MigrateOptions {
	return hardware.MigrateOptions{ID: id, Target: h.Name}
}

// slow is a bandwidth at which a job lasts long enough to look at it: 256 MiB
// take half a minute or more.
const slow = 4 << 20

func (l *lab) moved(uuid string, from, to Host) {
	l.until(moveTime, "the domain runs at "+to.Name, func() bool {
		d, err := to.Domain(l.ctx, uuid)
		return err == nil && d.State == hardware.StateRunning && !d.Incoming && d.Detail != hardware.DetailPostCopy
	})
	l.gone(from, uuid, soon)
}

// stays expects that a failed migration left the domain running where it was
// and nothing at the target.
func (l *lab) stays(uuid string, at, target Host) {
	l.until(moveTime, "the job has ended", func() bool {
		j, err := at.Job(l.ctx, uuid)
		return err != nil || !j.Running()
	})
	equal(l.domain(at, uuid).State, hardware.StateRunning)
	l.gone(target, uuid, soon)
}

func migration(s *suite) {
	s.it("a domain moves: it runs at the target, persistent, and is gone from the source", func(l *lab) {
		spec := l.booted(l.a())
		l.ok(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")))
		l.moved(spec.UUID, l.a(), l.b())
		d := l.domain(l.b(), spec.UUID)
		isTrue(d.Persistent && !d.Incoming, "%+v", d)
		equal(d.Detail, hardware.DetailMigrated)
		gomega.Expect(d.Spec).To(gomega.Equal(spec))
	})
	s.it("the call returns while the job runs", func(l *lab) {
		spec := l.booted(l.a())
		o := to(l.b(), "m")
		o.BytesPerSecond = slow
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		j, err := l.a().Job(l.ctx, spec.UUID)
		l.ok(err)
		isTrue(j.Running(), "%+v", j)
	})
	s.it("the job tells its id, kind, peer and how far it is", func(l *lab) {
		spec := l.booted(l.a())
		o := to(l.b(), "m-7")
		o.BytesPerSecond = slow
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		l.Pass(5 * time.Second)
		j, err := l.a().Job(l.ctx, spec.UUID)
		l.ok(err)
		equal(j.ID, "m-7")
		equal(j.Operation, hardware.OperationMigrationOut)
		equal(j.Peer, l.b().Name)
		isTrue(j.MemoryTotal >= spec.MemoryKiB*1024, "total %d", j.MemoryTotal)
		isTrue(j.MemoryProcessed > 0 && j.MemoryRemaining > 0 && j.DataTotal >= j.MemoryTotal, "%+v", j)
		isTrue(j.MemoryPageSize > 0 && j.MemoryIteration >= 1 && j.Elapsed >= 5*time.Second, "%+v", j)
	})
	s.it("progress only grows, and the bandwidth limit is kept", func(l *lab) {
		spec := l.booted(l.a())
		o := to(l.b(), "m")
		o.BytesPerSecond = slow
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		l.Pass(2 * time.Second)
		first, err := l.a().Job(l.ctx, spec.UUID)
		l.ok(err)
		l.Pass(5 * time.Second)
		second, err := l.a().Job(l.ctx, spec.UUID)
		l.ok(err)
		sent := second.DataProcessed - first.DataProcessed
		isTrue(second.DataProcessed >= first.DataProcessed, "%d after %d", second.DataProcessed, first.DataProcessed)
		isTrue(sent > 0 && sent < 7*slow, "%d bytes in 5 s at %d a second", sent, slow)
	})
	s.it("the target shows the half-made domain as incoming and starts nothing of it", func(l *lab) {
		spec := l.booted(l.a())
		o := to(l.b(), "m")
		o.BytesPerSecond = slow
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		d := l.domain(l.b(), spec.UUID)
		isTrue(d.Incoming && d.State == hardware.StatePaused, "%+v", d)
		l.refused(l.b().Resume(l.ctx, spec.UUID), hardware.ReasonInvalidState)
		l.refused(l.b().Start(l.ctx, spec.UUID, hardware.StartOptions{}), hardware.ReasonInvalidState)
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateRunning)
	})
	s.it("the target knows of a job and nothing of how it goes", func(l *lab) {
		spec := l.booted(l.a())
		o := to(l.b(), "m")
		o.BytesPerSecond = slow
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		l.Pass(time.Second)
		j, err := l.b().Job(l.ctx, spec.UUID)
		l.ok(err)
		isTrue(j.Running() && j.Operation == hardware.OperationMigrationIn, "%+v", j)
		equal(j.MemoryProcessed, uint64(0))
	})
	s.it("asking for the same migration twice starts one job", func(l *lab) {
		spec := l.booted(l.a())
		o := to(l.b(), "m")
		o.BytesPerSecond = slow
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
	})
	s.it("another migration of the same domain is refused", func(l *lab) {
		spec := l.booted(l.a())
		o := to(l.b(), "m")
		o.BytesPerSecond = slow
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		l.refused(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "other")), hardware.ReasonJobRunning)
	})
	s.it("devices do not change while a job runs", func(l *lab) {
		spec := l.booted(l.a())
		o := to(l.b(), "m")
		o.BytesPerSecond = slow
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		l.refused(l.a().AttachDisk(l.ctx, spec.UUID, hardware.Disk{Target: "vdb", Bus: "virtio", Volume: l.Volume()}), hardware.ReasonJobRunning)
	})
	s.it("the completed job stays readable on both sides, with a measured downtime", func(l *lab) {
		spec := l.booted(l.a())
		l.ok(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")))
		l.moved(spec.UUID, l.a(), l.b())
		for _, h := range []Host{l.a(), l.b()} {
			j, err := h.Job(l.ctx, spec.UUID)
			l.ok(err)
			equal(j.Type, hardware.JobCompleted)
			isTrue(j.Downtime > 0 && j.Downtime < 10*time.Second, "downtime %v", j.Downtime)
			isTrue(j.MemoryProcessed > 0, "%+v", j)
		}
	})
	s.it("the end is an event that holds the job", func(l *lab) {
		j := l.listen(l.a())
		spec := l.booted(l.a())
		l.ok(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")))
		l.until(moveTime, "the end is told", func() bool { return j.count(spec.UUID, 0, hardware.EventJobCompleted) > 0 })
		i := slices.IndexFunc(j.events, func(e hardware.Event) bool { return e.Kind == hardware.EventJobCompleted })
		isTrue(j.events[i].Job != nil && j.events[i].Job.Type == hardware.JobCompleted && j.events[i].Job.ID == "m", "%+v", j.events[i])
	})
	s.it("the target resumes before the source says stopped", func(l *lab) {
		source, target := l.listen(l.a()), l.listen(l.b())
		spec := l.booted(l.a())
		mark := source.mark()
		l.ok(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")))
		l.moved(spec.UUID, l.a(), l.b())
		l.Pass(time.Second)
		equal(target.of(spec.UUID, 0, hardware.EventStarted, hardware.EventResumed), []string{"started/migrated", "resumed/migrated"})
		equal(source.of(spec.UUID, mark, hardware.EventSuspended, hardware.EventStopped), []string{"suspended/migrated", "stopped/migrated"})
		resumed, _ := target.at(spec.UUID, hardware.EventResumed, hardware.DetailMigrated)
		suspended, _ := source.at(spec.UUID, hardware.EventSuspended, hardware.DetailMigrated)
		stopped, _ := source.at(spec.UUID, hardware.EventStopped, hardware.DetailMigrated)
		isTrue(suspended.Before(resumed) && resumed.Before(stopped), "suspended %v, resumed %v, stopped %v", suspended, resumed, stopped)
	})
	s.it("each round is told with its number", func(l *lab) {
		j := l.listen(l.a())
		spec := l.spec()
		l.behave(spec.UUID, Behaviour{BytesPerSecond: 4 << 20, WorkingSet: 32 << 20})
		l.ok(l.a().Define(l.ctx, spec))
		l.ok(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}))
		l.agentAnswers(l.a(), spec.UUID)
		o := to(l.b(), "m")
		o.BytesPerSecond = 16 << 20
		o.Downtime = 50 * time.Millisecond
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		l.moved(spec.UUID, l.a(), l.b())
		var rounds []uint64
		for _, e := range j.events {
			if e.Kind == hardware.EventMigrationIteration {
				rounds = append(rounds, e.Iteration)
			}
		}
		isTrue(len(rounds) >= 2 && slices.IsSorted(rounds) && rounds[0] == 1, "rounds %v", rounds)
	})
	s.it("the disk's lock goes along", func(l *lab) {
		spec := l.booted(l.a())
		l.ok(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")))
		l.moved(spec.UUID, l.a(), l.b())
		other := l.spec()
		other.Disks = spec.Disks
		l.ok(l.a().Define(l.ctx, other))
		l.refused(l.a().Start(l.ctx, other.UUID, hardware.StartOptions{}), hardware.ReasonStorageLocked)
	})
	s.it("a domain goes there and back", func(l *lab) {
		spec := l.booted(l.a())
		l.ok(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m1")))
		l.moved(spec.UUID, l.a(), l.b())
		l.ok(l.b().Migrate(l.ctx, spec.UUID, to(l.a(), "m2")))
		l.moved(spec.UUID, l.b(), l.a())
	})
	s.it("a suspended domain stays suspended", func(l *lab) {
		spec := l.booted(l.a())
		l.ok(l.a().Suspend(l.ctx, spec.UUID))
		l.ok(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")))
		l.gone(l.a(), spec.UUID, moveTime)
		equal(l.domain(l.b(), spec.UUID).State, hardware.StatePaused)
		l.ok(l.b().Resume(l.ctx, spec.UUID))
	})
	s.it("a new definition holds at the target", func(l *lab) {
		spec := l.booted(l.a())
		changed := spec
		changed.Interfaces = slices.Clone(spec.Interfaces)
		changed.Interfaces[0].Port = "another-port"
		o := to(l.b(), "m")
		o.Spec = &changed
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		l.moved(spec.UUID, l.a(), l.b())
		equal(l.domain(l.b(), spec.UUID).Spec.Interfaces[0].Port, "another-port")
	})
	s.it("limits can be raised while the job runs", func(l *lab) {
		spec := l.booted(l.a())
		o := to(l.b(), "m")
		o.BytesPerSecond = 1 << 20
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		l.Pass(time.Second)
		l.ok(l.a().SetMigrationLimits(l.ctx, spec.UUID, 0, time.Second))
		l.moved(spec.UUID, l.a(), l.b())
	})
	s.it("a guest that writes faster than the wire never converges by itself", func(l *lab) {
		spec := l.busy()
		o := to(l.b(), "m")
		o.BytesPerSecond = 8 << 20
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		l.Pass(2 * time.Minute)
		j, err := l.a().Job(l.ctx, spec.UUID)
		l.ok(err)
		isTrue(j.Running() && j.MemoryIteration > 1 && j.MemoryDirtyRate > 0, "%+v", j)
		l.ok(l.a().AbortJob(l.ctx, spec.UUID))
	})
	s.it("auto-converge slows such a guest down until it does", func(l *lab) {
		spec := l.busy()
		o := to(l.b(), "m")
		o.BytesPerSecond = 8 << 20
		o.AutoConverge = true
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		throttle := 0
		l.until(20*time.Minute, "it has moved", func() bool {
			if j, err := l.a().Job(l.ctx, spec.UUID); err == nil {
				throttle = max(throttle, j.AutoConvergeThrottle)
			}
			return !l.has(l.a(), spec.UUID)
		})
		isTrue(throttle >= 20 && throttle <= 99, "throttle %d", throttle)
	})
	s.it("local disks are copied along when asked, and refused when not", func(l *lab) {
		spec := l.spec()
		spec.Disks[0].Volume = l.LocalVolume()
		l.ok(l.a().Define(l.ctx, spec))
		l.ok(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}))
		l.agentAnswers(l.a(), spec.UUID)
		l.refused(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m1")), hardware.ReasonNoStorage)
		o := to(l.b(), "m2")
		o.CopyStorage = true
		l.ok(l.a().Migrate(l.ctx, spec.UUID, o))
		l.moved(spec.UUID, l.a(), l.b())
		j, err := l.b().Job(l.ctx, spec.UUID)
		l.ok(err)
		isTrue(j.DiskTotal > 0 && j.DiskProcessed > 0, "%+v", j)
	})
	s.it("an inactive domain is not migrated", func(l *lab) {
		l.refused(l.a().Migrate(l.ctx, l.defined(l.a()).UUID, to(l.b(), "m")), hardware.ReasonInvalidState)
	})
	s.it("a domain is not migrated to its own host", func(l *lab) {
		l.refused(l.a().Migrate(l.ctx, l.started(l.a()).UUID, to(l.a(), "m")), hardware.ReasonOther)
	})
	s.it("a name that the target uses is refused", func(l *lab) {
		spec, other := l.started(l.a()), l.spec()
		other.Name = spec.Name
		l.ok(l.b().Define(l.ctx, other))
		l.refused(l.a().Migrate(l.ctx, spec.UUID, to(l.b(), "m")), hardware.ReasonInvalidSpec)
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateRunning)
	})
	s.it("without a job there is none to read, abort or limit", func(l *lab) {
		spec := l.started(l.a())
		_, err := l.a().Job(l.ctx, spec.UUID)
		l.refused(err, hardware.ReasonNoJob)
		l.refused(l.a().AbortJob(l.ctx, spec.UUID), hardware.ReasonNoJob)
		l.refused(l.a().StartPostCopy(l.ctx, spec.UUID), hardware.ReasonNoJob)
		l.refused(l.a().RecoverPostCopy(l.ctx, spec.UUID), hardware.ReasonNoJob)
		l.refused(l.a().SetMigrationLimits(l.ctx, spec.UUID, 0, time.Second), hardware.ReasonNoJob)
	})
}

// busy is a booted domain whose guest writes 64 MiB/s all over 128 MiB.
func (l *lab) busy() hardware.DomainSpec {
	spec := l.spec()
	l.behave(spec.UUID, Behaviour{BytesPerSecond: 64 << 20, WorkingSet: 128 << 20})
	l.ok(l.a().Define(l.ctx, spec))
	l.ok(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}))
	l.agentAnswers(l.a(), spec.UUID)
	return spec
}
