// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/config/crd"
	"github.com/adit-hv/adit/internal/wiring"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/operator/compute"
	"github.com/adit-hv/adit/sim"
)

// flight is an API with placement, an evacuator and hosts whose agents are played
// by the test: a VM that is placed runs two seconds later.
type flight struct {
	*testing.T
	s       *sim.Scheduler
	c       *kubesim.Cluster
	api     client.WithWatch
	service *kubesim.Process

	perFleet int
	slow     bool           // VMs that are placed do not start
	writes   map[string]int // by the VM's name
	most     int            // VMs under way at once
	onHost   map[string]int // the most about to start at once
	order    []string       // of the marks
}

var flightSchemas = kubesim.NewSchemas()

func newFlight(t *testing.T, perFleet int) *flight {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kvmv1.AddToScheme, kvmv1alpha1.AddToScheme, kubevirt.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	crds, err := crd.All()
	if err != nil {
		t.Fatal(err)
	}
	f := &flight{T: t, s: sim.New(sim.Options{Seed: 3}), perFleet: perFleet, writes: map[string]int{}, onHost: map[string]int{}}
	f.c, err = kubesim.New(f.s, kubesim.Options{Scheme: scheme, CRDs: crds, Schemas: flightSchemas, OnWrite: f.wrote, NamespacesOnDemand: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.c.Close)
	f.c.OnPanic = func(e kubesim.Panic) { t.Errorf("%s panicked: %v\n%s", e.Controller, e.Value, e.Stack) }
	f.c.OnHotLoop = func(l kubesim.HotLoop) { t.Errorf("hot loop: %+v", l) }
	f.api = f.c.Client("world")
	f.c.Process("operator", kubesim.ProcessOptions{}, func(mgr manager.Manager) error {
		_, err := compute.Setup(mgr, compute.Options{Clock: f.s, PerTarget: 3})
		return err
	}).Start()
	f.service = f.c.Process("ha", kubesim.ProcessOptions{RestartAfter: 3 * time.Second}, f.setup)
	f.service.Start()
	f.every(time.Second, f.agents)
	return f
}

// setup is the part of the service that calls the evacuator.
func (f *flight) setup(mgr manager.Manager) error {
	if err := indexVictims(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return err
	}
	e := newEvacuator(mgr.GetClient(), mgr.GetAPIReader(), f.s, f.perFleet)
	return builder.ControllerManagedBy(mgr).Named("ha").For(&kvmv1alpha1.Evacuation{}).WithOptions(wiring.Options(mgr, 4)).
		Complete(reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			var evacuation kvmv1alpha1.Evacuation
			if err := mgr.GetClient().Get(ctx, req.NamespacedName, &evacuation); err != nil {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			if evacuation.Status.Phase != kvmv1alpha1.EvacuationFenced && evacuation.Status.Phase != kvmv1alpha1.EvacuationEvacuating {
				return ctrl.Result{}, nil
			}
			hypervisor := &kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: evacuation.Spec.Hypervisor}}
			done, again, err := e.evacuate(ctx, hypervisor, &evacuation)
			if err != nil || !done {
				return ctrl.Result{RequeueAfter: max(again, 200*time.Millisecond)}, nil
			}
			before := evacuation.DeepCopy()
			evacuation.Status.Phase = kvmv1alpha1.EvacuationEvacuated
			return ctrl.Result{}, mgr.GetClient().Status().Patch(ctx, &evacuation, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		}))
}

func (f *flight) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *flight) every(d time.Duration, fn func()) { f.s.After(d, func() { fn(); f.every(d, fn) }) }
func (f *flight) run(d time.Duration)              { f.s.Run(f.s.Elapsed() + d) }

