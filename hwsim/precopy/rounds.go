// SPDX-License-Identifier: Apache-2.0

package precopy

import "time"

// period is what auto-converge judges: what was dirtied and sent since a sync at
// least a second ago.
type period struct {
	since time.Duration
	dirty float64 // bytes
	sent  float64 // bytes on the wire, at the begin
	high  int     // how often it was too much
}

// beginMemory starts the first round: everything is to be sent.
func (m *Migration) beginMemory(at time.Duration) {
	m.settle(at)
	m.memoryAt, m.syncedAt, m.iteration = at, at, 1
	m.period.since = at
	zero := float64(m.p.ZeroBytes)
	m.pending = float64(m.p.MemoryBytes) - zero
	sets := 0.0
	for i := range m.guest.sets {
		sets += m.guest.sets[i].size
	}
	share := 1.0 // the guest may also write where there are zero pages now
	if sets > m.pending {
		share = m.pending / sets
	}
	m.rest = max(m.pending-sets, 0)
	for i := range m.guest.sets {
		s := &m.guest.sets[i]
		s.pending, s.dirty = s.size*share, 0
	}
	m.tell(MemoryBegan, at)
	m.begin(PhaseRounds, at, stream{bytes: m.pending, zero: zero})
}

// endRound reads the dirty bitmap, and switches over if what it finds fits into
// the downtime limit at the present rate. QEMU also looks when what is left of a
// round fits, and then syncs in steps of 50 ms; that comes to the same end at most
// one downtime limit earlier, so it is left out. As in QEMU pages are counted
// uncompressed but the rate is that on the wire.
func (m *Migration) endRound(at time.Duration, left float64) {
	fresh := m.sync(at, left)
	m.tell(RoundEnded, at)
	m.iteration++
	m.period.dirty += fresh
	if m.pending <= m.wire*seconds(m.p.Downtime) {
		m.judge(at, false)
		m.stop(at, stream{bytes: m.pending})
		return
	}
	m.judge(at, m.p.AutoConverge)
	m.begin(PhaseRounds, at, stream{bytes: m.pending})
}

// sync makes the next volume: what is left of the round, and what was dirtied in
// it. A page that waits to be sent and is written again counts once; within a
// set both are taken to be spread evenly. It returns the bytes newly dirty.
func (m *Migration) sync(at time.Duration, left float64) (fresh float64) {
	m.settle(at)
	m.sent += m.stream.bytes * (1 - left)
	m.zeroSent += m.stream.zero * (1 - left)
	m.zeroLeft = m.stream.zero * left
	m.rest *= left
	m.pending = m.rest
	for i := range m.guest.sets {
		s := &m.guest.sets[i]
		waits := s.pending * left
		hit := 0.0
		if s.size > 0 {
			hit = s.dirty * (1 - waits/s.size)
		}
		s.pending, s.dirty = waits+hit, 0
		m.pending += s.pending
		fresh += hit
	}
	m.syncedAt = at
	return fresh
}

// judge closes a period of at least a second, and throttles the guest when it
// dirtied too much in two of them (QEMU migration/ram.c; they need not follow
// each other).
func (m *Migration) judge(at time.Duration, throttle bool) {
	if at-m.period.since < minimumPeriod {
		return
	}
	wire := m.sent * m.p.CompressionRatio
	if m.period.dirty > (wire-m.period.sent)*float64(m.p.Throttle.Trigger)/100 {
		m.period.high++
	}
	m.dirtyRate = m.period.dirty / seconds(at-m.period.since)
	m.period = period{since: at, sent: wire, high: m.period.high}
	if !throttle || m.period.high < 2 {
		return
	}
	m.period.high = 0
	next := m.p.Throttle.Initial
	if m.throttle > 0 {
		next = m.throttle + m.p.Throttle.Increment
	}
	if next = min(next, m.p.Throttle.Max); next != m.throttle {
		m.throttle = next
		m.tell(Throttled, at)
	}
}

// tick says when auto-converge next looks at the bitmap within a round: QEMU's
// timer syncs when a whole turn of it passed without a sync, and never in the
// first round. While the wire is stuck it waits for the bitmap's lock, which the
// sender holds, so the guest is not throttled for a dead network.
func (m *Migration) tick() (time.Duration, bool) {
	turn := m.p.Throttle.SyncPeriod
	if m.phase != PhaseRounds || !m.p.AutoConverge || turn <= 0 || m.iteration < 2 || m.stream.stalled {
		return 0, false
	}
	since := m.syncedAt - m.memoryAt
	turns := (since + turn - 1) / turn
	return max(m.memoryAt+(turns+1)*turn, m.stream.at), true
}

// stop pauses the source's guest; what the stream holds goes over, then the
// devices' state, then the network learns the new place.
func (m *Migration) stop(at time.Duration, s stream) {
	m.stoppedAt = at
	s.fixed = m.p.DeviceTime + m.p.NetworkRTT
	m.begin(PhaseSwitchOver, at, s)
	m.tell(SwitchOverBegan, at)
}

func (m *Migration) endSwitchOver(at time.Duration) {
	m.switched = at
	m.sent += m.stream.bytes
	m.tell(Switched, at)
	if m.postCopy {
		m.beginPostCopy(at)
		return
	}
	m.complete(at)
}

func (m *Migration) complete(at time.Duration) {
	m.endedAt = at
	m.settle(at)
	m.begin(PhaseCompleted, at, stream{})
	m.stream.left, m.stream.stalled = 0, false
	m.pending = 0
	m.tell(Completed, at)
}
