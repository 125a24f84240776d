// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/adit-hv/adit/sim"
)

type optionsOf interface {
	ControllerOptions(int) controller.Options
}

// runs builds a controller of Machines from a function.
func runs(workers int, fn func(context.Context, manager.Manager, reconcile.Request) (reconcile.Result, error)) func(manager.Manager) error {
	return func(mgr manager.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).For(&Machine{}).WithOptions(mgr.(optionsOf).ControllerOptions(workers)).
			Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) { return fn(ctx, mgr, r) }))
	}
}

func newDesk(t *testing.T, seed uint64, o Options) *desk {
	s := sim.New(sim.Options{Seed: seed, KeepNotes: true})
	c := toyCluster(t, s, o)
	return &desk{t, c.Client("person"), s, c}
}

func TestACrashAtAnyCallIsRecoveredFrom(t *testing.T) {
	var calls int
	toyDigest(t, 4, Options{}, func(c *Cluster, p *Process) {
		c.s.After(119*time.Second, func() { calls = p.Calls() })
	})
	if calls < 50 {
		t.Fatalf("only %d calls", calls)
	}
	goroutines := runtime.NumGoroutine()
	for n := 1; n <= calls; n += 3 {
		for _, when := range []Moment{Before, After} {
			toyDigest(t, 4, Options{}, func(c *Cluster, p *Process) {
				p.CrashAt(n, when)
				c.s.After(40*time.Second, func() {
					if p.Alive() {
						t.Errorf("did not crash at call %d", n)
					}
					p.Start()
				})
			})
		}
	}
	time.Sleep(10 * time.Millisecond)
	if left := runtime.NumGoroutine() - goroutines; left > 5 {
		t.Errorf("%d goroutines left", left)
	}
}

func TestDeferredCallsOfADyingReconcilerHaveNoEffect(t *testing.T) {
	d := newDesk(t, 1, Options{})
	ran := false
	p := d.c.Process("p", ProcessOptions{}, runs(1, func(ctx context.Context, mgr manager.Manager, r reconcile.Request) (reconcile.Result, error) {
		var m Machine
		_ = mgr.GetClient().Get(ctx, r.NamespacedName, &m)
		defer func() {
			ran = true
			m.Status.Jobs = 99
			_ = mgr.GetClient().Status().Update(ctx, &m)
		}()
		m.Spec.Slots = 9
		return reconcile.Result{}, mgr.GetClient().Update(ctx, &m)
	}))
	p.CrashAt(1, Before)
	p.Start()
	d.machine("m", MachineSpec{})
	d.wait(time.Minute)
	m := d.c.Lookup(toyVersion.WithKind("Machine"), client.ObjectKey{Name: "m"}).(*Machine)
	if p.Alive() || !ran || m.Status.Jobs != 0 || m.Spec.Slots != 4 {
		t.Errorf("alive %v, deferred call ran %v, %+v %+v", p.Alive(), ran, m.Spec, m.Status)
	}
}

func TestAllTroubleTogetherSettlesWhenItIsOver(t *testing.T) {
	trouble := []string{"api.409 p=0.2 for=40s", "api.429 for=10s p=0.5 delay=2s", "api.5xx p=0.1 for=40s", "api.timeout p=0.2 for=40s", "api.latency delay=300ms p=0.3 for=40s",
		"watch.cut for=3s", "api.stale delay=5s for=20s", "watch.freeze for=8s resources=jobs"}
	for seed := range uint64(8) {
		more := func(c *Cluster, p *Process) {
			for i, text := range trouble {
				f, err := ParseFault(text)
				if err != nil {
					t.Fatal(err)
				}
				c.s.After(time.Duration(i)*2*time.Second, func() { c.Inject(f) })
			}
			c.s.After(9*time.Second, p.Pause)
			c.s.After(12*time.Second, p.Resume)
			c.s.After(14*time.Second, func() { p.Partition(true) })
			c.s.After(22*time.Second, func() { p.Partition(false) })
			c.s.After(25*time.Second, func() { c.Inject(Fault{Kind: "api.compact"}); p.CutWatch() })
			c.s.After(28*time.Second, func() { c.Inject(Fault{Kind: "watch.expire"}) })
		}
		_, first := toyDigest(t, seed, Options{}, more)
		_, again := toyDigest(t, seed, Options{}, more)
		sameRun(t, "again", first, again)
	}
}

