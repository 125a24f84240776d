// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hardware/redfish"
)

// with runs a story about the first of some systems.
func with(t *testing.T, systems []*machine, story func(t *testing.T, c *controller, p *redfish.Client), options ...func(*redfish.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newController(systems...)
		defer c.close()
		o := c.options(systems[0])
		for _, f := range options {
			f(&o)
		}
		p, err := redfish.New(o)
		if err != nil {
			t.Fatal(err)
		}
		story(t, c, p)
	})
}

func expect(t *testing.T, err error, want hardware.Consequence, says ...string) {
	t.Helper()
	if got := hardware.ConsequenceOf(err); got != want {
		t.Errorf("%q, want %q: %v", got, want, err)
	}
	for _, words := range says {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v does not say %q", err, words)
		}
	}
}

func (c *controller) ordered(t *testing.T, want ...string) {
	t.Helper()
	c.with(func() {
		if !slices.Equal(c.orders, want) {
			t.Errorf("ordered %q, want %q", c.orders, want)
		}
	})
}

func TestWhatAnAnswerToAnOrderMeans(t *testing.T) {
	for _, test := range []struct {
		name    string
		status  int
		retry   string
		want    hardware.Consequence
		says    string
		ordered bool
	}{
		{name: "done", status: 0, want: "", ordered: true},
		{name: "accepted, with a task", status: 202, want: ""},
		{name: "accepted, without a word", status: 204, want: ""},
		{name: "sent elsewhere", status: 307, want: hardware.Refused, says: "307"},
		{name: "malformed", status: 400, want: hardware.Refused, says: "As you were."},
		{name: "wrong credentials", status: 401, want: hardware.Refused},
		{name: "no right to", status: 403, want: hardware.Refused},
		{name: "not there, as after a boot", status: 404, want: hardware.Unavailable},
		{name: "in conflict", status: 409, want: hardware.Refused},
		{name: "too many requests", status: 429, want: hardware.Unavailable},
		{name: "it fell on the way", status: 500, want: hardware.Unknown},
		{name: "no such action", status: 501, want: hardware.Refused},
		{name: "its inside is silent", status: 502, want: hardware.Unknown},
		{name: "busy, who knows since when", status: 503, want: hardware.Unknown},
		{name: "busy, and says until when", status: 503, retry: "30", want: hardware.Unavailable, says: "after 30"},
		{name: "its inside is slow", status: 504, want: hardware.Unknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			with(t, []*machine{well("1")}, func(t *testing.T, c *controller, p *redfish.Client) {
				if test.status != 0 {
					c.with(func() { c.answers[http.MethodPost] = test.status })
				}
				c.with(func() { c.header["Location"] = "https://elsewhere.example/" })
				if test.retry != "" {
					c.with(func() { c.header["Retry-After"] = test.retry })
				}
				err := p.SetPower(t.Context(), false)
				if test.want == "" && err != nil {
					t.Error(err)
				} else if test.want != "" {
					expect(t, err, test.want, "switch off controller at example.com", test.says)
				}
				if test.ordered {
					c.ordered(t, "1 ForceOff")
				}
			})
		})
	}
}

func TestWhatAnAnswerToAReadingMeans(t *testing.T) {
	for status, want := range map[int]hardware.Consequence{
		400: hardware.Refused, 401: hardware.Refused, 403: hardware.Refused, 404: hardware.Unavailable, 406: hardware.Refused,
		429: hardware.Unavailable, 500: hardware.Unavailable, 502: hardware.Unavailable, 503: hardware.Unavailable,
	} {
		with(t, []*machine{well("1")}, func(t *testing.T, c *controller, p *redfish.Client) {
			c.with(func() { c.answers["GET /redfish/v1/Systems/1"] = status })
			s, err := p.PowerState(t.Context())
			expect(t, err, want, "read power of")
			if s != hardware.PowerUnknown {
				t.Errorf("with an error it says %s", s)
			}
			_, err = p.Controller(t.Context())
			expect(t, err, want, "identify")
			expect(t, p.SetPower(t.Context(), false), want, "switch off")
			c.ordered(t) // nothing: nobody knows whose it is
		})
	}
}

func TestAnOrderInVain(t *testing.T) {
	with(t, []*machine{well("1")}, func(t *testing.T, c *controller, p *redfish.Client) {
		c.with(func() { c.vices["conflict"] = true })
		for range 2 { // the second is answered with 409
			if err := p.SetPower(t.Context(), false); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
		}
		c.ordered(t, "1 ForceOff")
		c.with(func() { c.systems[0].state = hardware.PowerOn })
		c.with(func() { c.answers[http.MethodPost] = http.StatusConflict })
		expect(t, p.SetPower(t.Context(), false), hardware.Refused)
	})
}

