// SPDX-License-Identifier: Apache-2.0

// Package conformance states what package hardware means, as one Ginkgo suite
// that every implementation passes: the simulator always, real libvirt and QEMU
// where they are.
//
// It drives two or three hosts through hardware.Host alone, lets time pass
// through the subject, and breaks things by faults in words. What a subject
// cannot do is skipped aloud, with its reason. It must never know which
// implementation it looks at.
package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/adit-hv/adit/hardware"
)

// Subject is an implementation under test.
type Subject struct {
	Name string

	// New makes a lab for one case: two hosts or more that are up and have no
	// domains, with a migration network and shared storage.
	New func() Lab
}

// Lab is what a case works with.
type Lab struct {
	Hosts []Host

	// Run calls fn where calls of the hardware may take their time, and returns
	// when fn has. Pass lets time go by within fn.
	Run  func(fn func())
	Pass func(d time.Duration)

	// Volume makes a fresh small volume that all hosts reach; LocalVolume one
	// that has the same name on all hosts and is another one on each.
	Volume      func() string
	LocalVolume func() string

	// Pool is the shared storage in which the hosts have their heartbeats, none
	// of them written yet; "" is none, and the cases are skipped.
	Pool string

	// Behave lets the VM of that UUID behave so from its next start on. An
	// error says that the subject cannot, and the case is skipped.
	Behave func(uuid string, b Behaviour) error

	// Break begins a fault, written as hwsim writes them, and returns how it is
	// healed. An error says that the subject cannot.
	Break func(fault string) (heal func(), err error)

	Close func() // may be nil
}

// Host is one host of a lab.
type Host struct {
	Name string
	hardware.Host
}

// Behaviour is what a guest is like. The zero value listens to ACPI, writes
// little and has an agent.
type Behaviour struct {
	Deaf           bool   // ignores ACPI
	NoAgent        bool   // has no guest agent
	BytesPerSecond uint64 // dirties so much
	WorkingSet     uint64 // in so many bytes
}

// Times in which a right implementation does things, generous for real guests
// on a loaded machine.
const (
	step     = 20 * time.Millisecond
	soon     = 10 * time.Second
	guestUp  = 90 * time.Second
	moveTime = 3 * time.Minute
)

// Suite registers all cases for a subject, to be run by ginkgo.RunSpecs.
func Suite(subject Subject) bool {
	return ginkgo.Describe(subject.Name, func() {
		s := &suite{subject}
		ginkgo.Describe("facts", func() { facts(s) })
		ginkgo.Describe("units", func() { units(s) })
		ginkgo.Describe("definitions", func() { definitions(s) })
		ginkgo.Describe("lifecycle", func() { lifecycle(s) })
		ginkgo.Describe("devices", func() { devices(s) })
		ginkgo.Describe("guests", func() { guests(s) })
		ginkgo.Describe("events", func() { events(s) })
		ginkgo.Describe("storage", func() { storage(s) })
		ginkgo.Describe("migration", func() { migration(s) })
		ginkgo.Describe("migration that fails", func() { failures(s) })
		ginkgo.Describe("post-copy", func() { postCopy(s) })
		ginkgo.Describe("daemons and power", func() { daemons(s) })
		ginkgo.Describe("watchdog", func() { watchdogs(s) })
		ginkgo.Describe("heartbeats", func() { heartbeats(s) })
		ginkgo.Describe("peers", func() { peers(s) })
		ginkgo.Describe("notes", func() { notes(s) })
	})
}

type suite struct{ subject Subject }

// it registers a case.
func (s *suite) it(text string, body func(*lab)) {
	ginkgo.It(text, func() {
		l := &lab{Lab: s.subject.New(), ctx: context.Background()}
		runCase(l, func() { body(l) })
	})
}

