// SPDX-License-Identifier: Apache-2.0

package ha_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
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

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/config/crd"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/operator/ha"
	"github.com/adit-hv/adit/sim"
)

// The times of the toy hosts, as docs/ha.md has them.
const (
	term     = 20 * time.Second
	stop     = 10 * time.Second
	watchdog = 20 * time.Second
)

// house is an API, two replicas of the service, six toy hosts of which host a has
// three VMs, and a placement that does at once what it is asked for.
type house struct {
	t        *testing.T
	s        *sim.Scheduler
	cluster  *kubesim.Cluster
	people   client.WithWatch
	replicas []*kubesim.Process
	services []*ha.Service
	hosts    map[string]*host
	power    bool // there are management controllers
	bare     bool // the hosts have no watchdogs
	moved    map[string]int
	dialled  int // how often a management controller was looked for
}

// host is a machine with an agent that keeps a run lease by grants alone.
type host struct {
	h    *house
	name string
	boot int
	seq  uint64

	off   bool // no power
	hung  bool // its agent says nothing and stops nothing; its VMs run
	armed bool
	off2  time.Duration // power goes off then, since that was ordered; 0: not
	up    time.Duration // since when this boot lasts
	until time.Duration // of its lease; 0: none in this boot
	free  bool          // it needs none
}

var sortedHosts = []string{"a", "b", "c", "d", "e", "f"}

// A house may lack what there is for proofs.
const (
	complete  = ""
	noPower   = "no management controllers"
	noNothing = "nor watchdogs"
)

func newHouse(t *testing.T, seed uint64, lacks string) *house {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kvmv1.AddToScheme, v1alpha1.AddToScheme, kubevirt.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	crds, err := crd.All()
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, s: sim.New(sim.Options{Seed: seed}), hosts: map[string]*host{}, services: make([]*ha.Service, 2), power: lacks == complete, bare: lacks == noNothing, moved: map[string]int{}}
	h.cluster, err = kubesim.New(h.s, kubesim.Options{Scheme: scheme, CRDs: crds, NamespacesOnDemand: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.cluster.Close)
	h.cluster.OnHotLoop = func(l kubesim.HotLoop) { t.Errorf("hot loop: %+v", l) }
	h.cluster.OnPanic = func(p kubesim.Panic) { t.Errorf("panic: %v\n%s", p.Value, p.Stack) }
	h.people = h.cluster.Client("people")
	for i := range h.services {
		name := fmt.Sprint("ha-", i)
		p := h.cluster.Process(name, kubesim.ProcessOptions{LeaderElection: "kvm/ha", ByObject: ha.ByObject()}, func(mgr manager.Manager) (err error) {
			h.services[i], err = ha.Setup(mgr, ha.Options{Clock: h.s, Steady: h.s, Power: h.dial, Election: "ha", Identity: name})
			return err
		})
		p.Start()
		h.replicas = append(h.replicas, p)
	}
	for i, name := range sortedHosts {
		h.must(h.people.Create(context.Background(), &kvmv1.Hypervisor{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{kvmv1.LabelZone: "z"}, Annotations: map[string]string{
				"kvm.cloud.sap/identity": fmt.Sprintf(`{"serial":%q}`, name),
			}},
			Spec: kvmv1.HypervisorSpec{HighAvailability: true},
		}))
		toy := &host{h: h, name: name, boot: 1}
		h.hosts[name] = toy
		h.s.After(time.Duration(i)*700*time.Millisecond, func() { h.every(5*time.Second, toy.report) })
	}
	for i := range 3 {
		h.vm(fmt.Sprint("vm-", i))
	}
	h.every(500*time.Millisecond, h.place)
	h.run(60)
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

func (h *house) vm(name string) {
	h.t.Helper()
	v := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
		Labels: map[string]string{kubevirt.HostLabel("a"): "", kubevirt.LabelNodeName: "a", kubevirt.LabelProtected: "true"}}}
	v.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: ptr.To(resource.MustParse("1Gi"))}
	v.Status.Phase, v.Status.NodeName = kubevirtv1.Running, "a"
	h.must(h.people.Create(context.Background(), v))
}

