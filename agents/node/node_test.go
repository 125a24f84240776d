// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/wiring"
)

// Two hosts' agents in one program, as a lab runs them.
func TestSetupUnderControllerRuntimesManager(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kvmv1.AddToScheme, v1alpha1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, host := range []string{"node001", "node002"} {
		mgr, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := Setup(mgr, Options{Host: host, Hardware: newMachine(0), Clock: clock.RealClock{}}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	if err := Setup(nil, Options{Host: "node001"}); err == nil {
		t.Error("no hardware, and no error")
	}
}

func TestAFleetIsSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for _, host := range []string{"node001", "node002", "node003", "node004"} {
		d := spread(host, time.Minute)
		if d < 0 || d >= time.Minute || d != spread(host, time.Minute) {
			t.Errorf("%s: %s", host, d)
		}
		seen[d] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d different, want 4", len(seen))
	}
}

// countingQueue counts what is asked for; nothing else of a queue is there.
type countingQueue struct {
	queue
	now   int
	later []time.Duration
}

func (q *countingQueue) Add(wiring.Request)                         { q.now++ }
func (q *countingQueue) AddAfter(_ wiring.Request, d time.Duration) { q.later = append(q.later, d) }

func TestEventsAreNotesAndRequests(t *testing.T) {
	q := &countingQueue{}
	o := testOptions("a", newMachine(1), clocktesting.NewFakePassiveClock(noon))
	h := newHypervisorReconciler(nil, nil, o)
	h.take(hardware.Event{Kind: hardware.EventStarted, UUID: vm}, q)
	if q.now != 0 || len(q.later) != 0 || !h.host.notes.domains {
		t.Error("what has come waits for the next look, and is seen then")
	}
	for range 100 {
		h.take(hardware.Event{Kind: hardware.EventStopped, UUID: vm}, q)
	}
	if q.now != 0 || len(q.later) != 100 || q.later[0] != o.Coalesce || !h.host.notes.domains || h.host.notes.daemon {
		t.Errorf("%d now, %v later, %+v", q.now, len(q.later), &h.host.notes)
	}
	h.take(hardware.Event{Kind: hardware.EventConnectionLost}, q)
	if q.now != 1 || !h.host.notes.daemon {
		t.Error("a lost connection waits")
	}
	h.take(hardware.Event{Kind: hardware.EventWatchdog, UUID: vm}, q)
	if q.now != 1 || len(q.later) != 100 {
		t.Error("a watchdog's bite changes nothing that is reported")
	}
}
