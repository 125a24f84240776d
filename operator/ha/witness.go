// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"maps"
	"slices"
	"time"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// witnesses is how many hosts watch each host.
const witnesses = 2

// ring says whom each host watches: of the hosts of its zone, in the order of
// their names, the next that see anything watch it, from other racks if there are.
// The hosts are sorted by name; blind are those that see nothing.
func ring(fleet []kvmv1.Hypervisor, blind map[string]bool) map[string][]string {
	byZone := map[string][]*kvmv1.Hypervisor{}
	var zones []string
	for i := range fleet {
		zone := fleet[i].Labels[kvmv1.LabelZone]
		if byZone[zone] == nil {
			zones = append(zones, zone)
		}
		byZone[zone] = append(byZone[zone], &fleet[i])
	}
	watch := map[string][]string{}
	for _, zone := range zones {
		hosts := make([]candidate, len(byZone[zone]))
		for i, h := range byZone[zone] {
			hosts[i] = candidate{name: h.Name, rack: h.Labels[kvmv1.LabelBuildingBlock], blind: blind[h.Name]}
		}
		for i, h := range hosts {
			for _, w := range witnessesOf(hosts, i) {
				watch[w] = append(watch[w], h.name)
			}
		}
	}
	for _, w := range watch { // In any order: each has its own.
		slices.Sort(w)
	}
	return watch
}

// candidate is a host that may watch another. All of a zone are looked through for
// each where they share one rack, a million looks with a thousand hosts: what is
// looked at lies ready.
type candidate struct {
	name, rack string
	blind      bool
}

func witnessesOf(hosts []candidate, of int) []string {
	var other, same []string
	rack := hosts[of].rack
	for step := 1; step < len(hosts) && len(other) < witnesses; step++ {
		switch h := &hosts[(of+step)%len(hosts)]; {
		case h.blind:
		case h.rack != rack:
			other = append(other, h.name)
		case len(same) < witnesses:
			same = append(same, h.name)
		}
	}
	return slices.Concat(other, same)[:min(witnesses, len(other)+len(same))]
}

// assign says whom each host watches from its next report on, and drops what
// those said who do not watch any more, once it is old.
func (s *Service) assign(watch map[string][]string, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = watch
	for host, h := range s.hosts { // In any order: each has its own.
		maps.DeleteFunc(h.sightings, func(witness string, seen sighting) bool {
			return now-seen.at > time.Minute && !slices.Contains(watch[witness], host)
		})
	}
}

// stranded says whether a host has lost its storage.
func (s *Service) stranded(host string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[host]
	return h != nil && h.strandedSince != 0
}

// othersWrite says whether other hosts that are heard can write to a pool that
// this host cannot, and that not the pool itself is away.
func (s *Service) othersWrite(host string, now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[host]
	if h == nil {
		return false
	}
	away := map[string]bool{}
	for _, p := range h.storage {
		if !p.GetWritable() {
			away[p.GetPool()] = true
		}
	}
	can, cannot := 0, 0
	for name, o := range s.hosts {
		if name == host || o.last == 0 || now-o.last >= 3*s.limits.Interval {
			continue
		}
		for _, p := range o.storage {
			switch {
			case !away[p.GetPool()]:
			case p.GetWritable():
				can++
			default:
				cannot++
			}
		}
	}
	return can > cannot
}