// report is an agent's turn: it ends a lease that has run out, and tells the
// replica that leads how things are.
func (t *host) report() {
	if t.off || t.hung {
		return
	}
	t.seq++
	now := t.h.s.Elapsed()
	r := &hav1.ReportRequest{
		Host: t.name, Boot: fmt.Sprint("boot-", t.boot), Epoch: 1, Seq: t.seq, Uptime: durationpb.New(now - t.up), Full: true,
		Virtualisation: &hav1.Virtualisation{Answers: true},
		Watchdog:       &hav1.Watchdog{Present: true, Armed: t.armed, Timeout: durationpb.New(watchdog)},
		Lease: &hav1.Lease{
			Valid: now < t.until, Lapsed: t.until > 0 && now >= t.until, Stopped: t.until > 0 && now >= t.until,
			Term: durationpb.New(term), Stop: durationpb.New(stop),
		},
	}
	for i, p := range t.h.replicas {
		if !p.Alive() {
			continue
		}
		p.Deliver(func() {
			out, err := t.h.services[i].Report(context.Background(), r)
			switch {
			case err == nil && out.Granted:
				t.until, t.armed, t.free = max(t.until, now+term), !t.h.bare, false
			case err == nil && out.Off:
				t.until, t.armed, t.free = 0, false, true
			}
		})
	}
}

// runsOut says whether the watchdog has reset a host that hangs, since its agent
// feeds it no more.
func (t *host) runsOut() bool { return t.armed && t.h.s.Elapsed() >= t.until+stop+watchdog }

// runs says whether the VMs that were started on a host still run.
func (t *host) runs() bool {
	now := t.h.s.Elapsed()
	switch {
	case t.off || t.off2 > 0 && now >= t.off2:
		return false
	case t.hung:
		return !t.runsOut()
	}
	return t.free || now < t.until
}

// begins is a host that comes back.
func (t *host) begins() {
	*t = host{h: t.h, name: t.name, boot: t.boot + 1, up: t.h.s.Elapsed()}
}

// dial reaches a host's management controller.
func (h *house) dial(name string) (hardware.Power, error) {
	h.dialled++
	if !h.power {
		return nil, fmt.Errorf("host %s has no management controller", name)
	}
	return h.hosts[name], nil
}

// Controller implements hardware.Power.
func (t *host) Controller(context.Context) (hardware.Controller, error) {
	return hardware.Controller{Serial: t.name}, nil
}

// PowerState implements hardware.Power.
func (t *host) PowerState(context.Context) (hardware.PowerState, error) {
	if t.off || t.off2 > 0 && t.h.s.Elapsed() >= t.off2 {
		return hardware.PowerOff, nil
	}
	return hardware.PowerOn, nil
}

// SetPower implements hardware.Power. It takes three seconds.
func (t *host) SetPower(_ context.Context, on bool) error {
	if !on && t.off2 == 0 {
		t.off2 = t.h.s.Elapsed() + 3*time.Second
		t.h.recorded(t.name)
	}
	return nil
}

// recorded makes sure that an order was written down before it is given.
func (h *house) recorded(name string) {
	for _, e := range h.evacuations(name) {
		if e.Status.Power != nil && e.Status.Power.Ordered != nil {
			return
		}
	}
	h.t.Errorf("at %v host %s is switched off, and that is nowhere on record", h.s.Elapsed(), name)
}

