// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"cmp"
	"time"

	"github.com/adit-hv/adit/hardware"
)

// domain is libvirt's side of a VM on one host.
type domain struct {
	h      *Host
	uuid   string
	name   string
	def    *hardware.DomainSpec // the persistent definition; nil: transient
	live   *hardware.DomainSpec // what QEMU was started with; nil: inactive
	state  hardware.State
	detail hardware.Detail
	q      *qemu // nil: inactive
}

// qemu is a domain's QEMU process.
type qemu struct {
	startedAt time.Time
	incoming  bool
	hung      int
	guest     *guest
	move      *move // as source or as target

	// resumeLater is a guest that stands still since libvirtd died in the
	// switch-over. torn is a QEMU that must never run on: its memory lies on two
	// hosts, or its guest runs elsewhere.
	resumeLater bool
	torn        bool
	killed      bool // it will end once its I/O does

	open []openDisk

	// What the machine was built with; a resize stays below.
	maxVCPUs     int
	maxMemoryKiB uint64

	ranFor time.Duration // with running CPUs, up to ranAt
	ranAt  time.Duration
}

type openDisk struct {
	disk hardware.Disk
	key  string // the ledger's name of the volume
}

// spec is the definition in force.
func (d *domain) spec() *hardware.DomainSpec {
	if d.live != nil {
		return d.live
	}
	return d.def
}

func (d *domain) token() int64 {
	if o := d.spec().Owner; o != nil {
		return o.Generation
	}
	return 0
}

// read is the domain as a list shows it.
func (d *domain) read() hardware.Domain {
	spec := d.spec()
	out := hardware.Domain{
		UUID: d.uuid, Spec: *spec, State: d.state, Detail: d.detail,
		Persistent: d.def != nil, Foreign: spec.Owner == nil,
	}
	if d.q != nil {
		out.Incoming, out.StartedAt = d.q.incoming, d.q.startedAt
	}
	return out
}

// set changes the state and tells all who follow it: list, guest, ledger.
func (d *domain) set(state hardware.State, detail hardware.Detail) {
	d.state, d.detail = state, detail
	d.h.list = nil
	copyState := CopyGone
	if d.q != nil {
		now := d.h.f.s.Elapsed()
		runs := d.cpusRun()
		if runs && d.q.torn {
			d.h.f.ledger.violate(RuleSourceStays, d.uuid, d.name+" runs on at "+d.h.name+" after it was given away")
		}
		if d.q.ranAt >= 0 {
			d.q.ranFor += now - d.q.ranAt
		}
		d.q.ranAt = -1
		if runs {
			d.q.ranAt = now
		}
		if d.q.guest != nil {
			d.q.guest.setRunning(runs && !d.stalled())
		}
		switch {
		case d.q.incoming:
			copyState = CopyIncoming
		case runs:
			copyState = CopyRunning
		default:
			copyState = CopyPaused
		}
	}
	d.h.f.ledger.set(d, d.h.name, copyState)
}

func (d *domain) cpusRun() bool {
	if d.q == nil || d.q.incoming || d.q.hung > 0 {
		return false
	}
	switch d.state {
	case hardware.StateRunning, hardware.StateBlocked, hardware.StateShuttingDown:
		return true
	}
	return false
}

// cpuTime is how much of the host's CPUs the guest has used: a twentieth of a
// core each vCPU, the idle load of a general purpose fleet.
func (q *qemu) cpuTime(now time.Duration, vcpus int) time.Duration {
	ran := q.ranFor
	if q.ranAt >= 0 {
		ran += now - q.ranAt
	}
	return ran * time.Duration(vcpus) / 20
}

// launch gives a defined domain its QEMU. The caller has checked that it may.
func (d *domain) launch(paused bool) {
	h := d.h
	d.live = clone(d.def)
	d.q = &qemu{startedAt: h.f.s.Now(), ranAt: -1, maxVCPUs: d.live.VCPUs, maxMemoryKiB: d.live.MemoryKiB}
	d.q.guest = newGuest(d)
	d.openDisks()
	if paused {
		d.set(hardware.StatePaused, hardware.DetailUser)
		h.emit(d, hardware.Event{Kind: hardware.EventStarted, Detail: hardware.DetailBooted})
		h.emit(d, hardware.Event{Kind: hardware.EventSuspended, Detail: hardware.DetailUser})
	} else {
		d.set(hardware.StateRunning, hardware.DetailBooted)
		// libvirt lets the CPUs go before it announces the start.
		h.emit(d, hardware.Event{Kind: hardware.EventResumed, Detail: hardware.DetailUnpaused})
		h.emit(d, hardware.Event{Kind: hardware.EventStarted, Detail: hardware.DetailBooted})
	}
	d.q.guest.boot()
	h.storageHits(d)
}

