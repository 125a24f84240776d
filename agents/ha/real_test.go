// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/hardware"
)

// plain is a host and its service without a simulator: all loops run at once, and
// the race detector looks on.
type plain struct {
	hardware.Host
	start time.Time

	mu        sync.Mutex
	notes     map[string][]byte
	dog       hardware.WatchdogState
	fed       int
	destroyed bool
	silent    bool
	reports   []*hav1.ReportRequest
}

func (h *plain) Elapsed() time.Duration { return time.Since(h.start) + time.Minute }

func (h *plain) Boot(context.Context) (hardware.Boot, error) { return hardware.Boot{ID: "b1"}, nil }

func (h *plain) LoadNote(_ context.Context, name string) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.notes[name], nil
}

func (h *plain) SaveNote(_ context.Context, name string, data []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes[name] = data
	return nil
}

func (h *plain) Watchdog(context.Context) (hardware.WatchdogState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dog, nil
}

func (h *plain) FeedWatchdog(_ context.Context, timeout time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dog.Armed, h.dog.Timeout = true, timeout
	h.fed++
	return nil
}

func (h *plain) Subscribe(_ context.Context, handle func(hardware.Event)) error {
	go func() {
		handle(hardware.Event{Kind: hardware.EventGap})
		for range 20 {
			handle(hardware.Event{Kind: hardware.EventResumed, UUID: "u1"})
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return nil
}

func (h *plain) Domains(context.Context) ([]hardware.Domain, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.destroyed {
		return []hardware.Domain{ours("u1", hardware.StateShutOff)}, nil
	}
	return []hardware.Domain{ours("u1", hardware.StateRunning)}, nil
}

func (h *plain) Job(context.Context, string) (hardware.Job, error) {
	return hardware.Job{}, hardware.Fail(hardware.Refused, hardware.ReasonNoJob, "read", "job", "none")
}

func (h *plain) Shutdown(context.Context, string) error { return nil } // it does not listen

func (h *plain) Destroy(context.Context, string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.destroyed = true
	return nil
}

func (h *plain) Reach(context.Context, hardware.Network, string) error { return nil }

func (h *plain) WriteHeartbeat(context.Context, string, hardware.Heartbeat) error {
	return errors.New("no storage")
}

func (h *plain) ReadHeartbeat(context.Context, string, string) (hardware.Heartbeat, error) {
	return hardware.Heartbeat{Boot: "b2", Count: 1}, nil
}

func (h *plain) Report(_ context.Context, r *hav1.ReportRequest) (*hav1.ReportResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.silent {
		return nil, errors.New("nobody there")
	}
	h.reports = append(h.reports, r)
	answer := &hav1.ReportResponse{Leader: true, Seq: r.Seq, Granted: true, Watch: []string{"b"}}
	for _, e := range r.Events {
		answer.Events = e.Seq
	}
	return answer, nil
}

// until waits for something that comes to be within ten seconds.
func (h *plain) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		h.mu.Lock()
		ok := is()
		h.mu.Unlock()
		if ok {
			return
		}
	}
	t.Fatalf("in ten seconds not: %s; %d reports, the last %v", what, len(h.reports), h.reports[max(0, len(h.reports)-1):])
}

func TestUnderARealManager(t *testing.T) {
	mgr, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
		Scheme: runtime.NewScheme(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &plain{start: time.Now(), notes: map[string][]byte{}, dog: hardware.WatchdogState{Present: true}}
	if err := Setup(mgr, Options{
		Host: "a", Hardware: h, Service: h, Steady: h, Pool: "beats",
		Times: Times{Interval: 200 * time.Millisecond, Term: time.Second, Stop: 400 * time.Millisecond, Watchdog: 4 * time.Second},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()

	last := func() *hav1.ReportRequest {
		if len(h.reports) == 0 {
			return &hav1.ReportRequest{}
		}
		return h.reports[len(h.reports)-1]
	}
	h.until(t, "a valid lease, an armed watchdog, a neighbour seen, and an instance told", func() bool {
		r := last()
		return r.GetLease().GetValid() && r.GetWatchdog().GetArmed() && len(r.Witnesses) == 1 && r.Witnesses[0].Storage && r.Base > 0
	})
	h.until(t, "20 events taken", func() bool {
		n := uint32(0)
		for _, r := range h.reports {
			for _, e := range r.Events {
				n += e.Times
			}
		}
		return n >= 20
	})
	h.mu.Lock()
	h.silent = true
	fed := h.fed
	h.mu.Unlock()
	h.until(t, "the VM stopped and the watchdog fed after that", func() bool { return h.destroyed && h.fed > fed+1 })
	h.mu.Lock()
	h.silent = false
	h.mu.Unlock()
	h.until(t, "a lease again", func() bool { return last().GetLease().GetValid() })
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