// place moves the VMs that it is asked to, and looks whether it may.
func (h *house) place() {
	var all kubevirtv1.VirtualMachineInstanceList
	h.must(h.people.List(context.Background(), &all))
	for i := range all.Items {
		v := &all.Items[i]
		from, evacuation := kubevirt.EvacuatedFrom(v)
		if from == "" {
			continue
		}
		var e v1alpha1.Evacuation
		h.must(h.people.Get(context.Background(), client.ObjectKey{Name: evacuation}, &e))
		if e.Status.Proof == nil || h.hosts[from].runs() {
			h.t.Errorf("at %v VM %s of %s is placed anew by proof %+v; the host runs: %v", h.s.Elapsed(), v.Name, from, e.Status.Proof, h.hosts[from].runs())
		}
		h.moved[v.Name]++
		delete(v.Annotations, kubevirt.AnnotationEvacuatedFrom)
		delete(v.Labels, kubevirt.HostLabel(from))
		v.Labels[kubevirt.HostLabel("b")], v.Labels[kubevirt.LabelNodeName] = "", "b"
		v.Status.NodeName = "b"
		h.must(h.people.Update(context.Background(), v))
	}
}

func (h *house) evacuations(of string) []v1alpha1.Evacuation {
	var all v1alpha1.EvacuationList
	h.must(h.people.List(context.Background(), &all, client.MatchingLabels{v1alpha1.LabelEvacuated: of}))
	return all.Items
}

// story is the host's state and what its Evacuations have come to.
func (h *house) story(of string) string {
	var v kvmv1.Hypervisor
	h.must(h.people.Get(context.Background(), client.ObjectKey{Name: of}, &v))
	text := []string{"unknown"}
	if c := meta.FindStatusCondition(v.Status.Conditions, kvmv1.ConditionHostAlive); c != nil {
		text[0] = c.Reason
	}
	for _, e := range h.evacuations(of) {
		proof := v1alpha1.ProofKind("none")
		if e.Status.Proof != nil {
			proof = e.Status.Proof.Kind
		}
		text = append(text, fmt.Sprintf("%s:%s:%s", e.Name, e.Status.Phase, proof))
	}
	if v.Spec.Maintenance != "" {
		text = append(text, "maintenance="+string(v.Spec.Maintenance))
	}
	return strings.Join(text, " ")
}

func (h *house) want(of string, stories ...string) {
	h.t.Helper()
	if got := h.story(of); !slices.Contains(stories, got) {
		h.t.Errorf("at %v %s: %q, want %q", h.s.Elapsed(), of, got, stories)
	}
}

// movedOnce says that each of the three VMs was placed anew once.
func (h *house) movedOnce() {
	h.t.Helper()
	if len(h.moved) != 3 || h.moved["vm-0"] != 1 || h.moved["vm-1"] != 1 || h.moved["vm-2"] != 1 {
		h.t.Errorf("placed anew: %v", h.moved)
	}
}

// writes counts what the service has written but for its election.
func (h *house) writes() (n uint64) {
	for _, c := range h.cluster.Counts() {
		if strings.HasPrefix(c.Client, "ha-") && c.Verb != "get" && c.Verb != "list" && c.Verb != "watch" && c.Resource != "leases" {
			n += c.N
		}
	}
	return n
}

func TestAQuietFleetIsNotWrittenAbout(t *testing.T) {
	h := newHouse(t, 1, complete)
	before := h.writes()
	h.dialled = 0
	h.run(1800)
	if h.dialled > 0 {
		t.Errorf("management controllers were looked for %d times", h.dialled)
	}
	if n := h.writes() - before; n > 0 {
		t.Errorf("%d writes", n)
	}
	h.want("a", "Online")
}

func TestAHostThatHangsIsSwitchedOffAndComesBack(t *testing.T) {
	h := newHouse(t, 1, complete)
	before := h.writes()
	h.hosts["a"].hung = true
	h.run(90)
	h.want("a", "Evacuated a-1:Evacuated:PowerOff maintenance=ha")
	h.movedOnce()
	if n := h.writes() - before; n > 30 {
		t.Errorf("%d writes for a host of three VMs", n)
	}
	h.hosts["a"].begins()
	h.run(60)
	h.want("a", "Online a-1:Done:PowerOff")
	if a := h.hosts["a"]; a.until < h.s.Elapsed() {
		t.Error("it is back and has no lease")
	}
}

