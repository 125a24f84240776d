// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The time before the trouble lets VMs boot. The calm after it is longer than
// what has to be waited for as a rule: a boot, a fencing, an evacuation.
const (
	vmsWithin   = 40 * time.Second
	troubleFrom = 90 * time.Second
	calmLeast   = 8 * time.Minute
	calmMost    = 11 * time.Minute
)

// patience is what a fleet gets beyond its calm that is not well in time. It is
// longer than a broken post-copy's limit, a migration's time to be prepared and
// what a source waits for a job that has vanished.
const patience = 20 * time.Minute

// Patient is a scenario with so much more calm at its end that nothing is left
// to wait for: what is not well then is not only slow.
func Patient(text string) string {
	return runsFor.ReplaceAllStringFunc(text, func(line string) string {
		whole, err := time.ParseDuration(strings.TrimPrefix(line, "for: "))
		if err != nil {
			return line
		}
		return fmt.Sprintf("for: %v", whole+patience)
	})
}

// trouble draws the timeline: a few intense stretches, since what is spread
// evenly seldom meets; then the end of all that does not stay.
func (g *gamble) trouble() {
	g.heal = g.span(5*time.Minute, 12*time.Minute)
	g.whole = g.heal + g.span(calmLeast, calmMost)
	g.stays = g.chance(0.3)
	g.staysBroken()
	kinds, most := g.swarm()
	for range 1 + g.IntN(4) {
		g.stretch(kinds, most)
	}
	for g.faults < leastFaults {
		g.stretch(kinds, most)
	}
	g.end()
	// An eviction that no other host has room for tries again and again: so the
	// fleet comes to rest only after it is wanted no more.
	over := g.heal + time.Second
	if g.stays {
		over = g.heal + 5*time.Minute
	}
	g.at(over, "do: 'maintenance.end on=*'")
	g.at(over, "do: 'evict.cancel on=*'")
	// What people asked for may take longer than the calm: slow links, many VMs.
	g.at(g.heal+3*time.Minute, "do: 'migration.cancel vm=*-*'")
}

// swarm draws which kinds of faults there are, and how many at most come in a
// stretch.
func (g *gamble) swarm() (kinds []func(*gamble) string, most int) {
	density, most := 0.3, 4
	if g.chance(0.3) {
		density, most = 0.6, 10
	}
	lines := faultLines
	if g.ha != nil {
		lines = slices.Concat(faultLines, haLines)
	}
	for _, f := range lines {
		if g.chance(density) {
			kinds = append(kinds, f)
		}
	}
	if len(kinds) == 0 {
		kinds = append(kinds, one(g, faultLines...))
	}
	return kinds, most
}

func (g *gamble) stretch(kinds []func(*gamble) string, most int) {
	from := g.span(troubleFrom, g.heal-2*time.Minute)
	until := min(g.heal-10*time.Second, from+g.span(10*time.Second, 6*time.Minute))
	for range 1 + g.IntN(most) {
		g.at(g.span(from, until), g.action())
	}
	for range 1 + g.IntN(most) {
		g.fault(g.span(from, until), one(g, kinds...)(g))
	}
	for range g.IntN(most) {
		g.ambush(g.span(from, until), kinds)
	}
	if g.ha == nil {
		return
	}
	for range g.IntN(3) {
		g.at(g.span(from, until), g.haAction())
	}
	if g.chance(0.6) {
		g.death(g.span(from, until))
	}
}

func (g *gamble) at(at time.Duration, line string) {
	g.steps = append(g.steps, timed{at, line})
}

var lasts = regexp.MustCompile(` for=(\S+)`)

// fault puts a fault into the timeline; its time ends with the trouble.
func (g *gamble) fault(at time.Duration, text string) {
	at = min(at, g.heal-time.Second)
	text = lasts.ReplaceAllStringFunc(text, func(s string) string {
		d, err := time.ParseDuration(strings.TrimPrefix(s, " for="))
		if err != nil {
			return s // a test reads all that is drawn
		}
		return fmt.Sprintf(" for=%v", min(d, g.heal-at))
	})
	g.faults++
	g.at(at, "fault: "+quoted(text))
}