// runCase runs a case in its lab, and sees that it came to its end.
func runCase(l *lab, body func()) {
	if l.Close != nil {
		defer l.Close()
	}
	done := false
	l.Run(func() {
		defer ginkgo.GinkgoRecover()
		body()
		done = true
	})
	if !done && !ginkgo.CurrentSpecReport().Failed() && l.skipped == "" {
		ginkgo.Fail("the case never came to its end: a call did not return")
	}
	if l.skipped != "" {
		ginkgo.Skip(l.skipped)
	}
}

type lab struct {
	Lab
	ctx     context.Context
	count   int
	skipped string
}

// skip ends a case the subject cannot do. Ginkgo's own Skip would not get from
// the subject's goroutine to the case.
func (l *lab) skip(why string) {
	l.skipped = why
	ginkgo.Skip(why)
}

func (l *lab) a() Host { return l.Hosts[0] }
func (l *lab) b() Host { return l.Hosts[1] }

// spec is a fresh small domain with a disk on shared storage.
func (l *lab) spec() hardware.DomainSpec {
	l.count++
	uuid := fmt.Sprintf("c04f0000-0000-4000-8000-%012x", l.count)
	name := fmt.Sprintf("conformance-%d", l.count)
	l.behave(uuid, Behaviour{})
	return hardware.DomainSpec{
		UUID: uuid, Name: name, MemoryKiB: 256 << 10, VCPUs: 1,
		Owner:      &hardware.Owner{Namespace: "default", Name: name, UID: uuid, Generation: int64(l.count), Protected: true},
		Disks:      []hardware.Disk{{Target: "vda", Bus: "virtio", Volume: l.Volume(), Serial: "root"}},
		Interfaces: []hardware.Interface{{MAC: fmt.Sprintf("52:54:00:00:00:%02x", l.count), Bridge: "br-int", Port: uuid}},
		GuestAgent: true, SerialConsole: true, Graphics: true,
	}
}

func (l *lab) behave(uuid string, b Behaviour) {
	if err := l.Behave(uuid, b); err != nil {
		l.skip("guest cannot behave like this here: " + err.Error())
	}
}

func (l *lab) fault(format string, args ...any) (heal func()) {
	heal, err := l.Break(fmt.Sprintf(format, args...))
	if err != nil {
		l.skip("fault cannot be had here: " + err.Error())
	}
	return heal
}

func (l *lab) ok(err error) { gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred()) }

// refused expects a refusal for that reason, saying what was tried on what.
func (l *lab) refused(err error, r hardware.Reason) {
	gomega.ExpectWithOffset(1, err).To(gomega.HaveOccurred())
	gomega.ExpectWithOffset(1, hardware.ConsequenceOf(err)).To(gomega.Equal(hardware.Refused), err.Error())
	gomega.ExpectWithOffset(1, hardware.ReasonOf(err)).To(gomega.Equal(r), err.Error())
	e, _ := err.(*hardware.Error)
	gomega.ExpectWithOffset(1, e).NotTo(gomega.BeNil())
	gomega.ExpectWithOffset(1, e.Attempt).NotTo(gomega.BeEmpty(), "the error does not say what was tried")
}

func (l *lab) consequence(err error, c hardware.Consequence) {
	gomega.ExpectWithOffset(1, err).To(gomega.HaveOccurred())
	gomega.ExpectWithOffset(1, hardware.ConsequenceOf(err)).To(gomega.Equal(c), err.Error())
}

func equal[T any](got, want T, about ...any) {
	gomega.ExpectWithOffset(1, got).To(gomega.Equal(want), about...)
}

func isTrue(got bool, about string, args ...any) {
	gomega.ExpectWithOffset(1, got).To(gomega.BeTrue(), fmt.Sprintf(about, args...))
}

// until waits for a condition; what says what it is.
func (l *lab) until(within time.Duration, what string, cond func() bool) {
	for waited := time.Duration(0); !cond(); waited += step {
		if waited >= within {
			ginkgo.Fail(fmt.Sprintf("not within %v: %s", within, what), 1)
		}
		l.Pass(step)
	}
}

