// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// Hostile returns a scenario made of dice: a fleet, VMs, and a time of trouble
// in which people and faults do what they can. Then all faults are healed, and
// in the time that is left the fleet must be well again. Which kinds of faults
// there are is drawn too: where all are, each hides the others.
//
// The same seed gives the same text.
func Hostile(seed uint64) []byte {
	g := &gamble{Rand: rand.New(rand.NewPCG(seed, 0xad17))}
	g.fleet()
	g.workload()
	g.operator()
	g.trouble()
	return g.write(seed)
}

// HostileScenario is Hostile's text as a scenario, to be run under the same seed.
func HostileScenario(seed uint64) (*Scenario, error) {
	s, err := Parse(fmt.Sprintf("hostile-%d.yaml", seed), Hostile(seed), os.ReadFile)
	if err == nil {
		s.File = "--hostile 1"
	}
	return s, err
}

// gamble is a hostile scenario in the making.
type gamble struct {
	*rand.Rand
	hosts, vms                      []string // names
	fleetLines, groupLines, options []string
	steps                           []timed

	whole, heal time.Duration // of the run; of the trouble
	stays       bool          // maintenance and evictions outlast the trouble
	postCopy    bool

	killed, poweredOff []string // VMs whose QEMU or guest a fault ends
	hostsDie           bool     // a host loses its VMs
	identities         bool     // a host turned into another
}

type timed struct {
	at   time.Duration
	line string
}

func (g *gamble) chance(p float64) bool { return g.Float64() < p }

func (g *gamble) span(from, to time.Duration) time.Duration {
	return from + time.Duration(g.Int64N(int64(to-from)+1)).Truncate(time.Second)
}

func one[T any](g *gamble, of ...T) T { return of[g.IntN(len(of))] }

func (g *gamble) fleet() {
	for left, i := 2+g.IntN(5), 0; left > 0; i++ {
		n := 1 + g.IntN(left)
		if i == 0 {
			n = max(n, min(2, left))
		}
		left -= n
		name := string(rune('p' + i))
		line := fmt.Sprintf("- {name: %s, count: %d, model: %s, zone: %s, migrationBandwidth: %s",
			name, n, one(g, "lab", "lab", "whitebox", "r640"), one(g, "a", "a", "b"), one(g, "30M", "125M", "125M", "1250M"))
		if g.chance(0.2) {
			line += ", overcommit: {cpu: 2}"
		}
		g.fleetLines = append(g.fleetLines, line+"}")
		for k := range n {
			g.hosts = append(g.hosts, fmt.Sprintf("%s%03d", name, k+1))
		}
	}
}