// pause stops the CPUs for a reason, resume lets them run on.
func (d *domain) pause(detail hardware.Detail) {
	d.set(hardware.StatePaused, detail)
	if m := d.q.move; m != nil {
		m.guestStands(d, true)
	}
	d.h.emit(d, hardware.Event{Kind: hardware.EventSuspended, Detail: detail})
}

func (d *domain) resume() {
	d.set(hardware.StateRunning, hardware.DetailUnpaused)
	if m := d.q.move; m != nil {
		m.guestStands(d, false)
	}
	d.h.emit(d, hardware.Event{Kind: hardware.EventResumed, Detail: hardware.DetailUnpaused})
	d.h.storageHits(d)
}

// die ends the QEMU: stopped is the detail of the event, left that of the state
// in which a persistent domain is left. A transient one vanishes.
func (d *domain) die(stopped, left hardware.Detail) {
	if d.q == nil {
		return
	}
	m := d.q.move
	d.gone(left)
	d.h.emit(d, hardware.Event{Kind: hardware.EventStopped, Detail: stopped})
	if m != nil {
		m.qemuLost(d)
	}
	if d.def == nil {
		d.h.remove(d)
	}
}

// lose is the end of a QEMU by the end of its host: nobody sees it.
func (d *domain) lose() {
	if d.q == nil {
		return
	}
	m := d.q.move
	d.gone(hardware.DetailNone)
	if m != nil {
		m.qemuLost(d)
	}
	if d.def == nil {
		d.h.remove(d)
	}
}

func (d *domain) gone(left hardware.Detail) {
	if d.q.guest != nil && d.q.guest.at == d {
		d.q.guest.end()
		d.q.guest.dead = true
	}
	d.closeDisks()
	d.q = nil
	live := d.live
	if d.def != nil {
		d.live = nil
	}
	d.set(hardware.StateShutOff, left)
	d.live = nil
	if d.def == nil {
		d.live = live // a transient domain's last definition, for its last event
	}
}

// guestGone is a guest that powers off: libvirt says so first and the QEMU ends
// 230 ms later, as measured.
func (d *domain) guestGone(detail hardware.Detail) {
	if d.q == nil || d.q.guest == nil {
		return
	}
	d.q.guest.disconnectAgent()
	d.q.guest.end()
	d.set(hardware.StateShuttingDown, hardware.DetailShutdown)
	d.h.emit(d, hardware.Event{Kind: hardware.EventShutdown, Detail: detail})
	q := d.q
	d.h.f.s.After(between(d.h.rand, 200*time.Millisecond, 260*time.Millisecond), func() {
		if d.q == q {
			d.die(hardware.DetailShutdown, hardware.DetailShutdown)
		}
	})
}

// resetEvents are what a machine reset gives: the same event up to three times.
func (d *domain) resetEvents() {
	for range 1 + d.h.rand.IntN(3) {
		d.h.emit(d, hardware.Event{Kind: hardware.EventReboot})
	}
}

// panicked is a guest kernel that gave up, by what the definition says.
func (d *domain) panicked() {
	if d.q == nil || d.q.guest == nil {
		return
	}
	d.h.emit(d, hardware.Event{Kind: hardware.EventCrashed, Detail: hardware.DetailPanicked})
	d.q.guest.disconnectAgent()
	switch cmp.Or(d.live.OnCrash, "destroy") {
	case "preserve":
		d.q.guest.end()
		d.set(hardware.StateCrashed, hardware.DetailPanicked)
		d.h.emit(d, hardware.Event{Kind: hardware.EventSuspended, Detail: hardware.DetailPanicked})
	case "restart":
		d.resetEvents()
		d.set(hardware.StateRunning, hardware.DetailUnpaused)
		d.h.emit(d, hardware.Event{Kind: hardware.EventResumed, Detail: hardware.DetailUnpaused})
		d.q.guest.boot()
	default:
		d.die(hardware.DetailCrashed, hardware.DetailCrashed)
	}
}

// watchdogFires does what the definition's watchdog does.
func (d *domain) watchdogFires() {
	action := d.live.Watchdog
	d.h.emit(d, hardware.Event{Kind: hardware.EventWatchdog, Detail: hardware.Detail(action)})
	switch action {
	case "reset":
		d.resetEvents()
		d.q.guest.boot()
	case "poweroff":
		d.die(hardware.DetailFailed, hardware.DetailCrashed) // libvirt takes it for a crash
	case "pause":
		d.pause(hardware.DetailWatchdog)
	case "shutdown":
		d.guestGone(hardware.DetailGuest)
	}
}
