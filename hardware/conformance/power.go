// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"

	"github.com/adit-hv/adit/hardware"
)

// PowerSubject is an implementation of hardware.Power under test.
type PowerSubject struct {
	Name string

	// New makes a lab for one case: a machine that is on, with a controller that
	// is well.
	New func() PowerLab
}

// PowerLab is what a case works with.
type PowerLab struct {
	hardware.Power
	Host     string                // as faults name it
	Identity hardware.Identity     // of the machine, as its own firmware says
	State    func() (running bool) // whether the machine runs, in truth

	// As a Lab has them; Elapsed is the time that passed since the case began.
	Run     func(fn func())
	Pass    func(d time.Duration)
	Elapsed func() time.Duration
	Break   func(fault string) (heal func(), err error)
	Close   func() // may be nil
}

// Times of controllers, which are slow.
const (
	powerCall = 60 * time.Second // the longest call
	powerDone = 2 * time.Minute  // until an order is carried out
	powerStep = time.Second
)

// PowerSuite registers all cases for a controller, to be run by
// ginkgo.RunSpecs.
func PowerSuite(subject PowerSubject) bool {
	return ginkgo.Describe(subject.Name, func() {
		s := &powerSuite{subject}
		ginkgo.Describe("power", func() { power(s) })
		ginkgo.Describe("controllers with vices", func() { vices(s) })
	})
}

type powerSuite struct{ subject PowerSubject }

func (s *powerSuite) it(text string, body func(*powerCase)) {
	ginkgo.It(text, func() {
		p := s.subject.New()
		c := &powerCase{PowerLab: p, lab: lab{Lab: Lab{Run: p.Run, Pass: p.Pass, Break: p.Break, Close: p.Close}, ctx: context.Background()}}
		runCase(&c.lab, func() { body(c) })
	})
}

type powerCase struct {
	PowerLab
	lab
}

// has lets the controller or the machine have a fault.
func (c *powerCase) has(fault string) (heal func()) { return c.fault("%s on=%s", fault, c.Host) }

func (c *powerCase) reads() hardware.PowerState {
	s, err := c.PowerState(c.ctx)
	c.ok(err)
	return s
}

// settles waits for a reading, and for the truth to be so.
func (c *powerCase) settles(want hardware.PowerState) {
	for waited := time.Duration(0); ; waited += powerStep {
		s := c.reads()
		if s == want {
			break
		}
		if s != hardware.PowerPoweringOff && s != hardware.PowerPoweringOn && s != hardware.PowerOn && s != hardware.PowerOff {
			ginkgo.Fail(fmt.Sprintf("a well controller says %q", s), 1)
		}
		if waited > powerDone {
			ginkgo.Fail(fmt.Sprintf("it says %s, not %s, after %v", s, want, waited), 1)
		}
		c.Pass(powerStep)
	}
}

