// SPDX-License-Identifier: Apache-2.0

package precopy

import (
	"errors"
	"time"
)

// The reasons why StartPostCopy refuses.
var (
	ErrNotCopying = errors.New("no memory is being copied yet")
	ErrTooLate    = errors.New("the switch-over has begun")
)

// Migration is one migration under way. It is not safe for concurrent use.
// Times given to its methods must not go back; a method given a time beyond the
// next boundary crosses it first and keeps its changes for the next Advance.
type Migration struct {
	p       Params
	phase   Phase
	now     time.Duration // the latest time any call gave
	changes []Change

	granted float64 // bytes a second on the wire
	wire    float64 // what is used of it, as of the last pace
	stream  stream
	guest   guest
	paused  bool

	sent, zeroSent float64 // bytes of pages before the present stream
	rest           float64 // of the round's volume, outside the working sets
	pending        float64 // bytes found dirty by the last sync
	iteration      uint64
	throttle       int
	dirtyRate      float64 // bytes a second in the last period
	period         period

	postCopy  bool
	zeroLeft  float64 // zero pages not looked at before post-copy
	chunk     int     // post-copy's steps still to come
	faults    float64
	startedAt time.Duration
	setUpAt   time.Duration
	memoryAt  time.Duration
	syncedAt  time.Duration
	stoppedAt time.Duration
	switched  time.Duration
	endedAt   time.Duration
}

// New returns a migration that has not begun.
func New(p Params) *Migration {
	m := &Migration{p: p.withDefaults()}
	m.guest = guest{speed: 1, sets: newSets(m.p)}
	return m
}

// Start begins at now with so many bytes a second granted, to be used once the
// setup has ended.
func (m *Migration) Start(now time.Duration, bytesPerSecond float64) {
	if m.phase != PhaseNew {
		return
	}
	m.granted = amount(bytesPerSecond)
	m.now, m.startedAt = now, now
	m.guest.at, m.guest.brown, m.guest.black = now, 0, 0
	m.begin(PhaseSetup, now, stream{fixed: m.p.Setup})
}

// SetBandwidth says what share of the wire is granted from now on; 0 stalls.
func (m *Migration) SetBandwidth(now time.Duration, bytesPerSecond float64) {
	m.catchUp(now)
	m.granted = amount(bytesPerSecond)
	m.repace(now)
}

// SetLimits changes downtime limit and max-bandwidth from now on; 0 leaves the
// downtime as it is, and unbinds the bandwidth. The downtime counts from the next
// round end.
func (m *Migration) SetLimits(now, downtime time.Duration, maxBytesPerSecond float64) {
	m.catchUp(now)
	if downtime > 0 {
		m.p.Downtime = max(downtime, minimumDowntime)
	}
	m.p.MaxBytesPerSecond = amount(maxBytesPerSecond)
	m.repace(now)
}

// SetPaused says that the guest is suspended and dirties nothing.
func (m *Migration) SetPaused(now time.Duration, paused bool) {
	m.catchUp(now)
	if m.paused != paused {
		m.paused = paused
		m.steer(now)
	}
}

// StartPostCopy switches over at once and lets the pages follow. It is refused
// before the first round and after the switch-over began.
func (m *Migration) StartPostCopy(now time.Duration) error {
	m.catchUp(now)
	switch {
	case m.phase < PhaseRounds:
		return ErrNotCopying
	case m.phase > PhaseRounds:
		return ErrTooLate
	}
	m.leaveForPostCopy(now)
	return nil
}

// Next says when the next boundary comes if nothing else is called before; not
// ok when the migration is stalled, has not begun or has ended.
func (m *Migration) Next() (at time.Duration, ok bool) {
	if len(m.changes) > 0 {
		return m.now, true // they wait to be fetched
	}
	return m.visible()
}

// Advance crosses all boundaries up to and with now, and returns what happened
// since the last call, in order.
func (m *Migration) Advance(now time.Duration) []Change {
	m.catchUp(now)
	changes := m.changes
	m.changes = nil
	return changes
}

// Phase is where the migration stands as of the last call with a time.
func (m *Migration) Phase() Phase { return m.phase }

