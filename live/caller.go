// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"

	"github.com/adit-hv/adit/sim"
)

var errOver = errors.New("the world is over")

// caller is how one life of a process, whose goroutines are no tasks of the world,
// calls into it: a call is made there by a task, and waited for here.
type caller struct {
	pace *pace
	gate *gate
}

// begin makes a call. It returns once the call is on its way; what fn did is heard
// of by its own means.
func (c caller) begin(fn func()) error {
	if err := c.gate.pass(); err != nil {
		return err
	}
	err := errOver
	c.pace.do(func() {
		if c.gate.gone() {
			err = errDead // Killed since, and who is dead calls nobody.
			return
		}
		err = nil
		c.pace.s.Go(func(*sim.Task) { fn() })
	})
	return err
}

// call makes a call and waits for its end, or for the world's.
func (c caller) call(fn func()) {
	done := make(chan struct{})
	err := c.begin(func() {
		defer close(done)
		fn()
	})
	if err != nil {
		return
	}
	select {
	case <-done:
	case <-c.pace.over:
	}
	_ = c.gate.pass() // A process that stands still hears of it when it goes on.
}
