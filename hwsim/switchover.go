// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"time"

	"github.com/adit-hv/adit/hardware"
)

// sourceStops is the begin of the switch-over: nothing runs, nobody writes.
func (mv *move) sourceStops() {
	mv.stage = stageSwitch
	mv.stoppedAt = mv.now()
	mv.wasPaused = !mv.sd.cpusRun()
	mv.sd.set(hardware.StatePaused, pick(mv.postCopy, hardware.DetailPostCopy, hardware.DetailMigrating))
	if !mv.wasPaused || mv.postCopy {
		mv.src.emit(mv.sd, hardware.Event{Kind: hardware.EventSuspended, Detail: pick(mv.postCopy, hardware.DetailPostCopy, hardware.DetailMigrated)})
	}
	mv.sd.handOver(false)
	mv.f.ledger.migration(mv.record, func(m *Migration) { m.Switch = mv.now() })
}

// targetRuns is the end of the switch-over: the guest goes on at the target.
func (mv *move) targetRuns() {
	d := mv.dd
	mv.stage = stageConfirm
	if mv.postCopy {
		mv.stage = stagePostCopy
	}
	d.q.incoming = false
	mv.sd.q.guest.moveTo(d)
	mv.sd.q.guest = nil
	if d.def == nil {
		d.def = clone(mv.spec)
		mv.dst.emit(d, hardware.Event{Kind: hardware.EventDefined, Detail: hardware.DetailAdded})
	} else {
		d.def = clone(mv.spec)
	}
	d.openDisks()
	mv.sd.q.open = nil // the locks are the target's now
	switch {
	case mv.wasPaused && !mv.postCopy:
		d.set(hardware.StatePaused, hardware.DetailUser)
		mv.dst.emit(d, hardware.Event{Kind: hardware.EventSuspended, Detail: hardware.DetailUser})
	case mv.postCopy:
		d.set(hardware.StateRunning, hardware.DetailPostCopy)
		mv.dst.emit(d, hardware.Event{Kind: hardware.EventResumed, Detail: hardware.DetailPostCopy})
	default:
		d.set(hardware.StateRunning, hardware.DetailMigrated)
		mv.dst.emit(d, hardware.Event{Kind: hardware.EventResumed, Detail: hardware.DetailMigrated})
	}
	if g := d.q.guest; g.agent {
		g.connectAgent() // the channel is a new one
	}
	mv.dst.storageHits(d)
	mv.f.ledger.migration(mv.record, func(m *Migration) {
		m.Downtime = mv.now() - mv.stoppedAt
		m.PostCopy = mv.postCopy
	})
	if !mv.postCopy {
		j := mv.job()
		j.Type, j.Operation, j.Peer = hardware.JobCompleted, hardware.OperationMigrationIn, mv.src.name
		mv.dst.jobEnded(d, j)
	}
}

// completed: the target needs nothing more. The source's libvirt learns of it
// 250 ms later, as measured.
func (mv *move) completed() {
	if mv.postCopy {
		if mv.dd.detail == hardware.DetailPostCopy { // a guest that stands still for another reason goes on doing so
			mv.dd.set(hardware.StateRunning, hardware.DetailMigrated)
			mv.dst.emit(mv.dd, hardware.Event{Kind: hardware.EventResumed, Detail: hardware.DetailMigrated})
		}
		mv.dd.q.move = nil
	}
	mv.stage, mv.done = stageConfirm, true
	mv.f.close(mv.fl)
	mv.timer = mv.f.s.After(between(mv.src.rand, 200*time.Millisecond, 300*time.Millisecond), mv.confirm)
}

// confirm ends the source's half.
func (mv *move) confirm() {
	if mv.stage != stageConfirm || !mv.done || mv.src.daemon != daemonUp {
		return // libvirtd does it once it goes on
	}
	d, j := mv.sd, mv.job()
	j.Type = hardware.JobCompleted
	if mv.faultAt("completed-error") {
		j.Type, j.Error = hardware.JobFailed, "internal error: cannot remove the definition after migration"
		mv.finish("succeeded", j.Error)
		d.gone(hardware.DetailMigrated)
		mv.src.emit(d, hardware.Event{Kind: hardware.EventStopped, Detail: hardware.DetailFailed})
		mv.src.jobEnded(d, j)
		if d.def == nil {
			mv.src.remove(d)
		}
		return
	}
	mv.finish("succeeded", "")
	d.gone(hardware.DetailMigrated)
	mv.src.emit(d, hardware.Event{Kind: hardware.EventStopped, Detail: hardware.DetailMigrated})
	if d.def != nil {
		mv.src.emit(d, hardware.Event{Kind: hardware.EventUndefined, Detail: hardware.DetailRemoved})
	}
	mv.src.jobEnded(d, j)
	mv.src.remove(d)
}

// fail ends a move before the target took over: the half-made target goes and
// the source, if it is there, runs on.
func (mv *move) fail(t hardware.JobType, message string) {
	j := mv.job()
	j.Type, j.Error = t, message
	result := "failed"
	if t == hardware.JobCancelled {
		result = "cancelled"
	}
	mv.finish(result, message)
	if d := mv.dd; d != nil && d.q != nil {
		d.gone(hardware.DetailFailed)
		mv.dst.emit(d, hardware.Event{Kind: hardware.EventStopped, Detail: hardware.DetailFailed})
		if d.def == nil {
			mv.dst.remove(d)
		}
	}
	if d := mv.sd; d.q != nil {
		if mv.stoppedAt != 0 {
			mv.sourceResumes()
		}
		mv.src.jobEnded(d, j)
	}
}

// sourceResumes undoes the stop of a switch-over that came to nothing; without
// libvirtd the guest stands still until it is back.
func (mv *move) sourceResumes() {
	d := mv.sd
	d.handOver(true)
	if mv.wasPaused {
		d.set(hardware.StatePaused, hardware.DetailUser)
		return
	}
	if mv.src.daemon == daemonDown || mv.src.daemon == daemonStarting {
		d.q.resumeLater = true
		return
	}
	d.set(hardware.StateRunning, hardware.DetailMigrationEnded)
	mv.src.emit(d, hardware.Event{Kind: hardware.EventResumed, Detail: hardware.DetailMigrated})
}