// TestACacheNeverGoesBackInTime lets one piece of news get stuck in a watch, and
// the next wait for a paused process; both come at one instant.
func TestACacheNeverGoesBackInTime(t *testing.T) {
	for seed := range uint64(20) {
		d := newDesk(t, seed, Options{})
		var seen []int32
		p := d.c.Process("p", ProcessOptions{}, runs(1, func(ctx context.Context, mgr manager.Manager, r reconcile.Request) (reconcile.Result, error) {
			var m Machine
			err := mgr.GetClient().Get(ctx, r.NamespacedName, &m)
			seen = append(seen, m.Spec.Slots)
			return reconcile.Result{RequeueAfter: time.Minute}, err
		}))
		p.Start()
		m := d.machine("m", MachineSpec{Slots: 1})
		change := func(slots int32) func() {
			return func() {
				m.Spec.Slots = slots
				d.must(d.Update(background, m))
			}
		}
		d.c.s.After(10*time.Second, func() { d.c.Inject(Fault{Kind: "watch.freeze", For: 30 * time.Second}) })
		d.c.s.After(15*time.Second, change(2))
		d.c.s.After(25*time.Second, p.Pause)
		d.c.s.After(30*time.Second, change(3))
		d.c.s.After(40*time.Second, p.Resume)
		d.wait(5 * time.Minute)
		if !slices.IsSorted(seen) || seen[len(seen)-1] != 3 {
			t.Errorf("seed %d: the cache showed %v", seed, seen)
		}
	}
}

func TestAnAnswerThatIsLostMayHaveBeenAYes(t *testing.T) {
	for phase, want := range map[string]int32{"before": 4, "after": 9} {
		d := newDesk(t, 1, Options{})
		var got error
		d.c.Process("p", ProcessOptions{}, runs(1, func(ctx context.Context, mgr manager.Manager, r reconcile.Request) (reconcile.Result, error) {
			var m Machine
			if got != nil || mgr.GetClient().Get(ctx, r.NamespacedName, &m) != nil {
				return reconcile.Result{}, nil
			}
			version := m.ResourceVersion
			m.Spec.Slots = 9
			got = mgr.GetClient().Update(ctx, &m)
			if m.ResourceVersion != version {
				t.Error("the caller saw the answer")
			}
			return reconcile.Result{}, nil
		})).Start()
		d.c.Inject(Fault{Kind: "api.timeout", Phase: phase, Verbs: []string{"update"}, Times: 1})
		d.machine("m", MachineSpec{})
		d.wait(time.Minute)
		m := d.c.Lookup(toyVersion.WithKind("Machine"), client.ObjectKey{Name: "m"}).(*Machine)
		if !apierrors.IsTimeout(got) || m.Spec.Slots != want {
			t.Errorf("%s: error %v, slots %d", phase, got, m.Spec.Slots)
		}
	}
}

func TestBulkWorkDoesNotStarveUrgentWork(t *testing.T) {
	d := newDesk(t, 1, Options{})
	var order []string
	setup := func(mgr manager.Manager) error {
		o := mgr.(optionsOf).ControllerOptions(1)
		return ctrl.NewControllerManagedBy(mgr).Named("work").WithOptions(o).
			WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
				d.s.After(time.Second, func() {
					for i := range 1000 {
						q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: fmt.Sprint("bulk", i)}})
					}
				})
				d.s.After(2*time.Second, func() {
					q.(priorityqueue.PriorityQueue[reconcile.Request]).AddWithOpts(priorityqueue.AddOpts{Priority: ptr(10)}, reconcile.Request{NamespacedName: types.NamespacedName{Name: "urgent"}})
				})
				return nil
			})).
			Complete(reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
				order = append(order, r.Name)
				d.c.processes[0].life.sleep(10 * time.Millisecond)
				if r.Name == "urgent" && len(order) < 500 {
					return reconcile.Result{RequeueAfter: time.Second, Priority: ptr(10)}, nil
				}
				return reconcile.Result{}, nil
			}))
	}
	d.c.Process("p", ProcessOptions{}, setup).Start()
	d.wait(time.Minute)
	var urgent []int
	for i, name := range order {
		if name == "urgent" {
			urgent = append(urgent, i)
		}
	}
	// One second is a hundred of the bulk: each urgent one waits for no more
	// than the one that is being worked on.
	if len(urgent) < 4 || urgent[0] > 101 || urgent[3] > 404 || len(order) != 1000+len(urgent) {
		t.Errorf("urgent at %v of %d", urgent, len(order))
	}
}

