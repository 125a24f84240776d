// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/sim"
)

// HostState is what a host as a machine is doing.
type HostState string

// The states of a host.
const (
	HostOff     HostState = "off"
	HostBooting HostState = "booting"
	HostUp      HostState = "up"
	HostHung    HostState = "hung" // its programs stand still, its guests run on
)

// Host is one simulated machine.
type Host struct {
	f     *Fleet
	name  string
	index int // in order of addition; numbers addresses
	spec  HostSpec
	model model
	rand  *rand.Rand
	facts facts
	nics  map[string]*nic

	state      HostState
	bootedAt   time.Duration
	bootID     string
	booting    *sim.Timer
	hangs      int // faults that let it hang
	powerHolds int // faults that keep it off

	orderedOff bool // its controller was told so: power that returns does not boot it
	powerLog   []PowerChange
	onBoot     []func()
	onDown     []func()
	onHang     []func(bool)

	daemon      daemonState
	daemonHolds map[string]int // faults by what they do to libvirtd
	daemonTimer *sim.Timer
	calls       []*call
	units       map[string]*hardware.Unit
	unitHolds   map[string]int // faults that keep a unit from running
	updates     updates

	domains   map[string]*domain
	byName    map[string]*domain
	sorted    []*domain // by UUID
	list      []hardware.Domain
	completed map[string]completedJob

	subs       []*subscription
	held       []hardware.Event // while libvirtd hangs
	eventFault eventFault

	lostPools    map[string]int
	hungPools    map[string]int
	storageHolds int      // faults that let storage hang, of whatever pool
	stalledIO    []func() // what lands when it goes on

	clockOff time.Duration // what faults have set the wall clock off by
	watchdog watchdog
	notes    map[string][]byte
	bmc      *bmc
}

// Name, Zone and Rack say which host it is and where it stands, Feed and Switch
// what it hangs on.
func (h *Host) Name() string   { return h.name }
func (h *Host) Zone() string   { return h.spec.Zone }
func (h *Host) Rack() string   { return h.spec.Rack }
func (h *Host) Feed() string   { return cmp.Or(h.spec.Feed, h.spec.Rack) }
func (h *Host) Switch() string { return cmp.Or(h.spec.Switch, h.spec.Rack) }

// Model returns the name of the machine's model.
func (h *Host) Model() string { return cmp.Or(h.spec.Model, defaultModel) }

// State returns what the machine is doing.
func (h *Host) State() HostState { return h.state }

// Hardware returns the host's hardware as a process on it sees it; who names
// the process in the trace and in Options.Step.
//
// On a task of the scheduler each call takes virtual time, and goes on in the
// daemon when the task is killed meanwhile. Outside of tasks, as in plain
// tests, it takes none.
func (h *Host) Hardware(who string) hardware.Host { return &view{h: h, who: who} }

// OnBoot registers fn, called each time the host has booted. A host that is
// added booted does not call it.
func (h *Host) OnBoot(fn func()) { h.onBoot = append(h.onBoot, fn) }

// OnDown registers fn, called each time the host lost power or goes down for a
// reboot: its processes end here.
func (h *Host) OnDown(fn func()) { h.onDown = append(h.onDown, fn) }

// OnHang registers fn, called when the host hangs and when it goes on: its
// processes stand still between.
func (h *Host) OnHang(fn func(hung bool)) { h.onHang = append(h.onHang, fn) }

func newHost(f *Fleet, spec HostSpec) (*Host, error) {
	if spec.Name == "" {
		return nil, fmt.Errorf("name is empty: give each host a unique one")
	}
	m, ok := models[cmp.Or(spec.Model, defaultModel)]
	if !ok {
		return nil, fmt.Errorf("model %q: unknown; there are %v", spec.Model, Models())
	}
	h := &Host{
		f: f, name: spec.Name, index: len(f.order) + 1, spec: spec, model: m,
		rand:        f.s.Rand("hwsim/" + spec.Name),
		state:       HostOff,
		daemonHolds: map[string]int{},
		unitHolds:   map[string]int{},
		domains:     map[string]*domain{},
		byName:      map[string]*domain{},
		completed:   map[string]completedJob{},
		lostPools:   map[string]int{},
		hungPools:   map[string]int{},
	}
	var err error
	if h.facts, err = readFacts(h); err != nil {
		return nil, err
	}
	h.nics = newNICs(h)
	h.bmc = newBMC(h)
	h.installUnits()
	if !spec.Off {
		h.comeUp()
	}
	return h, nil
}

// comeUp is the end of a boot: the system and its daemons run.
func (h *Host) comeUp() {
	h.state = HostUp
	h.bootedAt = h.f.s.Elapsed()
	h.bootID = newUUID(h.rand)
	h.updates.boot(h)
	h.bootUnits()
	for _, d := range h.sorted { // why a domain is off is nowhere written
		d.detail = hardware.DetailNone
	}
	h.list = nil
	h.daemonSettle()
	h.linksChanged()
}

