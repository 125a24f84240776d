// SPDX-License-Identifier: Apache-2.0

// Package hwsim is a simulated fleet of KVM hosts under sim's virtual time:
// power and boot, libvirt and QEMU as daemons that crash, hang and return,
// guests with workloads, storage with locks, networks, and live migration.
//
// It implements hardware.Host for each host, refuses what libvirt refuses, and
// breaks by faults of one small grammar. Its ledger is the truth of what ran
// where and who could write which disk; programs under test never see it.
//
// It must never know Kubernetes or what the agents do with it.
package hwsim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/adit-hv/adit/sim"
)

// Options configure a fleet. The zero value works.
type Options struct {
	// CallLatency draws the way of one call to the host's daemon and back.
	// Nil: a quarter of a millisecond and an exponential tail of as much, as
	// measured on libvirt's RPC.
	CallLatency func(*rand.Rand) time.Duration

	// CallTimeout bounds a call to a daemon that does not answer; zero is
	// 30 s, libvirt's own limit for its job lock.
	CallTimeout time.Duration

	// Step, when set, is consulted twice in each call: before it is sent and
	// after it was answered. It runs on the caller's task and may park it for
	// good, which is how a process dies at a call. An error before means that
	// nothing was sent, one after that the answer was lost; the caller gets it.
	Step func(Call) error

	// OnLedger, when set, sees each change of the ledger as it happens.
	OnLedger func(LedgerEvent)
}

// Call is one scheduling point: a call of the hardware by a process.
type Call struct {
	Host     string
	Who      string // the process, as Host.Hardware was told
	Name     string // the method, e.g. "Start"
	Object   string // the domain's UUID or the unit; may be ""
	Mutating bool
	After    bool // false: about to be sent; true: has been answered
}

// Fleet is all simulated hardware of a run. Its methods are called by the
// goroutine that holds the scheduler's baton.
type Fleet struct {
	s       *sim.Scheduler
	o       Options
	hosts   map[string]*Host
	order   []*Host // sorted by name
	pools   map[string]*pool
	guests  map[string]Guest
	faults  []*activeFault
	cuts    []*cut
	oneways []*oneway
	outside map[string]int // faults that cut a link of Outside
	ledger  *Ledger
	onLink  []func(host, link string, up bool)
	onNet   []func()
	moves   []*move // that have not ended, in order of their start
	moveSeq uint64
}

// New returns a fleet without hosts.
func New(s *sim.Scheduler, o Options) *Fleet {
	if o.CallLatency == nil {
		o.CallLatency = func(r *rand.Rand) time.Duration {
			return 250*time.Microsecond + min(time.Duration(r.ExpFloat64()*float64(250*time.Microsecond)), 20*time.Millisecond)
		}
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 30 * time.Second
	}
	f := &Fleet{
		s: s, o: o,
		hosts:  map[string]*Host{},
		pools:  map[string]*pool{},
		guests: map[string]Guest{},

		outside: map[string]int{},
	}
	f.ledger = newLedger(s, o.OnLedger)
	return f
}

// AddHost adds a host, powered on and booted. An error names the input, the
// field and the mend.
func (f *Fleet) AddHost(spec HostSpec) (*Host, error) {
	if f.hosts[spec.Name] != nil {
		return nil, fmt.Errorf("add host %s: the name is taken; host names are unique in a fleet", spec.Name)
	}
	h, err := newHost(f, spec)
	if err != nil {
		return nil, fmt.Errorf("add host %s: %w", spec.Name, err)
	}
	f.hosts[spec.Name] = h
	i, _ := slices.BinarySearchFunc(f.order, h, func(a, b *Host) int { return strings.Compare(a.name, b.name) })
	f.order = slices.Insert(f.order, i, h)
	return h, nil
}

// Host returns the host of that name, or nil.
func (f *Fleet) Host(name string) *Host { return f.hosts[name] }

// Hosts returns all hosts, sorted by name.
func (f *Fleet) Hosts() []*Host { return f.order }

// Ledger returns the truth of the run so far.
func (f *Fleet) Ledger() *Ledger { return f.ledger }

// OnLink registers fn, called when a host's link goes down or comes back.
func (f *Fleet) OnLink(fn func(host, link string, up bool)) { f.onLink = append(f.onLink, fn) }

// OnNetwork registers fn, called when a fault on the network has begun or ended:
// what Reaches says may have changed.
func (f *Fleet) OnNetwork(fn func()) { f.onNet = append(f.onNet, fn) }

func (f *Fleet) networkChanged() {
	for _, fn := range f.onNet {
		fn()
	}
}

func (f *Fleet) note(host, component, what, object, detail string) {
	f.s.Note(sim.Note{Host: host, Component: component, What: what, Object: object, Detail: detail})
}
