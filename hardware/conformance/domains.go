// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"
	"time"

	"github.com/onsi/gomega"

	"github.com/adit-hv/adit/hardware"
)

func definitions(s *suite) {
	s.it("a defined domain is listed, shut off and persistent, with all that was defined", func(l *lab) {
		spec := l.defined(l.a())
		d := l.domain(l.a(), spec.UUID)
		equal(d.State, hardware.StateShutOff)
		isTrue(d.Persistent && !d.Active() && !d.Incoming && !d.Foreign, "%+v", d)
		gomega.Expect(d.Spec).To(gomega.Equal(spec))
	})
	s.it("lists are sorted by UUID, active and not", func(l *lab) {
		for range 4 {
			l.defined(l.a())
		}
		l.started(l.a())
		list, err := l.a().Domains(l.ctx)
		l.ok(err)
		equal(len(list), 5)
		isTrue(slices.IsSortedFunc(list, func(a, b hardware.Domain) int { return strings.Compare(a.UUID, b.UUID) }), "the list is not sorted")
	})
	s.it("defining twice is success", func(l *lab) {
		spec := l.defined(l.a())
		l.ok(l.a().Define(l.ctx, spec))
	})
	s.it("defining anew replaces the definition", func(l *lab) {
		spec := l.defined(l.a())
		spec.MemoryKiB *= 2
		l.ok(l.a().Define(l.ctx, spec))
		equal(l.domain(l.a(), spec.UUID).Spec.MemoryKiB, spec.MemoryKiB)
	})
	s.it("a name that another domain has is refused", func(l *lab) {
		first, second := l.defined(l.a()), l.spec()
		second.Name = first.Name
		l.refused(l.a().Define(l.ctx, second), hardware.ReasonInvalidSpec)
	})
	s.it("a UUID that another name has is refused", func(l *lab) {
		first, second := l.defined(l.a()), l.spec()
		second.UUID = first.UUID
		l.refused(l.a().Define(l.ctx, second), hardware.ReasonInvalidSpec)
	})
	s.it("names with a slash or a control character are refused", func(l *lab) {
		for _, name := range []string{"a/b", "a\nb", ""} {
			spec := l.spec()
			spec.Name = name
			l.refused(l.a().Define(l.ctx, spec), hardware.ReasonInvalidSpec)
		}
	})
	s.it("a UUID that is none is refused", func(l *lab) {
		spec := l.spec()
		spec.UUID = "not-a-uuid"
		l.refused(l.a().Define(l.ctx, spec), hardware.ReasonInvalidSpec)
	})
	s.it("a domain without memory is refused", func(l *lab) {
		spec := l.spec()
		spec.MemoryKiB = 0
		l.refused(l.a().Define(l.ctx, spec), hardware.ReasonInvalidSpec)
	})
	s.it("two disks at one target are refused", func(l *lab) {
		spec := l.spec()
		spec.Disks = append(spec.Disks, spec.Disks[0])
		l.refused(l.a().Define(l.ctx, spec), hardware.ReasonInvalidSpec)
	})
	s.it("a domain without our metadata is foreign", func(l *lab) {
		spec := l.spec()
		spec.Owner = nil
		l.ok(l.a().Define(l.ctx, spec))
		isTrue(l.domain(l.a(), spec.UUID).Foreign, "it is not")
	})
	s.it("metadata with its run token is kept", func(l *lab) {
		spec := l.defined(l.a())
		gomega.Expect(l.domain(l.a(), spec.UUID).Spec.Owner).To(gomega.Equal(spec.Owner))
	})
	s.it("undefining removes an inactive domain, and again is success", func(l *lab) {
		spec := l.defined(l.a())
		l.ok(l.a().Undefine(l.ctx, spec.UUID))
		isTrue(!l.has(l.a(), spec.UUID), "it is still there")
		l.ok(l.a().Undefine(l.ctx, spec.UUID))
	})
	s.it("undefining an active domain makes it transient, and it vanishes with its QEMU", func(l *lab) {
		spec := l.started(l.a())
		l.ok(l.a().Undefine(l.ctx, spec.UUID))
		d := l.domain(l.a(), spec.UUID)
		isTrue(d.Active() && !d.Persistent, "%+v", d)
		l.ok(l.a().Destroy(l.ctx, spec.UUID))
		l.gone(l.a(), spec.UUID, soon)
	})
	s.it("a domain that is not there is refused as such, whatever is asked", func(l *lab) {
		h, uuid := l.a(), l.spec().UUID
		_, err := h.Domain(l.ctx, uuid)
		l.refused(err, hardware.ReasonNoDomain)
		l.refused(h.Start(l.ctx, uuid, hardware.StartOptions{}), hardware.ReasonNoDomain)
		l.refused(h.Shutdown(l.ctx, uuid), hardware.ReasonNoDomain)
		l.refused(h.Destroy(l.ctx, uuid), hardware.ReasonNoDomain)
		l.refused(h.Suspend(l.ctx, uuid), hardware.ReasonNoDomain)
		l.refused(h.Resume(l.ctx, uuid), hardware.ReasonNoDomain)
		l.refused(h.Reset(l.ctx, uuid), hardware.ReasonNoDomain)
		l.refused(h.Migrate(l.ctx, uuid, hardware.MigrateOptions{Target: l.b().Name}), hardware.ReasonNoDomain)
		_, err = h.Stats(l.ctx, uuid)
		l.refused(err, hardware.ReasonNoDomain)
	})
}

