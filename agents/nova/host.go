// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/wiring"
)

// unavailableAfter is how long the hypervisor may be silent before VMs are said
// to be in an unknown state: a restart of libvirtd takes about 5 s and is no
// news to users.
const unavailableAfter = 10 * time.Second

// host is what the agent remembers of its host between two looks. All of it is
// built anew from the first complete list after a restart, and nothing is
// concluded before.
type host struct {
	name string
	hw   hardware.Host

	mu         sync.Mutex // never held across a call of the API or the hardware
	add        func(wiring.Request, time.Duration)
	life       context.Context
	subscribed bool

	listed   bool // a complete list was read
	listedAt time.Time
	downAt   time.Time // since when it does not answer; zero: it does
	saidDown bool      // VMs were woken to say so

	domains map[string]*hardware.Domain     // the last list, kept current by single looks; a domain is replaced, never changed
	owners  map[string]types.NamespacedName // whose domain a UUID is, or will be
	memory  map[string]memory               // by UUID
	ends    map[string]runEnd               // what events said of a run that no list tells
	claims  map[string]uint64               // KiB promised to domains that are not in the list yet

	wakeAll bool
	logLine string

	// stirs counts what a look around may have to do with: each look at a VM, its
	// end, and each change in a list. restedAt is the count at which all VMs were
	// as they should be, or -1.
	stirs, restedAt int
}

func newHost(name string, hw hardware.Host) *host {
	return &host{
		name:     name,
		hw:       hw,
		domains:  map[string]*hardware.Domain{},
		owners:   map[string]types.NamespacedName{},
		memory:   map[string]memory{},
		ends:     map[string]runEnd{},
		claims:   map[string]uint64{},
		restedAt: -1,
	}
}

// key is the request for the host itself.
func (h *host) key() wiring.Request {
	return wiring.Request{NamespacedName: types.NamespacedName{Name: h.name}}
}

// listen subscribes to the host's events and asks for a first list. When the
// hypervisor refuses now, each later list tries again.
func (h *host) listen(ctx context.Context, add func(wiring.Request, time.Duration)) {
	h.mu.Lock()
	h.add, h.life = add, ctx
	h.mu.Unlock()
	h.subscribe()
	add(h.key(), 0)
}

func (h *host) subscribe() {
	h.mu.Lock()
	life, done := h.life, h.subscribed || h.life == nil
	h.subscribed = true
	h.mu.Unlock()
	if done {
		return
	}
	if err := h.hw.Subscribe(life, h.note); err != nil {
		h.mu.Lock()
		h.subscribed = false
		h.mu.Unlock()
	}
}

// ownEcho is how long the event of a start may wait. Nearly all starts are our
// own, and what we write about them brings the VM back by itself.
const ownEcho = time.Second

// echoes says that an event is one that a start of our own makes.
func echoes(e hardware.Event) bool {
	switch e.Kind {
	case hardware.EventDefined:
		return true
	case hardware.EventStarted:
		return e.Detail == hardware.DetailBooted
	case hardware.EventResumed:
		return e.Detail == hardware.DetailUnpaused
	}
	return false
}

// note takes in one event: it says whom to look at, and never what is true.
func (h *host) note(e hardware.Event) {
	wait := time.Duration(0)
	if echoes(e) {
		wait = ownEcho
	}
	h.mu.Lock()
	request := h.key()
	if owner, known := h.owners[e.UUID]; known && e.UUID != "" {
		request.NamespacedName = owner
	}
	if e.Kind == hardware.EventAgent {
		m := h.memory[e.UUID]
		m.agent = e.Detail
		h.memory[e.UUID] = m
	}
	switch {
	case e.Kind == hardware.EventShutdown && e.Detail == hardware.DetailHost:
		h.ends[e.UUID] = runEnd{h.startOf(e.UUID), hardware.DetailHost}
	case e.Kind == hardware.EventCrashed && e.Detail == hardware.DetailPanicked:
		h.ends[e.UUID] = runEnd{h.startOf(e.UUID), hardware.DetailPanicked}
	}
	add := h.add
	h.mu.Unlock()
	if add != nil {
		add(request, wait)
	}
}

// startOf is when a domain's last known run began. The caller holds the lock.
func (h *host) startOf(uuid string) time.Time {
	if d := h.domains[uuid]; d != nil {
		return d.StartedAt
	}
	return time.Time{}
}

// doubt asks for a list, because a single look went unanswered.
func (h *host) doubt() { h.wake(h.key().NamespacedName) }

func (h *host) wake(who types.NamespacedName) {
	h.mu.Lock()
	add := h.add
	h.mu.Unlock()
	if add != nil {
		add(wiring.Request{NamespacedName: who}, 0)
	}
}

