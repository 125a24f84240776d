// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hardware"
)

// store is an API with a count of its writes, where only objects matter and
// neither time nor order does.
type store struct {
	client.WithWatch
	writes []string
	before func(verb string) // runs before a write
}

func newStore(objects ...client.Object) *store {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kvmv1.AddToScheme, v1alpha1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	s := &store{before: func(string) {}}
	wrote := func(verb string) {
		s.before(verb)
		s.writes = append(s.writes, verb)
	}
	s.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&kvmv1.Hypervisor{}, &v1alpha1.Migration{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				wrote("create")
				return c.Create(ctx, o, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				wrote("delete")
				return c.Delete(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				wrote("patch")
				return c.Patch(ctx, o, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				wrote("patch " + sub)
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				wrote("update")
				return c.Update(ctx, o, opts...)
			},
		}).Build()
	return s
}

func (s *store) take() []string {
	w := s.writes
	s.writes = nil
	return w
}

func (s *store) hypervisor(t *testing.T, name string) *kvmv1.Hypervisor {
	t.Helper()
	var hv kvmv1.Hypervisor
	if err := s.Get(context.Background(), client.ObjectKey{Name: name}, &hv); err != nil {
		t.Fatal(err)
	}
	return &hv
}

func hypervisorNamed(name string) *kvmv1.Hypervisor {
	return &kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}}
}

func testOptions(host string, m hardware.Host, c *clocktesting.FakePassiveClock) Options {
	o, err := Options{Host: host, Hardware: m, Clock: c}.withDefaults()
	if err != nil {
		panic(err)
	}
	return o
}

func newTestReconciler(s *store, o Options) *hypervisorReconciler {
	return newHypervisorReconciler(s, s, o)
}

