// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim/precopy"
)

// completedJob is the end of a job that libvirtd still remembers.
type completedJob struct {
	job hardware.Job
	at  time.Duration
}

// completedFor is how long an ended job can be read. libvirt keeps it as long as
// the domain; the source's goes with it, so whoever implements the seam has to
// keep it himself, and need not do so for ever.
const completedFor = 10 * time.Minute

// jobEnded keeps and announces the end of a job. After post-copy the target has
// nothing to keep: its libvirt never gets the figures.
func (h *Host) jobEnded(d *domain, j hardware.Job) {
	h.completed[d.uuid] = completedJob{job: j, at: h.f.s.Elapsed()}
	h.emit(d, hardware.Event{Kind: hardware.EventJobCompleted, Job: &j})
}

// job is what the source's libvirt reports now.
func (mv *move) job() hardware.Job {
	j := hardware.Job{
		ID: mv.o.ID, Type: hardware.JobUnbounded, Operation: hardware.OperationMigrationOut, Peer: mv.dst.name,
		StartedAt: mv.started, Elapsed: mv.f.s.Now().Sub(mv.started), MemoryPageSize: 4096,
	}
	if mv.m == nil {
		return j
	}
	p := mv.m.Progress(mv.now())
	j.SetupTime, j.Downtime = p.Setup, p.Downtime
	j.DiskTotal, j.DiskProcessed, j.DiskRemaining, j.DiskBytesPerSecond = p.DiskTotal, p.DiskProcessed, p.DiskRemaining, p.DiskBytesPerSecond
	j.MemoryTotal, j.MemoryProcessed, j.MemoryRemaining = p.MemoryTotal, p.MemoryProcessed, p.MemoryRemaining
	j.MemoryConstantPages, j.MemoryNormalPages, j.MemoryNormalBytes = p.ConstantPages, p.NormalPages, p.NormalBytes
	j.MemoryBytesPerSecond, j.MemoryDirtyRate, j.MemoryIteration = p.MemoryBytesPerSecond, p.DirtyRate, p.Iteration
	j.MemoryPageSize, j.MemoryPostCopyRequests = p.PageSize, p.PostCopyRequests
	j.DataTotal = p.MemoryTotal + p.DiskTotal
	j.DataProcessed = p.MemoryProcessed + p.DiskProcessed
	j.DataRemaining = p.MemoryRemaining + p.DiskRemaining
	j.AutoConvergeThrottle, j.PostCopy = p.ThrottlePercent, p.PostCopy
	if rate := p.MemoryBytesPerSecond + p.DiskBytesPerSecond; rate > 0 && p.Phase < precopy.PhaseCompleted {
		j.Remaining = time.Duration(float64(j.DataRemaining) / float64(rate) * float64(time.Second))
	}
	if mv.broken {
		j.Error = "job 'migration out' failed in post-copy phase"
	}
	return j
}

// readJob is the running job of a domain, or its last one.
func (h *Host) readJob(uuid string) (hardware.Job, bool) {
	if d := h.domains[uuid]; d != nil && d.q != nil && d.q.move != nil {
		mv := d.q.move
		if d == mv.sd {
			return mv.job(), true
		}
		// The target knows that there is a job, and nothing of how it goes.
		return hardware.Job{
			ID: mv.o.ID, Type: hardware.JobUnbounded, Operation: hardware.OperationMigrationIn, Peer: mv.src.name,
			StartedAt: mv.started, Elapsed: h.f.s.Now().Sub(mv.started), PostCopy: mv.postCopy && mv.switched(),
		}, true
	}
	c, ok := h.completed[uuid]
	if ok && h.f.s.Elapsed()-c.at > completedFor {
		delete(h.completed, uuid)
		return hardware.Job{}, false
	}
	return c.job, ok
}