func TestATaskIsNotWaitedFor(t *testing.T) {
	with(t, []*machine{well("1")}, func(t *testing.T, c *controller, p *redfish.Client) {
		c.with(func() { c.vices["task"], c.slow = true, time.Minute })
		begun := time.Now()
		if err := p.SetPower(t.Context(), false); err != nil || time.Since(begun) > 0 {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		if s, err := p.PowerState(t.Context()); s != hardware.PowerPoweringOff || err != nil {
			t.Errorf("%s, %v", s, err)
		}
	})
}

// What a controller says is told, be it a lie: who asks reads it twice.
func TestALieIsToldAsItIs(t *testing.T) {
	for _, says := range []hardware.PowerState{hardware.PowerOff, "Paused"} {
		m := well("1")
		m.state = says
		with(t, []*machine{m}, func(t *testing.T, _ *controller, p *redfish.Client) {
			if s, err := p.PowerState(t.Context()); s != says || err != nil {
				t.Errorf("%q, %v", s, err)
			}
		})
	}
}

func TestAnOrderThatNeverLeft(t *testing.T) {
	with(t, []*machine{well("1")}, func(t *testing.T, c *controller, p *redfish.Client) {
		if _, err := p.PowerState(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.net.left = 1 // for looking who is there
		expect(t, p.SetPower(t.Context(), false), hardware.Unavailable, "connection refused")
		c.ordered(t)
	})
}

func TestSlowOnes(t *testing.T) {
	with(t, []*machine{well("1")}, func(t *testing.T, c *controller, p *redfish.Client) {
		c.with(func() { c.after[http.MethodPost] = 14 })
		if err := p.SetPower(t.Context(), true); err != nil {
			t.Error(err)
		}
		c.with(func() { c.after[http.MethodPost] = 16 })
		expect(t, p.SetPower(t.Context(), false), hardware.Unknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		expect(t, p.SetPower(ctx, false), hardware.Unknown) // the caller's time ended, and the order had left
		c.with(func() { c.after[http.MethodGet] = 16 })
		begun := time.Now()
		_, err := p.PowerState(t.Context())
		expect(t, err, hardware.Unavailable)
		expect(t, p.SetPower(t.Context(), false), hardware.Unavailable) // it never came to the order
		if took := time.Since(begun); took > 31*time.Second {
			t.Errorf("two calls took %s", took)
		}
	})
}

func TestGarbage(t *testing.T) {
	with(t, []*machine{well("1")}, func(t *testing.T, c *controller, p *redfish.Client) {
		c.with(func() { c.vices["garbage"] = true })
		_, err := p.PowerState(t.Context())
		expect(t, err, hardware.Unavailable, "no Redfish")
		expect(t, p.SetPower(t.Context(), false), hardware.Unavailable)
		c.ordered(t)
	})
}

func TestTheControllerMustBeWhomWeTrust(t *testing.T) {
	with(t, []*machine{well("1")}, func(t *testing.T, c *controller, p *redfish.Client) {
		expect(t, p.SetPower(t.Context(), false), hardware.Unavailable, "certificate")
		if len(c.seen) > 0 {
			t.Errorf("it was told %q", c.seen)
		}
	}, func(o *redfish.Options) { o.TLS = nil })
}

func TestSessions(t *testing.T) {
	session := func(o *redfish.Options) { o.Session = true }
	with(t, []*machine{well("1")}, func(t *testing.T, c *controller, p *redfish.Client) {
		logins := func() (n int) {
			c.with(func() {
				for _, s := range c.seen {
					if s == "POST /redfish/v1/Sessions" {
						n++
					}
				}
			})
			return n
		}
		for range 3 {
			if _, err := p.PowerState(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := p.SetPower(t.Context(), false); err != nil || logins() != 1 {
			t.Errorf("%v, with %d logins", err, logins())
		}
		c.with(func() { clear(c.tokens) }) // the controller has booted
		if err := p.SetPower(t.Context(), false); err != nil || logins() != 2 {
			t.Errorf("%v, with %d logins", err, logins())
		}
		if err := p.Close(t.Context()); err != nil || len(c.tokens) > 0 {
			t.Errorf("%v, and %d sessions are left", err, len(c.tokens))
		}
		if err := p.Close(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
		c.with(func() { c.vices["credentials"] = true })
		expect(t, p.SetPower(t.Context(), false), hardware.Refused, "log in", "401")
	}, session)
	with(t, []*machine{well("1")}, func(t *testing.T, c *controller, p *redfish.Client) {
		c.with(func() { c.answers["GET /redfish/v1/Systems"] = http.StatusUnauthorized }) // a login that may do nothing
		_, err := p.PowerState(t.Context())
		expect(t, err, hardware.Refused, "401")
	}, session)
	with(t, []*machine{well("1")}, func(t *testing.T, c *controller, p *redfish.Client) {
		c.with(func() { c.after[http.MethodPost] = 60 })
		expect(t, p.SetPower(t.Context(), false), hardware.Unavailable, "log in") // and not unknown: it was no order
	}, session)
}

func TestAnAddressMustBeOne(t *testing.T) {
	m := hardware.Controller{Serial: "SN1"}
	for _, test := range []struct {
		url string
		m   hardware.Controller
		ok  bool
	}{
		{"https://bmc1", m, true},
		{"https://[::1]:8443/", m, true},
		{"http://bmc1", m, false}, // a password for everybody
		{"https://ha:secret@bmc1", m, false},
		{"https://bmc1/redfish/v1", m, false},
		{"bmc1", m, false},
		{"", m, false},
		{"https://bmc1", hardware.Controller{}, false},
		{"https://bmc1", hardware.Controller{SystemUUID: "00000000-0000-0000-0000-000000000000", Serial: "Default string"}, false},
	} {
		_, err := redfish.New(redfish.Options{URL: test.url, Machine: test.m})
		if (err == nil) != test.ok {
			t.Errorf("%s of %v: %v", test.url, test.m, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%v tells the password", err)
		}
	}
}