func lifecycle(s *suite) {
	s.it("a started domain runs, since a time", func(l *lab) {
		spec := l.started(l.a())
		d := l.domain(l.a(), spec.UUID)
		equal(d.State, hardware.StateRunning)
		equal(d.Detail, hardware.DetailBooted)
		isTrue(!d.StartedAt.IsZero() && d.Persistent, "%+v", d)
	})
	s.it("starting a running domain is success and starts nothing", func(l *lab) {
		spec := l.started(l.a())
		since := l.domain(l.a(), spec.UUID).StartedAt
		l.ok(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}))
		equal(l.domain(l.a(), spec.UUID).StartedAt, since)
	})
	s.it("a domain can start paused and be resumed", func(l *lab) {
		spec := l.defined(l.a())
		l.ok(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{Paused: true}))
		equal(l.domain(l.a(), spec.UUID).State, hardware.StatePaused)
		l.ok(l.a().Resume(l.ctx, spec.UUID))
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateRunning)
		l.agentAnswers(l.a(), spec.UUID)
	})
	s.it("destroy ends a domain at once and keeps its definition", func(l *lab) {
		spec := l.started(l.a())
		l.ok(l.a().Destroy(l.ctx, spec.UUID))
		l.state(l.a(), spec.UUID, 0, hardware.StateShutOff, hardware.DetailDestroyed)
		isTrue(l.domain(l.a(), spec.UUID).StartedAt.IsZero(), "an inactive domain has a start time")
	})
	s.it("destroying an inactive domain is success", func(l *lab) { l.ok(l.a().Destroy(l.ctx, l.defined(l.a()).UUID)) })
	s.it("a guest that listens shuts down", func(l *lab) {
		spec := l.booted(l.a())
		l.ok(l.a().Shutdown(l.ctx, spec.UUID))
		l.state(l.a(), spec.UUID, time.Minute, hardware.StateShutOff, hardware.DetailShutdown)
	})
	s.it("shutdown returns before the guest is down", func(l *lab) {
		spec := l.booted(l.a())
		l.ok(l.a().Shutdown(l.ctx, spec.UUID))
		isTrue(l.domain(l.a(), spec.UUID).Active(), "the call has waited")
	})
	s.it("shutting down an inactive domain is success", func(l *lab) { l.ok(l.a().Shutdown(l.ctx, l.defined(l.a()).UUID)) })
	s.it("a guest that ignores ACPI runs on", func(l *lab) {
		spec := l.spec()
		l.behave(spec.UUID, Behaviour{Deaf: true})
		l.ok(l.a().Define(l.ctx, spec))
		l.ok(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}))
		l.agentAnswers(l.a(), spec.UUID)
		l.ok(l.a().Shutdown(l.ctx, spec.UUID))
		l.Pass(20 * time.Second)
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateRunning)
	})
	s.it("suspend pauses, again is success, resume lets it run", func(l *lab) {
		spec := l.started(l.a())
		l.ok(l.a().Suspend(l.ctx, spec.UUID))
		l.ok(l.a().Suspend(l.ctx, spec.UUID))
		l.state(l.a(), spec.UUID, 0, hardware.StatePaused, hardware.DetailUser)
		l.ok(l.a().Resume(l.ctx, spec.UUID))
		l.ok(l.a().Resume(l.ctx, spec.UUID))
		equal(l.domain(l.a(), spec.UUID).State, hardware.StateRunning)
	})
	s.it("an inactive domain cannot be suspended, resumed, reset or rebooted", func(l *lab) {
		spec := l.defined(l.a())
		l.refused(l.a().Suspend(l.ctx, spec.UUID), hardware.ReasonInvalidState)
		l.refused(l.a().Resume(l.ctx, spec.UUID), hardware.ReasonInvalidState)
		l.refused(l.a().Reset(l.ctx, spec.UUID), hardware.ReasonInvalidState)
		l.refused(l.a().Reboot(l.ctx, spec.UUID), hardware.ReasonInvalidState)
	})
	s.it("reset keeps the QEMU", func(l *lab) {
		spec := l.booted(l.a())
		since := l.domain(l.a(), spec.UUID).StartedAt
		l.ok(l.a().Reset(l.ctx, spec.UUID))
		d := l.domain(l.a(), spec.UUID)
		equal(d.State, hardware.StateRunning)
		equal(d.StartedAt, since)
		l.agentAnswers(l.a(), spec.UUID)
	})
	s.it("reboot brings the guest back in the same QEMU", func(l *lab) {
		spec := l.booted(l.a())
		since := l.domain(l.a(), spec.UUID).StartedAt
		l.ok(l.a().Reboot(l.ctx, spec.UUID))
		l.Pass(5 * time.Second)
		l.agentAnswers(l.a(), spec.UUID)
		equal(l.domain(l.a(), spec.UUID).StartedAt, since)
	})
	s.it("a change of the definition waits for the next start", func(l *lab) {
		spec := l.started(l.a())
		changed := spec
		changed.MemoryKiB *= 2
		l.ok(l.a().Define(l.ctx, changed))
		equal(l.domain(l.a(), spec.UUID).Spec.MemoryKiB, spec.MemoryKiB)
		l.ok(l.a().Destroy(l.ctx, spec.UUID))
		equal(l.domain(l.a(), spec.UUID).Spec.MemoryKiB, changed.MemoryKiB)
	})
	s.it("more memory than the host has is refused at the start", func(l *lab) {
		spec := l.spec()
		spec.MemoryKiB = 1 << 45
		l.ok(l.a().Define(l.ctx, spec))
		l.refused(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}), hardware.ReasonNoMemory)
		equal(l.domain(l.a(), spec.UUID).Active(), false)
	})
	s.it("huge pages that nobody set aside are refused at the start", func(l *lab) {
		spec := l.spec()
		spec.HugePageKiB = 1 << 20
		l.ok(l.a().Define(l.ctx, spec))
		l.refused(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}), hardware.ReasonNoMemory)
	})
	s.it("a pin to a CPU the host does not have is refused at the start", func(l *lab) {
		spec := l.spec()
		spec.Pinned = map[int][]int{0: {100000}}
		l.ok(l.a().Define(l.ctx, spec))
		l.refused(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}), hardware.ReasonInvalidSpec)
	})
	s.it("a done context asks for nothing", func(l *lab) {
		spec := l.defined(l.a())
		l.consequence(l.a().Start(done(), spec.UUID, hardware.StartOptions{}), hardware.Unavailable)
		equal(l.domain(l.a(), spec.UUID).Active(), false)
	})
}

