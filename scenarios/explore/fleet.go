// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
)

// The least an exploration plays with: below, many things cannot come together.
const (
	leastHosts  = 8
	leastVMs    = 40
	leastFaults = 5
)

// fleet draws racks of like hosts, in one or two zones.
func (g *gamble) fleet() {
	racks := 2 + g.IntN(3)
	zones := one(g, []string{"a"}, []string{"a", "b"})
	left := leastHosts + g.IntN(4)
	for i := range racks {
		n := left / (racks - i)
		if i < racks-1 && n > 1 && g.chance(0.3) {
			n += g.IntN(3) - 1
		}
		left -= n
		name := string(rune('p' + i))
		line := fmt.Sprintf("- {name: %s, count: %d, model: %s, zone: %s, rack: r%d, migrationBandwidth: %s",
			name, n, one(g, "lab", "lab", "whitebox", "r640"), zones[i%len(zones)], i+1, one(g, "30M", "125M", "125M", "1250M"))
		if g.chance(0.2) {
			line += ", overcommit: {cpu: 2}"
		}
		line += g.hardware(i)
		g.fleetLines = append(g.fleetLines, line+"}")
		var rack []string
		for k := range n {
			rack = append(rack, fmt.Sprintf("%s%03d", name, k+1))
		}
		g.hosts = append(g.hosts, rack...)
		g.racks = append(g.racks, rack)
	}
}

// workload draws groups of like VMs. Most are small: what a fleet of eight
// small hosts has room for still has room when two of them are gone.
func (g *gamble) workload() {
	left := leastVMs + g.IntN(12)
	for i := 0; left > 0; i++ {
		n := min(left, 5+g.IntN(16))
		left -= n
		name := one(g, "web", "db", "job") + string(rune('a'+i))
		memory := one(g, 1, 1, 2, 2, 4, 8)
		line := fmt.Sprintf("- {name: %s, count: %d, at: %v, cpus: %d, memory: %dGi", name, n, g.span(0, vmsWithin), one(g, 1, 1, 1, 2, 2, 4), memory)
		if g.chance(0.7) {
			line += fmt.Sprintf(", used: %dMi, dirtyRate: %s, workingSet: 64Mi", memory*1024*(1+g.IntN(4))/4, one(g, "1Mi", "5Mi", "20Mi", "200Mi"))
		}
		for _, extra := range []struct {
			text string
			p    float64
		}{
			{"agent: true", 0.4}, {"deaf: true", 0.15}, {"stopped: true", 0.1}, {"apart: kubernetes.io/hostname", 0.1},
			{"numa: true", 0.07}, {"pinned: true", 0.07}, {"grace: 5s", 0.2}, {"shutdown: 20s", 0.15}, {"every: 3s", 0.2},
		} {
			if g.chance(extra.p) {
				line += ", " + extra.text
			}
		}
		line += g.policies()
		g.groupLines = append(g.groupLines, line+"}")
		for k := range n {
			g.vms = append(g.vms, fmt.Sprintf("%s-%d", name, k+1))
		}
	}
}

func (g *gamble) operator() {
	g.postCopy = g.chance(0.3)
	for _, o := range []struct {
		text string
		p    float64
	}{
		{"autoConverge: true", 0.3}, {"workloadDisruption: true", 0.2}, {"replicas: 2", 0.4},
		{"migrations: 1", 0.1}, {"perHost: 1", 0.1}, {"perTarget: 1", 0.1}, {"bandwidth: 20M", 0.1},
		{"completionPerGiB: 10s", 0.3}, {"progress: 60s", 0.2}, {"unschedulable: 60s", 0.2}, {"floor: 2", 0.15},
	} {
		if g.chance(o.p) {
			g.options = append(g.options, o.text)
		}
	}
	if g.postCopy {
		g.options = append(g.options, "postCopy: true")
	}
}
