// SPDX-License-Identifier: Apache-2.0

package precopy

import (
	"math"
	"time"
)

// guest is the running machine: what it dirties, and how much of its time it
// got. All is exact at the instant `at`; later instants follow by formula, so
// reading in between changes nothing.
type guest struct {
	at    time.Duration
	speed float64 // share of its normal speed
	still bool    // it stands still, because of the switch-over or a suspend
	sets  []set

	brown, black time.Duration
}

// set is a working set. Before the switch-over, dirty are its bytes written
// since the last sync; after it, those the target's guest has touched.
type set struct {
	size    float64
	rate    float64 // bytes a second at full speed
	dirty   float64
	pending float64 // of the round's volume at its begin
}

// newSets keeps what dirties anything, shrunk to fit the memory.
func newSets(p Params) []set {
	sets := make([]set, 0, len(p.WorkingSets))
	sum := 0.0
	for _, w := range p.WorkingSets {
		rate := amount(w.DirtyBytesPerSecond)
		if rate == 0 || w.Bytes == 0 {
			continue
		}
		sets = append(sets, set{size: float64(w.Bytes), rate: rate})
		sum += float64(w.Bytes)
	}
	if memory := float64(p.MemoryBytes); sum > memory {
		for i := range sets {
			sets[i].size *= memory / sum
		}
	}
	return sets
}

// dirtyAfter is set.dirty so many seconds after the anchor.
func (s *set) dirtyAfter(seconds, speed float64) float64 {
	if s.size == 0 {
		return 0
	}
	grown := -math.Expm1(-s.rate * speed * seconds / s.size)
	return min(s.dirty+(s.size-s.dirty)*grown, s.size)
}

// lost is what the guest lost from the anchor to t, by slowness and by stillness.
func (g *guest) lost(t time.Duration) (brown, black time.Duration) {
	span := t - g.at
	if g.still {
		return 0, span
	}
	return time.Duration(math.Round((1 - g.speed) * float64(span))), 0
}

// advance moves the anchor to t.
func (g *guest) advance(t time.Duration) {
	span := seconds(t - g.at)
	for i := range g.sets {
		g.sets[i].dirty = g.sets[i].dirtyAfter(span, g.speed)
	}
	brown, black := g.lost(t)
	g.brown += brown
	g.black += black
	g.at = t
}

func seconds(d time.Duration) float64 { return float64(d) / 1e9 }
