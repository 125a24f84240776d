// SPDX-License-Identifier: Apache-2.0

package live

import (
	"testing"

	. "github.com/onsi/gomega"
)

// TestAProcessThatOnlyStartsTakesNothingIn: what was set up for its last life is
// still there, and would answer for it.
func TestAProcessThatOnlyStartsTakesNothingIn(t *testing.T) {
	g := NewWithT(t)
	p := &process{name: "ha-0"}
	came := 0
	deliver := func() { p.Deliver(func() { came++ }) }

	g.Expect(p.Alive()).To(BeFalse())
	deliver()
	p.life = &life{p: p, gate: newGate()}
	g.Expect(p.Alive()).To(BeFalse())
	deliver()
	g.Expect(came).To(BeZero())

	p.life.ready = true
	g.Expect(p.Alive()).To(BeTrue())
	deliver()
	g.Expect(came).To(Equal(1))

	p.Pause()
	deliver()
	g.Expect(came).To(Equal(1), "it stands still")
	g.Expect(p.life.held).To(HaveLen(1))
}