func TestEachAgentSeesOnlyItsOwn(t *testing.T) {
	d := newDesk(t, 1, Options{})
	seen := map[string][]string{}
	for i := range 50 {
		host := fmt.Sprint("h", i)
		label, _ := labels.NewRequirement("toy.example.org/"+host, selection.Exists, nil)
		d.c.Process(host, ProcessOptions{ByObject: map[client.Object]cache.ByObject{&Job{}: {Label: labels.NewSelector().Add(*label)}}}, func(mgr manager.Manager) error {
			return ctrl.NewControllerManagedBy(mgr).For(&Job{}).Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
				err := mgr.GetClient().Get(ctx, r.NamespacedName, &Job{})
				seen[host] = append(seen[host], fmt.Sprint(r.Name, apierrors.IsNotFound(err)))
				return reconcile.Result{}, nil
			}))
		}).Start()
	}
	d.wait(5 * time.Second)
	j := &Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "default", Labels: map[string]string{"toy.example.org/h7": ""}}}
	d.must(d.Create(background, j))
	d.wait(10 * time.Second)
	j.Labels = map[string]string{"toy.example.org/h9": ""}
	d.must(d.Update(background, j))
	d.wait(10 * time.Second)
	if got := fmt.Sprint(seen); got != "map[h7:[jfalse jtrue] h9:[jfalse]]" {
		t.Errorf("seen %s", got)
	}
	if w := d.c.Totals().Watched; w != 3 {
		t.Errorf("%d watch events", w)
	}
}

// leaser renews one lease.
type leaser struct{ host string }

func (l leaser) Start(context.Context) error { panic("a heartbeat is not started") }
func (l leaser) Heartbeat() (types.NamespacedName, string, time.Duration, time.Duration) {
	return types.NamespacedName{Namespace: "kube-node-lease", Name: l.host}, l.host, 10 * time.Second, 40 * time.Second
}

func TestLazyLeasesReadAsEagerOnes(t *testing.T) {
	type reading struct{ late [4]bool }
	read := map[bool]reading{}
	writes := map[bool]uint64{}
	for _, eager := range []bool{false, true} {
		d := newDesk(t, 1, Options{EagerLeases: eager})
		var ps []*Process
		for i := range 4 {
			p := d.c.Process(fmt.Sprint("p", i), ProcessOptions{}, func(mgr manager.Manager) error { return mgr.Add(leaser{fmt.Sprint("h", i)}) })
			p.Start()
			ps = append(ps, p)
		}
		d.wait(5 * time.Minute)
		ps[0].Crash()
		ps[1].Pause()
		ps[2].Partition(true)
		d.wait(2 * time.Minute)
		var r reading
		for i := range 4 {
			l := &coordinationv1.Lease{}
			d.must(d.Get(background, types.NamespacedName{Namespace: "kube-node-lease", Name: fmt.Sprint("h", i)}, l))
			r.late[i] = d.s.Since(l.Spec.RenewTime.Time) > 40*time.Second
			if age := d.s.Since(l.Spec.RenewTime.Time); i < 3 && (age < 2*time.Minute || age > 2*time.Minute+11*time.Second) {
				t.Errorf("eager %v: lease %d is %v old", eager, i, age)
			}
		}
		read[eager], writes[eager] = r, d.c.Totals().Writes
		ps[0].Start()
		ps[1].Resume()
		ps[2].Partition(false)
		d.wait(time.Minute)
		d.c.Each(coordinationv1.SchemeGroupVersion.WithKind("Lease"), func(o client.Object) {
			if age := d.s.Since(o.(*coordinationv1.Lease).Spec.RenewTime.Time); age > 11*time.Second {
				t.Errorf("eager %v: %s is %v old after all is well", eager, o.GetName(), age)
			}
		})
	}
	if read[false] != read[true] || read[false].late != [4]bool{true, true, true, false} {
		t.Errorf("lazy %+v, eager %+v", read[false], read[true])
	}
	if writes[false]*5 > writes[true] {
		t.Errorf("lazy %d writes, eager %d", writes[false], writes[true])
	}
}

// wrongClock is ahead of the simulation.
type wrongClock struct {
	d  *desk
	by time.Duration
}