func (r *hypervisorReconciler) once(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := r.Reconcile(context.Background(), ctrl.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestAHostRegistersOnceAndThenIsQuiet(t *testing.T) {
	s, c := newStore(hypervisorNamed("node001")), clocktesting.NewFakePassiveClock(noon)
	r := newTestReconciler(s, testOptions("node001", newMachine(3), c))
	r.once(t)
	// Three claims, the identity, the report.
	if got, want := s.take(), []string{"create", "create", "create", "patch", "patch status"}; !slices.Equal(got, want) {
		t.Fatalf("wrote %v, want %v", got, want)
	}
	for range 30 {
		c.SetTime(c.Now().Add(time.Minute))
		if again := r.once(t).RequeueAfter; again < 54*time.Second || again > time.Minute {
			t.Fatalf("looks again in %s", again)
		}
	}
	if got := s.take(); got != nil {
		t.Fatalf("wrote %v", got)
	}
	// A new process of the same host finds itself at home.
	newTestReconciler(s, testOptions("node001", newMachine(3), c)).once(t)
	if got := s.take(); got != nil {
		t.Fatalf("wrote %v after a restart", got)
	}
}

func TestARenamedHostIsHeld(t *testing.T) {
	s, c := newStore(hypervisorNamed("kvm-7"), hypervisorNamed("kvm-7.example")), clocktesting.NewFakePassiveClock(noon)
	newTestReconciler(s, testOptions("kvm-7", newMachine(2), c)).once(t)
	s.take()
	r := newTestReconciler(s, testOptions("kvm-7.example", newMachine(2), c))
	r.once(t)
	if got, want := s.take(), []string{"patch status"}; !slices.Equal(got, want) {
		t.Fatalf("wrote %v, want %v", got, want)
	}
	hv := s.hypervisor(t, "kvm-7.example")
	if got := condition(hv.Status.Conditions, ConditionIdentityConfirmed); got.Reason != reasonRegistered || len(hv.Status.Conditions) != 1 || hv.Status.NumInstances != 0 {
		t.Fatalf("%+v", hv.Status)
	}
	// Its old name given up, the host may have the new one.
	if err := s.Delete(context.Background(), hypervisorNamed("kvm-7")); err != nil {
		t.Fatal(err)
	}
	r.once(t)
	if hv := s.hypervisor(t, "kvm-7.example"); hv.Status.NumInstances != 2 {
		t.Fatalf("%+v", hv.Status)
	}
}

func TestTwoHostsWithPlaceholdersAreTwo(t *testing.T) {
	s, c := newStore(hypervisorNamed("a"), hypervisorNamed("b")), clocktesting.NewFakePassiveClock(noon)
	for _, host := range []string{"a", "b"} {
		m := newMachine(2)
		m.identity = hardware.Identity{Hostname: host, MachineID: "m-" + host} // the rest is filled by O.E.M.
		newTestReconciler(s, testOptions(host, m, c)).once(t)
		hv := s.hypervisor(t, host)
		if hv.Status.NumInstances != 2 || hv.Status.OperatingSystem.HardwareSerial != "" || hv.Status.OperatingSystem.FirmwareDate != nil {
			t.Errorf("%s: %+v", host, hv.Status)
		}
	}
}

func TestAConflictIsDecidedAnew(t *testing.T) {
	s, c := newStore(hypervisorNamed("node001")), clocktesting.NewFakePassiveClock(noon)
	m := newMachine(1)
	r := newTestReconciler(s, testOptions("node001", m, c))
	r.once(t)
	s.take()

	m.domains = newMachine(2).domains
	r.host.notes.domainsChanged()
	other := 0
	s.before = func(verb string) {
		if verb != "patch status" || other == 2 {
			return
		}
		other++
		hv := s.hypervisor(t, "node001")
		hv.Status.InternalIP = "10.0.0." + string(rune('0'+other))
		s.before = func(string) {}
		if err := s.Status().Update(context.Background(), hv); err != nil {
			t.Error(err)
		}
	}
	r.once(t)
	hv := s.hypervisor(t, "node001")
	if hv.Status.NumInstances != 2 || hv.Status.InternalIP != "10.0.0.1" {
		t.Fatalf("%+v", hv.Status)
	}
}

func TestAnUpdateIsStartedOnce(t *testing.T) {
	hv := hypervisorNamed("node001")
	hv.Spec.Version = "1934.0"
	s, c := newStore(hv), clocktesting.NewFakePassiveClock(noon)
	m := &updatable{machine: newMachine(0)}
	m.units["systemd-sysupdate@1934.0.service"] = hardware.Unit{Load: "loaded", Active: "inactive", Sub: "dead", Oneshot: true}
	r := newTestReconciler(s, testOptions("node001", m, c))
	if again := r.once(t).RequeueAfter; again != updateLook {
		t.Errorf("looks again in %s", again)
	}
	m.units["systemd-sysupdate@1934.0.service"] = hardware.Unit{Load: "loaded", Active: "activating", Sub: "start", Oneshot: true}
	c.SetTime(noon.Add(updateLook))
	r.once(t)
	if !slices.Equal(m.started, []string{"1934.0"}) {
		t.Fatalf("started %v", m.started)
	}
	if status := s.hypervisor(t, "node001").Status.UpdateStatus; status == nil || !status.InProgress || status.Retry != 3 {
		t.Fatalf("%+v", status)
	}
}

type updatable struct {
	*machine
	started []string
}

func (u *updatable) StartUpdate(_ context.Context, version string) error {
	u.started = append(u.started, version)
	return nil
}

// mover is a host with one migration job.
type mover struct {
	*machine
	job *hardware.Job
}

func (m *mover) Job(context.Context, string) (hardware.Job, error) {
	if m.job == nil {
		return hardware.Job{}, hardware.Fail(hardware.Refused, hardware.ReasonNoJob, "read", "job", "none")
	}
	return *m.job, nil
}

const vm = "12e479eb-0000-4000-8000-000000000000"

func (r *migrationReconciler) once(t *testing.T, uuid string) ctrl.Result {
	t.Helper()
	result, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "kvm", Name: uuid}})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestTheWritesOfAMigration(t *testing.T) {
	a, b := hypervisorNamed("a"), hypervisorNamed("b")
	a.Labels = map[string]string{kvmv1.LabelMetalName: "node-a"}
	b.Labels = map[string]string{kvmv1.LabelMetalName: "node-b"}
	s, c := newStore(a, b), clocktesting.NewFakePassiveClock(noon)
	m := &mover{machine: newMachine(1)}
	r := newMigrationReconciler(s, s, testOptions("a", m, c))
	job := func(kind hardware.JobType, started time.Time, id string) *hardware.Job {
		return &hardware.Job{ID: id, Type: kind, Operation: hardware.OperationMigrationOut, Peer: "b", StartedAt: started, Elapsed: c.Now().Sub(started)}
	}
	end := func(j *hardware.Job) {
		m.job = nil
		r.note(vm, func(w *watched) { w.ended, w.seenAt = j, c.Now() })
	}

	// A short one: seen young, then its end.
	m.job = job(hardware.JobUnbounded, noon, "j1")
	if again := r.once(t, vm).RequeueAfter; again != shortJob || s.take() != nil {
		t.Fatalf("again in %s", again)
	}
	c.SetTime(noon.Add(2755 * time.Millisecond))
	end(job(hardware.JobCompleted, noon, "j1"))
	r.once(t, vm)
	if got, want := s.take(), []string{"create", "patch status"}; !slices.Equal(got, want) {
		t.Fatalf("a short migration wrote %v, want %v", got, want)
	}
	record := s.record(t, vm)
	if x := record.Status; x.Origin != "node-a" || x.Destination != "node-b" || x.Type != "completed" || x.TimeElapsed != "2.755s" || !x.Started.Time.Equal(noon) {
		t.Fatalf("%+v", x)
	}
	if len(r.jobs) != 0 {
		t.Error("remembers what is over")
	}
	r.once(t, vm) // an un-pause, an hour later: no job, nothing to say
	if got := s.take(); got != nil {
		t.Fatalf("wrote %v", got)
	}

	// A longer one moves the first aside, and reports now and then.
	start := noon.Add(time.Hour)
	for at := 5 * time.Second; at <= 65*time.Second; at += 5 * time.Second {
		c.SetTime(start.Add(at))
		m.job = job(hardware.JobUnbounded, start, "j2")
		r.once(t, vm)
	}
	if got, want := s.take(), []string{"create", "patch status", "delete", "create", "patch status", "patch status", "patch status"}; !slices.Equal(got, want) {
		t.Fatalf("a longer migration wrote %v, want %v", got, want)
	}
	end(job(hardware.JobFailed, start, "j2"))
	r.once(t, vm)
	if got := s.record(t, vm).Status.Type; got != "failed" {
		t.Error(got)
	}
	old := s.record(t, vm+".1772366400")
	if old.Status.Type != "completed" || old.Status.TimeElapsed != "2.755s" || old.Labels[LabelVM] != vm {
		t.Errorf("%+v", old)
	}

	// Many moves keep five of the earlier ones.
	for i := range 9 {
		start = start.Add(time.Hour)
		c.SetTime(start.Add(3 * time.Second))
		end(job(hardware.JobCompleted, start, "k"+string(rune('0'+i))))
		r.once(t, vm)
	}
	var list v1alpha1.MigrationList
	if err := s.List(context.Background(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != archivesKept+1 {
		t.Errorf("%d records", len(list.Items))
	}

	// A sweep a week later leaves the latest.
	c.SetTime(c.Now().Add(8 * 24 * time.Hour))
	s.take()
	r.once(t, "")
	if err := s.List(context.Background(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != vm {
		t.Errorf("%d records", len(list.Items))
	}
}

func (s *store) record(t *testing.T, name string) *v1alpha1.Migration {
	t.Helper()
	var m v1alpha1.Migration
	if err := s.Get(context.Background(), client.ObjectKey{Namespace: "kvm", Name: name}, &m); err != nil {
		t.Fatal(err)
	}
	return &m
}

func TestHeartbeat(t *testing.T) {
	s, c := newStore(), clocktesting.NewFakePassiveClock(noon)
	h := newHeartbeat(s, s, testOptions("node001", newMachine(0), c), heartbeatEvery)
	lease := func() *coordinationv1.Lease {
		var l coordinationv1.Lease
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: "kvm", Name: "node001"}, &l); err != nil {
			t.Fatal(err)
		}
		return &l
	}
	for i := range 3 {
		c.SetTime(noon.Add(time.Duration(i) * heartbeatEvery))
		if err := h.renew(context.Background()); err != nil {
			t.Fatal(err)
		}
		if l := lease(); !l.Spec.RenewTime.Time.Equal(c.Now()) || ptr.Deref(l.Spec.HolderIdentity, "") != "node001" || ptr.Deref(l.Spec.LeaseDurationSeconds, 0) != 40 {
			t.Fatalf("%+v", l.Spec)
		}
	}
	key, holder, every, duration := h.Heartbeat()
	if key.String() != "kvm/node001" || holder != "node001" || every != 10*time.Second || duration != 40*time.Second || h.NeedLeaderElection() {
		t.Error(key, holder, every, duration)
	}
}
