// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Fault is one thing that goes wrong. With For it ends by itself, otherwise it
// lasts until it is healed. A fault that is over in an instant (a killed QEMU,
// a panic) has nothing to heal.
type Fault struct {
	Kind string // one of FaultKinds()

	On        []string // hosts, each of which it strikes
	Between   []string // hosts that cannot reach each other, and reach all others
	VM        string   // UUID, or name of the domain
	Pool      string
	To        []string
	Feed      string // of power; more than one with commas
	Switch    string // of the network; more than one with commas
	States    string // of bmc.script
	Link      string // migration, management, storage, bmc
	Unit      string
	Phase     string // of a migration: prepare, setup, active, switch-over, post-copy, completed-error
	Load      string // of unit.state
	Active    string
	Sub       string
	Result    string
	Bandwidth uint64 // bytes a second
	By        time.Duration
	Every     time.Duration
	For       time.Duration
}

// A fault's kind and the keys it takes; those in need must be there.
type faultKind struct {
	kind    string
	need    []string
	may     []string
	instant bool // over as soon as it happened
	help    string
}

// faultKinds is the whole grammar, in the order in which it is printed.
var faultKinds = []faultKind{
	{kind: "host.power-off", need: []string{"on"}, help: "the power is cut; ends by powering on"},
	{kind: "host.reboot", need: []string{"on"}, instant: true, help: "power cycle at once, without a shutdown"},
	{kind: "host.hang", need: []string{"on"}, help: "its programs stand still, its guests run on"},
	{kind: "host.flap", need: []string{"on", "every"}, may: []string{"link"}, help: "the power, or a link, goes and comes, each for every="},
	{kind: "watchdog.dead", need: []string{"on"}, help: "the hardware watchdog says that it is armed and does not bite"},
	{kind: "clock.jump", need: []string{"on", "by"}, help: "the wall clock jumps by by=, also backwards; ends by jumping back"},
	{kind: "feed.off", need: []string{"feed"}, help: "a power feed is off: its hosts and their management controllers"},
	{kind: "switch.down", need: []string{"switch"}, help: "a switch is down: management and migration links of its hosts, not those of their controllers"},
	{kind: "bmc.down", need: []string{"on"}, help: "the management controller is dead: nobody answers"},
	{kind: "bmc.hang", need: []string{"on"}, help: "it takes requests and stands still; when it goes on it may still do them"},
	{kind: "bmc.mute", need: []string{"on"}, help: "it does what it is told, and the answers are lost"},
	{kind: "bmc.refuse", need: []string{"on"}, help: "it refuses each order, and can be read"},
	{kind: "bmc.credentials", need: []string{"on"}, help: "it refuses everything: wrong credentials"},
	{kind: "bmc.ignore", need: []string{"on"}, help: "it accepts orders and does nothing"},
	{kind: "bmc.slow", need: []string{"on", "by"}, help: "an order takes by= until it is done"},
	{kind: "bmc.early", need: []string{"on"}, may: []string{"by"}, help: "for by= (5s) after an order it shows the state it was told to reach"},
	{kind: "bmc.unknown", need: []string{"on"}, help: "it does not know the power state: Unknown, Error or nothing"},
	{kind: "bmc.script", need: []string{"on", "states"}, help: "after an order to switch off it shows states=AT:STATE,..., the truth before the first and after the last"},
	{kind: "bmc.wrong-host", need: []string{"on", "to"}, help: "its address leads to the controller of to="},
	{kind: "bmc.twin", need: []string{"on", "to"}, help: "its address is also that of to='s controller: either answers"},
	{kind: "libvirtd.crash", need: []string{"on"}, help: "killed; without for= it does not come back by itself"},
	{kind: "libvirtd.hang", need: []string{"on"}, help: "stands still: no answers, no events, no keepalive"},
	{kind: "libvirtd.stop", need: []string{"on"}, help: "stopped in order; guests run on"},
	{kind: "qemu.crash", need: []string{"vm"}, may: []string{"on"}, instant: true, help: "the QEMU is killed"},
	{kind: "qemu.hang", need: []string{"vm"}, may: []string{"on"}, help: "the QEMU stands still, its guest with it; nobody is told"},
	{kind: "guest.panic", need: []string{"vm"}, instant: true, help: "the guest's kernel panics; the definition says what follows"},
	{kind: "guest.hang", need: []string{"vm"}, help: "the guest stops answering; its watchdog bites if it has one"},
	{kind: "guest.power-off", need: []string{"vm"}, instant: true, help: "the guest powers off by itself"},
	{kind: "guest.reset", need: []string{"vm"}, instant: true, help: "the guest resets itself"},
	{kind: "net.cut", need: []string{"link"}, may: []string{"on", "between"}, help: "a link is down (on=), or packets between hosts vanish (between=)"},
	{kind: "net.oneway", need: []string{"link", "on"}, may: []string{"to"}, help: "what these send (to to=) is lost; what is sent to them arrives"},
	{kind: "net.slow", need: []string{"link", "on", "bandwidth"}, help: "a link carries no more than bandwidth=, e.g. 80Mbit"},
	{kind: "storage.lost", need: []string{"on", "pool"}, help: "the hosts lose their paths to the pool; writing guests pause"},
	{kind: "storage.hang", need: []string{"pool"}, may: []string{"on"}, help: "I/O hangs without an error, on all hosts or these: writes stall, a QEMU cannot be killed, and when it is over all goes on at once"},
	{kind: "storage.full", need: []string{"pool"}, help: "no space is left in the pool; writing guests pause"},
	{kind: "migration.fail", need: []string{"vm", "phase"}, help: "each migration of the VM (* for all) fails in that phase"},
	{kind: "events.lost", need: []string{"on"}, help: "libvirt's events vanish, and nobody is told"},
	{kind: "events.dup", need: []string{"on"}, help: "each event comes twice"},
	{kind: "events.delay", need: []string{"on", "by"}, help: "each event comes later by by="},
	{kind: "memory.failure", need: []string{"on"}, may: []string{"vm"}, instant: true, help: "an uncorrectable memory error in a guest"},
	{kind: "unit.fail", need: []string{"on", "unit"}, help: "the unit fails, and fails again when started"},
	{kind: "unit.state", need: []string{"on", "unit", "active", "sub"}, may: []string{"load", "result"}, help: "systemd shows the unit in that state"},
	{kind: "update.fail", need: []string{"on"}, help: "OS updates fail at their end"},
}