func (c *wrongClock) Now() time.Time                  { return c.d.s.Now().Add(c.by) }
func (c *wrongClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func TestALeaseIsRenewedByItsHoldersClock(t *testing.T) {
	for _, eager := range []bool{false, true} {
		d := newDesk(t, 1, Options{EagerLeases: eager})
		clock := &wrongClock{d, 25 * time.Hour}
		p := d.c.Process("p", ProcessOptions{Clock: clock}, func(mgr manager.Manager) error { return mgr.Add(leaser{"h"}) })
		p.Start()
		renewed := func() time.Time {
			l := &coordinationv1.Lease{}
			d.must(d.Get(background, types.NamespacedName{Namespace: "kube-node-lease", Name: "h"}, l))
			return l.Spec.RenewTime.Time
		}
		for _, by := range []time.Duration{25 * time.Hour, -2 * time.Hour, 0} {
			clock.by = by
			d.wait(5 * time.Minute)
			if age := clock.Since(renewed()); age < 0 || age > 11*time.Second {
				t.Errorf("eager %v, the clock is %v ahead: the lease is %v old", eager, by, age)
			}
		}
		p.Crash()
		last := renewed()
		clock.by = time.Hour
		d.wait(5 * time.Minute)
		if now := renewed(); !now.Equal(last) {
			t.Errorf("eager %v: the lease of a dead process moved from %v to %v", eager, last, now)
		}
	}
}

func TestOneReplicaLeads(t *testing.T) {
	d := newDesk(t, 1, Options{})
	lead := map[string]bool{}
	var ps []*Process
	for i := range 3 {
		id := fmt.Sprint("op", i)
		p := d.c.Process(id, ProcessOptions{LeaderElection: "toy", RestartAfter: 5 * time.Second}, runs(1, func(context.Context, manager.Manager, reconcile.Request) (reconcile.Result, error) {
			lead[id] = true
			return reconcile.Result{RequeueAfter: time.Second}, nil
		}))
		p.Start()
		ps = append(ps, p)
	}
	d.machine("m", MachineSpec{})
	who := func() (*Process, int) {
		clear(lead)
		d.wait(10 * time.Second)
		var one *Process
		for _, p := range ps {
			if lead[p.Name()] {
				one = p
			}
		}
		return one, len(lead)
	}
	d.wait(30 * time.Second)
	first, n := who()
	if n != 1 {
		t.Fatalf("%d leaders", n)
	}
	first.Partition(true)
	d.wait(60 * time.Second)
	second, n := who()
	if n != 1 || second == first || first.Restarts() == 0 {
		t.Errorf("%d leaders, %v after %v, restarts %d", n, second, first, first.Restarts())
	}
	second.Crash()
	d.wait(30 * time.Second)
	if third, n := who(); n != 1 || third == second {
		t.Errorf("%d leaders", n)
	}
}

func TestRunnablesAndChannelsRunUnderTheBaton(t *testing.T) {
	d := newDesk(t, 1, Options{})
	events := make(chan event.GenericEvent, 16)
	var got []string
	ended := 0
	p := d.c.Process("p", ProcessOptions{}, func(mgr manager.Manager) error {
		if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if err := mgr.GetClient().Create(ctx, &Machine{ObjectMeta: metav1.ObjectMeta{Name: "made"}}); err != nil {
				return err
			}
			return nil
		})); err != nil {
			return err
		}
		if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			defer func() { ended++ }()
			<-ctx.Done()
			t.Error("a process ends only by being killed")
			return nil
		})); err != nil {
			return err
		}
		return ctrl.NewControllerManagedBy(mgr).Named("channel").WithOptions(mgr.(optionsOf).ControllerOptions(1)).
			WatchesRawSource(source.Channel(events, &handler.EnqueueRequestForObject{})).
			Complete(reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
				got = append(got, fmt.Sprint(r.Name, "@", d.s.Elapsed().Round(time.Millisecond)))
				return reconcile.Result{}, nil
			}))
	})
	p.Start()
	d.s.After(time.Second, func() { events <- event.GenericEvent{Object: &Machine{ObjectMeta: metav1.ObjectMeta{Name: "x"}}} })
	d.wait(5 * time.Second)
	if fmt.Sprint(got) != "[x@1s]" {
		t.Errorf("got %v", got)
	}
	if d.c.Lookup(toyVersion.WithKind("Machine"), client.ObjectKey{Name: "made"}) == nil {
		t.Error("the runnable did not run")
	}
	p.Crash()
	if ended != 1 {
		t.Errorf("%d waiting runnables ended", ended)
	}
}

