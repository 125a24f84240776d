// SPDX-License-Identifier: Apache-2.0

// Package redfish is hardware.Power over Redfish (DMTF DSP0266): a machine's
// management controller, spoken to from another machine over HTTPS.
//
// A controller may hold several systems, and an address may lead to a controller
// of other machines. So a Client is for one machine, known by its UUID or serial
// number, and looks at both before each reading and each order: it never takes the
// first system there is, and never orders another machine's. It must never decide
// what a reading proves.
//
// It is written on net/http alone, because the one thing that matters here is
// what general clients hide: whether an order that failed had left.
package redfish

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hardware/parse"
)

// Options say where a machine's controller is, how to enter, and which machine
// it is about.
type Options struct {
	// URL is https://HOST or https://HOST:PORT.
	URL            string
	User, Password string

	// Session logs in once and shows a token from then on. Otherwise each request
	// carries user and password (HTTP Basic), which every service supports and
	// some administrators forbid.
	Session bool

	// TLS verifies the controller; nil does so by the system's authorities.
	TLS *tls.Config

	// Machine is whom it must be, as the machine's own firmware says. One of both
	// must be known, and a UUID goes before a serial number.
	Machine hardware.Controller

	// Timeout is how long one request may take. Zero is 15 s. A call makes one to
	// four, and one more for each system of the controller.
	Timeout time.Duration

	// Dial connects; nil is the system's way, within 3 s.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client is one machine's power. Several may use it at once.
type Client struct {
	base    *url.URL
	http    *http.Client
	options Options

	mu    sync.Mutex
	path  string // of the machine's system, when it was found
	token string // of the session
	login string // the session's own path
}

var _ hardware.Power = (*Client)(nil)

// New returns a Client. It has asked nobody anything yet.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("controller's address: %w", err)
	}
	if base.Scheme != "https" || base.Host == "" || base.Path != "" && base.Path != "/" || base.User != nil || base.RawQuery != "" {
		return nil, fmt.Errorf("controller's address %q: it has to be https://HOST or https://HOST:PORT", base.Redacted())
	}
	o.Machine = hardware.Controller{SystemUUID: parse.ProductUUID(o.Machine.SystemUUID), Serial: parse.DMIString(o.Machine.Serial)}
	if o.Machine == (hardware.Controller{}) {
		return nil, fmt.Errorf("controller at %s: neither UUID nor serial number of its machine is known", base.Host)
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: 3 * time.Second}).DialContext
	}
	return &Client{base: base, options: o, http: &http.Client{
		Timeout: o.Timeout,
		Transport: &http.Transport{
			DialContext:     o.Dial,
			TLSClientConfig: o.TLS,
			// Controllers have few connections, and one that was closed by the other
			// side looks like an order that was sent and not answered.
			DisableKeepAlives: true,
		},
		CheckRedirect: stayHere,
	}}, nil
}

// stayHere follows a redirection of a reading within the same controller. An
// order that is redirected would become a reading, whose success means nothing.
func stayHere(next *http.Request, via []*http.Request) error {
	if first := via[0]; len(via) > 3 || first.Method != http.MethodGet || next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// Controller implements hardware.Power. It asks anew each time. A controller of
// one other machine says which; one of several others is refused.
func (c *Client) Controller(ctx context.Context) (hardware.Controller, error) {
	s, all, err := c.find(ctx)
	if err != nil {
		return hardware.Controller{}, c.fail("identify", err)
	}
	if s == nil && len(all) == 1 {
		s = &all[0]
	}
	if s == nil {
		return hardware.Controller{}, c.fail("identify", strangers(c.options.Machine, all))
	}
	id := s.identity()
	if sameUUID(id.SystemUUID, c.options.Machine.SystemUUID) {
		id.SystemUUID = c.options.Machine.SystemUUID // as the machine spells it
	}
	return id, nil
}

// PowerState implements hardware.Power. A controller that is now another
// machine's is refused.
func (c *Client) PowerState(ctx context.Context) (hardware.PowerState, error) {
	s, err := c.machine(ctx)
	if err != nil {
		return hardware.PowerUnknown, c.fail("read power of", err)
	}
	if s.PowerState == "" {
		return hardware.PowerUnknown, nil
	}
	return s.PowerState, nil
}

// SetPower implements hardware.Power. It looks who is there first: as long as
// that fails nothing was ordered.
func (c *Client) SetPower(ctx context.Context, on bool) error {
	attempt, want, types := "switch off", hardware.PowerOff, []string{"ForceOff"}
	if on {
		attempt, want, types = "switch on", hardware.PowerOn, []string{"On", "ForceOn"}
	}
	s, err := c.machine(ctx)
	if err != nil {
		return c.fail(attempt, err)
	}
	reset, err := c.resetType(ctx, s, types)
	if err != nil {
		return c.fail(attempt, err)
	}
	_, err = c.call(ctx, http.MethodPost, s.Actions.Reset.Target, map[string]string{"ResetType": reset})
	if errors.Is(err, errNotNow) {
		// Some refuse an order to do what is done already (iLO with 400, iDRAC with
		// 409); some refuse while an earlier order is under way.
		if now, readErr := c.machine(ctx); readErr == nil && now.PowerState == want {
			return nil
		}
	}
	if err != nil {
		return c.fail(attempt, err)
	}
	return nil
}

// Close ends the session, if there is one. Controllers have few of them, and some
// forget an abandoned one only after hours.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	login := c.login
	c.mu.Unlock()
	if login == "" {
		return nil
	}
	if _, err := c.call(ctx, http.MethodDelete, login, nil); err != nil {
		return c.fail("log out of", err)
	}
	c.forget()
	return nil
}

// fail says what was tried. The rest is in err.
func (c *Client) fail(attempt string, err error) error {
	return &hardware.Error{
		Consequence: hardware.ConsequenceOf(err), Reason: hardware.ReasonOf(err),
		Attempt: attempt, On: "controller at " + c.base.Host, Err: cause(err),
	}
}