// defined and started are domains in that state on a host.
func (l *lab) defined(h Host) hardware.DomainSpec {
	s := l.spec()
	l.ok(h.Define(l.ctx, s))
	return s
}

func (l *lab) started(h Host) hardware.DomainSpec {
	s := l.defined(h)
	l.ok(h.Start(l.ctx, s.UUID, hardware.StartOptions{}))
	return s
}

// booted is a started domain whose agent answers.
func (l *lab) booted(h Host) hardware.DomainSpec {
	s := l.started(h)
	l.agentAnswers(h, s.UUID)
	return s
}

func (l *lab) agentAnswers(h Host, uuid string) {
	l.until(guestUp, "the guest agent answers", func() bool {
		_, err := h.GuestInfo(l.ctx, uuid)
		return err == nil
	})
}

// domain reads a domain that must be there.
func (l *lab) domain(h Host, uuid string) hardware.Domain {
	d, err := h.Domain(l.ctx, uuid)
	gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
	return d
}

// state waits for a domain's state.
func (l *lab) state(h Host, uuid string, within time.Duration, state hardware.State, detail hardware.Detail) {
	last := ""
	for waited := time.Duration(0); ; waited += step {
		d, err := h.Domain(l.ctx, uuid)
		if err == nil && d.State == state && d.Detail == detail {
			return
		}
		last = fmt.Sprintf("%s (%s), %v", d.State, d.Detail, err)
		if waited >= within {
			ginkgo.Fail(fmt.Sprintf("%s on %s is %s, not %s (%s) within %v", uuid, h.Name, last, state, detail, within), 1)
		}
		l.Pass(step)
	}
}

// gone waits until a host does not have a domain any more.
func (l *lab) gone(h Host, uuid string, within time.Duration) {
	l.until(within, uuid+" is gone from "+h.Name, func() bool { return !l.has(h, uuid) })
}

func (l *lab) has(h Host, uuid string) bool {
	list, err := h.Domains(l.ctx)
	l.ok(err)
	return slices.ContainsFunc(list, func(d hardware.Domain) bool { return d.UUID == uuid })
}

// journal collects a host's events.
type journal struct{ events []hardware.Event }

func (l *lab) listen(h Host) *journal {
	j := &journal{}
	l.ok(h.Subscribe(l.ctx, func(e hardware.Event) { j.events = append(j.events, e) }))
	l.until(soon, "the subscription begins with a gap", func() bool { return len(j.events) > 0 })
	equal(j.events[0].Kind, hardware.EventGap)
	return j
}

// mark returns where the journal stands, so that a case can look behind it.
func (j *journal) mark() int { return len(j.events) }

// of returns a domain's events after a mark, as "kind/detail".
func (j *journal) of(uuid string, from int, kinds ...hardware.EventKind) []string {
	var out []string
	for _, e := range j.events[from:] {
		if e.UUID == uuid && (len(kinds) == 0 || slices.Contains(kinds, e.Kind)) {
			s := string(e.Kind)
			if e.Detail != "" {
				s += "/" + string(e.Detail)
			}
			out = append(out, s)
		}
	}
	return out
}

func (j *journal) count(uuid string, from int, kind hardware.EventKind) int {
	return len(j.of(uuid, from, kind))
}

// gaps counts the gaps told.
func (j *journal) gaps() int {
	n := 0
	for _, e := range j.events {
		if e.Kind == hardware.EventGap {
			n++
		}
	}
	return n
}

// at returns when the first such event of a domain happened.
func (j *journal) at(uuid string, kind hardware.EventKind, detail hardware.Detail) (time.Time, bool) {
	for _, e := range j.events {
		if e.UUID == uuid && e.Kind == kind && e.Detail == detail {
			return e.At, true
		}
	}
	return time.Time{}, false
}

// done is a context that was cancelled.
func done() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