func devices(s *suite) {
	s.it("a disk is attached to a running domain and kept", func(l *lab) {
		spec := l.started(l.a())
		disk := hardware.Disk{Target: "vdb", Bus: "virtio", Volume: l.Volume()}
		l.ok(l.a().AttachDisk(l.ctx, spec.UUID, disk))
		l.ok(l.a().AttachDisk(l.ctx, spec.UUID, disk))
		equal(len(l.domain(l.a(), spec.UUID).Spec.Disks), 2)
		l.ok(l.a().Destroy(l.ctx, spec.UUID))
		equal(len(l.domain(l.a(), spec.UUID).Spec.Disks), 2)
	})
	s.it("another disk at a taken target is refused", func(l *lab) {
		spec := l.started(l.a())
		l.refused(l.a().AttachDisk(l.ctx, spec.UUID, hardware.Disk{Target: "vda", Bus: "virtio", Volume: l.Volume()}), hardware.ReasonInvalidSpec)
	})
	s.it("a volume that is not there is refused", func(l *lab) {
		spec := l.started(l.a())
		l.refused(l.a().AttachDisk(l.ctx, spec.UUID, hardware.Disk{Target: "vdb", Bus: "virtio", Volume: "nowhere/nothing"}), hardware.ReasonNoStorage)
		equal(len(l.domain(l.a(), spec.UUID).Spec.Disks), 1)
	})
	s.it("a detach is done when the guest lets go, and an event says so", func(l *lab) {
		j := l.listen(l.a())
		spec := l.booted(l.a())
		l.ok(l.a().AttachDisk(l.ctx, spec.UUID, hardware.Disk{Target: "vdb", Bus: "virtio", Volume: l.Volume()}))
		l.ok(l.a().DetachDisk(l.ctx, spec.UUID, "vdb"))
		l.until(soon, "the device is gone", func() bool { return j.count(spec.UUID, 0, hardware.EventDeviceRemoved) == 1 })
		equal(len(l.domain(l.a(), spec.UUID).Spec.Disks), 1)
	})
	s.it("detaching what is not there is success", func(l *lab) {
		spec := l.started(l.a())
		l.ok(l.a().DetachDisk(l.ctx, spec.UUID, "vdz"))
		l.ok(l.a().DetachInterface(l.ctx, spec.UUID, "52:54:00:ff:ff:ff"))
	})
	s.it("an interface comes and goes by its MAC", func(l *lab) {
		j := l.listen(l.a())
		spec := l.booted(l.a())
		l.ok(l.a().AttachInterface(l.ctx, spec.UUID, hardware.Interface{MAC: "52:54:00:aa:00:01", Bridge: "br-int", Port: "p"}))
		equal(len(l.domain(l.a(), spec.UUID).Spec.Interfaces), 2)
		l.ok(l.a().DetachInterface(l.ctx, spec.UUID, "52:54:00:AA:00:01"))
		l.until(soon, "the device is gone", func() bool { return j.count(spec.UUID, 0, hardware.EventDeviceRemoved) == 1 })
		equal(len(l.domain(l.a(), spec.UUID).Spec.Interfaces), 1)
	})
	s.it("devices of an inactive domain change at once", func(l *lab) {
		spec := l.defined(l.a())
		l.ok(l.a().AttachDisk(l.ctx, spec.UUID, hardware.Disk{Target: "vdb", Bus: "virtio", Volume: l.Volume()}))
		l.ok(l.a().DetachDisk(l.ctx, spec.UUID, "vda"))
		disks := l.domain(l.a(), spec.UUID).Spec.Disks
		isTrue(len(disks) == 1 && disks[0].Target == "vdb", "%+v", disks)
	})
	s.it("an inactive domain is resized", func(l *lab) {
		spec := l.defined(l.a())
		l.ok(l.a().Resize(l.ctx, spec.UUID, 2, 0))
		d := l.domain(l.a(), spec.UUID)
		isTrue(d.Spec.VCPUs == 2 && d.Spec.MemoryKiB == spec.MemoryKiB, "%+v", d.Spec)
	})
	s.it("a running domain does not grow beyond what it was started with", func(l *lab) {
		spec := l.started(l.a())
		l.refused(l.a().Resize(l.ctx, spec.UUID, 0, spec.MemoryKiB*64), hardware.ReasonUnsupported)
	})
}

