// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"testing"
	"testing/synctest"
	"time"
)

// inBubble calls f in a synctest bubble, in which a library's stray time.Now
// and timers follow the virtual clock. f moves that clock by advance. Without a
// test to hang the bubble on, f runs outside of one.
func inBubble(t *testing.T, f func(advance func(time.Duration))) {
	if t == nil {
		f(nil)
		return
	}
	synctest.Test(t, func(*testing.T) {
		f(func(d time.Duration) {
			synctest.Wait() // stray goroutines settle before time moves
			time.Sleep(d)
		})
	})
}
