// SPDX-License-Identifier: Apache-2.0

package explore

import "fmt"

// faultLines has a line for each kind of fault of the grammar, and some for
// what strikes a rack at once.
var faultLines = []func(*gamble) string{
	func(g *gamble) string {
		return "agent.crash on=" + g.host() + one(g, "", " agent=nova", " agent=node") + g.some()
	},
	func(g *gamble) string { return "agent.pause on=" + g.host() + one(g, "", " agent=nova") + g.some() },
	func(g *gamble) string { return "agent.partition on=" + g.host() + one(g, "", " agent=nova") + g.some() },
	func(g *gamble) string { return "operator.crash" + g.some() },
	func(g *gamble) string { return "operator.pause" + g.some() },
	func(g *gamble) string { return "operator.partition" + g.some() },
	func(g *gamble) string { g.hostsDie = true; return "host.power-off on=" + g.host() + g.some() },
	func(g *gamble) string { g.hostsDie = true; return "host.power-off on=" + g.rack() + g.some() },
	func(g *gamble) string { g.hostsDie = true; return "host.reboot on=" + g.host() },
	func(g *gamble) string { return "host.hang on=" + g.host() + g.some() },
	func(g *gamble) string { return "libvirtd.crash on=" + g.host() + g.some() },
	func(g *gamble) string { return "libvirtd.hang on=" + g.host() + g.some() },
	func(g *gamble) string { return "libvirtd.stop on=" + g.host() + g.some() },
	func(g *gamble) string { return "qemu.crash vm=" + g.kills() },
	func(g *gamble) string { return "qemu.hang vm=" + g.vm() + g.some() },
	func(g *gamble) string { return "guest.panic vm=" + g.kills() },
	func(g *gamble) string { return "guest.hang vm=" + g.vm() + g.some() },
	func(g *gamble) string {
		vm := g.vm()
		g.poweredOff = append(g.poweredOff, vm)
		return "guest.power-off vm=" + vm
	},
	func(g *gamble) string { return "guest.reset vm=" + g.vm() },
	func(g *gamble) string {
		return "net.cut link=" + one(g, "migration", "management") + " on=" + g.host() + g.some()
	},
	func(g *gamble) string { return "net.cut link=management on=" + g.rack() + g.some() },
	func(g *gamble) string {
		return "net.cut link=migration between=" + g.hosts[0] + "," + g.hosts[len(g.hosts)-1] + g.some()
	},
	func(g *gamble) string {
		return "net.slow link=migration on=" + g.host() + " bandwidth=40Mbit" + g.some()
	},
	func(g *gamble) string { return "storage.lost on=" + g.host() + " pool=shared" + g.some() },
	func(g *gamble) string { return "storage.full pool=shared" + g.some() },
	func(g *gamble) string {
		return "migration.fail vm=" + one(g, g.vm(), "*-*") + " phase=" + one(g, "prepare", "setup", "active", "switch-over", "post-copy", "completed-error") + g.some()
	},
	func(g *gamble) string { return "events.lost on=" + g.host() + g.some() },
	func(g *gamble) string { return "events.dup on=" + g.host() + g.some() },
	func(g *gamble) string {
		return "events.delay on=" + g.host() + " by=" + one(g, "3s", "30s") + g.some()
	},
	func(g *gamble) string { return "memory.failure on=" + g.host() },
	func(g *gamble) string {
		return "unit.fail on=" + g.host() + " unit=" + one(g, "libvirtd.service", "openvswitch-switch.service") + g.some()
	},
	func(g *gamble) string {
		return "unit.state on=" + g.host() + " unit=openvswitch-switch.service active=failed sub=failed" + g.some()
	},
	func(g *gamble) string { return "update.fail on=" + g.host() + g.some() },
	func(g *gamble) string {
		g.hostsDie = true
		return "host.flap on=" + g.host() + " every=" + one(g, "30s", "90s", "4m") + one(g, "", " link=management") + g.some()
	},
	func(g *gamble) string {
		if g.ha != nil { // no rule holds against a watchdog that lies: the end of a lease would prove nothing
			return "clock.jump on=" + g.host() + " by=-5s" + g.some()
		}
		return "watchdog.dead on=" + g.host() + g.some()
	},
	func(g *gamble) string {
		return "clock.jump on=" + g.host() + " by=" + one(g, "-1h", "-20s", "30s", "2h") + g.some()
	},
	func(g *gamble) string {
		return "net.oneway link=" + one(g, "management", "migration") + " on=" + g.host() + one(g, "", " to="+g.host()) + g.some()
	},
	func(g *gamble) string {
		return "storage.hang pool=shared" + one(g, "", " on="+g.host(), " on="+g.rack()) + g.some()
	},
	func(g *gamble) string { return "bmc.down on=" + g.oneOrRack() + g.some() },
	func(g *gamble) string { return "bmc.hang on=" + g.oneOrRack() + g.some() },
	func(g *gamble) string { return "bmc.mute on=" + g.oneOrRack() + g.some() },
	func(g *gamble) string { return "bmc.refuse on=" + g.oneOrRack() + g.some() },
	func(g *gamble) string { return "bmc.credentials on=" + g.oneOrRack() + g.some() },
	func(g *gamble) string { return "bmc.ignore on=" + g.oneOrRack() + g.some() },
	func(g *gamble) string {
		return "bmc.slow on=" + g.oneOrRack() + " by=" + one(g, "5s", "30s", "2m") + g.some()
	},
	func(g *gamble) string { return "bmc.early on=" + g.oneOrRack() + one(g, "", " by=9s") + g.some() },
	func(g *gamble) string { return "bmc.unknown on=" + g.oneOrRack() + g.some() },
	func(g *gamble) string {
		return "bmc.script on=" + g.oneOrRack() + " states=" + one(g, "0s:Off,8s:On", "2s:Off,9s:PoweringOff,40s:On", "0s:PoweringOff,30s:Off,33s:On,50s:Unknown,70s:On") + g.some()
	},
	func(g *gamble) string {
		return "bmc.wrong-host on=" + g.hosts[0] + " to=" + g.hosts[1+g.IntN(len(g.hosts)-1)] + g.some()
	},
	func(g *gamble) string {
		return "bmc.twin on=" + g.hosts[0] + " to=" + g.hosts[1+g.IntN(len(g.hosts)-1)] + g.some()
	},
	func(g *gamble) string { return "api.409" + g.some() + g.calls() },
	func(g *gamble) string { return "api.429 delay=3s" + g.some() + g.calls() },
	func(g *gamble) string { return "api.5xx" + g.some() + g.calls() },
	func(g *gamble) string { return "api.unavailable" + g.some() + g.whom() },
	func(g *gamble) string { return "api.timeout phase=" + one(g, "before", "after") + g.some() + g.calls() },
	func(g *gamble) string { return "api.latency delay=" + one(g, "200ms", "5s") + g.some() + g.calls() },
	func(g *gamble) string { return "api.stale delay=" + one(g, "1s", "20s") + g.some() + g.whom() },
	func(g *gamble) string { return "api.compact" },
	func(g *gamble) string { return "watch.cut" + g.some() + g.whom() },
	func(g *gamble) string { return "watch.expire" + g.some() + g.whom() },
	func(g *gamble) string { return "watch.freeze" + g.some() + g.whom() },
}