// staysBroken draws what is not mended before the run is over.
func (g *gamble) staysBroken() {
	if g.chance(0.5) {
		return
	}
	for range 1 + g.IntN(2) {
		host := g.host()
		if slices.Contains(g.broken, host) {
			continue
		}
		g.broken = append(g.broken, host)
		fault := one(g, stayLines...)(g, host)
		g.faults++
		g.at(g.span(troubleFrom, g.heal), "fault: "+quoted(fault))
	}
}

// ambush migrates a VM and strikes its hosts on the way.
func (g *gamble) ambush(at time.Duration, kinds []func(*gamble) string) {
	vm := g.vm()
	g.at(at, "do: "+one(g, "vm.migrate vm="+vm, "vm.migrate vm="+vm, "maintenance.start on=@"+vm))
	for range 1 + g.IntN(2) {
		fault := one(g, kinds...)(g)
		side := "on=@" + vm + one(g, ".source", ".target")
		fields := strings.Fields(fault)
		if i := slices.IndexFunc(fields, func(f string) bool { return strings.HasPrefix(f, "on=") && !strings.Contains(f, "/") }); i > 0 && !strings.HasPrefix(fault, "api.") && !strings.HasPrefix(fault, "watch.") {
			fields[i] = side
		}
		g.fault(at+g.span(0, one(g, 5*time.Second, time.Minute)), strings.Join(fields, " "))
	}
	if g.chance(0.4) {
		what := one(g, "migration.cancel vm="+vm, "vm.power vm="+vm+" state=Stopped", "vm.power vm="+vm+" state=Paused", "vm.delete vm="+vm)
		g.at(at+g.span(0, 30*time.Second), "do: "+what)
	}
}

func quoted(s string) string { return "'" + s + "'" }

// some is a time that a fault lasts.
func (g *gamble) some() string {
	return fmt.Sprintf(" for=%v", one(g, g.span(time.Second, 10*time.Second), g.span(10*time.Second, time.Minute), g.span(time.Minute, 5*time.Minute)))
}

func (g *gamble) action() string {
	vm, host := g.vm(), g.host()
	group, _, _ := strings.Cut(vm, "-")
	switch n := g.IntN(100); {
	case n < 8:
		return fmt.Sprintf("do: vm.create group=%s count=%d", group, 1+g.IntN(3))
	case n < 16:
		return "do: vm.delete vm=" + vm
	case n < 34:
		return fmt.Sprintf("do: vm.power vm=%s state=%s", vm, one(g, "Running", "Running", "Paused", "Stopped", "Stopped"))
	case n < 52:
		return "do: vm.migrate vm=" + vm
	case n < 58:
		return fmt.Sprintf("do: vm.migrate vm=%s to=%s", vm, host)
	case n < 62:
		return "do: vm.migrate vm=" + group + "-*"
	case n < 68:
		return "do: migration.cancel vm=" + group + "-*"
	case n < 78:
		// Not termination: the CRD lets nobody take that back.
		return fmt.Sprintf("do: maintenance.start on=%s mode=%s", host, one(g, "manual", "manual", "auto", "ha"))
	case n < 84:
		return "do: 'maintenance.end on=" + one(g, host, "*") + "'"
	case n < 90:
		return "do: evict on=" + host + one(g, "", " parallel=1", " parallel=4", " dryRun=true")
	case n < 93:
		return "do: evict.cancel on=" + host
	case n < 97 && slices.Contains(g.broken, host): // the update would go on when the host is mended, after the end
		return "do: vm.migrate vm=" + vm
	case n < 97:
		reboot := one(g, "", " reboot=true")
		g.hostsDie = g.hostsDie || reboot != ""
		return fmt.Sprintf("do: host.update on=%s version=%d.0%s", host, 2000+g.IntN(3), reboot)
	case n < 98:
		g.identities = true
		return fmt.Sprintf("do: host.identity on=%s machineID=%032x", host, g.Uint64())
	default:
		return fmt.Sprintf("do: domain.run on=%s name=by-hand-%d memory=512", host, g.IntN(1000))
	}
}
