// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"strings"
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
	agents map[string]*kubesim.Process
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kvmv1.AddToScheme, v1alpha1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme} {
		must(t, add(scheme))
	}
	crds, err := crd.All()
	must(t, err)
	w := &world{T: t, s: sim.New(sim.Options{Seed: 7}), writes: map[string]int{}, agents: map[string]*kubesim.Process{}}
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
		w.agents[name] = process
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

func TestAnUpdateInstallsRebootsAndIsVerified(t *testing.T) {
	w := newWorld(t)
	w.run(time.Minute)
	w.start("a", 1<<20)
	hv := w.host("a")
	was := hv.Status.OperatingSystem.Version
	hv.Spec.Version, hv.Spec.Reboot = "9999.0", true
	must(t, w.api.Update(context.Background(), hv))
	w.run(30 * time.Minute)

	said := func() string {
		return meta.FindStatusCondition(w.host("a").Status.Conditions, kvmv1.ConditionOperatingSystemUpdate).Message
	}
	if got := w.host("a"); got.Status.UpdateStatus.Installed != "9999.0" || got.Status.OperatingSystem.Version != was || !strings.Contains(said(), "waits for 1 VMs to leave") {
		t.Fatalf("%+v %s", got.Status.UpdateStatus, said())
	}
	must(t, w.fleet.Host("a").Hardware("person").Destroy(context.Background(), vm))
	w.run(30 * time.Minute)
	if got := w.host("a"); got.Status.OperatingSystem.Version != "9999.0" || said() != "Operating system update 9999.0 is installed" {
		t.Fatalf("%+v %s", got.Status, said())
	}
}

func TestAnUpdateThatFailsEnds(t *testing.T) {
	w := newWorld(t)
	fault, err := hwsim.ParseFault("update.fail on=a")
	must(t, err)
	must(t, w.fleet.Inject(fault))
	w.run(time.Minute)
	hv := w.host("a")
	hv.Spec.Version = "9999.0"
	must(t, w.api.Update(context.Background(), hv))
	w.run(3 * time.Hour)
	hv = w.host("a")
	c := meta.FindStatusCondition(hv.Status.Conditions, kvmv1.ConditionOperatingSystemUpdate)
	if c.Reason != kvmv1.ReasonStopped || hv.Status.UpdateStatus.Retry != 0 {
		t.Fatalf("%+v %+v", c, hv.Status.UpdateStatus)
	}
	clear(w.writes)
	w.run(3 * time.Hour)
	if len(w.writes) != 0 {
		t.Errorf("goes on: %v", w.writes)
	}
}

func TestARecordEndsWhenItsSourceDies(t *testing.T) {
	w := newWorld(t)
	w.run(time.Minute)
	w.start("a", 64<<20)
	w.fleet.SetGuest(vm, hwsim.Guest{UsedMemoryBytes: 60 << 30})
	w.run(time.Minute)
	must(t, w.fleet.Host("a").Hardware("person").Migrate(context.Background(), vm, hardware.MigrateOptions{ID: "j1", Target: "b", BytesPerSecond: 100 << 20}))
	w.run(2 * time.Minute)
	if r := w.record().Status; r.Type != "unbounded" && r.Type != "bounded" {
		t.Fatalf("%+v", r)
	}
	w.fleet.Host("a").PowerOff()
	w.run(time.Minute)
	w.fleet.Host("a").PowerOn()
	w.run(30 * time.Minute)
	if r := w.record().Status; r.Type != "failed" || r.ErrMsg == "" {
		t.Errorf("%+v", r)
	}
}

// An agent may die at any of its calls of the API, before or after it took
// effect; the next one goes on.
func TestAnAgentMayDieAtAnyCall(t *testing.T) {
	died := false
	for _, when := range []kubesim.Moment{kubesim.Before, kubesim.After} {
		for n := 1; n <= 12; n++ {
			w := newWorld(t)
			w.agents["a"].CrashAt(n, when)
			w.run(20 * time.Second)
			w.start("a", 4<<20)
			must(t, w.fleet.Host("a").Hardware("person").Migrate(context.Background(), vm, hardware.MigrateOptions{ID: "j1", Target: "b"}))
			w.run(time.Minute)
			died = died || !w.agents["a"].Alive()
			w.agents["a"].Start() // does nothing to one that lives
			w.run(20 * time.Minute)
			hv := w.host("a")
			if !meta.IsStatusConditionTrue(hv.Status.Conditions, node.ConditionIdentityConfirmed) || !meta.IsStatusConditionTrue(hv.Status.Conditions, kvmv1.ConditionLibVirtConnection) || hv.Status.NumInstances != 0 {
				t.Errorf("dead %d of call %d: %+v", when, n, hv.Status)
			}
			if r := w.record().Status; r.Type != "completed" || r.Origin != "node-a" {
				t.Errorf("dead %d of call %d: %+v", when, n, r)
			}
		}
	}
	if !died {
		t.Error("no agent died; the test tests nothing")
	}
}