// wrote keeps account of each write, and of what must never be.
func (f *flight) wrote(w kubesim.Write) {
	vmi, ok := w.New.(*kubevirtv1.VirtualMachineInstance)
	if !ok || vmi == nil {
		return
	}
	if w.Process == "operator" || w.Process == "ha" {
		f.writes[vmi.Name]++
	}
	if old, was := w.Old.(*kubevirtv1.VirtualMachineInstance); was && old != nil && old.Annotations[kubevirt.AnnotationEvacuatedFrom] == "" && vmi.Annotations[kubevirt.AnnotationEvacuatedFrom] != "" {
		f.order = append(f.order, vmi.Name)
		var e kvmv1alpha1.Evacuation
		_, name := kubevirt.EvacuatedFrom(vmi)
		f.must(f.api.Get(context.Background(), client.ObjectKey{Name: name}, &e))
		if e.Status.Phase != kvmv1alpha1.EvacuationEvacuating {
			f.Errorf("%s was marked while the Evacuation was %s: its list comes first", vmi.Name, e.Status.Phase)
		}
	}
	underWay, starting := 0, map[string]int{}
	f.c.Each(kubevirtv1.VirtualMachineInstanceGroupVersionKind, func(o client.Object) {
		v := o.(*kubevirtv1.VirtualMachineInstance)
		if isUnderWay(v, f.s.Now()) {
			underWay++
		}
		if compute.Starting(v) {
			starting[v.Status.NodeName]++
		}
	})
	f.most = max(f.most, underWay)
	for host, n := range starting {
		f.onHost[host] = max(f.onHost[host], n)
	}
}

func (f *flight) host(name string, gib int64) {
	hv := &kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kvmv1.DefaultHypervisorSpec()}
	f.must(f.api.Create(context.Background(), hv))
	hv.Status.EffectiveCapacity = map[kvmv1.ResourceName]resource.Quantity{
		kvmv1.ResourceCPU: resource.MustParse("640"), kvmv1.ResourceMemory: *resource.NewQuantity(gib<<30, resource.BinarySI),
	}
	meta.SetStatusCondition(&hv.Status.Conditions, metav1.Condition{Type: kvmv1.ConditionReady, Status: metav1.ConditionTrue, Reason: kvmv1.ReasonReady})
	f.must(f.api.Status().Update(context.Background(), hv))
}

func (f *flight) vm(name, host string, options ...vmiOption) {
	v := vmOn(host, name, options...)
	v.UID, v.ResourceVersion = "", ""
	v.Finalizers = []string{kubevirt.Finalizer}
	f.must(f.api.Create(context.Background(), v))
}

// die is a host that was fenced, with its Evacuation.
func (f *flight) die(host string) {
	var hv kvmv1.Hypervisor
	f.must(f.api.Get(context.Background(), client.ObjectKey{Name: host}, &hv))
	hv.Spec.Maintenance = kvmv1.MaintenanceHA
	f.must(f.api.Update(context.Background(), &hv))
	e := &kvmv1alpha1.Evacuation{ObjectMeta: metav1.ObjectMeta{Name: host + "-1"}, Spec: kvmv1alpha1.EvacuationSpec{Hypervisor: host}}
	f.must(f.api.Create(context.Background(), e))
	e.Status.Phase = kvmv1alpha1.EvacuationFenced
	e.Status.Proof = &kvmv1alpha1.Proof{Kind: kvmv1alpha1.ProofPowerOff, At: metav1.NewTime(f.s.Now())}
	f.must(f.api.Status().Update(context.Background(), e))
}

// agents start what is placed, where it is.
func (f *flight) agents() {
	if f.slow {
		return
	}
	var list kubevirtv1.VirtualMachineInstanceList
	f.must(f.api.List(context.Background(), &list))
	for i := range list.Items {
		v := &list.Items[i]
		if v.Status.Phase != kubevirtv1.Scheduled || v.DeletionTimestamp != nil || f.s.Now().Sub(placedAt(v)) < 2*time.Second {
			continue
		}
		if kubevirt.WantedPowerState(v) == kubevirt.PowerStopped {
			continue
		}
		v.Status.Phase = kubevirtv1.Running
		v.Status.Conditions = nil
		f.must(f.api.Update(context.Background(), v))
	}
}

func (f *flight) evacuation(host string) *kvmv1alpha1.Evacuation {
	f.Helper()
	var e kvmv1alpha1.Evacuation
	f.must(f.api.Get(context.Background(), client.ObjectKey{Name: host + "-1"}, &e))
	return &e
}

// story is an Evacuation in one line.
func (f *flight) story(host string) string {
	e := f.evacuation(host)
	var parts []string
	for _, v := range e.Status.VMs {
		part := v.Name + " " + v.State
		if v.Message != "" {
			part += " (" + v.Message + ")"
		}
		parts = append(parts, part)
	}
	return string(e.Status.Phase) + ": " + strings.Join(parts, ", ")
}

