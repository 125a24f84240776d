// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/onsi/gomega"

	"github.com/adit-hv/adit/hardware"
)

func events(s *suite) {
	s.it("a subscription begins with a gap", func(l *lab) {
		equal(l.listen(l.a()).events[0].Kind, hardware.EventGap)
	})
	s.it("a subscription ends with its context", func(l *lab) {
		ctx, cancel := context.WithCancel(l.ctx)
		n := 0
		l.ok(l.a().Subscribe(ctx, func(hardware.Event) { n++ }))
		l.until(soon, "the first event comes", func() bool { return n > 0 })
		cancel()
		l.Pass(time.Second)
		seen := n
		l.started(l.a())
		l.Pass(time.Second)
		equal(n, seen)
	})
	s.it("definitions are told as added, updated, removed", func(l *lab) {
		j := l.listen(l.a())
		spec := l.defined(l.a())
		spec.VCPUs = 2
		l.ok(l.a().Define(l.ctx, spec))
		l.ok(l.a().Undefine(l.ctx, spec.UUID))
		l.until(soon, "three events", func() bool { return len(j.of(spec.UUID, 0)) == 3 })
		equal(j.of(spec.UUID, 0), []string{"defined/added", "defined/updated", "undefined/removed"})
	})
	s.it("a start is told as resumed, then started", func(l *lab) {
		j := l.listen(l.a())
		spec := l.started(l.a())
		l.until(soon, "the start is told", func() bool { return j.count(spec.UUID, 0, hardware.EventStarted) > 0 })
		equal(j.of(spec.UUID, 0, hardware.EventResumed, hardware.EventStarted), []string{"resumed/unpaused", "started/booted"})
	})
	s.it("a paused start is told as started, then suspended", func(l *lab) {
		j := l.listen(l.a())
		spec := l.defined(l.a())
		l.ok(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{Paused: true}))
		l.until(soon, "it is told", func() bool { return j.count(spec.UUID, 0, hardware.EventSuspended) > 0 })
		equal(j.of(spec.UUID, 0, hardware.EventStarted, hardware.EventSuspended)[0], "started/booted")
	})
	s.it("a guest's power-off is told as shutdown, and stopped follows a moment later", func(l *lab) {
		j := l.listen(l.a())
		spec := l.booted(l.a())
		mark := j.mark()
		l.ok(l.a().Shutdown(l.ctx, spec.UUID))
		l.until(time.Minute, "it has stopped", func() bool { return j.count(spec.UUID, mark, hardware.EventStopped) > 0 })
		equal(j.of(spec.UUID, mark, hardware.EventShutdown, hardware.EventStopped), []string{"shutdown/guest", "stopped/shutdown"})
		shut, _ := j.at(spec.UUID, hardware.EventShutdown, hardware.DetailGuest)
		stopped, _ := j.at(spec.UUID, hardware.EventStopped, hardware.DetailShutdown)
		isTrue(stopped.After(shut), "both at %v", shut)
	})
	s.it("destroy is told as stopped, without a shutdown", func(l *lab) {
		j := l.listen(l.a())
		spec := l.started(l.a())
		l.ok(l.a().Destroy(l.ctx, spec.UUID))
		l.until(soon, "it is told", func() bool { return j.count(spec.UUID, 0, hardware.EventStopped) > 0 })
		equal(j.of(spec.UUID, 0, hardware.EventShutdown, hardware.EventStopped), []string{"stopped/destroyed"})
	})
	s.it("suspend and resume are told", func(l *lab) {
		j := l.listen(l.a())
		spec := l.started(l.a())
		l.Pass(time.Second)
		mark := j.mark()
		l.ok(l.a().Suspend(l.ctx, spec.UUID))
		l.ok(l.a().Resume(l.ctx, spec.UUID))
		l.until(soon, "both are told", func() bool { return len(j.of(spec.UUID, mark)) >= 2 })
		equal(j.of(spec.UUID, mark), []string{"suspended/user", "resumed/unpaused"})
	})
	s.it("what was there already tells nothing", func(l *lab) {
		j := l.listen(l.a())
		spec := l.started(l.a())
		l.Pass(time.Second)
		mark := j.mark()
		l.ok(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}))
		l.ok(l.a().Resume(l.ctx, spec.UUID))
		l.Pass(time.Second)
		equal(len(j.of(spec.UUID, mark, hardware.EventStarted, hardware.EventResumed)), 0)
	})
	s.it("a reset is told as reboot, perhaps more than once, and never as stopped", func(l *lab) {
		j := l.listen(l.a())
		spec := l.booted(l.a())
		l.ok(l.a().Reset(l.ctx, spec.UUID))
		l.until(soon, "it is told", func() bool { return j.count(spec.UUID, 0, hardware.EventReboot) > 0 })
		l.Pass(time.Second)
		isTrue(j.count(spec.UUID, 0, hardware.EventReboot) <= 3, "%v", j.of(spec.UUID, 0))
		equal(j.count(spec.UUID, 0, hardware.EventStopped), 0)
	})
	s.it("the agent's coming and going is told", func(l *lab) {
		j := l.listen(l.a())
		spec := l.booted(l.a())
		l.until(soon, "it came", func() bool { return j.count(spec.UUID, 0, hardware.EventAgent) > 0 })
		equal(j.of(spec.UUID, 0, hardware.EventAgent), []string{"agent/connected"})
		l.ok(l.a().Shutdown(l.ctx, spec.UUID))
		l.until(time.Minute, "it went", func() bool { return j.count(spec.UUID, 0, hardware.EventAgent) > 1 })
		equal(j.of(spec.UUID, 0, hardware.EventAgent)[1], "agent/disconnected")
	})
	s.it("events name the domain and their time", func(l *lab) {
		j := l.listen(l.a())
		spec := l.started(l.a())
		l.until(soon, "events come", func() bool { return len(j.of(spec.UUID, 0)) >= 3 })
		last := time.Time{}
		for _, e := range j.events[1:] {
			equal(e.Name, spec.Name)
			isTrue(!e.At.Before(last), "%v before %v", e.At, last)
			last = e.At
		}
	})
	s.it("two listeners hear the same in the same order", func(l *lab) {
		one, two := l.listen(l.a()), l.listen(l.a())
		spec := l.started(l.a())
		l.ok(l.a().Suspend(l.ctx, spec.UUID))
		l.ok(l.a().Destroy(l.ctx, spec.UUID))
		l.until(soon, "both have heard the end", func() bool {
			return one.count(spec.UUID, 0, hardware.EventStopped) > 0 && two.count(spec.UUID, 0, hardware.EventStopped) > 0
		})
		equal(two.of(spec.UUID, 0), one.of(spec.UUID, 0))
	})
	s.it("the list shows what an event told", func(l *lab) {
		var seen []hardware.Event
		l.ok(l.a().Subscribe(l.ctx, func(e hardware.Event) { seen = append(seen, e) }))
		spec := l.started(l.a())
		l.until(soon, "the start is told", func() bool {
			return slices.ContainsFunc(seen, func(e hardware.Event) bool { return e.Kind == hardware.EventStarted })
		})
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateRunning)
	})
	s.it("a daemon that dies is told as connection lost, and a gap follows when it is back", func(l *lab) {
		j := l.listen(l.a())
		heal := l.fault("libvirtd.crash on=%s", l.a().Name)
		l.until(soon, "the loss is told", func() bool { return j.events[len(j.events)-1].Kind == hardware.EventConnectionLost })
		heal()
		l.until(soon, "the gap is told", func() bool { return j.gaps() == 2 })
	})
	s.it("events flow again after the gap, each once", func(l *lab) {
		j := l.listen(l.a())
		l.fault("libvirtd.crash on=%s", l.a().Name)()
		l.until(soon, "the gap is told", func() bool { return j.gaps() == 2 })
		spec := l.started(l.a())
		l.until(soon, "the start is told", func() bool { return j.count(spec.UUID, 0, hardware.EventStarted) > 0 })
		l.Pass(time.Second)
		equal(j.count(spec.UUID, 0, hardware.EventStarted), 1)
	})
	s.it("what happens while the daemon is down is not told, and the list knows it", func(l *lab) {
		j := l.listen(l.a())
		spec := l.started(l.a())
		l.Pass(time.Second)
		mark := j.mark()
		heal := l.fault("libvirtd.crash on=%s", l.a().Name)
		l.fault("qemu.crash vm=%s", spec.UUID)
		heal()
		l.until(soon, "the gap is told", func() bool { return j.gaps() == 2 })
		equal(j.count(spec.UUID, mark, hardware.EventStopped), 0)
		l.state(l.a(), spec.UUID, 0, hardware.StateShutOff, hardware.DetailCrashed)
	})
	s.it("a QEMU that is killed is told as failed and leaves a crashed domain", func(l *lab) {
		j := l.listen(l.a())
		spec := l.started(l.a())
		l.fault("qemu.crash vm=%s", spec.UUID)
		l.until(soon, "it is told", func() bool { return j.count(spec.UUID, 0, hardware.EventStopped) > 0 })
		equal(j.of(spec.UUID, 0, hardware.EventStopped), []string{"stopped/failed"})
		l.state(l.a(), spec.UUID, 0, hardware.StateShutOff, hardware.DetailCrashed)
	})
	for _, c := range []struct {
		onCrash string
		want    string
		state   hardware.State
	}{
		{"destroy", "stopped/crashed", hardware.StateShutOff},
		{"restart", "reboot", hardware.StateRunning},
		{"preserve", "suspended/panicked", hardware.StateCrashed},
	} {
		s.it("a guest that panics is told as crashed, and on_crash="+c.onCrash+" is obeyed", func(l *lab) {
			j := l.listen(l.a())
			spec := l.spec()
			spec.OnCrash = c.onCrash
			l.ok(l.a().Define(l.ctx, spec))
			l.ok(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}))
			l.fault("guest.panic vm=%s", spec.UUID)
			l.until(soon, c.want+" is told", func() bool { return slices.Contains(j.of(spec.UUID, 0), c.want) })
			equal(j.of(spec.UUID, 0, hardware.EventCrashed), []string{"crashed/panicked"})
			equal(l.domain(l.a(), spec.UUID).State, c.state)
		})
	}
	for _, c := range []struct{ action, want string }{
		{"reset", "reboot"}, {"poweroff", "stopped/failed"}, {"pause", "suspended/watchdog"},
	} {
		s.it("a guest that hangs tells nothing until its watchdog does "+c.action, func(l *lab) {
			j := l.listen(l.a())
			spec := l.spec()
			spec.Watchdog = c.action
			l.ok(l.a().Define(l.ctx, spec))
			l.ok(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}))
			l.agentAnswers(l.a(), spec.UUID)
			l.Pass(time.Second)
			mark := j.mark()
			l.fault("guest.hang vm=%s", spec.UUID)
			l.Pass(time.Second)
			equal(len(j.of(spec.UUID, mark)), 0)
			l.until(2*time.Minute, c.want+" is told", func() bool { return slices.Contains(j.of(spec.UUID, mark), c.want) })
			equal(j.of(spec.UUID, mark)[0], "watchdog/"+c.action)
		})
	}
	s.it("events that come twice change no state", func(l *lab) {
		l.fault("events.dup on=%s", l.a().Name)
		j := l.listen(l.a())
		spec := l.started(l.a())
		l.until(soon, "the start is told twice", func() bool { return j.count(spec.UUID, 0, hardware.EventStarted) == 2 })
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateRunning)
	})
}