// A leader's controllers come to informers that are there already, and their
// handlers read kinds whose first list does not arrive.
func TestALateHandlerWaitsForItsListsAndHoldsUpNobody(t *testing.T) {
	d := newDesk(t, 1, Options{})
	seen := map[string]int{}
	p := d.c.Process("p", ProcessOptions{LeaderElection: "toy"}, func(mgr manager.Manager) error {
		o := mgr.(optionsOf).ControllerOptions(1)
		early := o
		early.NeedLeaderElection = new(false)
		note := func(who string) reconcile.Func {
			return func(context.Context, reconcile.Request) (reconcile.Result, error) {
				seen[who]++
				return reconcile.Result{}, nil
			}
		}
		return errors.Join(
			ctrl.NewControllerManagedBy(mgr).Named("early").For(&Machine{}).WithOptions(early).Complete(note("early")),
			ctrl.NewControllerManagedBy(mgr).Named("late").For(&Job{}).WithOptions(o).
				Watches(&Machine{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) (out []reconcile.Request) {
					var jobs JobList
					if err := mgr.GetClient().List(ctx, &jobs); err != nil {
						t.Error(err)
					}
					return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "mapped"}}}
				})).Complete(note("late")))
	})
	d.machine("m", MachineSpec{})
	end := d.c.Inject(Fault{Kind: "api.timeout", Verbs: []string{"list"}, Resources: []string{"jobs"}, Phase: "before"})
	p.Start()
	d.wait(5 * time.Minute)
	if seen["early"] == 0 || seen["late"] != 0 {
		t.Errorf("seen %v", seen)
	}
	lease, _ := d.c.Lookup(coordinationv1.SchemeGroupVersion.WithKind("Lease"), client.ObjectKey{Namespace: "kube-system", Name: "toy"}).(*coordinationv1.Lease)
	if lease == nil || d.s.Now().Sub(lease.Spec.RenewTime.Time) > leaseDuration {
		t.Errorf("the leader renews its lease no more: %v at %v", lease, d.s.Now())
	}
	end()
	d.wait(5 * time.Minute)
	if seen["late"] == 0 {
		t.Errorf("seen %v", seen)
	}
}

func TestPanicsHotLoopsAndForeignWritesAreReported(t *testing.T) {
	d := newDesk(t, 1, Options{Owners: OwnerRules{toyVersion.WithKind("Machine").GroupKind(): {
		{Field: "spec", Roles: []string{}}, {Field: "status.conditions[Ready]", Roles: []string{"other"}}, {Field: "status", Roles: []string{"mine"}}}}.Table()})
	var panics, loops int
	var foreign []string
	d.c.OnPanic = func(p Panic) {
		panics++
		if p.Value != "oh" || !strings.Contains(p.Stack, "process_test") {
			t.Errorf("got %+v", p)
		}
	}
	d.c.OnHotLoop = func(HotLoop) { loops++ }
	d.c.OnForeignWrite = func(f ForeignWrite) { foreign = append(foreign, f.Field) }
	d.c.Process("p", ProcessOptions{Role: "mine"}, runs(1, func(ctx context.Context, mgr manager.Manager, r reconcile.Request) (reconcile.Result, error) {
		switch r.Name {
		case "panics":
			if panics == 0 {
				panic("oh")
			}
		case "spins":
			if loops == 0 {
				return reconcile.Result{RequeueAfter: time.Millisecond}, nil
			}
		case "writes":
			var m Machine
			if err := mgr.GetClient().Get(ctx, r.NamespacedName, &m); err != nil || m.Status.Jobs > 0 {
				return reconcile.Result{}, err
			}
			m.Status.Jobs = 1
			m.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True"}, {Type: "Mine", Status: "True"}}
			return reconcile.Result{}, mgr.GetClient().Status().Update(ctx, &m)
		}
		return reconcile.Result{}, nil
	})).Start()
	for _, name := range []string{"panics", "spins", "writes"} {
		d.machine(name, MachineSpec{})
	}
	d.wait(time.Minute)
	if panics != 1 || loops != 1 || fmt.Sprint(foreign) != "[status.conditions[Ready]]" {
		t.Errorf("panics %d, loops %d, foreign %v", panics, loops, foreign)
	}
}

