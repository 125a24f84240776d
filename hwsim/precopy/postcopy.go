// SPDX-License-Identifier: Apache-2.0

package precopy

import (
	"math"
	"time"
)

// postCopySteps is how often in a post-copy the guest's speed is looked at anew;
// in between it is constant, which keeps all sums exact however time is cut.
const postCopySteps = 64

func (m *Migration) leaveForPostCopy(at time.Duration) {
	left := m.stream.leftAt(at)
	m.sync(at, left)
	m.tell(RoundEnded, at)
	m.iteration++
	m.postCopy = true
	m.stop(at, stream{})
}

// beginPostCopy sends what the source still has, in the background and at full
// rate; pages asked for overtake it.
func (m *Migration) beginPostCopy(at time.Duration) {
	m.chunk = postCopySteps
	m.begin(PhasePostCopy, at, stream{bytes: m.pending, zero: m.zeroLeft})
	m.tell(PostCopyStarted, at)
}

func (m *Migration) stepPostCopy(at time.Duration) {
	if m.chunk > 1 {
		m.chunk--
		m.steer(at)
		return
	}
	m.settle(at)
	m.sent += m.stream.bytes
	m.zeroSent += m.stream.zero
	m.complete(at)
}

// postCopySpeed is the share of time in which the guest does not wait for pages.
// It touches fresh pages at the rate at which it would dirty them; those not yet
// there cost a round trip and their own sending.
func (m *Migration) postCopySpeed(now time.Duration) float64 {
	left := m.stream.leftAt(now)
	perSecond := 0.0
	for i := range m.guest.sets {
		s := &m.guest.sets[i]
		if s.size > 0 {
			perSecond += s.rate * (1 - s.dirty/s.size) * (s.pending / s.size) * left
		}
	}
	page := float64(m.p.PageSize)
	perSecond /= page
	switch {
	case perSecond <= 0:
		return 1
	case m.wire <= 0:
		return 0
	}
	wait := seconds(m.p.NetworkRTT) + page*m.p.CompressionRatio/m.wire
	return 1 / (1 + perSecond*wait)
}

// faultsUntil are the pages waited for from the guest's anchor to t: the integral
// of first touches times the share of pages missing, which falls evenly.
func (m *Migration) faultsUntil(t time.Duration) float64 {
	span, speed := seconds(t-m.guest.at), m.guest.speed
	if span <= 0 || speed <= 0 {
		return 0
	}
	left := m.stream.leftAt(m.guest.at)
	fall := (left - m.stream.leftAt(t)) / span
	sum := 0.0
	for i := range m.guest.sets {
		s := &m.guest.sets[i]
		if s.size <= 0 {
			continue
		}
		k := s.rate * speed / s.size
		touches := s.rate * speed * (1 - s.dirty/s.size)
		sum += touches * (s.pending / s.size) * max(left*decay(k, span)-fall*decayMoment(k, span), 0)
	}
	return sum / float64(m.p.PageSize)
}

// decay is the integral of e^(−kt) from 0 to t.
func decay(k, t float64) float64 {
	if k*t < 1e-9 {
		return t
	}
	return -math.Expm1(-k*t) / k
}

// decayMoment is the integral of t·e^(−kt) from 0 to t.
func decayMoment(k, t float64) float64 {
	x := k * t
	if x < 1e-3 { // the closed form loses its digits here
		return t * t * (0.5 - x/3 + x*x/8)
	}
	return (-math.Expm1(-x) - x*math.Exp(-x)) / (k * k)
}
