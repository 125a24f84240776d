// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hardware/conformance"
	"github.com/adit-hv/adit/hardware/redfish"
)

var bubble *testing.T // what the cases' bubbles hang on

var _ = conformance.PowerSuite(conformance.PowerSubject{Name: "Redfish", New: newLab})

func TestConformance(t *testing.T) {
	bubble = t
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "hardware/redfish")
}

// power is a Client that is made with its controller, within the bubble.
type power struct{ hardware.Power }

func newLab() conformance.PowerLab {
	var c *controller
	var begun time.Time
	m, p := well("1"), &power{}
	lab := conformance.PowerLab{Power: p, Host: "node001"}
	lab.Identity = hardware.Identity{ProductUUID: strings.ToLower(m.uuid), Serial: m.serial}
	lab.State = func() (running bool) {
		c.with(func() { running = m.state != hardware.PowerOff })
		return running
	}
	lab.Run = func(fn func()) {
		synctest.Test(bubble, func(*testing.T) {
			c, begun = newController(m), time.Now()
			defer c.close()
			client, err := redfish.New(c.options(m))
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			p.Power = client
			fn()
		})
	}
	lab.Pass = time.Sleep
	lab.Elapsed = func() time.Duration { return time.Since(begun) }
	lab.Break = func(fault string) (func(), error) { return c.suffer(fault) }
	return lab
}

// suffer begins a fault as hwsim names it. One that is mute or hangs does so
// from the next order on: before, a Client finds out that it is nobody's.
func (c *controller) suffer(text string) (heal func(), err error) {
	words := strings.Fields(text)
	vice, ok := strings.CutPrefix(words[0], "bmc.")
	switch {
	case text == "host.hang on=node001": // which a controller does not feel
		return func() {}, nil
	case !ok:
		return nil, fmt.Errorf("%s is no controller's", words[0])
	case vice == "down":
		c.net.left = 0
		return func() { c.net.left = -1 }, nil
	case vice == "slow":
		c.slow, err = time.ParseDuration(strings.TrimPrefix(words[1], "by="))
		return func() {}, err
	}
	c.with(func() { c.vices[vice] = true })
	return func() { c.with(func() { clear(c.vices) }) }, nil
}
