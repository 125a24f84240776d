// SPDX-License-Identifier: Apache-2.0

package live

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestWhoStandsStillCallsNobodyAndWhoIsDeadNever: a host that hangs must not go on
// to report that it is well.
func TestWhoStandsStillCallsNobodyAndWhoIsDeadNever(t *testing.T) {
	g, p := NewWithT(t), world(100)
	c := caller{p, newGate()}
	returned := make(chan struct{}, 1)
	came := 0
	call := func() {
		c.call(func() { came++ })
		returned <- struct{}{}
	}
	run := func() { p.run(t.Context(), p.s.Elapsed()+5*time.Second) }

	go call()
	g.Eventually(func() int { run(); return came }).Should(Equal(1))
	g.Eventually(returned).Should(Receive())

	c.gate.set(func() { c.gate.paused = true })
	go call()
	g.Consistently(func() int { run(); return came }, "100ms").Should(Equal(1))
	c.gate.set(func() { c.gate.paused = false })
	g.Eventually(func() int { run(); return came }).Should(Equal(2))
	g.Eventually(returned).Should(Receive())

	c.gate.set(func() { c.gate.dead = true })
	go call()
	g.Eventually(returned).Should(Receive())
	run()
	g.Expect(came).To(Equal(2))
}

func TestAClockThatIsFollowedTwiceIsReadOnce(t *testing.T) {
	g, p := NewWithT(t), world(1)
	first := p.follow("a", p.s.Elapsed)
	g.Expect(p.follow("a", p.s.Elapsed)).To(BeIdenticalTo(first))
	g.Expect(p.follow("b", p.s.Elapsed)).NotTo(BeIdenticalTo(first))
	g.Expect(p.clocks).To(HaveLen(2))
}
