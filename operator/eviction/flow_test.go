// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/config/crd"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/operator/eviction"
	"github.com/adit-hv/adit/operator/hypervisor"
	"github.com/adit-hv/adit/operator/maintenance"
	"github.com/adit-hv/adit/operator/readiness"
	"github.com/adit-hv/adit/sim"
)

// house is an API with the four host controllers, and a mover that does what
// compute, migration and the agents would: each migration runs for ten seconds.
type house struct {
	t        *testing.T
	s        *sim.Scheduler
	cluster  *kubesim.Cluster
	people   client.WithWatch
	operator *kubesim.Process
	since    map[string]time.Duration // Migrations under way.
	moves    int
	room     int // How many more VMs host b takes.
}

func newHouse(t *testing.T, seed uint64) *house {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kvmv1.AddToScheme, kubevirt.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	crds, err := crd.All()
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, s: sim.New(sim.Options{Seed: seed}), since: map[string]time.Duration{}, room: 1000}
	h.cluster, err = kubesim.New(h.s, kubesim.Options{Scheme: scheme, CRDs: crds, Fidelity: kubesim.Full, NamespacesOnDemand: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.cluster.Close)
	h.cluster.OnHotLoop = func(l kubesim.HotLoop) { t.Errorf("hot loop: %+v", l) }
	h.cluster.OnPanic = func(p kubesim.Panic) { t.Errorf("panic: %v\n%s", p.Value, p.Stack) }
	h.people = h.cluster.Client("people")
	h.operator = h.cluster.Process("operator", kubesim.ProcessOptions{}, func(mgr manager.Manager) error {
		for _, err := range []error{
			hypervisor.Setup(mgr, hypervisor.Options{}),
			readiness.Setup(mgr, readiness.Options{Clock: h.s}),
			maintenance.Setup(mgr, maintenance.Options{Clock: h.s}),
			eviction.Setup(mgr, eviction.Options{Clock: h.s}),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, name := range []string{"a", "b", "c"} {
		h.must(h.people.Create(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{kvmv1.LabelVirtDriver: "kvm", kvmv1.LabelZone: "z"}}}))
		h.must(h.people.Create(context.Background(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kvm", Name: name},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: h.s.Now()}, LeaseDurationSeconds: ptr.To(int32(3600))},
		}))
	}
	h.operator.Start()
	h.every(time.Second, h.move)
	return h
}

func (h *house) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) every(d time.Duration, fn func()) {
	h.s.After(d, func() { fn(); h.every(d, fn) })
}

func (h *house) run(seconds int) { h.s.Run(h.s.Elapsed() + time.Duration(seconds)*time.Second) }

func (h *house) vm(name string, change ...func(*kubevirtv1.VirtualMachineInstance)) {
	h.t.Helper()
	v := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
		Labels: map[string]string{kubevirt.HostLabel("a"): "", kubevirt.LabelNodeName: "a"}}}
	v.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: ptr.To(resource.MustParse("1Gi"))}
	for _, c := range change {
		c(v)
	}
	h.must(h.people.Create(context.Background(), v))
	v.Status.Phase, v.Status.NodeName = kubevirtv1.Running, "a"
	h.must(h.status(v))
}

// status writes an object with its status. A VMI has no status subresource.
func (h *house) status(o client.Object) error {
	if _, vmi := o.(*kubevirtv1.VirtualMachineInstance); vmi {
		return h.people.Update(context.Background(), o)
	}
	return h.people.Status().Update(context.Background(), o)
}

// move carries the migrations on.
func (h *house) move() {
	var list kubevirtv1.VirtualMachineInstanceMigrationList
	h.must(h.people.List(context.Background(), &list))
	for i := range list.Items {
		m := &list.Items[i]
		var v kubevirtv1.VirtualMachineInstance
		if m.IsFinal() || h.people.Get(context.Background(), client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.VMIName}, &v) != nil {
			continue
		}
		began, running := h.since[m.Name]
		switch {
		case !running && h.room == 0:
			h.phase(m, kubevirtv1.MigrationScheduling)
		case !running:
			h.room--
			h.since[m.Name] = h.s.Elapsed()
			h.phase(m, kubevirtv1.MigrationRunning)
		case h.s.Elapsed() >= began+10*time.Second:
			h.moves++
			delete(v.Labels, kubevirt.HostLabel("a"))
			v.Labels[kubevirt.HostLabel("b")], v.Labels[kubevirt.LabelNodeName] = "", "b"
			v.Status.NodeName = "b"
			h.must(h.status(&v))
			h.phase(m, kubevirtv1.MigrationSucceeded)
		}
	}
}

func (h *house) phase(m *kubevirtv1.VirtualMachineInstanceMigration, p kubevirtv1.VirtualMachineInstanceMigrationPhase) {
	if m.Status.Phase == p {
		return
	}
	m.Status.Phase = p
	m.Status.PhaseTransitionTimestamps = append(m.Status.PhaseTransitionTimestamps,
		kubevirtv1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{Phase: p, PhaseTransitionTimestamp: metav1.NewTime(h.s.Now())})
	h.must(h.status(m))
}

