// SPDX-License-Identifier: Apache-2.0

// Package ha is the high-availability service: it hears the hosts' HA agents,
// judges each host, fences the dead and has their VMs started elsewhere, by the
// rules of docs/ha.md.
//
// It reads Hypervisors, Evacuations, VMs and, once a host is silent, the agents'
// Leases. It alone writes Evacuations, the conditions HaEnabled and HostAlive, the
// annotation of the run lease, spec.maintenance=ha with its return, and the marks
// by which VMs are placed anew. Each step is written before it is taken, so that
// any replica goes on from it. Whoever is silent is not therefore dead, and nothing
// starts elsewhere without a proof. It must never choose a host for a VM nor start
// one.
package ha

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/wiring"
)

// conflictRetry lets the cache catch up with the write that came first.
const conflictRetry = 200 * time.Millisecond

// Options say how the service sees the world.
type Options struct {
	// Clock is the wall clock: it dates what people read and nothing else.
	Clock clock.PassiveClock
	// Steady is what every age is measured with.
	Steady wiring.Steady

	// Power dials a host's management controller; nil: there are none. An error
	// says why this host has none.
	Power func(host string) (hardware.Power, error)

	// Namespace holds the agents' Leases and the ConfigMap "ha"; "kvm" when empty.
	Namespace string
	// Election is the name of the Lease, in Namespace, by which the replicas of
	// the service elect a leader; "" when there is only one.
	Election string
	// Identity begins this replica's name as a holder of that Lease.
	Identity string

	Limits Limits

	// Workers is how many hosts are handled at once; 0 is 4.
	Workers int
	// PowerWorkers is how many management controllers are spoken to at once;
	// 0 is 16, since one that is silent takes its worker's time.
	PowerWorkers int
}

// Limits are the times and numbers of docs/ha.md; what is zero has the value
// given there.
type Limits struct {
	Interval time.Duration // between the agents' reports; 5 s
	Settle   time.Duration // 60 s
	Outage   time.Duration // 30 s
	Rejoin   time.Duration // 30 s
	Margin   time.Duration // 3 s, besides 2 %
	Stranded time.Duration // how long storage is away before a host is; 30 s

	StormShare  float64 // of a zone; 0.25
	StormHosts  int     // that many are no storm; 2
	FencesZone  int     // 5
	FencesFleet int     // 10

	PerFleet int // VMs on their way at once; 200

	HoldDown    time.Duration // of a host fenced twice in FlapWithin; 10 min
	HoldDownMax time.Duration // a day
	FlapWithin  time.Duration // an hour

	// PowerOn: a host that was powered off by the service is powered on again
	// once its VMs run elsewhere.
	PowerOn bool
}

// Defaults are the limits of docs/ha.md.
func Defaults() Limits { return Limits{}.withDefaults() }

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		have *time.Duration
		want time.Duration
	}{
		{&l.Interval, 5 * time.Second}, {&l.Settle, time.Minute}, {&l.Outage, 30 * time.Second},
		{&l.Rejoin, 30 * time.Second}, {&l.Margin, 3 * time.Second}, {&l.Stranded, 30 * time.Second},
		{&l.HoldDown, 10 * time.Minute}, {&l.HoldDownMax, 24 * time.Hour}, {&l.FlapWithin, time.Hour},
	} {
		if *d.have <= 0 {
			*d.have = d.want
		}
	}
	for _, n := range []struct {
		have *int
		want int
	}{{&l.StormHosts, 2}, {&l.FencesZone, 5}, {&l.FencesFleet, 10}, {&l.PerFleet, 200}} {
		if *n.have <= 0 {
			*n.have = n.want
		}
	}
	if l.StormShare <= 0 {
		l.StormShare = 0.25
	}
	return l
}

// Setup adds the service's controllers to a manager, whose cache holds
// Hypervisors, Evacuations, VirtualMachineInstances and the ConfigMaps of the
// namespace, and returns what the agents report to. Only the leader's controllers
// run.
func Setup(mgr manager.Manager, o Options) (*Service, error) {
	if o.Clock == nil || o.Steady == nil {
		return nil, fmt.Errorf("operator/ha: no clock")
	}
	if o.Namespace == "" {
		o.Namespace = "kvm"
	}
	o.Limits = o.Limits.withDefaults()
	r := &Reconciler{
		o: o, Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Service: newService(o), power: newPowerRoom(), Events: mgr.GetEventRecorder("ha"),
		victims: newEvacuator(mgr.GetClient(), mgr.GetAPIReader(), o.Clock, o.Limits.PerFleet),
		doubts:  map[string]doubt{}, zones: map[string]*storm{}, fences: map[string]string{}, turns: map[string]bool{},
		last: map[string]*v1alpha1.Evacuation{}, lastAt: map[string]time.Duration{},
	}
	r.api.limits = o.Limits
	if err := r.watch(mgr); err != nil {
		return nil, fmt.Errorf("set up high availability: %w", err)
	}
	return r.Service, nil
}

// Reconciler carries one host forward.
type Reconciler struct {
	o       Options
	Client  client.Client
	Live    client.Reader // The API itself.
	Service *Service
	Events  events.EventRecorder

	power   *powerRoom
	victims *evacuator

	mu     sync.Mutex // Never held across a request.
	queue  queue
	doubts map[string]doubt // by host, while it is silent
	api    outage
	lead   leadership
	rounds time.Duration // when the latest began; 0: none has
	begun  bool          // one has woken all hosts; only rounds use it
	zones  map[string]*storm
	fleet  fleetView
	fences map[string]string               // zone by host: Evacuations that seek a proof
	turns  map[string]bool                 // hosts that wait for another's
	last   map[string]*v1alpha1.Evacuation // by host: our last write, until the cache shows it
	lastAt map[string]time.Duration        // and when that was
}

// Reconcile observes, decides and acts. The request without a name is the
// service's own round, once an interval.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Name == "" {
		return r.round(ctx)
	}
	if !r.looked() {
		return ctrl.Result{}, nil // The first round wakes everybody.
	}
	seen, err := r.observe(ctx, req.Name)
	if err != nil {
		return r.failed(err)
	}
	if seen.hypervisor == nil {
		r.forget(req.Name)
		return ctrl.Result{}, nil
	}
	again, err := r.act(ctx, seen, decide(seen))
	if err != nil {
		return r.failed(err)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// failed turns an error into when to look again. A lost race is none; anything
// else may be the API's trouble, which the brakes want to know.
func (r *Reconciler) failed(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	r.apiAnswered(false)
	return ctrl.Result{}, err
}
