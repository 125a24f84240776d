// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/hardware"
)

// neighbour is what is seen of a host that the service wants watched.
type neighbour struct {
	asked                 bool // both networks were tried
	management, migration bool

	store   pulse // of reading its heartbeat
	read    bool  // it was read once
	beat    hardware.Heartbeat
	changed time.Duration // when it was first seen as it is
}

// watch takes in whom to watch from now on.
func (a *agent) watch(hosts []string) (changed bool) {
	for _, host := range hosts {
		if a.neighbours[host] == nil && host != a.o.Host && host != "" {
			a.neighbours[host], changed = &neighbour{}, true
		}
	}
	maps.DeleteFunc(a.neighbours, func(host string, _ *neighbour) bool { return !slices.Contains(hosts, host) })
	return changed
}

// watched are the hosts to look at, sorted.
func (a *agent) watched() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.neighbours))
}

// reach asks whether the neighbours answer.
func (a *agent) reach(ctx context.Context) time.Duration {
	begun := a.now()
	hosts := a.watched()
	for _, host := range hosts {
		management := a.o.Hardware.Reach(ctx, hardware.NetworkManagement, host) == nil
		migration := a.o.Hardware.Reach(ctx, hardware.NetworkMigration, host) == nil
		a.mu.Lock()
		n := a.neighbours[host]
		news := n != nil && (!n.asked || n.management != management || n.migration != migration)
		if n != nil {
			n.asked, n.management, n.migration = true, management, migration
		}
		a.mu.Unlock()
		if news {
			a.tell(gather)
		}
	}
	if len(hosts) == 0 {
		return 0 // woken when there are
	}
	return a.next(begun, a.now())
}

// read reads the neighbours' heartbeats.
func (a *agent) read(ctx context.Context) time.Duration {
	first := a.now()
	hosts := a.watched()
	for _, host := range hosts {
		a.mu.Lock()
		begun := a.now()
		if n := a.neighbours[host]; n != nil {
			n.store.ask(begun)
		}
		a.mu.Unlock()
		beat, err := a.o.Hardware.ReadHeartbeat(ctx, a.o.Pool, host)
		a.mu.Lock()
		n := a.neighbours[host]
		news := n != nil && n.hear(begun, a.now(), beat, err)
		a.mu.Unlock()
		if news {
			a.tell(gather)
		}
	}
	if len(hosts) == 0 {
		return 0
	}
	return a.next(first, a.now())
}

// hear takes in a reading, and says whether it is news: that a heartbeat moves on
// is none.
func (n *neighbour) hear(begun, now time.Duration, beat hardware.Heartbeat, err error) (news bool) {
	news = n.store.hear(begun, now, err == nil)
	if err != nil || n.read && beat == n.beat {
		return news
	}
	news = news || beat.Boot != n.beat.Boot || beat.Lapsed != n.beat.Lapsed
	n.read, n.beat, n.changed = true, beat, now
	return news
}

// still is how long the heartbeat had not changed when it was last read. A
// reading that does not come back says nothing, and so adds nothing.
func (n *neighbour) still() time.Duration { return max(n.store.last-n.changed, 0) }

func (n *neighbour) message(host string, now, patience time.Duration) *hav1.Witness {
	readable, _ := n.store.state(now, patience)
	return &hav1.Witness{
		Host: host, Management: n.management, Migration: n.migration, Storage: readable,
		Boot: n.beat.Boot, Count: n.beat.Count, Lapsed: n.beat.Lapsed, Still: durationpb.New(n.still()),
	}
}
