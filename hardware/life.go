// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"context"
	"time"
)

// Watchdog is the timer in the host's hardware that resets the machine unless it
// is fed. It runs on when the program that armed it dies; that is its use.
type Watchdog interface {
	// Watchdog reads the timer.
	Watchdog(ctx context.Context) (WatchdogState, error)

	// FeedWatchdog arms the timer, or sets it anew: the machine is reset once
	// timeout has passed, which counts in whole seconds. A machine without one refuses with ReasonUnsupported.
	FeedWatchdog(ctx context.Context, timeout time.Duration) error

	// DisarmWatchdog stops the timer.
	DisarmWatchdog(ctx context.Context) error
}

// WatchdogState is what the timer says of itself.
type WatchdogState struct {
	Present bool
	Armed   bool
	Timeout time.Duration // as last set
}

// Heartbeats are signs of life in storage that hosts share: each host writes its
// own and can read the others'. They tell a host that is cut off from the
// management network from one that is dead.
type Heartbeats interface {
	// WriteHeartbeat replaces this host's heartbeat in a pool. Storage that
	// hangs does not hang the caller: when ctx is done, and at the latest after
	// some seconds, the call is given up as Unknown. The write may yet land.
	WriteHeartbeat(ctx context.Context, pool string, b Heartbeat) error

	// ReadHeartbeat reads a host's heartbeat; one never written is the zero
	// Heartbeat. Storage that hangs or is gone is Unavailable.
	ReadHeartbeat(ctx context.Context, pool, host string) (Heartbeat, error)
}

// Heartbeat is what a host writes about itself. That it changes is the sign of
// life; the times of two hosts are never compared.
type Heartbeat struct {
	Boot   string // the writer's boot id
	Count  uint64 // grows with each write of a boot
	Lapsed bool   // the host has lost its run lease and stops its VMs
}

// Peers is what a host can reach of the others.
type Peers interface {
	// Reach asks whether a host answers on a network. No answer is Unavailable,
	// and says as much about the way there as about the host.
	Reach(ctx context.Context, n Network, host string) error
}

// Network is one of a host's networks.
type Network string

// The networks of a host.
const (
	NetworkManagement Network = "management"
	NetworkMigration  Network = "migration"
)

// Notes keeps small records on the host itself, for the programs of this boot:
// they outlive the program that wrote them and end with the boot (tmpfs).
type Notes interface {
	// SaveNote replaces a record, wholly or not at all. Names are lower-case
	// words joined by "-".
	SaveNote(ctx context.Context, name string, data []byte) error

	// LoadNote returns a record; nil when there is none.
	LoadNote(ctx context.Context, name string) ([]byte, error)
}