func (h *house) maintain(host string, mode kvmv1.Maintenance) {
	h.t.Helper()
	hv := h.hypervisor(host)
	hv.Spec.Maintenance, hv.Spec.MaintenanceReason = mode, "test"
	h.must(h.people.Update(context.Background(), hv))
}

func (h *house) hypervisor(name string) *kvmv1.Hypervisor {
	h.t.Helper()
	hv := &kvmv1.Hypervisor{}
	h.must(h.people.Get(context.Background(), client.ObjectKey{Name: name}, hv))
	return hv
}

// says reads "status/reason" of a host's condition.
func (h *house) says(host, kind string) string {
	h.t.Helper()
	c := meta.FindStatusCondition(h.hypervisor(host).Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason
}

func (h *house) want(host, kind, want string) {
	h.t.Helper()
	if got := h.says(host, kind); got != want {
		h.t.Errorf("at %v %s of %s is %q, want %q", h.s.Elapsed(), kind, host, got, want)
	}
}

func (h *house) left() int {
	var list kubevirtv1.VirtualMachineInstanceList
	h.must(h.people.List(context.Background(), &list))
	n := 0
	for i := range list.Items {
		if list.Items[i].Status.NodeName == "a" {
			n++
		}
	}
	return n
}

func TestAHostGoesIntoMaintenanceAndComesBack(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h := newHouse(t, seed)
			h.run(10)
			h.want("a", "Ready", "True/Ready")
			for i := range 5 {
				h.vm(fmt.Sprintf("vm-%d", i))
			}
			h.maintain("a", kvmv1.MaintenanceManual)
			h.run(15)
			h.want("a", "Evicting", "True/Running")
			h.want("a", "Ready", "False/Evicting")
			h.operator.Crash()
			h.operator.Start()
			h.run(60)
			h.want("a", "Evicting", "False/Succeeded")
			h.want("a", "Ready", "False/Evicted")
			if h.left() != 0 || h.moves != 5 || !h.hypervisor("a").Status.Evicted {
				t.Errorf("%d left, %d moves", h.left(), h.moves)
			}
			// One that comes later is moved as well.
			h.vm("late")
			h.run(60)
			if h.left() != 0 || h.moves != 6 {
				t.Errorf("%d left, %d moves", h.left(), h.moves)
			}
			h.maintain("a", kvmv1.MaintenanceUnset)
			h.run(5)
			h.want("a", "Ready", "True/Ready")
			h.want("a", "Evicting", "")
			var e kvmv1.Eviction
			if err := h.people.Get(context.Background(), client.ObjectKey{Name: "a"}, &e); err == nil || h.hypervisor("a").Status.Evicted {
				t.Error("marks stay")
			}
		})
	}
}

func TestACancelledEvictionMovesNobodyMore(t *testing.T) {
	h := newHouse(t, 1)
	h.room = 5
	h.run(10)
	for i := range 10 {
		h.vm(fmt.Sprintf("vm-%d", i))
	}
	h.maintain("a", kvmv1.MaintenanceManual)
	h.run(120)
	if h.moves != 5 || h.left() != 5 {
		t.Fatalf("%d moves, %d left", h.moves, h.left())
	}
	h.maintain("a", kvmv1.MaintenanceUnset)
	h.run(60)
	h.room = 10
	h.run(600)
	if h.moves != 5 || h.left() != 5 {
		t.Errorf("after the end %d moves, %d left", h.moves, h.left())
	}
	h.want("a", "Ready", "True/Ready")
}

func TestAFloorOfHostsStaysInService(t *testing.T) {
	h := newHouse(t, 2)
	h.run(10)
	for _, host := range []string{"a", "b", "c"} {
		h.maintain(host, kvmv1.MaintenanceManual)
	}
	h.run(60)
	waiting := ""
	for _, host := range []string{"a", "b", "c"} {
		switch h.says(host, "HypervisorDisabled") {
		case "False/Waiting":
			if waiting != "" {
				t.Errorf("%s and %s wait", waiting, host)
			}
			waiting = host
			h.want(host, "Ready", "True/Ready")
		default:
			h.want(host, "HypervisorDisabled", "True/Succeeded")
		}
	}
	if waiting == "" {
		t.Fatal("no host is in service")
	}
	back := "a"
	if waiting == "a" {
		back = "b"
	}
	h.maintain(back, kvmv1.MaintenanceUnset)
	h.run(30)
	h.want(back, "HypervisorDisabled", "False/Succeeded")
	h.want(waiting, "HypervisorDisabled", "True/Succeeded")
}

func TestAnIdleFleetIsSilent(t *testing.T) {
	h := newHouse(t, 3)
	h.run(30)
	before := h.cluster.Totals().Writes
	h.run(1800)
	if n := h.cluster.Totals().Writes - before; n > 0 {
		t.Errorf("%d writes in half an hour", n)
	}
}