func TestReadsLagBehindAndLiveReadsDoNot(t *testing.T) {
	d := newDesk(t, 1, Options{})
	stale, live := 0, 0
	d.c.Process("p", ProcessOptions{}, runs(1, func(ctx context.Context, mgr manager.Manager, r reconcile.Request) (reconcile.Result, error) {
		var m, again, now Machine
		if err := mgr.GetClient().Get(ctx, r.NamespacedName, &m); err != nil || m.Spec.Slots > 30 {
			return reconcile.Result{}, err
		}
		m.Spec.Slots++
		if err := mgr.GetClient().Update(ctx, &m); err != nil {
			return reconcile.Result{}, err
		}
		_ = mgr.GetClient().Get(ctx, r.NamespacedName, &again)
		_ = mgr.GetAPIReader().Get(ctx, r.NamespacedName, &now)
		if again.ResourceVersion != m.ResourceVersion {
			stale++
		}
		if now.ResourceVersion != m.ResourceVersion {
			live++
		}
		return reconcile.Result{}, nil
	})).Start()
	d.machine("m", MachineSpec{})
	d.wait(5 * time.Minute)
	if stale < 10 || live != 0 {
		t.Errorf("%d stale reads from the cache, %d live", stale, live)
	}
	for _, n := range d.c.Counts() {
		if n.Client == "p" && n.Verb == "get" && n.N < 26 {
			t.Errorf("counted %+v", n)
		}
		if n.Client == "p" && n.Verb == "list" && n.N != 1 {
			t.Errorf("counted %+v", n)
		}
	}
}

func TestFaultsAreReadAsTheyArePrinted(t *testing.T) {
	for _, text := range []string{"api.429 for=30s delay=2s p=0.3 times=4 verbs=update,patch resources=jobs on=operator,node/*", "api.timeout phase=after", "watch.cut"} {
		f, err := ParseFault(text)
		if err != nil || f.String() != text {
			t.Errorf("%q: %q, %v", text, f, err)
		}
	}
	for _, text := range []string{"", "api.no", "api.429 p=2", "api.409 who=me", "api.timeout phase=never", "api.latency delay=x"} {
		if _, err := ParseFault(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func TestTheClientsRateLimitIsKept(t *testing.T) {
	d := newDesk(t, 1, Options{})
	var took time.Duration
	d.c.Process("p", ProcessOptions{QPS: 10, Burst: 5}, func(mgr manager.Manager) error {
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			from := d.s.Elapsed()
			for range 35 {
				_ = mgr.GetAPIReader().Get(ctx, client.ObjectKey{Name: "none"}, &Machine{})
			}
			took = d.s.Elapsed() - from
			return nil
		}))
	}).Start()
	d.wait(time.Minute)
	if took < 3*time.Second || took > 4*time.Second {
		t.Errorf("35 calls at 10 a second, 5 at once, took %v", took)
	}
}

func TestAPausedProcessDoesNothingInTheMidstOfItsCalls(t *testing.T) {
	s := sim.New(sim.Options{Seed: 1})
	c := toyCluster(t, s, Options{})
	var done []time.Duration
	p := c.Process("hands", ProcessOptions{}, func(mgr manager.Manager) error {
		return mgr.Add(manager.RunnableFunc(func(context.Context) error {
			for range 3 { // calls of the hardware, whose answers no pause holds up
				past := c.processes[0].Step("turn")
				s.Current().Sleep(time.Second)
				past()
				done = append(done, s.Elapsed())
			}
			return nil
		}))
	})
	p.Start()
	s.Run(1500 * time.Millisecond)
	p.Pause()
	s.Run(10 * time.Second)
	if len(done) != 1 {
		t.Errorf("a process paused in its second call has ended %d", len(done))
	}
	delivered := false
	p.Deliver(func() { delivered = true })
	if delivered {
		t.Error("a paused process took what arrived")
	}
	p.Resume()
	s.Run(20 * time.Second)
	if len(done) != 3 || done[1] < 10*time.Second || !delivered {
		t.Errorf("calls ended at %v, delivered: %v", done, delivered)
	}
	p.Crash()
	p.Deliver(func() { t.Error("a dead process took what arrived") })
	s.Run(21 * time.Second)
}
