// SPDX-License-Identifier: Apache-2.0

package hwsim

import "time"

// Steady is a host's clock that only moves forward, evenly: the time since
// boot. All programs of the host share it, and none of them can set it.
type Steady struct{ h *Host }

// Steady returns the host's steady clock. It begins anew with each boot.
func (h *Host) Steady() Steady { return Steady{h} }

// Elapsed returns the time since the kernel started, by the host's oscillator.
func (s Steady) Elapsed() time.Duration {
	return s.h.uptimeBefore() + s.h.drifted(s.h.f.s.Elapsed()-s.h.bootedAt)
}

// drifted is what the host's oscillator makes of true time, undrifted the true
// time in which it counts so far. Integers: the same on all machines.
func (h *Host) drifted(d time.Duration) time.Duration {
	return d + d/1e6*time.Duration(h.spec.Drift)
}

func (h *Host) undrifted(d time.Duration) time.Duration {
	return d - d/1e6*time.Duration(h.spec.Drift)
}

// WallClock is a host's idea of the date: it may be wrong, and jump. It is a
// PassiveClock of k8s.io/utils/clock.
type WallClock struct{ h *Host }

// Clock returns the host's wall clock.
func (h *Host) Clock() WallClock { return WallClock{h} }

// Now returns the date as the host has it.
func (c WallClock) Now() time.Time { return c.h.f.s.Now().Add(c.h.spec.ClockSkew + c.h.clockOff) }

// Since returns the time since then, by a clock that may have jumped between.
func (c WallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