func (f *flight) want(what, got, want string) {
	f.Helper()
	if got != want {
		f.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestEvacuation(t *testing.T) {
	f := newFlight(t, 4)
	f.host("a", 64)
	f.host("b", 64)
	f.host("c", 64)
	for i := range 8 {
		f.vm(fmt.Sprint("m", i), "a")
	}
	f.vm("first", "a", class("high"))
	f.vm("last", "a", class("low"))
	f.vm("off", "a", annotated(kubevirt.AnnotationPowerState, "Stopped"), inPhase(kubevirtv1.Scheduled))
	f.vm("free", "a", func(v *kubevirtv1.VirtualMachineInstance) { delete(v.Labels, kubevirt.LabelProtected) })
	f.run(5 * time.Second)
	f.die("a")
	f.run(time.Minute)
	e := f.evacuation("a")
	f.want("phase", string(e.Status.Phase), "Evacuated")
	f.want("summary", fmt.Sprintf("%+v", *e.Status.Summary), "{Total:11 Running:10 Waiting:0 Ended:1}")
	if f.order[0] != "first" {
		t.Errorf("order %v: the highest class comes first", f.order)
	}
	if last := f.order[len(f.order)-1]; last != "last" {
		t.Errorf("order %v: the lowest class comes last", f.order)
	}
	if f.most > 4 {
		t.Errorf("%d VMs were under way at once, want 4 at most", f.most)
	}
	for host, n := range f.onHost {
		if n > 3 {
			t.Errorf("%d VMs were about to start on %s at once, want 3 at most", n, host)
		}
	}
	for name, n := range f.writes {
		if n > 2 {
			t.Errorf("%s was written %d times: marked and placed are two", name, n)
		}
	}
	var free kubevirtv1.VirtualMachineInstance
	f.must(f.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "free"}, &free))
	f.want("one that is not protected", free.Status.NodeName, "a")
}

func TestWithoutAProofNothingIsTouched(t *testing.T) {
	e := newEvacuator(nil, nil, nil, 1)
	_, _, err := e.evacuate(t.Context(), &kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		&kvmv1alpha1.Evacuation{Spec: kvmv1alpha1.EvacuationSpec{Hypervisor: "a"}, Status: kvmv1alpha1.EvacuationStatus{Phase: kvmv1alpha1.EvacuationFenced}})
	if err == nil {
		t.Error("it goes on without a proof")
	}
}

func TestShortOfRoom(t *testing.T) {
	f := newFlight(t, 200)
	f.host("a", 64)
	f.host("b", 3)
	f.vm("big", "a", func(v *kubevirtv1.VirtualMachineInstance) {
		memory := resource.MustParse("8Gi")
		v.Spec.Domain.Memory.Guest = &memory
	})
	f.vm("high", "a", class("high"))
	f.vm("low", "a", class("low"))
	f.vm("mid", "a")
	f.vm("mid-2", "a")
	f.run(5 * time.Second)
	f.die("a")
	f.run(time.Minute)
	f.want("what fits runs, by class", f.story("a"),
		"Evacuated: high Running, big Asked (no host takes it: 0/2 hosts: 1 in maintenance, 1 not enough memory), mid Running, mid-2 Running, "+
			"low Asked (no host takes it: 0/2 hosts: 1 in maintenance, 1 not enough memory)")
	f.host("c", 64)
	f.run(90 * time.Second)
	for _, name := range []string{"big", "low"} {
		var v kubevirtv1.VirtualMachineInstance
		f.must(f.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &v))
		f.want(name+" when room appears", string(v.Status.Phase)+"@"+v.Status.NodeName, "Running@c")
	}
}

// TestOthersActMeanwhile has people stop, delete and keep VMs between their start
// and the look at them: each ends on its own.
func TestOthersActMeanwhile(t *testing.T) {
	f := newFlight(t, 200)
	f.host("a", 64)
	f.host("b", 64)
	for _, name := range []string{"del-1", "del-2", "keep", "moving", "stop"} {
		f.vm(name, "a")
	}
	change := func(name string, change func(*kubevirtv1.VirtualMachineInstance)) {
		var v kubevirtv1.VirtualMachineInstance
		f.must(f.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &v))
		before := v.DeepCopy()
		change(&v)
		f.must(f.api.Patch(t.Context(), &v, client.MergeFrom(before)))
	}
	change("moving", func(v *kubevirtv1.VirtualMachineInstance) { v.Labels[kubevirt.HostLabel("b")] = "" })
	f.must(f.api.Delete(t.Context(), &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "del-1"}}))
	f.run(5 * time.Second)
	f.slow = true
	f.die("a")
	f.run(4 * time.Second)
	change("stop", func(v *kubevirtv1.VirtualMachineInstance) { v.Annotations[kubevirt.AnnotationPowerState] = "Stopped" })
	f.must(f.api.Delete(t.Context(), &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "del-2"}}))
	f.slow = false
	f.run(time.Minute)
	f.want("one is still on the move", f.story("a"),
		"Evacuating: del-2 Ended (deleted), keep Running, moving Waiting (host b, to or from which it was moving, has to speak first), stop Ended (stopped on request), del-1 Ended (deleted)")
	change("moving", func(v *kubevirtv1.VirtualMachineInstance) { delete(v.Labels, kubevirt.HostLabel("b")) })
	f.run(time.Minute)
	f.want("its target had nothing", f.story("a"),
		"Evacuated: del-2 Ended (deleted), keep Running, moving Running, stop Ended (stopped on request), del-1 Ended (deleted)")
}

