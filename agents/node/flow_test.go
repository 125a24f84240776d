// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/config/crd"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/sim"
)

// eventful is a machine that tells of events.
type eventful struct {
	*machine
	handle func(hardware.Event)
}

func (e *eventful) Subscribe(_ context.Context, handle func(hardware.Event)) error {
	before := e.handle
	e.handle = func(x hardware.Event) {
		if before != nil {
			before(x)
		}
		handle(x)
	}
	handle(hardware.Event{Kind: hardware.EventGap})
	return nil
}

func (e *eventful) Job(context.Context, string) (hardware.Job, error) {
	return hardware.Job{}, hardware.Fail(hardware.Refused, hardware.ReasonNoJob, "read", "job", "none")
}

func TestAnAgentOnTheSimulatedAPI(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kvmv1.AddToScheme, v1alpha1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	crds, err := crd.All()
	if err != nil {
		t.Fatal(err)
	}
	s := sim.New(sim.Options{Seed: 1})
	writes := map[string]int{}
	cluster, err := kubesim.New(s, kubesim.Options{
		Scheme: scheme, CRDs: crds, Fidelity: kubesim.Full, NamespacesOnDemand: true,
		OnWrite: func(w kubesim.Write) {
			if w.Process != "" {
				writes[w.GVK.Kind+" "+w.Verb]++
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	person := cluster.Client("person")
	hv := &kvmv1.Hypervisor{Spec: kvmv1.DefaultHypervisorSpec()}
	hv.Name = "node001"
	if err := person.Create(context.Background(), hv); err != nil {
		t.Fatal(err)
	}

	m := &eventful{machine: newMachine(3)}
	var process *kubesim.Process
	process = cluster.Process("node001", kubesim.ProcessOptions{Role: "agents/node", ByObject: ByObject("node001")}, func(mgr manager.Manager) error {
		return Setup(mgr, Options{Host: "node001", Hardware: m, Clock: process.Clock()})
	})
	process.Start()
	get := func() *kvmv1.Hypervisor {
		var hv kvmv1.Hypervisor
		if err := person.Get(context.Background(), client.ObjectKey{Name: "node001"}, &hv); err != nil {
			t.Fatal(err)
		}
		return &hv
	}

	s.Run(time.Minute)
	if got := get(); got.Status.NumInstances != 3 || condition(got.Status.Conditions, ConditionIdentityConfirmed).Reason != reasonConfirmed {
		t.Fatalf("%s %v", asJSON(t, got), process.Err())
	}

	before := len(writes)
	clear(writes)
	s.Run(2 * time.Hour)
	if len(writes) != 0 {
		t.Errorf("a quiet host wrote %v (before: %d kinds)", writes, before)
	}

	// Fifty VMs start within five seconds: one write, two at the most.
	m.domains = newMachine(53).domains
	for i := range 50 {
		s.After(time.Duration(i)*100*time.Millisecond, func() { m.handle(hardware.Event{Kind: hardware.EventStarted, UUID: vm}) })
	}
	s.Run(2*time.Hour + time.Minute)
	if got := get(); got.Status.NumInstances != 53 {
		t.Errorf("%d instances", got.Status.NumInstances)
	}
	if writes["Hypervisor patch"] > 2 {
		t.Errorf("a burst made %v", writes)
	}

	var lease coordinationv1.Lease
	if err := person.Get(context.Background(), client.ObjectKey{Namespace: "kvm", Name: "node001"}, &lease); err != nil {
		t.Fatal(err)
	}
	if age := s.Now().Sub(lease.Spec.RenewTime.Time); age > heartbeatEvery+time.Second {
		t.Errorf("the last heartbeat was %s ago", age)
	}
}