func power(s *powerSuite) {
	s.it("it names its machine as the machine's firmware does", func(c *powerCase) {
		id, err := c.Controller(c.ctx)
		c.ok(err)
		equal(id.SystemUUID, strings.ToLower(id.SystemUUID))
		isTrue(id.SystemUUID != "" || id.Serial != "", "it names nothing")
		isTrue(id.SystemUUID == "" || id.SystemUUID == c.Identity.ProductUUID, "UUID %q, the machine has %q", id.SystemUUID, c.Identity.ProductUUID)
		isTrue(id.Serial == "" || id.Serial == c.Identity.Serial, "serial %q, the machine has %q", id.Serial, c.Identity.Serial)
	})
	s.it("a machine that runs is on, and stays so when it is switched on", func(c *powerCase) {
		equal(c.reads(), hardware.PowerOn)
		c.ok(c.SetPower(c.ctx, true))
		c.Pass(10 * time.Second)
		equal(c.reads(), hardware.PowerOn)
		isTrue(c.State(), "it does not run")
	})
	s.it("off is accepted, read, and true; asking twice is asking once", func(c *powerCase) {
		c.ok(c.SetPower(c.ctx, false))
		c.settles(hardware.PowerOff)
		isTrue(!c.State(), "it runs")
		c.ok(c.SetPower(c.ctx, false))
		c.Pass(10 * time.Second)
		equal(c.reads(), hardware.PowerOff)
		c.ok(c.SetPower(c.ctx, true))
		c.settles(hardware.PowerOn)
	})
	s.it("a controller that is well does not say off before it is", func(c *powerCase) {
		c.ok(c.SetPower(c.ctx, false))
		for range 120 {
			if c.reads() == hardware.PowerOff {
				isTrue(!c.State(), "it says off, and the machine runs")
				return
			}
			c.Pass(powerStep)
		}
		ginkgo.Fail("it never was off")
	})
	s.it("with its context done nothing is sent", func(c *powerCase) {
		c.consequence(c.SetPower(done(), false), hardware.Unavailable)
		_, err := c.PowerState(done())
		c.consequence(err, hardware.Unavailable)
		_, err = c.Controller(done())
		c.consequence(err, hardware.Unavailable)
		c.Pass(powerDone)
		isTrue(c.State(), "it was switched off")
	})
	s.it("it works while the host hangs", func(c *powerCase) {
		c.has("host.hang")
		equal(c.reads(), hardware.PowerOn)
		c.ok(c.SetPower(c.ctx, false))
		c.settles(hardware.PowerOff)
	})
}

func vices(s *powerSuite) {
	// readsFail expects both readings to fail so.
	readsFail := func(c *powerCase, want hardware.Consequence) {
		_, err := c.PowerState(c.ctx)
		c.consequence(err, want)
		_, err = c.Controller(c.ctx)
		c.consequence(err, want)
	}
	s.it("nobody answers: nothing was sent, and nothing happens", func(c *powerCase) {
		heal := c.has("bmc.down")
		c.consequence(c.SetPower(c.ctx, false), hardware.Unavailable)
		readsFail(c, hardware.Unavailable)
		heal()
		c.Pass(powerDone)
		isTrue(c.State(), "it was switched off")
	})
	s.it("wrong credentials are a refusal", func(c *powerCase) {
		c.has("bmc.credentials")
		c.refused(c.SetPower(c.ctx, false), hardware.ReasonOther)
		readsFail(c, hardware.Refused)
		c.Pass(powerDone)
		isTrue(c.State(), "it was switched off")
	})
	s.it("a refused order is a refusal, and reading goes on", func(c *powerCase) {
		c.has("bmc.refuse")
		c.refused(c.SetPower(c.ctx, false), hardware.ReasonOther)
		equal(c.reads(), hardware.PowerOn)
	})
	s.it("an answer that is lost leaves the order unknown: it was done", func(c *powerCase) {
		heal := c.has("bmc.mute")
		c.consequence(c.SetPower(c.ctx, false), hardware.Unknown)
		_, err := c.PowerState(c.ctx)
		c.consequence(err, hardware.Unavailable)
		heal()
		c.settles(hardware.PowerOff)
		isTrue(!c.State(), "it runs")
	})
	s.it("one that stands still hangs nobody", func(c *powerCase) {
		c.has("bmc.hang")
		from := c.Elapsed()
		c.consequence(c.SetPower(c.ctx, false), hardware.Unknown)
		isTrue(c.Elapsed()-from <= powerCall, "it took %v", c.Elapsed()-from)
		readsFail(c, hardware.Unavailable)
	})
	s.it("a state it does not know is told as it is, and is no error", func(c *powerCase) {
		c.has("bmc.unknown")
		for range 10 {
			s := c.reads()
			isTrue(s != hardware.PowerOn && s != hardware.PowerOff, "it says %q", s)
		}
	})
	s.it("an accepted order that is not done is read as that", func(c *powerCase) {
		c.has("bmc.slow by=40s")
		c.ok(c.SetPower(c.ctx, false))
		c.Pass(10 * time.Second)
		isTrue(c.reads() != hardware.PowerOff, "it says off")
		isTrue(c.State(), "it is off")
		c.settles(hardware.PowerOff)
	})
}