// stayLines are faults of a host that nobody mends.
var stayLines = []func(g *gamble, host string) string{
	func(g *gamble, host string) string { g.hostsDie = true; return "host.power-off on=" + host },
	func(_ *gamble, host string) string { return "host.hang on=" + host },
	func(_ *gamble, host string) string { return "net.cut link=management on=" + host },
	func(_ *gamble, host string) string { return "libvirtd.crash on=" + host },
	func(_ *gamble, host string) string { return "libvirtd.hang on=" + host },
	func(_ *gamble, host string) string { return "storage.lost on=" + host + " pool=shared" },
}

// oneOrRack is a host, or all of a rack.
func (g *gamble) oneOrRack() string { return one(g, g.host(), g.host(), g.rack()) }

func (g *gamble) kills() string {
	vm := g.vm()
	g.killed = append(g.killed, vm)
	return vm
}

// calls says which calls of the API a fault meets.
func (g *gamble) calls() string {
	return fmt.Sprintf(" p=%v%s%s", one(g, 0.1, 0.3, 0.7), one(g, "", " verbs=create,update,patch"), g.whom())
}

func (g *gamble) whom() string {
	if g.ha != nil && g.chance(0.3) {
		return " on=ha-*"
	}
	return one(g, "", " on=operator*", " on=nova/*", " on=nova/"+g.host(), " on=node/*")
}
