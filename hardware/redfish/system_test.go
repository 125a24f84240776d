// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hardware/redfish"
)

// chassis is a controller of several systems, of which ours is in the middle.
func chassis(ours *machine) []*machine { return []*machine{well("7"), ours, well("9")} }

func about(m *machine) func(*redfish.Options) {
	return func(o *redfish.Options) { o.Machine = hardware.Controller{SystemUUID: m.uuid, Serial: m.serial} }
}

func TestOurMachineIsPickedNeverTheFirst(t *testing.T) {
	odd := func(change func(m *machine)) *machine {
		m := well("8")
		change(m)
		return m
	}
	ours := well("8")
	for _, test := range []struct {
		name  string
		there *machine
		known hardware.Controller
		found bool
	}{
		{"by UUID and serial number", ours, hardware.Controller{SystemUUID: ours.uuid, Serial: ours.serial}, true},
		{"by UUID", ours, hardware.Controller{SystemUUID: ours.uuid}, true},
		{"by serial number", ours, hardware.Controller{Serial: ours.serial}, true},
		{"by UUID, whose serial number is the chassis'", odd(func(m *machine) { m.serial = "CHASSIS" }), hardware.Controller{SystemUUID: ours.uuid, Serial: ours.serial}, true},
		{"by UUID in the other byte order", odd(func(m *machine) { m.uuid = "44454C4C-3300-1047-8032-000000000008" }), hardware.Controller{SystemUUID: ours.uuid}, true},
		{"by serial number, where the UUID says nothing", odd(func(m *machine) { m.uuid = "00000000-0000-0000-0000-000000000000" }), hardware.Controller{SystemUUID: ours.uuid, Serial: ours.serial}, true},
		{"not by serial number against the UUID", odd(func(m *machine) { m.uuid = "4C4C4544-0033-4710-8032-0000000000FF" }), hardware.Controller{SystemUUID: ours.uuid, Serial: ours.serial}, false},
		{"not by a serial number that says nothing", odd(func(m *machine) { m.uuid, m.serial = "", "To be filled by O.E.M." }), hardware.Controller{SystemUUID: ours.uuid, Serial: "to be filled by o.e.m."}, false},
		{"not when it is not there", well("6"), hardware.Controller{SystemUUID: ours.uuid, Serial: ours.serial}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			with(t, chassis(test.there), func(t *testing.T, c *controller, p *redfish.Client) {
				id, err := p.Controller(t.Context())
				orderErr := p.SetPower(t.Context(), false)
				if !test.found {
					expect(t, err, hardware.Refused, "not the controller of", "SN7")
					expect(t, orderErr, hardware.Refused)
					c.ordered(t)
					return
				}
				if err != nil || orderErr != nil {
					t.Fatal(err, orderErr)
				}
				if id.SystemUUID != strings.ToLower(test.known.SystemUUID) && id.Serial != test.known.Serial {
					t.Errorf("it is %+v", id)
				}
				c.ordered(t, test.there.id+" ForceOff")
			}, func(o *redfish.Options) { o.Machine = test.known })
		})
	}
}

// With one system the wrong machine is told, so that a person sees which
// controller stands at this address. It is not ordered.
func TestTheControllerOfAnotherMachine(t *testing.T) {
	with(t, []*machine{well("2")}, func(t *testing.T, c *controller, p *redfish.Client) {
		id, err := p.Controller(t.Context())
		if err != nil || id.Serial != "SN2" {
			t.Errorf("%+v, %v", id, err)
		}
		expect(t, p.SetPower(t.Context(), false), hardware.Refused, "wiring", "SN1", "SN2")
		_, err = p.PowerState(t.Context())
		expect(t, err, hardware.Refused)
		c.ordered(t)
	}, about(well("1")))
}