func TestWithoutAControllerTheLeaseIsTheProof(t *testing.T) {
	h := newHouse(t, 2, noPower)
	h.hosts["a"].hung = true
	h.run(52)
	h.want("a", "Fencing a-1:Fencing:none maintenance=ha")
	h.run(40)
	h.want("a", "Evacuated a-1:Evacuated:LeaseExpired maintenance=ha")
	h.movedOnce()
}

func TestAHostThatIsSilentForAMomentIsLeftAlone(t *testing.T) {
	h := newHouse(t, 3, complete)
	h.hosts["a"].hung = true
	h.run(22)
	h.hosts["a"].hung = false
	h.run(60)
	h.want("a", "Online")
}

func TestMostAreSilent(t *testing.T) {
	h := newHouse(t, 4, noNothing)
	for _, name := range []string{"a", "b", "c", "d"} {
		h.hosts[name].hung = true
	}
	h.run(300)
	h.want("a", "Held")
	if len(h.moved) > 0 {
		t.Errorf("placed anew: %v", h.moved)
	}
	var a kvmv1.Hypervisor
	h.must(h.people.Get(context.Background(), client.ObjectKey{Name: "a"}, &a))
	a.Annotations[v1alpha1.AnnotationConfirmFenced] = "ann until " + h.s.Now().Add(time.Hour).Format(time.RFC3339) + ": unplugged"
	h.must(h.people.Update(context.Background(), &a))
	h.hosts["a"].off = true
	h.run(30)
	h.want("a", "Evacuated a-1:Evacuated:Confirmed maintenance=ha")
	h.movedOnce()
	for _, name := range []string{"a", "b", "c", "d"} {
		h.hosts[name].begins()
	}
	h.run(60)
	h.want("a", "Online a-1:Done:Confirmed")
	h.must(h.people.Get(context.Background(), client.ObjectKey{Name: "a"}, &a))
	if word := a.Annotations[v1alpha1.AnnotationConfirmFenced]; word != "" {
		t.Errorf("%q counts when it falls silent next", word)
	}
}

// No replica is there while the host dies, and for ten minutes.
func TestNobodyLeads(t *testing.T) {
	h := newHouse(t, 5, noPower)
	for _, p := range h.replicas {
		p.Crash()
	}
	h.run(5)
	h.hosts["a"].off = true
	h.run(600)
	for _, p := range h.replicas {
		p.Start()
	}
	h.run(240)
	h.want("a", "Evacuated a-1:Evacuated:LeaseExpired maintenance=ha")
	h.movedOnce()
	for _, name := range []string{"b", "c", "d", "e", "f"} {
		h.want(name, "Online")
	}
}

// A fleet that rehearses is not touched: no watchdog is armed, nobody stops his VMs,
// and what would be done is said. When it is in earnest it is done.
func TestARehearsalTouchesNothing(t *testing.T) {
	h := newHouse(t, 6, complete)
	h.held("dryRun", true)
	h.run(15)
	for _, name := range sortedHosts {
		if x := h.hosts[name]; x.armed || !x.free {
			t.Errorf("host %s: watchdog armed %v, runs without a lease %v", name, x.armed, x.free)
		}
	}
	h.hosts["a"].hung = true
	h.run(300)
	h.want("a", "Held")
	if !h.hosts["a"].runs() || len(h.moved) > 0 {
		t.Errorf("it runs: %v; placed anew: %v", h.hosts["a"].runs(), h.moved)
	}
	h.held("dryRun", false)
	h.run(10)
	if !h.hosts["b"].armed {
		t.Error("high availability does not begin")
	}
	h.run(50)
	h.want("a", "Evacuated a-1:Evacuated:PowerOff maintenance=ha")
	h.movedOnce()
}

// held has a person hold the service, or let it go.
func (h *house) held(how string, on bool) {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kvm", Name: ha.ConfigName}, Data: map[string]string{how: fmt.Sprint(on)}}
	if on {
		h.must(h.people.Create(context.Background(), c))
		return
	}
	h.must(h.people.Delete(context.Background(), c))
}