// phases are where migration.fail can strike.
var phases = []string{"prepare", "setup", "active", "switch-over", "post-copy", "completed-error"}

// FaultKinds returns the kinds of faults there are.
func FaultKinds() []string {
	kinds := make([]string, len(faultKinds))
	for i, k := range faultKinds {
		kinds[i] = k.kind
	}
	return kinds
}

// FaultHelp returns how each fault is written and what it does.
func FaultHelp() [][2]string {
	out := make([][2]string, 0, len(faultKinds))
	for _, k := range faultKinds {
		line := k.kind
		for _, key := range k.need {
			line += " " + key + "="
		}
		for _, key := range k.may {
			line += " [" + key + "=]"
		}
		if !k.instant {
			line += " [for=]"
		}
		out = append(out, [2]string{line, k.help})
	}
	return out
}

// ParseFault reads a fault as String prints it, e.g.
//
//	host.power-off on=node001 for=5m
//	net.cut link=migration between=node001,node002 for=30s
func ParseFault(s string) (Fault, error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return Fault{}, fmt.Errorf("fault %q: empty; write KIND KEY=VALUE..., e.g. host.power-off on=node001 for=5m", s)
	}
	f := Fault{Kind: words[0]}
	seen := map[string]bool{}
	for _, word := range words[1:] {
		key, value, ok := strings.Cut(word, "=")
		if !ok || value == "" {
			return Fault{}, fmt.Errorf("fault %q: %q is not KEY=VALUE", s, word)
		}
		if seen[key] {
			return Fault{}, fmt.Errorf("fault %q: %s is there twice", s, key)
		}
		seen[key] = true
		if err := f.set(key, value); err != nil {
			return Fault{}, fmt.Errorf("fault %q: %w", s, err)
		}
	}
	if err := f.Validate(); err != nil {
		return Fault{}, err
	}
	return f, nil
}

func (f *Fault) set(key, value string) (err error) {
	switch key {
	case "on":
		f.On = strings.Split(value, ",")
	case "between":
		f.Between = strings.Split(value, ",")
	case "vm":
		f.VM = value
	case "to":
		f.To = strings.Split(value, ",")
	case "feed":
		f.Feed = value
	case "switch":
		f.Switch = value
	case "states":
		f.States = value
	case "every":
		f.Every, err = time.ParseDuration(value)
	case "pool":
		f.Pool = value
	case "link":
		f.Link = value
	case "unit":
		f.Unit = value
	case "phase":
		f.Phase = value
	case "load":
		f.Load = value
	case "active":
		f.Active = value
	case "sub":
		f.Sub = value
	case "result":
		f.Result = value
	case "bandwidth":
		f.Bandwidth, err = parseBandwidth(value)
	case "by":
		f.By, err = time.ParseDuration(value)
	case "for":
		f.For, err = time.ParseDuration(value)
		if err == nil && f.For <= 0 {
			err = fmt.Errorf("for=%s: must be longer than nothing; leave it out for a fault that lasts until it is healed", value)
		}
	default:
		err = fmt.Errorf("unknown key %q", key)
	}
	return err
}

