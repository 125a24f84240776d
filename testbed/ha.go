// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	agentsha "github.com/adit-hv/adit/agents/ha"
	"github.com/adit-hv/adit/agents/nova"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/kubesim"
	operatorha "github.com/adit-hv/adit/operator/ha"
)

// highAvailability is what a world has that keeps VMs alive: the replicas of the
// HA service, the agents' lines to them, and what disturbs both.
type highAvailability struct {
	w        *World
	services map[string]*operatorha.Service // of each replica's latest life
	clocks   map[string]*shiftedClock       // the replicas' wall clocks
	isolated map[string]int                 // faults that cut a replica off from all hosts
	lines    map[string]*line               // the agents' ways to the service, by host
}

// shiftedClock is a wall clock that faults set wrong.
type shiftedClock struct {
	w  *World
	by time.Duration
}

func (c *shiftedClock) Now() time.Time                  { return c.w.Scheduler.Now().Add(c.by) }
func (c *shiftedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// replicas returns the names of the HA service's replicas.
func (s Spec) replicas() []string {
	if s.HA == nil {
		return nil
	}
	n := s.HA.Replicas
	if n == 0 {
		n = 2
	}
	var names []string
	for i := range n {
		names = append(names, "ha-"+strconv.Itoa(i))
	}
	return names
}

// agentKinds are the agents that a host of the fleet has.
func (s Spec) agentKinds() []string {
	if s.HA == nil {
		return []string{"node", "nova"}
	}
	return []string{"node", "nova", "ha"}
}

// startHA starts the service's replicas. One alone needs no election.
func (w *World) startHA() error {
	w.ha = &highAvailability{
		w: w, services: map[string]*operatorha.Service{}, clocks: map[string]*shiftedClock{}, isolated: map[string]int{}, lines: map[string]*line{},
	}
	if w.spec.HA.Paused || w.spec.HA.DryRun {
		settings := map[string]string{settingPaused: strconv.FormatBool(w.spec.HA.Paused), settingDryRun: strconv.FormatBool(w.spec.HA.DryRun)}
		if err := w.user.Create(context.Background(), haSettings(settings)); err != nil {
			return fmt.Errorf("create the settings of high availability: %w", err)
		}
	}
	replicas, election := w.spec.replicas(), ""
	if len(replicas) > 1 {
		election = "ha"
	}
	for _, name := range replicas {
		clock := &shiftedClock{w: w}
		w.ha.clocks[name] = clock
		o := kubesim.ProcessOptions{Role: "operator/ha", Clock: clock, ByObject: operatorha.ByObject()}
		if election != "" {
			o.LeaderElection = agentNamespace + "/" + election
		}
		w.start(name, o, func(mgr manager.Manager) error {
			call := w.runtime.Caller(w.processes[name])
			service, err := operatorha.Setup(mgr, operatorha.Options{
				Clock: w.runtime.Clock(clock), Steady: w.runtime.Steady(w.Scheduler), Namespace: agentNamespace, Election: election, Identity: name,
				Power:  func(host string) (hardware.Power, error) { return w.ha.dial(name, host, call) },
				Limits: w.spec.HA.limits(),
			})
			w.ha.services[name] = service
			return err
		})
	}
	return nil
}

func (h *HA) limits() operatorha.Limits {
	return operatorha.Limits{
		Interval: h.Interval, Settle: h.Settle, Outage: h.Outage, Rejoin: h.Rejoin,
		StormShare: h.StormShare, StormHosts: h.StormHosts, FencesZone: h.FencesPerZone, FencesFleet: h.Fences,
		PerFleet: h.PerFleet, HoldDown: h.HoldDown, PowerOn: h.PowerOn,
	}
}

// The ConfigMap by which people hold the HA service.
const (
	settingsName  = "ha"
	settingPaused = "paused"
	settingDryRun = "dryRun"
)

func haSettings(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: settingsName}, Data: data}
}

// startHAAgent starts the HA agent of a host.
func (w *World) startHAAgent(h *hwsim.Host) Process {
	host, times := h.Name(), w.spec.HA
	name := "ha/" + host
	l := &line{w: w, host: host, rand: w.Scheduler.Rand("testbed/reports/" + host)}
	w.ha.lines[host] = l
	l.agent = w.start(name, kubesim.ProcessOptions{Role: "agents/ha", Host: host, Clock: h.Clock()}, func(mgr manager.Manager) error {
		return agentsha.Setup(mgr, agentsha.Options{
			Host: host, Hardware: w.hardware(h, name), Service: reporter{l, w.runtime.Caller(w.processes[name])}, Steady: w.runtime.Steady(h.Steady()), Pool: nova.SharedPool,
			Times: agentsha.Times{Interval: times.Interval, Term: times.Term, Stop: times.Stop, Watchdog: times.Watchdog},
		})
	})
	return l.agent
}

// leader returns the replica that leads, or "". For a moment after a change
// there may be two that believe it; it is the first of them.
func (h *highAvailability) leader() string {
	for _, name := range h.w.spec.replicas() {
		if h.w.processes[name].Leads() {
			return name
		}
	}
	return ""
}

// dial gives a replica the management controller of a host.
func (h *highAvailability) dial(replica, host string, call func(func())) (hardware.Power, error) {
	if h.w.bare[host] {
		return nil, fmt.Errorf("host %s has no management controller", host)
	}
	return &dialled{Power: h.w.Fleet.Power(host, replica), h: h, replica: replica, host: host, caller: call}, nil
}

// dialled is a management controller over the network that a replica is in.
type dialled struct {
	hardware.Power
	h             *highAvailability
	replica, host string
	caller        func(func()) // of the replica's life
}

// connectTimeout is how long a replica that is cut off tries.
const connectTimeout = 3 * time.Second

// cutOff is the error of a replica that reaches nobody.
func (d *dialled) cutOff(attempt string) error {
	if d.h.isolated[d.replica] == 0 {
		return nil
	}
	if task := d.h.w.Scheduler.Current(); task != nil {
		task.Sleep(connectTimeout)
	}
	return hardware.Fail(hardware.Unavailable, hardware.ReasonOther, attempt, "controller of "+d.host, "connect: no answer within %v", connectTimeout)
}

// Controller implements hardware.Power.
func (d *dialled) Controller(ctx context.Context) (c hardware.Controller, err error) {
	err = d.call("identify", func() (err error) {
		c, err = d.Power.Controller(ctx)
		return err
	})
	return c, err
}

// PowerState implements hardware.Power.
func (d *dialled) PowerState(ctx context.Context) (s hardware.PowerState, err error) {
	err = d.call("read power of", func() (err error) {
		s, err = d.Power.PowerState(ctx)
		return err
	})
	return s, err
}

// SetPower implements hardware.Power.
func (d *dialled) SetPower(ctx context.Context, on bool) error {
	return d.call("switch", func() error { return d.Power.SetPower(ctx, on) })
}

func (d *dialled) call(attempt string, request func() error) error {
	var err error = hardware.Fail(hardware.Unknown, hardware.ReasonOther, attempt, "controller of "+d.host, "the replica or its world is over")
	d.caller(func() {
		if err = d.cutOff(attempt); err == nil {
			err = request()
		}
	})
	return err
}
