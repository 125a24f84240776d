// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/adit-hv/adit/hardware"
)

const hotplugTime = 40 * time.Millisecond

// device is a call that changes a domain's devices: edit changes a definition
// and says whether there was something to change, plug does it to the machine.
// needs are the disks it opens.
func (v *view) device(ctx context.Context, name, attempt, uuid string, needs []hardware.Disk, edit func(*call, *hardware.DomainSpec) (bool, error), plug func(*call, *domain) error) error {
	c := v.h.domainCall(name, attempt, uuid)
	c.service, c.monitor = hotplugTime, uuid
	c.storage = func() bool { return v.h.hangsFor(needs) }
	c.work = func() error {
		d := v.h.domains[uuid]
		if d == nil {
			return v.h.noDomain(c)
		}
		if d.q != nil && (d.q.move != nil || d.q.incoming) {
			return hardware.Fail(hardware.Refused, hardware.ReasonJobRunning, c.attempt, c.on, "a migration of it runs")
		}
		change, err := edit(c, clone(d.spec()))
		if err != nil || !change {
			return err
		}
		if d.q != nil {
			if err := plug(c, d); err != nil {
				return err
			}
		}
		if d.def != nil {
			if _, err := edit(c, d.def); err != nil {
				return err
			}
			v.h.emit(d, hardware.Event{Kind: hardware.EventDefined, Detail: hardware.DetailUpdated})
		}
		v.h.list = nil
		return nil
	}
	return v.do(ctx, c)
}

// AttachDisk implements hardware.Domains.
func (v *view) AttachDisk(ctx context.Context, uuid string, disk hardware.Disk) error {
	edit := func(c *call, s *hardware.DomainSpec) (bool, error) {
		for _, d := range s.Disks {
			if d == disk {
				return false, nil
			}
			if d.Target == disk.Target {
				return false, hardware.Fail(hardware.Refused, hardware.ReasonInvalidSpec, c.attempt, c.on, "target %s already exists", disk.Target)
			}
		}
		if disk.Target == "" {
			return false, hardware.Fail(hardware.Refused, hardware.ReasonInvalidSpec, c.attempt, c.on, "the disk has no target")
		}
		s.Disks = append(slices.Clip(s.Disks), disk)
		return true, nil
	}
	return v.device(ctx, "AttachDisk", "attach disk "+disk.Target+" to", uuid, []hardware.Disk{disk}, edit, func(c *call, d *domain) error {
		if err := v.h.usable([]hardware.Disk{disk}, c.attempt, c.on); err != nil {
			return err
		}
		d.live.Disks = append(slices.Clip(d.live.Disks), disk)
		d.openDisk(disk)
		return nil
	})
}

// DetachDisk implements hardware.Domains.
func (v *view) DetachDisk(ctx context.Context, uuid, target string) error {
	named := func(d hardware.Disk) bool { return d.Target == target }
	edit := func(_ *call, s *hardware.DomainSpec) (bool, error) {
		there := slices.ContainsFunc(s.Disks, named)
		s.Disks = slices.DeleteFunc(slices.Clone(s.Disks), named)
		return there, nil
	}
	return v.device(ctx, "DetachDisk", "detach disk "+target+" from", uuid, nil, edit, func(_ *call, d *domain) error {
		d.unplug(target, func(d *domain) {
			for _, o := range d.q.open {
				if o.disk.Target == target {
					d.closeDisk(o)
				}
			}
			d.q.open = slices.DeleteFunc(d.q.open, func(o openDisk) bool { return o.disk.Target == target })
			d.live.Disks = slices.DeleteFunc(slices.Clone(d.live.Disks), named)
		})
		return nil
	})
}

// unplug asks the guest to let go of a device.
func (d *domain) unplug(device string, gone func(*domain)) {
	if d.q.guest == nil || !d.q.guest.listens() {
		return // nobody answers the slot's button
	}
	b := d.q.guest.behaviour()
	if b.IgnoresDetach {
		return
	}
	d.q.guest.after(b.DetachAfter, func(d *domain) {
		gone(d)
		d.h.list = nil
		d.h.emit(d, hardware.Event{Kind: hardware.EventDeviceRemoved, Device: device})
	})
}

// AttachInterface implements hardware.Domains.
func (v *view) AttachInterface(ctx context.Context, uuid string, n hardware.Interface) error {
	edit := func(c *call, s *hardware.DomainSpec) (bool, error) {
		for _, o := range s.Interfaces {
			if o == n {
				return false, nil
			}
			if strings.EqualFold(o.MAC, n.MAC) {
				return false, hardware.Fail(hardware.Refused, hardware.ReasonInvalidSpec, c.attempt, c.on, "an interface with MAC %s already exists", n.MAC)
			}
		}
		if n.MAC == "" {
			return false, hardware.Fail(hardware.Refused, hardware.ReasonInvalidSpec, c.attempt, c.on, "the interface has no MAC address")
		}
		s.Interfaces = append(slices.Clip(s.Interfaces), n)
		return true, nil
	}
	return v.device(ctx, "AttachInterface", "attach interface "+n.MAC+" to", uuid, nil, edit, func(_ *call, d *domain) error {
		d.live.Interfaces = append(slices.Clip(d.live.Interfaces), n)
		return nil
	})
}

// DetachInterface implements hardware.Domains.
func (v *view) DetachInterface(ctx context.Context, uuid, mac string) error {
	named := func(n hardware.Interface) bool { return strings.EqualFold(n.MAC, mac) }
	edit := func(_ *call, s *hardware.DomainSpec) (bool, error) {
		there := slices.ContainsFunc(s.Interfaces, named)
		s.Interfaces = slices.DeleteFunc(slices.Clone(s.Interfaces), named)
		return there, nil
	}
	return v.device(ctx, "DetachInterface", "detach interface "+mac+" from", uuid, nil, edit, func(_ *call, d *domain) error {
		d.unplug(mac, func(d *domain) { d.live.Interfaces = slices.DeleteFunc(slices.Clone(d.live.Interfaces), named) })
		return nil
	})
}

// Resize implements hardware.Domains. A running machine grows to what it was
// started with: its CPU topology, its memory; the balloon takes the rest.
func (v *view) Resize(ctx context.Context, uuid string, vcpus int, memoryKiB uint64) error {
	set := func(s *hardware.DomainSpec) {
		if vcpus > 0 {
			s.VCPUs = vcpus
		}
		if memoryKiB > 0 {
			s.MemoryKiB = memoryKiB
		}
	}
	edit := func(c *call, s *hardware.DomainSpec) (bool, error) {
		if vcpus < 0 {
			return false, hardware.Fail(hardware.Refused, hardware.ReasonInvalidSpec, c.attempt, c.on, "%d vCPUs", vcpus)
		}
		before := *s
		set(s)
		return before.VCPUs != s.VCPUs || before.MemoryKiB != s.MemoryKiB, nil
	}
	return v.device(ctx, "Resize", "resize", uuid, nil, edit, func(c *call, d *domain) error {
		most := max(d.q.maxVCPUs, d.live.CPU.Sockets*d.live.CPU.Cores*d.live.CPU.Threads)
		if vcpus > most || memoryKiB > d.q.maxMemoryKiB {
			return hardware.Fail(hardware.Refused, hardware.ReasonUnsupported, c.attempt, c.on,
				"it was started with at most %d vCPUs and %d KiB", most, d.q.maxMemoryKiB)
		}
		set(d.live)
		return nil
	})
}
