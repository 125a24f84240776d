// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/agents/node"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/config/crd"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/sim"
)

const vm = "12e479eb-0000-4000-8000-000000000001"

// world is two simulated hosts with their agents.
type world struct {
	*testing.T
	s      *sim.Scheduler
	fleet  *hwsim.Fleet
	api    client.Client
	writes map[string]int // by agents, "Kind verb"
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kvmv1.AddToScheme, v1alpha1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme} {
		must(t, add(scheme))
	}
	crds, err := crd.All()
	must(t, err)
	w := &world{T: t, s: sim.New(sim.Options{Seed: 7}), writes: map[string]int{}}
	cluster, err := kubesim.New(w.s, kubesim.Options{
		Scheme: scheme, CRDs: crds, Fidelity: kubesim.Full, NamespacesOnDemand: true,
		OnWrite: func(x kubesim.Write) {
			if x.Process != "" {
				w.writes[x.GVK.Kind+" "+x.Verb]++
			}
		},
	})
	must(t, err)
	t.Cleanup(cluster.Close)
	w.api = cluster.Client("person")
	w.fleet = hwsim.New(w.s, hwsim.Options{})
	for _, name := range []string{"a", "b"} {
		host, err := w.fleet.AddHost(hwsim.HostSpec{Name: name})
		must(t, err)
		hv := &kvmv1.Hypervisor{Spec: kvmv1.DefaultHypervisorSpec()}
		hv.Name = name
		hv.Labels = map[string]string{kvmv1.LabelMetalName: "node-" + name}
		must(t, w.api.Create(context.Background(), hv))
		var process *kubesim.Process
		process = cluster.Process("agents-"+name, kubesim.ProcessOptions{Role: "agents/node", Host: name, ByObject: node.ByObject(name)}, func(mgr manager.Manager) error {
			return node.Setup(mgr, node.Options{Host: name, Hardware: host.Hardware("node"), Clock: process.Clock()})
		})
		process.Start()
	}
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run lets time pass.
func (w *world) run(d time.Duration) { w.s.Run(w.s.Elapsed() + d) }

func (w *world) host(name string) *kvmv1.Hypervisor {
	w.Helper()
	var hv kvmv1.Hypervisor
	must(w.T, w.api.Get(context.Background(), client.ObjectKey{Name: name}, &hv))
	return &hv
}

func (w *world) start(host string, memoryKiB uint64) {
	w.Helper()
	ctx, hw := context.Background(), w.fleet.Host(host).Hardware("person")
	must(w.T, hw.Define(ctx, hardware.DomainSpec{UUID: vm, Name: "instance-00000001", VCPUs: 2, MemoryKiB: memoryKiB}))
	must(w.T, hw.Start(ctx, vm, hardware.StartOptions{}))
}

func (w *world) record() *v1alpha1.Migration {
	w.Helper()
	var m v1alpha1.Migration
	must(w.T, w.api.Get(context.Background(), client.ObjectKey{Namespace: "kvm", Name: vm}, &m))
	return &m
}

func TestAMoveIsReportedByBothHostsAndRecordedOnce(t *testing.T) {
	w := newWorld(t)
	w.run(time.Minute)
	w.start("a", 4<<20)
	w.run(time.Minute)
	if n := w.host("a").Status.NumInstances; n != 1 {
		t.Fatalf("%d instances at a, want 1", n)
	}
	clear(w.writes)
	must(t, w.fleet.Host("a").Hardware("person").Migrate(context.Background(), vm, hardware.MigrateOptions{ID: "j1", Target: "b"}))
	w.run(5 * time.Minute)
	if a, b := w.host("a").Status.NumInstances, w.host("b").Status.NumInstances; a != 0 || b != 1 {
		t.Errorf("%d instances at a and %d at b, want 0 and 1", a, b)
	}
	if r := w.record().Status; r.Type != "completed" || r.Origin != "node-a" || r.Destination != "node-b" || r.Operation != "migration_out" || r.DataTotal != "4.0 GiB" {
		t.Errorf("%+v", r)
	}
	if n := w.writes["Migration create"] + w.writes["Migration patch"]; n > 3 {
		t.Errorf("a short migration wrote %v", w.writes)
	}
	if n := w.writes["Hypervisor patch"]; n > 4 {
		t.Errorf("two hosts wrote %v", w.writes)
	}
	t.Logf("%v, elapsed %s", w.writes, w.record().Status.TimeElapsed)
}

func TestLibvirtGoesAndComesBack(t *testing.T) {
	w := newWorld(t)
	w.run(time.Minute)
	w.start("a", 1<<20)
	w.run(time.Minute)
	fault, err := hwsim.ParseFault("libvirtd.stop on=a")
	must(t, err)
	must(t, w.fleet.Inject(fault))
	w.run(2 * time.Minute)
	hv := w.host("a")
	if meta.IsStatusConditionTrue(hv.Status.Conditions, kvmv1.ConditionLibVirtConnection) || hv.Status.NumInstances != 1 {
		t.Errorf("%+v", hv.Status)
	}
	w.fleet.Heal(fault)
	w.run(2 * time.Minute)
	hv = w.host("a")
	if !meta.IsStatusConditionTrue(hv.Status.Conditions, kvmv1.ConditionLibVirtConnection) || hv.Status.NumInstances != 1 {
		t.Errorf("%+v", hv.Status)
	}
	clear(w.writes)
	w.run(time.Hour)
	if len(w.writes) != 0 {
		t.Errorf("a quiet fleet wrote %v", w.writes)
	}
}