func guests(s *suite) {
	s.it("stats grow while a guest runs and stand while it is suspended", func(l *lab) {
		spec := l.booted(l.a())
		first, err := l.a().Stats(l.ctx, spec.UUID)
		l.ok(err)
		l.Pass(5 * time.Second)
		second, err := l.a().Stats(l.ctx, spec.UUID)
		l.ok(err)
		isTrue(second.CPUTime > first.CPUTime, "%v after %v", second.CPUTime, first.CPUTime)
		l.ok(l.a().Suspend(l.ctx, spec.UUID))
		first, err = l.a().Stats(l.ctx, spec.UUID)
		l.ok(err)
		l.Pass(5 * time.Second)
		second, err = l.a().Stats(l.ctx, spec.UUID)
		l.ok(err)
		isTrue(second.CPUTime < first.CPUTime+time.Second, "%v after %v", second.CPUTime, first.CPUTime)
	})
	s.it("the agent is not connected before the guest has booted", func(l *lab) {
		spec := l.started(l.a())
		_, err := l.a().GuestInfo(l.ctx, spec.UUID)
		l.refused(err, hardware.ReasonNoAgent)
	})
	s.it("a guest without an agent never gets one", func(l *lab) {
		spec := l.spec()
		l.behave(spec.UUID, Behaviour{NoAgent: true})
		l.ok(l.a().Define(l.ctx, spec))
		l.ok(l.a().Start(l.ctx, spec.UUID, hardware.StartOptions{}))
		l.Pass(time.Minute)
		l.refused(l.a().Freeze(l.ctx, spec.UUID), hardware.ReasonNoAgent)
	})
	s.it("the agent tells of the guest, freezes and thaws", func(l *lab) {
		spec := l.booted(l.a())
		info, err := l.a().GuestInfo(l.ctx, spec.UUID)
		l.ok(err)
		isTrue(info.Hostname != "", "no host name")
		l.ok(l.a().Freeze(l.ctx, spec.UUID))
		info, err = l.a().GuestInfo(l.ctx, spec.UUID)
		l.ok(err)
		isTrue(info.Frozen, "it is not frozen")
		l.ok(l.a().Thaw(l.ctx, spec.UUID))
	})
	s.it("the agent of an inactive domain is refused by state", func(l *lab) {
		_, err := l.a().GuestInfo(l.ctx, l.defined(l.a()).UUID)
		l.refused(err, hardware.ReasonInvalidState)
	})
	s.it("console, display and screenshot of a running guest", func(l *lab) {
		spec := l.booted(l.a())
		c, err := l.a().Console(l.ctx, spec.UUID)
		l.ok(err)
		_, err = c.Write([]byte("\n"))
		l.ok(err)
		l.ok(c.Close())
		g, err := l.a().Graphics(l.ctx, spec.UUID)
		l.ok(err)
		banner := make([]byte, 4)
		_, err = g.Read(banner)
		l.ok(err)
		equal(string(banner), "RFB ")
		l.ok(g.Close())
		png, err := l.a().Screenshot(l.ctx, spec.UUID)
		l.ok(err)
		isTrue(strings.HasPrefix(string(png), "\x89PNG"), "it is no PNG")
	})
	s.it("the console of an inactive domain is refused", func(l *lab) {
		_, err := l.a().Console(l.ctx, l.defined(l.a()).UUID)
		l.refused(err, hardware.ReasonInvalidState)
	})
}