func (g *gamble) workload() {
	for left, i := 3+g.IntN(18), 0; left > 0 && i < 3; i++ {
		n := 1 + g.IntN(left)
		left -= n
		name := one(g, "web", "db", "job") + string(rune('a'+i))
		memory := one(g, 1, 2, 4, 8)
		line := fmt.Sprintf("- {name: %s, count: %d, at: %v, cpus: %d, memory: %dGi", name, n, g.span(0, time.Minute), one(g, 1, 1, 2, 4), memory)
		if g.chance(0.7) {
			line += fmt.Sprintf(", used: %dMi, dirtyRate: %s, workingSet: 64Mi", memory*1024*(1+g.IntN(4))/4, one(g, "1Mi", "5Mi", "20Mi", "200Mi"))
		}
		for _, extra := range []struct {
			text string
			p    float64
		}{
			{"agent: true", 0.4}, {"deaf: true", 0.15}, {"stopped: true", 0.1}, {"apart: kubernetes.io/hostname", 0.1},
			{"numa: true", 0.07}, {"pinned: true", 0.07}, {"grace: 5s", 0.2}, {"shutdown: 20s", 0.15}, {"every: 7s", 0.2},
		} {
			if g.chance(extra.p) {
				line += ", " + extra.text
			}
		}
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
		{"autoConverge: true", 0.3}, {"workloadDisruption: true", 0.2}, {"replicas: 2", 0.25},
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

// The time before the trouble lets VMs boot. The calm after it is longer than
// a boot, a broken post-copy's limit and a migration's time to be prepared.
const (
	troubleFrom = 2 * time.Minute
	calmLeast   = 18 * time.Minute
)

func (g *gamble) trouble() {
	g.whole = g.span(3*calmLeast, 72*time.Minute)
	g.heal = (g.whole * 2 / 3).Truncate(time.Second)
	g.stays = g.chance(0.3)
	density, most := 0.3, 4
	if g.chance(0.3) {
		density, most = 0.6, 10
	}
	var faults []func(*gamble) string
	for _, f := range hostileFaults {
		if g.chance(density) {
			faults = append(faults, f)
		}
	}
	// A run has a few intense stretches: what is spread evenly over an hour
	// seldom meets.
	for range 1 + g.IntN(4) {
		from := g.span(troubleFrom, g.heal-8*time.Minute)
		until := from + g.span(10*time.Second, 6*time.Minute)
		for range 1 + g.IntN(most) {
			g.at(g.span(from, until), g.action())
		}
		if len(faults) == 0 {
			continue
		}
		for range 1 + g.IntN(most) {
			g.at(g.span(from, until), "fault: "+quoted(one(g, faults...)(g)))
		}
		for range g.IntN(most) {
			g.ambush(g.span(from, until), faults)
		}
	}
	g.at(g.heal, "heal: true")
	// An eviction that no other host has room for tries again and again: so the
	// fleet comes to rest only after it is wanted no more.
	over := g.heal + time.Second
	if g.stays {
		over = g.whole - 3*time.Minute
	}
	g.at(over, "do: 'maintenance.end on=*'")
	g.at(over, "do: 'evict.cancel on=*'")
	// What people asked for may take longer than the calm: slow links, many VMs.
	g.at(g.whole-8*time.Minute, "do: 'migration.cancel vm=*-*'")
}

func (g *gamble) at(at time.Duration, line string) {
	g.steps = append(g.steps, timed{at, line})
}

// ambush migrates a VM and strikes its hosts on the way.
func (g *gamble) ambush(at time.Duration, faults []func(*gamble) string) {
	vm := one(g, g.vms...)
	g.at(at, "do: "+one(g, "vm.migrate vm="+vm, "vm.migrate vm="+vm, "maintenance.start on=@"+vm))
	for range 1 + g.IntN(2) {
		fault := one(g, faults...)(g)
		side := "on=@" + vm + one(g, ".source", ".target")
		fields := strings.Fields(fault)
		if i := slices.IndexFunc(fields, func(f string) bool { return strings.HasPrefix(f, "on=") && !strings.Contains(f, "/") }); i > 0 && !strings.HasPrefix(fault, "api.") && !strings.HasPrefix(fault, "watch.") {
			fields[i] = side
		}
		g.at(at+g.span(0, one(g, 5*time.Second, time.Minute)), "fault: "+quoted(strings.Join(fields, " ")))
	}
	if g.chance(0.4) {
		what := one(g, "migration.cancel vm="+vm, "vm.power vm="+vm+" state=Stopped", "vm.power vm="+vm+" state=Paused", "vm.delete vm="+vm)
		g.at(at+g.span(0, 30*time.Second), "do: "+what)
	}
}

func quoted(s string) string { return "'" + s + "'" }

func (g *gamble) host() string { return one(g, g.hosts...) }
func (g *gamble) vm() string   { return one(g, g.vms...) }

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

func (g *gamble) write(seed uint64) []byte {
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("about: A fleet meets what the dice of seed %d have for it, and is then left in peace.", seed)
	line("why: Whatever comes together, nothing unsafe happens, and once it is over all is well again or says why not.")
	line("for: %v", g.whole)
	line("fleet:\n%s", strings.Join(g.fleetLines, "\n"))
	line("workload:\n%s", strings.Join(g.groupLines, "\n"))
	if len(g.options) > 0 {
		line("operator: {%s}", strings.Join(g.options, ", "))
	}
	slices.SortStableFunc(g.steps, func(a, b timed) int { return int(a.at - b.at) })
	line("timeline:")
	for _, s := range g.steps {
		line("- {at: %v, %s}", s.at, s.line)
	}
	line("expect:")
	for _, e := range g.expectations() {
		line("- {end: '%s', because: %q}", e[0], e[1])
	}
	return b.Bytes()
}
