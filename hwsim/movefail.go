// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"github.com/adit-hv/adit/hardware"
)

// linkChanged stalls a move whose hosts do not reach each other, and breaks it
// when that lasts.
func (mv *move) linkChanged() {
	if mv.stage == stageEnded || mv.stage == stagePrepare || mv.broken {
		return // preparing asks for the link itself
	}
	up := mv.f.Reach(mv.src, mv.dst, LinkMigration)
	switch {
	case !up && !mv.cut:
		mv.cut = true
		mv.share()
		if mv.stage != stageConfirm {
			mv.timer.Stop()
			mv.breaker = mv.f.s.After(keepalive, mv.linkBroke)
		}
	case up && mv.cut:
		mv.cut = false
		mv.breaker.Stop()
		if mv.stage != stageConfirm {
			mv.share()
			mv.schedule()
		}
	}
}

func (mv *move) linkBroke() {
	if mv.stage == stagePostCopy {
		mv.breaks()
		return
	}
	if !mv.switched() {
		mv.fail(hardware.JobFailed, "operation failed: Lost connection to destination host")
	}
}

// breaks is the failure of post-copy: half of the memory is here, half there.
// Both sides pause and keep the job, as only a recovery brings them together.
func (mv *move) breaks() {
	if mv.stage != stagePostCopy || mv.broken {
		return
	}
	mv.broken = true
	mv.timer.Stop()
	mv.share()
	for _, d := range []*domain{mv.sd, mv.dd} {
		d.set(hardware.StatePaused, hardware.DetailPostCopyFailed)
		d.h.emit(d, hardware.Event{Kind: hardware.EventSuspended, Detail: hardware.DetailPostCopyFailed})
	}
}

// recovers continues a broken post-copy.
func (mv *move) recovers() {
	mv.broken, mv.cut = false, false
	mv.sd.set(hardware.StatePaused, hardware.DetailPostCopy)
	mv.dd.set(hardware.StateRunning, hardware.DetailPostCopy)
	mv.dst.emit(mv.dd, hardware.Event{Kind: hardware.EventResumed, Detail: hardware.DetailPostCopy})
	mv.dst.storageHits(mv.dd)
	mv.share()
	mv.schedule()
}

// qemuLost ends the move of a QEMU that died; d is its domain.
func (mv *move) qemuLost(d *domain) {
	switch {
	case mv.stage == stageEnded:
	case d == mv.sd && mv.stage == stagePrepare:
		mv.refuse(mv.error(hardware.Refused, hardware.ReasonInvalidState, "the domain has stopped"))
	case d == mv.sd && !mv.switched():
		mv.fail(hardware.JobFailed, "operation failed: domain is not running") // down everywhere
	case d == mv.dd && !mv.switched():
		mv.fail(hardware.JobFailed, "Unable to write to socket: Connection reset by peer")
	case mv.stage == stageConfirm && d == mv.sd:
		mv.finish("succeeded", "the source died before it was confirmed")
	case mv.stage == stageConfirm:
		// The guest has moved and died there; the source is cleaned as ever.
	default:
		mv.lost(d)
	}
}

// lost is a post-copy of which one side is gone: the memory is not to be had any
// more. What is left stands still for ever.
func (mv *move) lost(gone *domain) {
	left := mv.sd
	if gone == mv.sd {
		left = mv.dd
	}
	message := "operation failed: post-copy lost " + gone.h.name
	j := mv.job()
	j.Type, j.Error = hardware.JobFailed, message
	mv.finish("lost", message)
	left.q.torn = true
	if left.detail != hardware.DetailPostCopyFailed {
		left.set(hardware.StatePaused, hardware.DetailPostCopyFailed)
		left.h.emit(left, hardware.Event{Kind: hardware.EventSuspended, Detail: hardware.DetailPostCopyFailed})
	}
	if left == mv.dd {
		j.Operation, j.Peer = hardware.OperationMigrationIn, mv.src.name
	}
	left.h.jobEnded(left, j)
}

// daemonLost is the death of libvirtd on one of the hosts. The migration's
// control connection goes with it.
func (mv *move) daemonLost(h *Host) {
	switch mv.stage {
	case stagePrepare:
		mv.refuse(mv.error(hardware.Unavailable, hardware.ReasonOther, "libvirtd on %s went away", h.name))
	case stageCopy, stageSwitch:
		t := hardware.JobFailed
		if h == mv.src {
			t = hardware.JobCancelled // what it does when it is back and finds the job
		}
		mv.fail(t, "operation failed: libvirtd on "+h.name+" went away")
	case stageConfirm:
		if h == mv.src {
			// Nobody told it how it ended. It leaves the source paused.
			d := mv.sd
			mv.finish("succeeded", "the source's libvirtd went away before it confirmed")
			if d.q != nil {
				d.q.torn = true
			}
		}
	}
}

// peerSilent is a libvirtd that has not answered for the keepalive's time.
func (mv *move) peerSilent(h *Host) {
	switch mv.stage {
	case stagePrepare:
		mv.refuse(mv.error(hardware.Unavailable, hardware.ReasonOther, "libvirtd on %s does not answer", h.name))
	case stageCopy, stageSwitch:
		mv.fail(hardware.JobFailed, "operation failed: connection closed due to keepalive timeout")
	}
}

// guestStands passes a suspend or resume of the source's guest on.
func (mv *move) guestStands(d *domain, stands bool) {
	if d == mv.sd && mv.stage == stageCopy {
		mv.m.SetPaused(mv.now(), stands)
		mv.schedule()
	}
}

// recoverJobs is what libvirtd does with the jobs it finds when it starts or
// goes on.
func (h *Host) recoverJobs() {
	for _, d := range append([]*domain(nil), h.sorted...) {
		if d.q == nil {
			continue
		}
		if d.q.resumeLater {
			d.q.resumeLater = false
			d.set(hardware.StateRunning, hardware.DetailMigrationEnded)
			h.emit(d, hardware.Event{Kind: hardware.EventResumed, Detail: hardware.DetailMigrated})
		}
		if mv := d.q.move; mv != nil && d == mv.sd && mv.stage == stageConfirm {
			mv.confirm()
		}
	}
}
