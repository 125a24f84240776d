// SPDX-License-Identifier: Apache-2.0

package precopy

import "time"

// Migration is one migration under way. It is not safe for concurrent use.
// Times given to its methods must not go back; a method given a time beyond the
// next boundary crosses it first and keeps its changes for the next Advance.
type Migration struct{ p Params }

// New returns a migration that has not begun.
func New(p Params) *Migration { return &Migration{p: p} }

// Start begins at now with so many bytes a second granted.
func (m *Migration) Start(now time.Duration, bytesPerSecond float64) {}

// SetBandwidth says what share of the wire is granted from now on; 0 stalls.
func (m *Migration) SetBandwidth(now time.Duration, bytesPerSecond float64) {}

// SetLimits changes downtime limit and max-bandwidth from now on; 0 leaves the
// downtime as it is, and unbinds the bandwidth.
func (m *Migration) SetLimits(now, downtime time.Duration, maxBytesPerSecond float64) {}

// SetPaused says that the source's guest is suspended and dirties nothing.
func (m *Migration) SetPaused(now time.Duration, paused bool) {}

// StartPostCopy switches over at once and lets the pages follow. It is refused
// before the first round and after the switch-over began.
func (m *Migration) StartPostCopy(now time.Duration) error { return nil }

// Next says when the next boundary comes if nothing else is called before; not
// ok when the migration is stalled, has not begun or has ended.
func (m *Migration) Next() (at time.Duration, ok bool) { return 0, false }

// Advance crosses all boundaries up to and with now, and returns what happened
// since the last call, in order.
func (m *Migration) Advance(now time.Duration) []Change { return nil }

// Phase is where the migration stands as of the last call with a time.
func (m *Migration) Phase() Phase { return PhaseNew }

// Demand is the most it could send a second if granted, as of the last call with
// a time: what its share of the network is computed from.
func (m *Migration) Demand() float64 { return 0 }

// Progress reads everything at now and changes nothing.
func (m *Migration) Progress(now time.Duration) Progress { return Progress{} }
