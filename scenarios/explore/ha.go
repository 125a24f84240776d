// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"time"
)

// highAvailability draws whether there is an HA service and how it is set up.
// Storage locks keep two copies of a VM from writing even where the programs
// err, so that half of the fleets have none.
func (g *gamble) highAvailability() {
	g.locks = g.chance(0.5)
	if g.chance(0.1) {
		return
	}
	g.ha = []string{}
	for _, o := range []struct {
		text string
		p    float64
	}{
		{"replicas: 3", 0.2}, {"replicas: 1", 0.05}, {"watchdog: false", 0.1}, {"powerOn: true", 0.5}, {"yields: true", 0.2},
		{"holdDown: 2m", 0.5}, {"rejoin: 90s", 0.1}, {"settle: 30s", 0.2}, {"fences: 2", 0.1}, {"fencesPerZone: 1", 0.1},
		{"perFleet: 3", 0.15}, {"perTarget: 1", 0.15}, {"stormShare: 0.5", 0.25}, {"stormHosts: 4", 0.1},
		{"term: 12s", 0.1}, {"stop: 20s", 0.1}, {"watchdogTimeout: 10s", 0.1},
	} {
		if g.chance(o.p) && !(o.text == "replicas: 1" && len(g.ha) > 0 && g.ha[0] == "replicas: 3") {
			g.ha = append(g.ha, o.text)
		}
	}
}

// hardware draws what the hosts of the i-th rack have that matters when they
// die. Clocks drift by less than the margin of the run lease.
func (g *gamble) hardware(i int) (line string) {
	feed := fmt.Sprintf("r%d", i+1)
	if g.chance(0.3) {
		feed = "shared"
		line += ", feed: shared"
	}
	g.feeds = append(g.feeds, feed)
	for _, extra := range []struct {
		text string
		p    float64
	}{
		{"watchdog: false", 0.15}, {"bmc: false", 0.1}, {fmt.Sprintf("drift: %d", one(g, -5000, -90, 90, 5000)), 0.2},
		{"clockSkew: " + one(g, "-1h", "3m", "25h"), 0.15},
	} {
		if g.chance(extra.p) {
			line += ", " + extra.text
		}
	}
	return line
}

// policies draws what shall become of a group's VMs after a failure.
func (g *gamble) policies() (line string) {
	if g.ha == nil {
		return ""
	}
	for _, extra := range []struct {
		text string
		p    float64
	}{
		{"protected: false", 0.12}, {"restart: " + one(g, "high", "low"), 0.4}, {"yields: true", 0.15},
		{"onCrash: fail", 0.1}, {"onPanic: " + one(g, "keep", "fail"), 0.2}, {"onIOError: wait", 0.2},
	} {
		if g.chance(extra.p) {
			line += ", " + extra.text
		}
	}
	return line
}

// haAction is what people do with high availability.
func (g *gamble) haAction() string {
	switch n := g.IntN(10); {
	case n < 2:
		return "do: ha.pause"
	case n < 4:
		return "do: ha.resume"
	case n < 5:
		return "do: ha.dry-run enabled=" + one(g, "true", "false")
	case n < 6:
		g.toggled = true
		return "do: host.ha on=" + g.host() + " enabled=" + one(g, "true", "false")
	case n < 9:
		g.toggled = true
		return "do: vm.policy vm=" + g.vm() + " " + one(g, "protected=false", "protected=true", "restart=high", "yields=true", "onCrash=fail", "onIOError=wait")
	default:
		return "do: host.power-on on=" + g.host()
	}
}

// death is a host or a rack that dies for minutes, or seems to. Sometimes a
// person who has seen that it is off confirms it, for as long as it surely is.
func (g *gamble) death(at time.Duration) {
	g.hostsDie = true
	hosts, feed := g.host(), ""
	if g.chance(0.4) {
		i := g.IntN(len(g.racks))
		hosts, feed = join(g.racks[i]), g.feeds[i]
	}
	lasts := g.span(2*time.Minute, 6*time.Minute)
	switch {
	case g.chance(0.3):
		g.fault(at, fmt.Sprintf("%s on=%s for=%v", one(g, "host.hang", "net.cut link=management"), hosts, lasts))
		return
	case feed != "" && g.chance(0.5):
		g.fault(at, fmt.Sprintf("feed.off feed=%s for=%v", feed, lasts))
	default:
		g.fault(at, fmt.Sprintf("host.power-off on=%s for=%v", hosts, lasts))
	}
	if g.heal-at > 2*time.Minute && g.chance(0.3) {
		g.at(at+50*time.Second, "do: "+quoted("ha.confirm on="+hosts+" who=dice reason=seen for=30s"))
	}
}

// end is what people do once the trouble is over: they take their hands off the
// HA service and switch on what it switched off.
func (g *gamble) end() {
	if g.ha == nil {
		return
	}
	g.at(g.heal+time.Second, "do: ha.resume")
	g.at(g.heal+time.Second, "do: ha.dry-run enabled=false")
	g.at(g.heal+time.Second, "do: 'host.ha on=* enabled=true'")
	// The HA service tells late, where it could not before, of hosts to be emptied.
	g.at(g.heal+4*time.Minute, "do: 'maintenance.end on=*'")
	g.at(g.heal+4*time.Minute, "do: 'evict.cancel on=*'")
	for _, after := range []time.Duration{time.Second, 3 * time.Minute, 7 * time.Minute} {
		g.at(g.heal+after, "do: 'host.power-on on=*'")
	}
}

// haLines are the faults that need an HA service to meet.
var haLines = []func(*gamble) string{
	func(g *gamble) string { return "ha.crash" + g.replica() + g.some() },
	func(g *gamble) string { return "ha.pause" + g.some() + g.replica() },
	func(g *gamble) string { return "ha.partition" + g.some() + g.replica() },
	func(g *gamble) string { return "ha.isolate" + g.some() + g.replica() },
	func(g *gamble) string {
		return "ha.clock by=" + one(g, "-2h", "-30s", "20s", "3h") + g.some() + g.replica()
	},
	func(g *gamble) string { return "agent.crash on=" + g.oneOrRack() + " agent=ha" + g.some() },
	func(g *gamble) string { return "agent.pause on=" + g.oneOrRack() + " agent=ha" + g.some() },
	func(g *gamble) string { return "agent.partition on=" + g.oneOrRack() + " agent=ha" + g.some() },
	func(g *gamble) string {
		return "reports.lost on=" + g.oneOrRack() + g.some() + one(g, "", " p=0.3", " p=0.7")
	},
	func(g *gamble) string { return "reports.dup on=" + g.oneOrRack() + g.some() },
	func(g *gamble) string {
		return "reports.delay on=" + g.oneOrRack() + " by=" + one(g, "1s", "8s") + g.some()
	},
	func(g *gamble) string {
		return "reports.reorder on=" + g.oneOrRack() + " by=" + one(g, "3s", "20s") + g.some()
	},
	func(g *gamble) string {
		return "net.cut link=" + one(g, "bmc", "storage") + " on=" + g.oneOrRack() + g.some()
	},
	func(g *gamble) string { return "net.oneway link=bmc on=" + g.host() + g.some() },
	func(g *gamble) string { g.hostsDie = true; return "feed.off feed=" + one(g, g.feeds...) + g.some() },
	func(g *gamble) string {
		return fmt.Sprintf("switch.down switch=r%d", 1+g.IntN(len(g.racks))) + g.some()
	},
}

func (g *gamble) replica() string {
	return one(g, "", " replica=leader", " replica=leader", " replica=ha-0")
}
