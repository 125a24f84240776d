// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/adit-hv/adit/hardware"
)

// pool is storage that hosts reach.
type pool struct {
	spec    PoolSpec
	volumes map[string]*volume // by name; in a local pool by HOST:NAME
	full    int

	heartbeats map[string]hardware.Heartbeat // by host; see heartbeatKey
}

type volume struct {
	key   string // how the ledger and the lock call it
	bytes uint64
	lock  string // the host whose QEMU holds it; "" is free
	// freeAt is when the lock of a host that lost power runs out.
	freeAt time.Duration
}

// AddPool adds storage. A pool is there before the volumes in it.
func (f *Fleet) AddPool(spec PoolSpec) error {
	if f.pools[spec.Name] != nil || spec.Name == "" || strings.ContainsAny(spec.Name, "/: ") {
		return fmt.Errorf("add pool %q: the name is taken or no name; use a new one without \"/\", \":\" and blanks", spec.Name)
	}
	f.pools[spec.Name] = &pool{spec: spec, volumes: map[string]*volume{}, heartbeats: map[string]hardware.Heartbeat{}}
	return nil
}

// AddVolume adds a volume POOL/NAME. In a pool that is not shared it exists
// only on the hosts named.
func (f *Fleet) AddVolume(name string, sizeBytes uint64, hosts ...string) error {
	p, short, err := f.poolOf(name)
	if err != nil {
		return fmt.Errorf("add volume: %w", err)
	}
	if p.spec.Shared {
		hosts = []string{""}
	} else if len(hosts) == 0 {
		return fmt.Errorf("add volume %s: pool %s is not shared: name the hosts that have it", name, p.spec.Name)
	}
	for _, host := range hosts {
		key := short
		if host != "" {
			key = host + ":" + short
		}
		if p.volumes[key] == nil {
			p.volumes[key] = &volume{key: p.spec.Name + "/" + key, bytes: sizeBytes}
		}
	}
	return nil
}