// parseBandwidth reads bytes a second: "80Mbit", "10MB", "1GiB" or digits.
func parseBandwidth(s string) (uint64, error) {
	number, bits := strings.CutSuffix(strings.TrimSuffix(s, "/s"), "bit")
	if bits {
		n, err := humanize.ParseBytes(number + "B")
		if err != nil {
			return 0, fmt.Errorf("bandwidth=%s: write e.g. 80Mbit, 10MB or bytes a second", s)
		}
		return n / 8, nil
	}
	n, err := humanize.ParseBytes(number)
	if err != nil {
		return 0, fmt.Errorf("bandwidth=%s: write e.g. 80Mbit, 10MB or bytes a second", s)
	}
	return n, nil
}

// pairs returns the keys that are set, in the order in which they are printed.
func (f Fault) pairs() [][2]string {
	var p [][2]string
	add := func(key, value string) {
		if value != "" {
			p = append(p, [2]string{key, value})
		}
	}
	add("vm", f.VM)
	add("link", f.Link)
	add("on", strings.Join(f.On, ","))
	add("between", strings.Join(f.Between, ","))
	add("to", strings.Join(f.To, ","))
	add("feed", f.Feed)
	add("switch", f.Switch)
	add("states", f.States)
	add("pool", f.Pool)
	add("unit", f.Unit)
	add("phase", f.Phase)
	add("load", f.Load)
	add("active", f.Active)
	add("sub", f.Sub)
	add("result", f.Result)
	if f.Bandwidth != 0 {
		add("bandwidth", strconv.FormatUint(f.Bandwidth, 10))
	}
	if f.By != 0 {
		add("by", f.By.String())
	}
	if f.Every != 0 {
		add("every", f.Every.String())
	}
	if f.For != 0 {
		add("for", f.For.String())
	}
	return p
}

// String prints the fault so that ParseFault reads it.
func (f Fault) String() string {
	s := f.Kind
	for _, p := range f.pairs() {
		s += " " + p[0] + "=" + p[1]
	}
	return s
}

// Validate says what is wrong with a fault, apart from names no fleet has.
func (f Fault) Validate() error {
	i := slices.IndexFunc(faultKinds, func(k faultKind) bool { return k.kind == f.Kind })
	if i < 0 {
		return fmt.Errorf("fault %q: unknown kind %q; there are %s", f, f.Kind, strings.Join(FaultKinds(), ", "))
	}
	kind := faultKinds[i]
	has := map[string]bool{}
	for _, p := range f.pairs() {
		key := p[0]
		has[key] = true
		if !slices.Contains(kind.need, key) && !slices.Contains(kind.may, key) && (key != "for" || kind.instant) {
			return fmt.Errorf("fault %q: %s takes no %s", f, f.Kind, key)
		}
	}
	for _, key := range kind.need {
		if !has[key] {
			return fmt.Errorf("fault %q: %s needs %s=", f, f.Kind, key)
		}
	}
	switch {
	case f.Phase != "" && !slices.Contains(phases, f.Phase):
		return fmt.Errorf("fault %q: unknown phase %q; there are %s", f, f.Phase, strings.Join(phases, ", "))
	case f.Link != "" && !slices.Contains(links, f.Link):
		return fmt.Errorf("fault %q: unknown link %q; there are %s", f, f.Link, strings.Join(links, ", "))
	case f.Kind == "net.cut" && has["on"] == has["between"]:
		return fmt.Errorf("fault %q: net.cut needs on= (these lose the link) or between= (these do not reach each other)", f)
	case f.Kind == "net.cut" && has["between"] && len(f.Between) < 2:
		return fmt.Errorf("fault %q: between= needs two hosts or more", f)
	case f.Kind == "net.slow" && f.Link != LinkMigration && f.Link != LinkManagement:
		return fmt.Errorf("fault %q: only the links migration and management are slowed", f)
	case f.Link == LinkStorage && (has["between"] || f.Kind == "net.oneway"):
		return fmt.Errorf("fault %q: the storage link is cut with net.cut on=", f)
	case f.Link == LinkBMC && has["between"] && !slices.Contains(f.Between, Outside):
		return fmt.Errorf("fault %q: controllers are reached from %s; between= must have it", f, Outside)
	case strings.HasPrefix(f.Kind, "bmc.") && has["to"] && len(f.To) != 1:
		return fmt.Errorf("fault %q: to= is one host", f)
	case f.For < 0 || f.Every < 0 || f.By < 0 && f.Kind != "clock.jump":
		return fmt.Errorf("fault %q: durations are not negative", f)
	case has["every"] && f.Every < time.Second:
		return fmt.Errorf("fault %q: every= is a second or more", f)
	case has["states"]:
		if _, err := parseScript(f.States); err != nil {
			return fmt.Errorf("fault %q: %w", f, err)
		}
	}
	return nil
}