// list reads all domains and wakes the owners of those that changed.
func (h *host) list(ctx context.Context, now func() time.Time) error {
	h.subscribe()
	domains, err := h.hw.Domains(ctx)
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		switch {
		case h.downAt.IsZero():
			h.downAt = now()
		case !h.saidDown && now().Sub(h.downAt) >= unavailableAfter:
			h.saidDown, h.wakeAll, h.logLine = true, true, "Hypervisor does not answer"
		}
		return err
	}

	h.mu.Lock()
	var changed []types.NamespacedName
	before := h.domains
	h.domains = make(map[string]*hardware.Domain, len(domains))
	for i := range domains {
		d := &domains[i]
		h.domains[d.UUID] = d
		if old, was := before[d.UUID]; !was || !alike(old, d) {
			if d.Spec.Owner != nil {
				changed = append(changed, types.NamespacedName{Namespace: d.Spec.Owner.Namespace, Name: d.Spec.Owner.Name})
			}
		}
		h.learn(d)
	}
	for _, uuid := range slices.Sorted(maps.Keys(before)) {
		if _, is := h.domains[uuid]; !is {
			if owner, known := h.owners[uuid]; known {
				changed = append(changed, owner)
			}
		}
	}
	if !h.listed || !h.downAt.IsZero() {
		h.wakeAll = true
	}
	if h.saidDown {
		h.logLine = "Hypervisor answers again"
	}
	if len(changed) > 0 || len(before) != len(h.domains) {
		h.stirs++
	}
	h.listed, h.listedAt = true, now()
	h.downAt, h.saidDown = time.Time{}, false
	h.mu.Unlock()

	for _, owner := range changed {
		h.wake(owner)
	}
	return nil
}

// alike says that two looks at a domain tell the same story.
func alike(a, b *hardware.Domain) bool {
	return a.State == b.State && a.Detail == b.Detail && a.Incoming == b.Incoming &&
		a.Persistent == b.Persistent && a.StartedAt.Equal(b.StartedAt) &&
		a.Foreign == b.Foreign && sameOwner(a.Spec.Owner, b.Spec.Owner)
}

func sameOwner(a, b *hardware.Owner) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// learn remembers whose a domain is. The caller holds the lock.
func (h *host) learn(d *hardware.Domain) {
	delete(h.claims, d.UUID)
	if end, was := h.ends[d.UUID]; was && d.Active() && !d.StartedAt.Equal(end.run) {
		delete(h.ends, d.UUID)
	}
	if d.Spec.Owner != nil && !d.Foreign {
		h.owners[d.UUID] = types.NamespacedName{Namespace: d.Spec.Owner.Namespace, Name: d.Spec.Owner.Name}
	}
}

// news returns what to log and whether all VMs are to be looked at, once.
func (h *host) news() (line string, all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	line, all = h.logLine, h.wakeAll
	h.logLine, h.wakeAll = "", false
	return line, all
}

// keepNews takes back that all VMs have been woken.
func (h *host) keepNews() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeAll = true
}

// saw takes in a single look at a domain; nil is that there is none.
func (h *host) saw(uuid string, owner types.NamespacedName, d *hardware.Domain) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d == nil {
		delete(h.domains, uuid)
		h.owners[uuid] = owner
		return
	}
	h.domains[uuid] = d
	h.learn(d)
}

// strays returns the UUIDs of a VM's domains, sorted, leaving out its own.
func (h *host) strays(vm types.NamespacedName, own string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []string
	for uuid, d := range h.domains {
		o := d.Spec.Owner
		if o != nil && !d.Foreign && uuid != own && o.Namespace == vm.Namespace && o.Name == vm.Name {
			found = append(found, uuid)
		}
	}
	slices.Sort(found)
	return found
}

// runEnd is how a run ended, where only an event says it: by the host, as when
// systemd takes it down, or since its guest panicked, which libvirt then shows as
// any other crash.
type runEnd struct {
	run time.Time // when it had started
	by  hardware.Detail
}

// endOf is what an event said of the end of a domain's last run; "" if none did.
func (h *host) endOf(uuid string) hardware.Detail {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ends[uuid].by
}

// recall returns what is remembered of a domain.
func (h *host) recall(uuid string) memory {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.memory[uuid]
}

// remember replaces it, but for what events said meanwhile.
func (h *host) remember(uuid string, m memory) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.memory[uuid]; now.agent != "" {
		m.agent = now.agent
	}
	h.memory[uuid] = m
}

// forget drops all that is known of a domain that is neither here nor meant to
// be.
func (h *host) forget(uuid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.memory, uuid)
	delete(h.claims, uuid)
	delete(h.ends, uuid)
	if _, here := h.domains[uuid]; !here {
		delete(h.owners, uuid)
	}
}

// forgetVM drops what is known of the domains a VM had here.
func (h *host) forgetVM(vm types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uuid, owner := range h.owners {
		if _, here := h.domains[uuid]; owner == vm && !here {
			delete(h.memory, uuid)
			delete(h.claims, uuid)
			delete(h.ends, uuid)
			delete(h.owners, uuid)
		}
	}
}

// status returns whether a complete list was read, when, and since when the
// hypervisor is silent.
func (h *host) status() (listed bool, at, downAt time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listed, h.listedAt, h.downAt
}

// claim promises memory to a domain unless the host would hold more than its
// capacity; 0 means that nobody knows the capacity. Domains count whoever made
// them and whether they run or not.
func (h *host) claim(uuid string, kib, capacityKiB uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var used uint64
	for _, d := range h.domains {
		if d.UUID != uuid {
			used += d.Spec.MemoryKiB
		}
	}
	for other, promised := range h.claims {
		if _, here := h.domains[other]; other != uuid && !here {
			used += promised
		}
	}
	if capacityKiB > 0 && used+kib > capacityKiB {
		return hardware.Fail(hardware.Refused, hardware.ReasonNoMemory, "claim memory", "host "+h.name,
			"%d KiB wanted, %d of %d KiB taken", kib, used, capacityKiB)
	}
	h.claims[uuid] = kib
	return nil
}

// release takes a promise back.
func (h *host) release(uuid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.claims, uuid)
}
