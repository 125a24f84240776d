// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// This file alone starts a goroutine. controller-runtime's controllers bring
// their own workers: each is adopted by the scheduler when it first asks its
// queue for work, and until then the scheduler stands still.

// launch starts a controller and returns when all its workers are adopted.
func (l *life) launch(r manager.Runnable, booted <-chan struct{}) error {
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = r.Start(l.ctx)
	}()
	select {
	case <-booted:
		l.ended = append(l.ended, done)
		return nil
	case <-done:
		if err == nil {
			err = fmt.Errorf("controller ended before its workers started")
		}
		return err
	}
}