// RemoveVolume removes a volume everywhere.
func (f *Fleet) RemoveVolume(name string) error {
	p, short, err := f.poolOf(name)
	if err != nil {
		return fmt.Errorf("remove volume: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(p.volumes)) {
		if key == short || strings.HasSuffix(key, ":"+short) {
			if lock := p.volumes[key].lock; lock != "" {
				return fmt.Errorf("remove volume %s: a QEMU on %s has it open", name, lock)
			}
			delete(p.volumes, key)
		}
	}
	return nil
}

func (f *Fleet) poolOf(name string) (*pool, string, error) {
	poolName, short, ok := strings.Cut(name, "/")
	if p := f.pools[poolName]; ok && short != "" && p != nil {
		return p, short, nil
	}
	return nil, "", fmt.Errorf("volume %q: no such pool; names are POOL/NAME", name)
}

// find returns the volume as the host sees it.
func (h *Host) find(name string) (*pool, *volume, error) {
	p, _, err := h.f.poolOf(name)
	if err != nil {
		return nil, nil, err
	}
	if p.spec.Hosts != nil && !slices.Contains(p.spec.Hosts, h.name) {
		return p, nil, fmt.Errorf("volume %q: host %s has no path to pool %s", name, h.name, p.spec.Name)
	}
	if h.lostPools[p.spec.Name] > 0 {
		return p, nil, fmt.Errorf("volume %q: host %s has lost pool %s", name, h.name, p.spec.Name)
	}
	if _, v := h.lookup(name); v != nil {
		return p, v, nil
	}
	return p, nil, fmt.Errorf("volume %q: not in pool %s", name, p.spec.Name)
}

// lookup finds the volume whether or not the host has a path to it now.
func (h *Host) lookup(name string) (*pool, *volume) {
	p, short, err := h.f.poolOf(name)
	if err != nil {
		return nil, nil
	}
	if !p.spec.Shared {
		short = h.name + ":" + short
	}
	return p, p.volumes[short]
}

// usable says why a domain cannot have its disks here, or nil.
func (h *Host) usable(disks []hardware.Disk, attempt, on string) error {
	for _, disk := range disks {
		if disk.Volume == "" {
			continue // an empty drive
		}
		p, v, err := h.find(disk.Volume)
		if err != nil {
			return hardware.Fail(hardware.Refused, hardware.ReasonNoStorage, attempt, on, "disk %s: %w", disk.Target, err)
		}
		if holder := p.holder(h.f, v); holder != "" && holder != h.name && locks(p, disk) {
			return hardware.Fail(hardware.Refused, hardware.ReasonStorageLocked, attempt, on,
				"disk %s: volume %s is locked by %s", disk.Target, disk.Volume, holder)
		}
	}
	return nil
}

func locks(p *pool, d hardware.Disk) bool { return !p.spec.NoLocks && !d.ReadOnly && !d.Shared }

// holder is the host that holds a volume's lock, or "".
func (p *pool) holder(f *Fleet, v *volume) string {
	if v.lock != "" && v.freeAt != 0 && f.s.Elapsed() >= v.freeAt {
		v.lock, v.freeAt = "", 0
	}
	return v.lock
}

// openDisks opens all disks of a domain, closeDisks closes them. Locks go along,
// and the ledger learns who can write.
func (d *domain) openDisks() {
	for _, disk := range d.live.Disks {
		d.openDisk(disk)
	}
}

func (d *domain) openDisk(disk hardware.Disk) {
	if disk.Volume == "" || disk.ReadOnly {
		return
	}
	p, v := d.h.lookup(disk.Volume)
	if v == nil {
		return // no pool of ours has it
	}
	if locks(p, disk) {
		v.lock, v.freeAt = d.h.name, 0
	}
	d.q.open = append(d.q.open, openDisk{disk: disk, key: v.key})
	d.h.f.ledger.write(v.key, d.h.name, true, disk.Shared)
}

func (d *domain) closeDisks() {
	for _, o := range d.q.open {
		d.closeDisk(o)
	}
	d.q.open = nil
}

func (d *domain) closeDisk(o openDisk) {
	d.h.f.ledger.write(o.key, d.h.name, false, o.disk.Shared)
	poolName, short, _ := strings.Cut(o.key, "/")
	p := d.h.f.pools[poolName]
	if v := p.volumes[short]; v != nil && v.lock == d.h.name && locks(p, o.disk) {
		if d.h.state == HostOff && p.spec.LockLease > 0 {
			v.freeAt = d.h.f.s.Elapsed() + p.spec.LockLease
			return
		}
		v.lock = ""
	}
}

// handOver is what a source does in the switch-over: it writes no more, and
// keeps its locks until the target takes them. undone is a switch-over that
// came to nothing.
func (d *domain) handOver(undone bool) {
	for _, o := range d.q.open {
		d.h.f.ledger.write(o.key, d.h.name, undone, o.disk.Shared)
	}
}

// storageHits pauses a running guest whose storage does not take its writes,
// once it writes.
func (h *Host) storageHits(d *domain) {
	target := h.brokenDisk(d)
	if target == "" {
		return
	}
	q := d.q
	h.f.s.After(between(h.rand, 100*time.Millisecond, 5*time.Second), func() {
		target := h.brokenDisk(d)
		if d.q != q || !d.cpusRun() || target == "" {
			return
		}
		d.pause(hardware.DetailIOError)
		h.emit(d, hardware.Event{Kind: hardware.EventIOError, Device: target})
	})
}

// brokenDisk is the target of a disk that takes no writes, or "".
func (h *Host) brokenDisk(d *domain) string {
	if d.q == nil {
		return ""
	}
	for _, o := range d.q.open {
		poolName, _, _ := strings.Cut(o.key, "/")
		if h.lostPools[poolName] > 0 || h.f.pools[poolName].full > 0 {
			return o.disk.Target
		}
	}
	return ""
}

// loseStorage begins or ends the loss of a pool on a host.
func (h *Host) loseStorage(pool string, begin bool) {
	if !begin {
		h.lostPools[pool]--
		return
	}
	h.lostPools[pool]++
	for _, d := range h.sorted {
		h.storageHits(d)
	}
}

// hangStorage begins or ends I/O to a pool that hangs.
func (h *Host) hangStorage(pool string, begin bool) {
	h.hungPools[pool] += sign(begin)
	h.storageHolds += sign(begin)
	h.storageChanged()
}

// hangsOn reports whether the host's I/O to a pool stands still.
func (h *Host) hangsOn(p *pool) bool {
	return h.storageHolds > 0 && (h.hungPools[p.spec.Name] > 0 || p.spec.Shared && h.nics[LinkStorage].cuts > 0)
}

// hangsFor reports whether one of the disks cannot be opened, without an error.
func (h *Host) hangsFor(disks []hardware.Disk) bool {
	if h.storageHolds == 0 {
		return false
	}
	return slices.ContainsFunc(disks, func(d hardware.Disk) bool {
		p, _, err := h.f.poolOf(d.Volume)
		return err == nil && h.hangsOn(p)
	})
}

// stalled reports whether the guest waits for its disks. Its CPUs run, and it
// could write at any moment: for the ledger it runs.
func (d *domain) stalled() bool {
	if d.h.storageHolds == 0 || d.q == nil {
		return false
	}
	return slices.ContainsFunc(d.q.open, func(o openDisk) bool {
		poolName, _, _ := strings.Cut(o.key, "/")
		return d.h.hangsOn(d.h.f.pools[poolName])
	})
}

// storageChanged lets guests stall, or go on: all at once, and what was killed
// meanwhile ends.
func (h *Host) storageChanged() {
	for _, d := range slices.Clone(h.sorted) {
		switch {
		case d.q == nil:
		case d.q.killed && !d.stalled():
			d.die(hardware.DetailDestroyed, hardware.DetailDestroyed)
		case d.q.guest != nil:
			d.q.guest.setRunning(d.cpusRun() && !d.stalled())
		}
	}
	stalled := h.stalledIO
	h.stalledIO = nil
	for _, land := range stalled {
		land()
	}
	h.goOn()
}

// fillStorage begins or ends a full pool, of which the host hears when a guest
// writes. It is called for each host of the fleet.
func (h *Host) fillStorage(pool string, begin bool) {
	p := h.f.pools[pool]
	if h == h.f.order[0] {
		p.full += sign(begin)
	}
	if !begin {
		return
	}
	for _, d := range h.sorted {
		h.storageHits(d)
	}
}
