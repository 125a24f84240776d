// SPDX-License-Identifier: Apache-2.0

package precopy

import (
	"math"
	"slices"
	"time"
)

// Progress reads everything at now and changes nothing.
func (m *Migration) Progress(now time.Duration) Progress {
	now = max(now, m.now)
	if at, ok := m.boundary(); ok && at <= now {
		m = m.copy()
		m.catchUp(now)
	}
	p := Progress{
		Phase:           m.phase,
		MemoryTotal:     m.p.MemoryBytes,
		MemoryRemaining: m.p.MemoryBytes,
		PageSize:        m.p.PageSize,
		DirtyRate:       uint64(m.dirtyRate) / m.p.PageSize,
		Iteration:       m.iteration,
		DiskTotal:       m.p.DiskBytes,
		DiskRemaining:   m.p.DiskBytes,
		ThrottlePercent: m.throttle,
		PostCopy:        m.postCopy,
		GuestSpeed:      m.guest.speed,
		Downtime:        m.downtime(),
	}
	if m.phase == PhaseNew {
		return p
	}
	m.readTimes(&p, now)
	m.readDisk(&p, now)
	m.readMemory(&p, now)
	return p
}

func (m *Migration) copy() *Migration {
	c := *m
	c.guest.sets = slices.Clone(m.guest.sets)
	c.changes = nil
	return &c
}

// downtime is QEMU's expected downtime until it is known: what the last sync
// found at the present rate, and the limit as long as there was none.
func (m *Migration) downtime() time.Duration {
	switch {
	case m.phase >= PhasePostCopy:
		return m.switched - m.stoppedAt
	case m.phase == PhaseSwitchOver && m.postCopy:
		return m.p.DeviceTime + m.p.NetworkRTT
	case m.iteration < 2 || m.wire <= 0:
		return m.p.Downtime
	}
	expected := m.pending * m.p.CompressionRatio / m.wire
	return time.Duration(math.Round(min(expected, never) * 1e9))
}

func (m *Migration) readTimes(p *Progress, now time.Duration) {
	p.Elapsed = now - m.startedAt
	p.Setup = m.setUpAt - m.startedAt
	brown, black := m.guest.lost(now)
	switch m.phase {
	case PhaseSetup:
		p.Setup = p.Elapsed
	case PhaseCompleted:
		p.Elapsed = m.endedAt - m.startedAt
		brown, black = 0, 0
	}
	p.BrownOut, p.BlackOut = m.guest.brown+brown, m.guest.black+black
}

func (m *Migration) readDisk(p *Progress, now time.Duration) {
	switch {
	case m.phase > PhaseDisk:
		p.DiskProcessed, p.DiskRemaining = p.DiskTotal, 0
	case m.phase == PhaseDisk:
		sent, _ := m.stream.sentAt(now)
		p.DiskProcessed = min(uint64(sent), p.DiskTotal)
		p.DiskRemaining = p.DiskTotal - p.DiskProcessed
		p.DiskBytesPerSecond = uint64(m.wire)
	}
}

func (m *Migration) readMemory(p *Progress, now time.Duration) {
	if m.phase < PhaseRounds {
		return
	}
	sent, zero := m.sent, m.zeroSent
	if m.phase != PhaseCompleted {
		bytes, zeros := m.stream.sentAt(now)
		sent, zero = sent+bytes, zero+zeros
	}
	p.MemoryProcessed = uint64(sent * m.p.CompressionRatio)
	p.NormalPages = uint64(sent) / m.p.PageSize
	p.NormalBytes = p.NormalPages * m.p.PageSize
	p.ConstantPages = uint64(zero) / m.p.PageSize
	p.PostCopyRequests = uint64(m.faults)

	left := m.stream.leftAt(now)
	remaining := left * (m.stream.bytes + m.stream.zero)
	switch {
	case m.phase == PhaseSwitchOver && m.postCopy:
		remaining = m.pending + m.zeroLeft
	case m.phase == PhasePostCopy:
		p.PostCopyRequests = uint64(m.faults + m.faultsUntil(now))
	}
	p.MemoryRemaining = min(uint64(math.Ceil(remaining)), p.MemoryTotal)
	if left > 0 && m.stream.span > 0 && !m.stream.stalled {
		p.MemoryBytesPerSecond = uint64(math.Round(m.stream.bytes * m.p.CompressionRatio / m.stream.span))
	}
}
