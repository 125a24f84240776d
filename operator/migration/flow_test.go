// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/config/crd"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/operator/compute"
	"github.com/adit-hv/adit/operator/migration"
	"github.com/adit-hv/adit/sim"
)

// play is a cluster with the two controllers and hosts whose agents are played
// by the test.
type play struct {
	*testing.T
	s        *sim.Scheduler
	c        *kubesim.Cluster
	api      client.Client
	operator *kubesim.Process
	room     map[string]int64 // GiB
	writes   map[string]int   // By process and kind.
	ends     map[string]int   // Of each migration.
}

// seeds is how many worlds each of the long tests plays.
var seeds = flag.Uint64("seeds", 5, "how many worlds to play")

// schemas keeps the compiled kinds from play to play.
var schemas = kubesim.NewSchemas()

func newPlay(t *testing.T, seed uint64) *play {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kvmv1.AddToScheme, kubevirt.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	p := &play{T: t, s: sim.New(sim.Options{Seed: seed}), room: map[string]int64{}, writes: map[string]int{}, ends: map[string]int{}}
	crds, err := crd.All()
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubesim.New(p.s, kubesim.Options{Scheme: scheme, CRDs: crds, Schemas: schemas, OnWrite: p.wrote, NamespacesOnDemand: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	p.c, p.api = c, c.Client("world")
	p.c.OnPanic = func(e kubesim.Panic) { t.Errorf("%s panicked: %v\n%s", e.Controller, e.Value, e.Stack) }
	p.operator = c.Process("operator", kubesim.ProcessOptions{}, func(mgr manager.Manager) error {
		fleet, err := compute.Setup(mgr, compute.Options{Clock: p.operator.Clock()})
		if err != nil {
			return err
		}
		return migration.Setup(mgr, fleet, migration.Options{Clock: p.operator.Clock()})
	})
	p.operator.Start()
	return p
}

func (p *play) wrote(w kubesim.Write) {
	kind := w.GVK.Kind
	if w.Process == "operator" {
		p.writes[kind]++
	}
	if m, ok := w.New.(*kubevirtv1.VirtualMachineInstanceMigration); ok && m != nil {
		before := kubevirtv1.MigrationPhaseUnset
		if old, ok := w.Old.(*kubevirtv1.VirtualMachineInstanceMigration); ok && old != nil {
			before = old.Status.Phase
		}
		over := m.Status.Phase == kubevirtv1.MigrationSucceeded || m.Status.Phase == kubevirtv1.MigrationFailed
		if over && w.Process == "operator" {
			if p.ends[m.Name]++; p.ends[m.Name] > 1 {
				p.Errorf("%s was ended twice: %s, then %s", m.Name, before, m.Status.Phase)
			}
		}
	}
	if w.GVK.Kind == "VirtualMachineInstance" {
		p.checkRoom()
	}
}

// checkRoom counts what the API promises of each host.
func (p *play) checkRoom() {
	used, moving := map[string]int64{}, 0
	p.c.Each(kubevirtv1.VirtualMachineInstanceGroupVersionKind, func(o client.Object) {
		vmi := o.(*kubevirtv1.VirtualMachineInstance)
		memory := kubevirt.GuestMemory(vmi)
		for label := range vmi.Labels {
			if host, ours := strings.CutPrefix(label, kubevirt.LabelHostPrefix); ours {
				used[host] += memory.Value() >> 30
			}
		}
		if m := vmi.Status.MigrationState; m != nil && !m.Completed && !m.Failed {
			moving++
		}
	})
	for host, n := range used {
		if n > p.room[host] {
			p.Errorf("%s: %s holds %d GiB of %d", p.s.Elapsed(), host, n, p.room[host])
		}
	}
	if moving > 5 {
		p.Errorf("%s: %d migrations at once", p.s.Elapsed(), moving)
	}
}

func (p *play) create(o client.Object) {
	p.Helper()
	if err := p.api.Create(context.Background(), o); err != nil {
		p.Fatal(err)
	}
}

func (p *play) host(name string, gib int64) {
	hv := &kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kvmv1.DefaultHypervisorSpec()}
	p.create(hv)
	p.room[name] = gib
	hv.Status.EffectiveCapacity = map[kvmv1.ResourceName]resource.Quantity{
		kvmv1.ResourceCPU: resource.MustParse("64"), kvmv1.ResourceMemory: *resource.NewQuantity(gib<<30, resource.BinarySI),
	}
	meta.SetStatusCondition(&hv.Status.Conditions, metav1.Condition{Type: kvmv1.ConditionReady, Status: metav1.ConditionTrue, Reason: kvmv1.ReasonReady})
	if err := p.api.Status().Update(context.Background(), hv); err != nil {
		p.Fatal(err)
	}
}

func (p *play) vm(name string, gib int64) {
	memory := resource.NewQuantity(gib<<30, resource.BinarySI)
	p.create(&kubevirtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       kubevirtv1.VirtualMachineInstanceSpec{Domain: kubevirtv1.DomainSpec{Memory: &kubevirtv1.Memory{Guest: memory}}},
	})
}