// TestCrashOfTheService kills it at each call it makes, before and after the call
// takes effect: its successor goes on from the objects.
func TestCrashOfTheService(t *testing.T) {
	for _, when := range []kubesim.Moment{kubesim.Before, kubesim.After} {
		struck := 0
		for n := 1; n <= 60; n++ {
			f := newFlight(t, 2)
			f.host("a", 64)
			f.host("b", 64)
			f.host("c", 3)
			for i := range 5 {
				f.vm(fmt.Sprint("v", i), "a", class([]string{"low", "high"}[i%2]))
			}
			f.service.CrashAt(n, when)
			f.run(2 * time.Second)
			f.die("a")
			f.run(2 * time.Minute)
			e := f.evacuation("a")
			if got := fmt.Sprintf("%s %+v", e.Status.Phase, *e.Status.Summary); got != "Evacuated {Total:5 Running:5 Waiting:0 Ended:0}" {
				t.Errorf("died at call %d (%d): %s", n, when, f.story("a"))
			}
			for name, writes := range f.writes {
				if writes > 2 {
					t.Errorf("died at call %d (%d): %s was written %d times", n, when, name, writes)
				}
			}
			if f.most > 2 {
				t.Errorf("died at call %d (%d): %d VMs under way at once, want 2", n, when, f.most)
			}
			struck += f.service.Restarts()
			f.c.Close()
			if t.Failed() || f.service.Restarts() == 0 {
				break
			}
		}
		t.Logf("the service died %d times", struck)
		if struck == 0 {
			t.Error("it never died")
		}
	}
}

// TestAStrandedVMLeaves lets a host lose its storage: the VM that stands still is
// asked to leave when others have it, and one that goes on again is not.
func TestAStrandedVMLeaves(t *testing.T) {
	f := newFlight(t, 200)
	lost := false
	f.c.Process("relief", kubesim.ProcessOptions{}, func(mgr manager.Manager) error {
		if err := indexVictims(t.Context(), mgr.GetFieldIndexer()); err != nil {
			return err
		}
		e := newEvacuator(mgr.GetClient(), mgr.GetAPIReader(), f.s, 1)
		return builder.ControllerManagedBy(mgr).Named("relief").For(&kvmv1.Hypervisor{}).WithOptions(wiring.Options(mgr, 1)).
			Complete(reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
				_, err := e.relieve(ctx, req.Name, lost)
				return ctrl.Result{RequeueAfter: 10 * time.Second}, err
			}))
	}).Start()
	f.host("a", 64)
	f.vm("v", "a", func(v *kubevirtv1.VirtualMachineInstance) {
		v.Status.Conditions = []kubevirtv1.VirtualMachineInstanceCondition{
			{Type: kubevirtv1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue, Reason: reasonPausedIOError, LastTransitionTime: metav1.NewTime(f.s.Now())},
		}
	})
	asked := func() string {
		var v kubevirtv1.VirtualMachineInstance
		f.must(f.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "v"}, &v))
		return v.Annotations[kubevirt.AnnotationLeave]
	}
	f.run(2 * time.Minute)
	f.want("while nobody has the storage", asked(), "")
	lost = true
	f.run(20 * time.Second)
	f.want("when others have it", asked(), "a/StorageLost")
	var v kubevirtv1.VirtualMachineInstance
	f.must(f.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "v"}, &v))
	v.Status.Conditions = []kubevirtv1.VirtualMachineInstanceCondition{{Type: kubevirtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}}
	f.must(f.api.Update(t.Context(), &v))
	f.run(20 * time.Second)
	f.want("once it goes on", asked(), "")
}