// PowerChange is when a host's power went or came, and by whom.
type PowerChange struct {
	At time.Duration
	On bool
}

// PowerLog returns when the host's power went and came since the run began, in
// order. It was on before the first, unless it was added off.
func (h *Host) PowerLog() []PowerChange { return h.powerLog }

// BootedAt returns when the host's system last came up.
func (h *Host) BootedAt() time.Duration { return h.bootedAt }

// PowerOn lets the host boot, as its button does; POST and the system take their
// time. Without a feed it boots when the power returns.
func (h *Host) PowerOn() {
	h.orderedOff = false
	if h.state != HostOff || h.powerHolds > 0 {
		return
	}
	h.state = HostBooting
	h.powerLog = append(h.powerLog, PowerChange{At: h.f.s.Elapsed(), On: true})
	d := h.spec.BootTime
	if d == 0 {
		d = between(h.rand, h.model.bootMin, h.model.bootMax)
	}
	h.f.note(h.name, "host", "power-on", "", "boots in "+d.Round(time.Second).String())
	h.booting = h.f.s.After(d, func() {
		h.comeUp()
		h.f.note(h.name, "host", "booted", "", "")
		for _, fn := range h.onBoot {
			fn()
		}
	})
}

// PowerOff cuts the power. Everything on the host ends at once.
func (h *Host) PowerOff() {
	if h.state == HostOff {
		return
	}
	h.booting.Stop()
	was := h.state
	h.state = HostOff
	h.powerLog = append(h.powerLog, PowerChange{At: h.f.s.Elapsed()})
	h.f.note(h.name, "host", "power-off", "", "")
	if was == HostBooting {
		return
	}
	h.watchdog.stop()
	h.notes = nil
	h.stalledIO = nil
	h.daemon = daemonDown
	h.daemonTimer.Stop()
	h.subs, h.held = nil, nil
	for _, fn := range h.onDown {
		fn()
	}
	h.drop(false, "the host is off")
	clear(h.completed)
	for _, d := range slices.Clone(h.sorted) {
		d.lose()
	}
	h.linksChanged()
}

// reboot is a power cycle without a pause.
func (h *Host) reboot() {
	h.PowerOff()
	h.PowerOn()
}

// goDown is an orderly reboot: systemd ends what runs, then the machine
// restarts. libvirt sees QEMUs that got a signal from outside, which looks like
// guests that powered off.
func (h *Host) goDown() {
	boot := h.bootID
	h.f.s.After(between(h.rand, time.Second, 3*time.Second), func() {
		if h.state != HostUp || h.bootID != boot {
			return
		}
		h.f.note(h.name, "host", "goes down", "", "reboot")
		for _, d := range slices.Clone(h.sorted) {
			if d.q != nil && !d.q.incoming && !d.stalled() {
				h.emit(d, hardware.Event{Kind: hardware.EventShutdown, Detail: hardware.DetailHost})
				d.die(hardware.DetailShutdown, hardware.DetailShutdown)
			}
		}
		h.f.s.After(between(h.rand, time.Second, 5*time.Second), func() {
			if h.bootID == boot && h.state != HostOff {
				h.reboot()
			}
		})
	})
}

// hang lets the host's programs stand still, or go on.
func (h *Host) hang(begin bool) {
	if begin {
		h.hangs++
	} else {
		h.hangs--
	}
	switch {
	case h.hangs > 0 && h.state == HostUp:
		h.state = HostHung
		h.daemonHangs()
	case h.hangs == 0 && h.state == HostHung:
		h.state = HostUp
		h.daemonGoesOn()
	default:
		return
	}
	for _, fn := range h.onHang {
		fn(h.state == HostHung)
	}
	if h.state == HostUp {
		h.goOn()
	}
}

// running reports whether the machine has power and a system.
func (h *Host) running() bool { return h.state == HostUp || h.state == HostHung }

// domain finds a domain by UUID or name.
func (h *Host) domain(uuidOrName string) *domain {
	if d := h.domains[uuidOrName]; d != nil {
		return d
	}
	return h.byName[uuidOrName]
}

func (h *Host) add(d *domain) {
	h.domains[d.uuid], h.byName[d.name] = d, d
	i, _ := slices.BinarySearchFunc(h.sorted, d.uuid, func(o *domain, uuid string) int { return cmp.Compare(o.uuid, uuid) })
	h.sorted = slices.Insert(h.sorted, i, d)
	h.list = nil
}

func (h *Host) remove(d *domain) {
	delete(h.domains, d.uuid)
	delete(h.byName, d.name)
	h.sorted = slices.DeleteFunc(h.sorted, func(o *domain) bool { return o == d })
	h.list = nil
}

// between draws a duration from [lo, hi).
func between(r *rand.Rand, lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(r.Int64N(int64(hi-lo)))
}

// newUUID draws a version 4 UUID.
func newUUID(r *rand.Rand) string {
	a, b := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, 0x8000|b>>48&0x3fff, b&0xffffffffffff)
}