func (p *play) migrate(name, vmi string) {
	p.create(&kubevirtv1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       kubevirtv1.VirtualMachineInstanceMigrationSpec{VMIName: vmi},
	})
}

func (p *play) see(name string) *kubevirtv1.VirtualMachineInstance {
	p.Helper()
	var vmi kubevirtv1.VirtualMachineInstance
	if err := p.api.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, &vmi); err != nil {
		p.Fatal(err)
	}
	return &vmi
}

func (p *play) phaseOf(name string) string {
	var m kubevirtv1.VirtualMachineInstanceMigration
	if err := p.api.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, &m); err != nil {
		return "gone"
	}
	if m.Status.MigrationState != nil && m.Status.MigrationState.FailureReason != "" {
		return string(m.Status.Phase) + ": " + m.Status.MigrationState.FailureReason
	}
	return string(m.Status.Phase)
}

// agents play the hosts from now on: each second, each VM goes one step on, and
// an operator that crashed comes back.
func (p *play) agents() {
	p.s.After(time.Second, func() {
		p.agents()
		p.operator.Start() // If it has crashed.
		var vmis kubevirtv1.VirtualMachineInstanceList
		if err := p.api.List(context.Background(), &vmis); err != nil {
			p.Fatal(err)
		}
		for i := range vmis.Items {
			vmi := &vmis.Items[i]
			if p.step(vmi) {
				if err := p.api.Update(context.Background(), vmi); err != nil {
					p.Fatal(err)
				}
			}
		}
	})
}

func (p *play) step(vmi *kubevirtv1.VirtualMachineInstance) bool {
	now := metav1.NewTime(p.s.Now())
	m := vmi.Status.MigrationState
	switch {
	case vmi.DeletionTimestamp != nil:
		vmi.Finalizers = nil
	case vmi.Status.Phase == kubevirtv1.Scheduled && vmi.Status.NodeName != "":
		vmi.Status.Phase = kubevirtv1.Running
	case m == nil || m.Completed:
		return false
	case m.Failed:
		if _, has := vmi.Labels[kubevirt.HostLabel(m.TargetNode)]; !has || m.TargetNode == vmi.Status.NodeName {
			return false
		}
		delete(vmi.Labels, kubevirt.HostLabel(m.TargetNode))
	case m.AbortRequested:
		m.Failed, m.FailureReason = true, "cancelled on request"
	case m.TargetNodeAddress == "":
		m.TargetNodeAddress = "10.0.0.1"
	case m.StartTimestamp == nil:
		m.StartTimestamp = &now
	case now.Sub(m.StartTimestamp.Time) < 5*time.Second:
		return false
	default:
		delete(vmi.Labels, kubevirt.HostLabel(m.SourceNode))
		delete(vmi.Labels, kubevirt.LabelMigrationTargetNodeName)
		vmi.Labels[kubevirt.LabelNodeName] = m.TargetNode
		vmi.Status.NodeName, m.Completed, m.EndTimestamp = m.TargetNode, true, &now
	}
	return true
}

func TestOneVMOneMigrationCostsFiveWrites(t *testing.T) {
	p := newPlay(t, 1)
	p.host("a", 16)
	p.host("b", 16)
	p.vm("v", 8)
	p.agents()
	p.s.Run(10 * time.Second)
	source := p.see("v").Status.NodeName
	if p.writes["VirtualMachineInstance"] != 1 {
		t.Errorf("placing wrote %d times, want 1", p.writes["VirtualMachineInstance"])
	}
	p.migrate("m", "v")
	p.s.Run(60 * time.Second)
	if got := p.phaseOf("m"); got != "Succeeded" {
		t.Fatalf("m is %s", got)
	}
	if got := p.see("v"); got.Status.NodeName == source || got.Status.Phase != kubevirtv1.Running {
		t.Errorf("v is %s on %s", got.Status.Phase, got.Status.NodeName)
	}
	if p.writes["VirtualMachineInstance"] != 2 || p.writes["VirtualMachineInstanceMigration"] != 3 {
		t.Errorf("the operator wrote %v, want 2 on the VMI and 3 on the migration", p.writes)
	}
	before := fmt.Sprint(p.writes)
	p.s.Run(time.Hour)
	if after := fmt.Sprint(p.writes); after != before {
		t.Errorf("a quiet fleet: wrote %s, then %s", before, after)
	}
}