func storage(s *suite) {
	s.it("a disk that a QEMU elsewhere holds is refused", func(l *lab) {
		first, second := l.started(l.a()), l.spec()
		second.Disks = first.Disks
		l.ok(l.b().Define(l.ctx, second))
		l.refused(l.b().Start(l.ctx, second.UUID, hardware.StartOptions{}), hardware.ReasonStorageLocked)
		equal(l.domain(l.b(), second.UUID).Active(), false)
	})
	s.it("the same domain does not start on two hosts", func(l *lab) {
		spec := l.started(l.a())
		l.ok(l.b().Define(l.ctx, spec))
		l.refused(l.b().Start(l.ctx, spec.UUID, hardware.StartOptions{}), hardware.ReasonStorageLocked)
	})
	s.it("a disk is free when its QEMU is gone", func(l *lab) {
		first, second := l.started(l.a()), l.spec()
		second.Disks = first.Disks
		l.ok(l.b().Define(l.ctx, second))
		l.ok(l.a().Destroy(l.ctx, first.UUID))
		l.ok(l.b().Start(l.ctx, second.UUID, hardware.StartOptions{}))
	})
	s.it("a suspended domain holds its disk", func(l *lab) {
		first, second := l.started(l.a()), l.spec()
		second.Disks = first.Disks
		l.ok(l.a().Suspend(l.ctx, first.UUID))
		l.ok(l.b().Define(l.ctx, second))
		l.refused(l.b().Start(l.ctx, second.UUID, hardware.StartOptions{}), hardware.ReasonStorageLocked)
	})
	s.it("shared and read-only disks are nobody's", func(l *lab) {
		first, second := l.spec(), l.spec()
		first.Disks = []hardware.Disk{{Target: "vda", Bus: "virtio", Volume: l.Volume(), Shared: true}, {Target: "sda", Bus: "sata", Volume: l.Volume(), ReadOnly: true}}
		second.Disks = first.Disks
		for i, h := range []Host{l.a(), l.b()} {
			spec := []hardware.DomainSpec{first, second}[i]
			l.ok(h.Define(l.ctx, spec))
			l.ok(h.Start(l.ctx, spec.UUID, hardware.StartOptions{}))
		}
	})
	s.it("a volume that is not there is refused at the start, not at the definition", func(l *lab) {
		spec := l.spec()
		spec.Disks[0].Volume = "nowhere/nothing"
		l.ok(l.a().Define(l.ctx, spec))
		l.refused(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}), hardware.ReasonNoStorage)
	})
	s.it("a detached disk is free", func(l *lab) {
		first := l.booted(l.a())
		disk := hardware.Disk{Target: "vdb", Bus: "virtio", Volume: l.Volume()}
		l.ok(l.a().AttachDisk(l.ctx, first.UUID, disk))
		second := l.started(l.b())
		l.refused(l.b().AttachDisk(l.ctx, second.UUID, disk), hardware.ReasonStorageLocked)
		l.ok(l.a().DetachDisk(l.ctx, first.UUID, "vdb"))
		l.until(soon, "the guest has let go", func() bool { return len(l.domain(l.a(), first.UUID).Spec.Disks) == 1 })
		l.ok(l.b().AttachDisk(l.ctx, second.UUID, disk))
	})
	s.it("a full pool pauses guests that write, and they go on when there is room", func(l *lab) {
		j := l.listen(l.a())
		spec := l.booted(l.a())
		heal := l.fault("storage.full pool=%s", poolOf(spec))
		l.state(l.a(), spec.UUID, time.Minute, hardware.StatePaused, hardware.DetailIOError)
		l.until(soon, "the I/O error is told", func() bool { return j.count(spec.UUID, 0, hardware.EventIOError) > 0 })
		heal()
		l.Pass(5 * time.Second)
		equal(l.domain(l.a(), spec.UUID).State, hardware.StatePaused) // nobody resumes it but us
		l.ok(l.a().Resume(l.ctx, spec.UUID))
		l.Pass(10 * time.Second)
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateRunning)
	})
	s.it("a host that lost a pool starts nothing from it", func(l *lab) {
		spec := l.defined(l.a())
		l.fault("storage.lost on=%s pool=%s", l.a().Name, poolOf(spec))
		l.refused(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}), hardware.ReasonNoStorage)
	})
}

func poolOf(s hardware.DomainSpec) string {
	for i, r := range s.Disks[0].Volume {
		if r == '/' {
			return s.Disks[0].Volume[:i]
		}
	}
	gomega.Expect(s.Disks[0].Volume).To(gomega.ContainSubstring("/"))
	return ""
}
