// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"sync"

	"github.com/adit-hv/adit/hardware"
)

// Subscribe implements hardware.Events. The world does not wait for the handler,
// who may wait for the world.
func (h *host) Subscribe(ctx context.Context, handle func(hardware.Event)) error {
	s := &stream{gate: h.gate, handle: handle}
	s.more = sync.NewCond(&s.mu)
	if err := h.tell(ctx, func(context.Context) error { return h.h.Subscribe(ctx, s.add) }); err != nil {
		return err
	}
	context.AfterFunc(ctx, s.end)
	go s.run()
	return nil
}

// stream hands events on in their order.
type stream struct {
	gate   *gate
	handle func(hardware.Event)

	mu     sync.Mutex
	more   *sync.Cond
	events []hardware.Event
	ended  bool
}

func (s *stream) add(e hardware.Event) {
	s.mu.Lock()
	s.events = append(s.events, e)
	s.mu.Unlock()
	s.more.Signal()
}

func (s *stream) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.more.Signal()
}

func (s *stream) run() {
	for {
		s.mu.Lock()
		for len(s.events) == 0 && !s.ended {
			s.more.Wait()
		}
		if s.ended {
			s.mu.Unlock()
			return
		}
		e := s.events[0]
		s.events = s.events[1:]
		s.mu.Unlock()
		if s.gate.pass() != nil {
			return
		}
		s.handle(e)
	}
}