// Demand is the most it could send a second if granted, as of the last call with
// a time: what its share of the network is computed from. While zero pages are
// looked for, less is used.
func (m *Migration) Demand() float64 {
	most := m.p.StreamBytesPerSecond * float64(m.p.Connections)
	switch m.phase {
	case PhaseDisk, PhaseRounds:
		if bound := m.p.MaxBytesPerSecond; bound > 0 {
			return min(most, bound)
		}
		return most
	case PhaseSwitchOver, PhasePostCopy:
		return most // QEMU lifts max-bandwidth when it completes
	}
	return 0
}

// catchUp crosses the boundaries up to and with now.
func (m *Migration) catchUp(now time.Duration) {
	for {
		at, ok := m.boundary()
		if !ok || at > now {
			break
		}
		m.cross(at)
	}
	m.now = max(m.now, now)
}

// visible is the next boundary at which something changes for others.
func (m *Migration) visible() (time.Duration, bool) {
	switch m.phase {
	case PhaseNew, PhaseCompleted:
		return 0, false
	case PhaseSetup:
		return m.stream.at + m.stream.fixed, true
	}
	end, ok := m.stream.end()
	if tick, is := m.tick(); is && tick < end {
		return tick, true
	}
	return end, ok
}

// boundary is the next boundary, post-copy's inner steps included.
func (m *Migration) boundary() (time.Duration, bool) {
	if m.phase == PhasePostCopy && m.chunk > 1 && !m.stream.stalled {
		return m.stream.reaches(float64(m.chunk-1) / postCopySteps), true
	}
	return m.visible()
}

func (m *Migration) cross(at time.Duration) {
	m.now = max(m.now, at)
	switch m.phase {
	case PhaseSetup:
		m.setUpAt = at
		m.tell(SetupEnded, at)
		if m.p.DiskBytes > 0 {
			m.begin(PhaseDisk, at, stream{bytes: float64(m.p.DiskBytes)})
			return
		}
		m.beginMemory(at)
	case PhaseDisk:
		m.beginMemory(at)
	case PhaseRounds:
		left := 0.0
		if end, _ := m.stream.end(); at < end { // auto-converge's tick
			left = m.stream.leftAt(at)
		}
		m.endRound(at, left)
	case PhaseSwitchOver:
		m.endSwitchOver(at)
	case PhasePostCopy:
		m.stepPostCopy(at)
	}
}

// begin enters a phase with a new stream.
func (m *Migration) begin(phase Phase, at time.Duration, s stream) {
	m.phase = phase
	s.at, s.left = at, 1
	m.stream = s
	m.setPace()
	m.steer(at)
}

// repace takes a new share from now on. An unchanged one moves no anchor.
func (m *Migration) repace(now time.Duration) {
	if m.phase == PhaseNew || m.wire == min(m.granted, m.Demand()) {
		return
	}
	if m.phase == PhasePostCopy {
		m.settle(now) // at the old pace
	}
	m.stream.move(now)
	m.setPace()
	if m.phase == PhasePostCopy {
		m.steer(now)
	}
}

func (m *Migration) setPace() {
	m.wire = min(m.granted, m.Demand())
	rate := m.wire
	if m.phase != PhaseDisk {
		rate /= m.p.CompressionRatio
	}
	m.stream.pace(rate, m.p.ZeroScanBytesPerSecond)
}

// steer settles the guest's speed from now on.
func (m *Migration) steer(now time.Duration) {
	m.settle(now)
	m.guest.still = m.paused && m.phase != PhaseCompleted || m.phase == PhaseSwitchOver
	switch {
	case m.guest.still:
		m.guest.speed = 0
	case m.phase == PhaseRounds:
		m.guest.speed = 1 - float64(m.throttle)/100
	case m.phase == PhasePostCopy:
		m.guest.speed = m.postCopySpeed(now)
	default:
		m.guest.speed = 1
	}
}

// settle moves the guest's anchor to now.
func (m *Migration) settle(now time.Duration) {
	if m.phase == PhasePostCopy {
		m.faults += m.faultsUntil(now)
	}
	m.guest.advance(now)
}

func (m *Migration) tell(kind ChangeKind, at time.Duration) {
	m.changes = append(m.changes, Change{At: at, Kind: kind, Iteration: m.iteration, ThrottlePercent: m.throttle})
}