// Cables are changed, and some addresses lead to two controllers in turn: each
// reading and each order looks who is there.
func TestTheMachineIsChangedUnderUs(t *testing.T) {
	m := well("1")
	with(t, []*machine{m}, func(t *testing.T, c *controller, p *redfish.Client) {
		if _, err := p.PowerState(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.with(func() { m.uuid, m.serial = well("2").uuid, "SN2" })
		_, err := p.PowerState(t.Context())
		expect(t, err, hardware.Refused, "SN2")
		expect(t, p.SetPower(t.Context(), false), hardware.Refused, "SN2")
		c.ordered(t)
		c.with(func() { m.id, m.uuid, m.serial = "3", well("1").uuid, "SN1" }) // ours is back, elsewhere
		if _, err := p.PowerState(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTwinsInOneChassis(t *testing.T) {
	twin := well("9")
	twin.uuid = well("8").uuid
	with(t, []*machine{well("8"), twin}, func(t *testing.T, c *controller, p *redfish.Client) {
		_, err := p.Controller(t.Context())
		expect(t, err, hardware.Refused, "2 of its systems")
		expect(t, p.SetPower(t.Context(), false), hardware.Refused)
		c.ordered(t)
	})
}

func TestADeadNeighbourKeepsNobodyFromBeingFenced(t *testing.T) {
	ours := well("8")
	with(t, chassis(ours), func(t *testing.T, c *controller, p *redfish.Client) {
		c.with(func() { c.answers["GET /redfish/v1/Systems/7"] = http.StatusInternalServerError })
		if err := p.SetPower(t.Context(), false); err != nil {
			t.Error(err)
		}
		c.ordered(t, "8 ForceOff")
	}, about(ours))
	with(t, chassis(ours), func(t *testing.T, c *controller, p *redfish.Client) {
		c.with(func() { c.answers["GET /redfish/v1/Systems/7"] = http.StatusInternalServerError }) // perhaps ours
		expect(t, p.SetPower(t.Context(), false), hardware.Unavailable)
	}, about(well("6")))
}

func TestCollectionsHavePages(t *testing.T) {
	ours := well("5")
	systems := []*machine{well("1"), well("2"), well("3"), well("4"), ours}
	with(t, systems, func(t *testing.T, c *controller, p *redfish.Client) {
		c.with(func() { c.pageSize = 2 })
		if err := p.SetPower(t.Context(), false); err != nil {
			t.Error(err)
		}
		c.ordered(t, "5 ForceOff")
	}, about(ours))
	with(t, systems, func(t *testing.T, c *controller, p *redfish.Client) {
		c.with(func() { c.vices["endless"] = true })
		_, err := p.PowerState(t.Context())
		expect(t, err, hardware.Refused, "without end")
	}, about(well("6")))
}

func TestTheOrderIsOneThatTheSystemAllows(t *testing.T) {
	for _, test := range []struct {
		name    string
		allow   []string
		info    bool
		on      bool
		ordered string // "" is refused
	}{
		{"off", []string{"On", "ForceOff"}, false, false, "1 ForceOff"},
		{"on", []string{"On", "ForceOn"}, false, true, "1 On"},
		{"on, by its other word", []string{"ForceOn", "ForceOff"}, false, true, "1 ForceOn"},
		{"off, as said elsewhere", []string{"ForceOff"}, true, false, "1 ForceOff"},
		{"not off, as said elsewhere", []string{"GracefulShutdown"}, true, false, ""},
		{"never in good order, which may take for ever", []string{"On", "GracefulShutdown", "PushPowerButton"}, false, false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := well("1")
			m.allow, m.info = test.allow, test.info
			with(t, []*machine{m}, func(t *testing.T, c *controller, p *redfish.Client) {
				err := p.SetPower(t.Context(), test.on)
				if test.ordered != "" {
					if err != nil {
						t.Error(err)
					}
					c.ordered(t, test.ordered)
					return
				}
				expect(t, err, hardware.Refused, "GracefulShutdown")
				if hardware.ReasonOf(err) != hardware.ReasonUnsupported {
					t.Errorf("reason %q", hardware.ReasonOf(err))
				}
				c.ordered(t)
			})
		})
	}
	silent := well("1")
	silent.allow = nil
	with(t, []*machine{silent}, func(t *testing.T, c *controller, p *redfish.Client) {
		_ = p.SetPower(t.Context(), false) // it says nothing, and is asked all the same
		if last := c.seen[len(c.seen)-2]; !strings.HasPrefix(last, "POST") {
			t.Errorf("it was asked %q", c.seen)
		}
	})
}

func TestCredentialsGoNowhereElse(t *testing.T) {
	m := well("1")
	m.target = "https://evil.example/reset"
	with(t, []*machine{m}, func(t *testing.T, c *controller, p *redfish.Client) {
		expect(t, p.SetPower(t.Context(), false), hardware.Refused, "which is not there")
		c.ordered(t)
	})
	with(t, []*machine{well("1")}, func(t *testing.T, c *controller, p *redfish.Client) {
		c.with(func() { c.answers["GET /redfish/v1/Systems"] = http.StatusFound })
		c.with(func() { c.header["Location"] = "https://evil.example/Systems" })
		_, err := p.PowerState(t.Context())
		expect(t, err, hardware.Refused, "302")
	})
}
