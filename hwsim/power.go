// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"context"
	"time"

	"github.com/adit-hv/adit/hardware"
)

const (
	bmcConnect = 3 * time.Second  // until a connect is given up
	bmcTimeout = 15 * time.Second // until an answer is
)

// Power returns a host's management controller as a process outside reaches it;
// who names the process in the trace and in Options.Step.
func (f *Fleet) Power(host, who string) hardware.Power { return &power{f: f, host: host, who: who} }

// power is the client's end: what was sent goes on when its process dies.
type power struct {
	f         *Fleet
	host, who string
}

// request is one request to a controller.
type request struct {
	name     string
	object   string
	attempt  string
	mutating bool
	work     func(*bmc) error
}

func (p *power) fail(r request, c hardware.Consequence, format string, args ...any) error {
	return hardware.Fail(c, hardware.ReasonOther, r.attempt, "controller of "+p.host, format, args...)
}

// lost is the error of a request that was sent and not answered.
func (p *power) lost(r request) error {
	if r.mutating {
		return p.fail(r, hardware.Unknown, "no answer within %v", bmcTimeout)
	}
	return p.fail(r, hardware.Unavailable, "no answer within %v", bmcTimeout)
}

// do sends a request and waits for its answer.
func (p *power) do(ctx context.Context, r request) error {
	if err := ctx.Err(); err != nil {
		return p.fail(r, hardware.Unavailable, "%w", err)
	}
	point := Call{Host: p.host, Who: p.who, Name: r.name, Object: r.object, Mutating: r.mutating}
	if p.f.o.Step != nil {
		if err := p.f.o.Step(point); err != nil {
			return err
		}
	}
	err := p.send(r)
	if r.mutating || err != nil {
		p.f.note(p.host, p.who, r.name, r.object, outcome(err))
	}
	if p.f.o.Step != nil {
		point.After = true
		if err := p.f.o.Step(point); err != nil {
			return err
		}
	}
	return err
}

// send carries a request to the controller and its answer back. Outside of
// tasks it takes no time.
func (p *power) send(r request) error {
	h := p.f.hosts[p.host]
	if h == nil {
		return p.fail(r, hardware.Refused, "no such host")
	}
	b := h.bmc.behind()
	at := b.h.name // on whose network it is
	if !p.f.Reaches(Outside, at, LinkBMC) {
		p.wait(bmcConnect)
		return p.fail(r, hardware.Unavailable, "connect: no answer within %v", bmcConnect)
	}
	way := between(b.draws(), 20*time.Millisecond, 150*time.Millisecond)
	p.wait(way)
	if b.has("bmc.hang") {
		return p.hang(r, b)
	}
	err := p.serve(r, b)
	p.wait(way)
	if b.has("bmc.mute") || !p.f.Reaches(at, Outside, LinkBMC) {
		p.wait(bmcTimeout)
		return p.lost(r)
	}
	return err
}

// serve is what the controller does with a request.
func (p *power) serve(r request, b *bmc) error {
	switch {
	case b.has("bmc.credentials"):
		return p.fail(r, hardware.Refused, "401 Unauthorized: the credentials are not accepted")
	case r.mutating && b.has("bmc.refuse"):
		return p.fail(r, hardware.Refused, "the action is not allowed in the current state of the resource")
	}
	return r.work(b)
}

// hang is a request to a controller that stands still. It may be served when
// that goes on, after nobody waits any more.
func (p *power) hang(r request, b *bmc) error {
	if r.mutating {
		b.pending = append(b.pending, func() {
			if b.draws().IntN(2) == 0 {
				p.f.note(p.host, "bmc", "late "+r.name, r.object, "the caller has given up")
				_ = p.serve(r, b) // nobody is there to be told
			}
		})
	}
	p.wait(bmcTimeout)
	return p.lost(r)
}

// wait lets virtual time pass on a task.
func (p *power) wait(d time.Duration) {
	if task := p.f.s.Current(); task != nil {
		task.Sleep(d)
	}
}

// Controller implements hardware.Power.
func (p *power) Controller(ctx context.Context) (c hardware.Controller, err error) {
	err = p.do(ctx, request{name: "Controller", attempt: "identify", work: func(b *bmc) error {
		c = b.identity()
		return nil
	}})
	return c, err
}

// PowerState implements hardware.Power.
func (p *power) PowerState(ctx context.Context) (s hardware.PowerState, err error) {
	err = p.do(ctx, request{name: "PowerState", attempt: "read power of", work: func(b *bmc) error {
		s = b.state()
		return nil
	}})
	return s, err
}

// SetPower implements hardware.Power.
func (p *power) SetPower(ctx context.Context, on bool) error {
	object := "off"
	if on {
		object = "on"
	}
	return p.do(ctx, request{name: "SetPower", object: object, attempt: "switch " + object, mutating: true, work: func(b *bmc) error {
		b.accept(on)
		return nil
	}})
}