func TestRoomThatAppearsIsTaken(t *testing.T) {
	p := newPlay(t, 3)
	p.host("a", 8)
	p.vm("first", 8)
	p.agents()
	p.s.Run(10 * time.Second)
	p.vm("second", 8)
	p.s.Run(10 * time.Minute)
	vmi := p.see("second")
	if len(vmi.Status.Conditions) != 1 || vmi.Status.Conditions[0].Message != "0/1 hosts: 1 not enough memory" || vmi.Status.Phase != kubevirtv1.Pending {
		t.Errorf("without room: %s %v", vmi.Status.Phase, vmi.Status.Conditions)
	}
	if p.writes["VirtualMachineInstance"] != 2 {
		t.Errorf("waiting wrote %d times, want 1 besides the first's", p.writes["VirtualMachineInstance"]-1)
	}
	if err := p.api.Delete(context.Background(), p.see("first")); err != nil {
		t.Fatal(err)
	}
	p.s.Run(10*time.Minute + 5*time.Second)
	if vmi := p.see("second"); vmi.Status.Phase != kubevirtv1.Running {
		t.Errorf("five seconds after there is room it is %s", vmi.Status.Phase)
	}
}

// TestCancelledInEachPhase is CA-01.
func TestCancelledInEachPhase(t *testing.T) {
	p := newPlay(t, 2)
	p.host("a", 8)
	p.vm("v", 8)
	p.agents()
	remove := func(name string) {
		err := p.api.Delete(context.Background(), &kubevirtv1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		if err != nil {
			t.Fatal(err)
		}
	}
	p.s.Run(10 * time.Second)
	p.migrate("first", "v")
	p.s.Run(15 * time.Second)
	if got := p.phaseOf("first"); got != "Scheduling" {
		t.Errorf("without room: %s, want Scheduling", got)
	}
	remove("first")
	p.s.Run(30 * time.Second)
	p.host("b", 8)
	p.s.Run(32 * time.Second)
	p.migrate("second", "v")
	p.s.RunWhile(func() bool { return p.see("v").Status.MigrationState == nil && p.s.Elapsed() < time.Minute })
	remove("second")
	p.s.Run(50 * time.Second)
	if vmi := p.see("v"); !vmi.Status.MigrationState.Failed || vmi.Labels[kubevirt.LabelMigrationTargetNodeName] != "" || vmi.Status.NodeName != "a" {
		t.Errorf("after the second: %+v, labels %v", vmi.Status.MigrationState, vmi.Labels)
	}
	p.migrate("third", "v")
	p.s.Run(80 * time.Second)
	if got := p.phaseOf("third"); got != "Succeeded" {
		t.Errorf("third is %s", got)
	}
}

// TestTroubledAPI has writes with an unknown end, refusals and watches that
// break, until after five minutes all is well.
func TestTroubledAPI(t *testing.T) {
	for seed := range *seeds {
		p := newPlay(t, seed)
		for i := range 4 {
			p.host(fmt.Sprint("h", i), 16)
		}
		for i := range 10 {
			p.vm(fmt.Sprint("v", i), 4)
		}
		p.agents()
		for _, text := range []string{"api.timeout for=5m p=0.2", "api.429 for=5m p=0.1 delay=2s", "api.409 for=5m p=0.1", "api.5xx for=5m p=0.1"} {
			fault, err := kubesim.ParseFault(text)
			if err != nil {
				t.Fatal(err)
			}
			p.c.Inject(fault)
		}
		for i := range 10 {
			p.s.Run(time.Duration(10+10*i) * time.Second)
			p.migrate(fmt.Sprint("m", i), fmt.Sprint("v", i))
			p.c.Inject(kubesim.Fault{Kind: "watch.cut", For: 3 * time.Second})
		}
		p.s.Run(15 * time.Minute)
		p.allWell(seed)
	}
}

// TestCrashesAnywhere kills the operator at each of its calls' edges while VMs
// are placed and moved.
func TestCrashesAnywhere(t *testing.T) {
	for seed := range *seeds {
		p := newPlay(t, seed)
		for i := range 4 {
			p.host(fmt.Sprint("h", i), 16)
		}
		for i := range 10 {
			p.vm(fmt.Sprint("v", i), 4)
		}
		p.agents()
		moment := kubesim.Before
		if seed%2 == 0 {
			moment = kubesim.After
		}
		p.operator.CrashAt(3+int(seed), moment)
		p.s.Run(30 * time.Second)
		for i := range 10 {
			p.migrate(fmt.Sprint("m", i), fmt.Sprint("v", i))
		}
		p.operator.CrashAt(1+int(seed), moment)
		p.s.Run(31 * time.Second)
		p.operator.CrashAt(1+int(seed), moment)
		p.s.Run(10 * time.Minute)
		p.allWell(seed)
	}
}

func (p *play) allWell(seed uint64) {
	for i := range 10 {
		if vmi := p.see(fmt.Sprint("v", i)); vmi.Status.Phase != kubevirtv1.Running {
			p.Fatalf("seed %d: %s is %s", seed, vmi.Name, vmi.Status.Phase)
		}
		if got := p.phaseOf(fmt.Sprint("m", i)); got != "Succeeded" {
			p.Fatalf("seed %d: m%d is %s", seed, i, got)
		}
	}
}
