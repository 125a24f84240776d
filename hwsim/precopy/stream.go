// SPDX-License-Identifier: Apache-2.0

package precopy

import (
	"math"
	"time"
)

// never is a wait that nobody sits out; beyond it a stream counts as stalled.
const never = 1e9 // seconds

// stream is one volume on its way, and a fixed time after it. Like the guest it
// is exact at `at` and a formula afterwards. Boundaries are rounded up to whole
// nanoseconds, and at one the state is set, not computed, so no error piles up.
type stream struct {
	at    time.Duration
	bytes float64       // of pages or disk
	zero  float64       // of zero pages, found on the way and evenly mixed in
	left  float64       // share of the volume not yet sent at `at`
	fixed time.Duration // still to pass once the volume is sent

	span    float64 // seconds the whole volume takes at the present pace
	stalled bool
}

// pace sets how fast it goes: bytes a second, and zero bytes a second looked at.
func (s *stream) pace(bytesPerSecond, zeroPerSecond float64) {
	s.stalled = bytesPerSecond <= 0 && (s.bytes > 0 || s.zero == 0)
	s.span = s.zero / zeroPerSecond
	if !s.stalled && s.bytes > 0 {
		s.span += s.bytes / bytesPerSecond
	}
	s.stalled = s.stalled || s.left*s.span > never
}

// reaches says when only the given share is left.
func (s *stream) reaches(left float64) time.Duration {
	return s.at + time.Duration(math.Ceil(max(s.left-left, 0)*s.span*1e9))
}

// end says when all is done.
func (s *stream) end() (time.Duration, bool) {
	if s.stalled {
		return 0, false
	}
	return s.reaches(0) + s.fixed, true
}

// leftAt is the share of the volume left at t.
func (s *stream) leftAt(t time.Duration) float64 {
	switch {
	case s.stalled:
		return s.left
	case s.span <= 0:
		return 0
	}
	return max(s.left-seconds(t-s.at)/s.span, 0)
}

// move moves the anchor to t.
func (s *stream) move(t time.Duration) {
	if !s.stalled {
		if sent := s.reaches(0); t >= sent {
			s.left, s.fixed = 0, s.fixed-(t-max(sent, s.at))
		} else {
			s.left = s.leftAt(t)
		}
	}
	s.at = t
}

// sentAt are the bytes of pages, and of zero pages, gone by t.
func (s *stream) sentAt(t time.Duration) (bytes, zero float64) {
	gone := 1 - s.leftAt(t)
	return s.bytes * gone, s.zero * gone
}
