// SPDX-License-Identifier: Apache-2.0

package nova_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/agents/nova"
	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/config/crd"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/sim"
)

// world is two or more hosts with their agents and no operator: the test plays
// the operator's part by hand.
type world struct {
	*testing.T
	s       *sim.Scheduler
	fleet   *hwsim.Fleet
	cluster *kubesim.Cluster
	user    client.WithWatch
	agents  map[string]*kubesim.Process
	onCall  func(hwsim.Call)
	ha      bool            // hosts need a permit for protected VMs
	leases  map[string]bool // hosts whose permit is renewed
	writes  []string        // of agents, on VMIs
}

func newWorld(t *testing.T, hosts ...string) *world {
	t.Helper()
	return buildWorld(&world{T: t}, hosts...)
}

func buildWorld(w *world, hosts ...string) *world {
	t := w.T
	w.s, w.agents, w.leases = sim.New(sim.Options{Seed: 1}), map[string]*kubesim.Process{}, map[string]bool{}
	calls := map[*sim.Task]func(){}
	w.fleet = hwsim.New(w.s, hwsim.Options{Step: func(c hwsim.Call) error {
		if w.onCall != nil {
			w.onCall(c)
		}
		// Each call of the hardware is a point at which an agent can die.
		task := w.s.Current()
		if p := w.agents[strings.TrimPrefix(c.Who, "nova/")]; p != nil && task != nil {
			if !c.After {
				calls[task] = p.Step(c.Name)
			} else if done := calls[task]; done != nil {
				delete(calls, task)
				done()
			}
		}
		return nil
	}})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kvmv1.AddToScheme, kubevirt.AddToScheme} {
		w.must(add(scheme))
	}
	crds, err := crd.All()
	w.must(err)
	w.cluster, err = kubesim.New(w.s, kubesim.Options{Scheme: scheme, CRDs: crds, NamespacesOnDemand: true, OnWrite: func(x kubesim.Write) {
		if v, ok := x.New.(*kubevirtv1.VirtualMachineInstance); ok && x.Role != "" {
			w.writes = append(w.writes, fmt.Sprintf("%s %s %s@%s", x.Process, v.Name, v.Status.Phase, v.Status.NodeName))
		}
	}})
	w.must(err)
	w.cluster.OnPanic = func(p kubesim.Panic) { t.Errorf("%s: %v\n%s", p.Process, p.Value, p.Stack) }
	w.cluster.OnHotLoop = func(h kubesim.HotLoop) { t.Errorf("hot loop: %+v", h) }
	w.user = w.cluster.Client("user")
	w.must(w.fleet.AddPool(hwsim.PoolSpec{Name: nova.SharedPool, Shared: true, LockLease: time.Minute}))
	for _, name := range hosts {
		h, err := w.fleet.AddHost(hwsim.HostSpec{Name: name})
		w.must(err)
		w.agents[name] = w.agent(h)
	}
	t.Cleanup(w.cluster.Close)
	w.run(5 * time.Second)
	return w
}

func (w *world) agent(h *hwsim.Host) *kubesim.Process {
	onHost, err := labels.NewRequirement(kubevirt.HostLabel(h.Name()), selection.Exists, nil)
	w.must(err)
	p := w.cluster.Process("nova/"+h.Name(), kubesim.ProcessOptions{
		Role: "agents/nova", Host: h.Name(), RestartAfter: 5 * time.Second,
		ByObject: map[client.Object]cache.ByObject{
			&kubevirtv1.VirtualMachineInstance{}: {Label: labels.NewSelector().Add(*onHost)},
			&kvmv1.Hypervisor{}:                  {Field: fields.OneTermEqualSelector("metadata.name", h.Name())},
		},
	}, func(mgr manager.Manager) error {
		return nova.Setup(mgr, nova.Options{Host: h.Name(), Hardware: h.Hardware("nova/" + h.Name()), Clock: w.s, NeedPermit: w.ha})
	})
	p.Start()
	return p
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) run(d time.Duration) { w.s.Run(w.s.Elapsed() + d) }

// place makes a VM as it is when it has been placed on a host.
func (w *world) place(name, host string) *kubevirtv1.VirtualMachineInstance {
	w.Helper()
	memory := resource.MustParse("1Gi")
	v := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "vms", Name: name, Finalizers: []string{kubevirt.Finalizer},
		Labels:      map[string]string{kubevirt.HostLabel(host): "", kubevirt.LabelNodeName: host},
		Annotations: map[string]string{kubevirt.AnnotationRunToken: "1"},
	}}
	v.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: &memory}
	v.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{{Name: "root", DiskDevice: kubevirtv1.DiskDevice{Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusVirtio}}}}
	claim := &kubevirtv1.PersistentVolumeClaimVolumeSource{}
	claim.ClaimName = name + "-root"
	v.Spec.Volumes = []kubevirtv1.Volume{{Name: "root", VolumeSource: kubevirtv1.VolumeSource{PersistentVolumeClaim: claim}}}
	kubevirt.Defaults(v)
	v.Status.NodeName, v.Status.Phase = host, kubevirtv1.Scheduled
	w.must(w.fleet.AddVolume(nova.VolumeName("vms", claim.ClaimName), 1<<30))
	w.must(w.user.Create(context.Background(), v))
	return v
}

func (w *world) get(name string) *kubevirtv1.VirtualMachineInstance {
	w.Helper()
	var v kubevirtv1.VirtualMachineInstance
	w.must(w.user.Get(context.Background(), client.ObjectKey{Namespace: "vms", Name: name}, &v))
	return &v
}

func (w *world) change(name string, change func(*kubevirtv1.VirtualMachineInstance)) {
	w.Helper()
	v := w.get(name)
	before := v.DeepCopy()
	change(v)
	w.must(w.user.Patch(context.Background(), v, client.MergeFrom(before)))
}

// domains prints a host's domains.
func (w *world) domains(host string) string {
	w.Helper()
	all, err := w.fleet.Host(host).Hardware("test").Domains(context.Background())
	w.must(err)
	var out []string
	for _, d := range all {
		out = append(out, fmt.Sprintf("%s %s", d.Spec.Name, d.State))
	}
	return strings.Join(out, ", ")
}

func (w *world) want(what, got, want string) {
	w.Helper()
	if got != want {
		w.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (w *world) phase(name string) string {
	v := w.get(name)
	return fmt.Sprintf("%s@%s", v.Status.Phase, v.Status.NodeName)
}

func (w *world) migrate(name, from, to string) {
	w.Helper()
	w.change(name, func(v *kubevirtv1.VirtualMachineInstance) {
		v.Labels[kubevirt.HostLabel(to)] = ""
		v.Labels[kubevirt.LabelMigrationTargetNodeName] = to
		v.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{MigrationUID: types.UID(from + "-to-" + to), SourceNode: from, TargetNode: to}
	})
}

func power(state string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) { v.Annotations[kubevirt.AnnotationPowerState] = state }
}

func TestLife(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.place("web", "a")
	w.run(30 * time.Second)
	w.want("placed", w.phase("web"), "Running@a")
	w.want("domains of a", w.domains("a"), "vms_web running")
	w.want("writes", strings.Join(w.writes, ", "), "nova/a web Running@a")

	w.run(time.Hour)
	w.want("writes of an idle hour", strings.Join(w.writes, ", "), "nova/a web Running@a")

	w.change("web", power("Paused"))
	w.run(5 * time.Second)
	w.want("paused", w.domains("a"), "vms_web paused")
	w.change("web", power("Running"))
	w.run(5 * time.Second)
	w.want("resumed", w.domains("a"), "vms_web running")
	w.change("web", power("Stopped"))
	w.run(40 * time.Second)
	w.want("stopped", w.phase("web"), "Scheduled@a")
	w.want("stays defined", w.domains("a"), "vms_web shut off")

	w.migrate("web", "a", "b")
	w.run(15 * time.Second)
	w.want("moved cold", w.phase("web"), "Scheduled@b")
	w.want("a after it", w.domains("a"), "")
	w.want("b after it", w.domains("b"), "vms_web shut off")

	w.change("web", power("Running"))
	w.run(30 * time.Second)
	w.want("started again", w.phase("web"), "Running@b")
	w.must(w.user.Delete(context.Background(), w.get("web")))
	w.run(time.Minute)
	w.want("b after the deletion", w.domains("b"), "")
	if w.exists("web") {
		t.Error("the deleted VM is still there")
	}
	for _, v := range w.fleet.Ledger().Violations() {
		t.Error(v)
	}
}

func TestMigration(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.place("web", "a")
	w.run(30 * time.Second)
	w.writes = nil
	w.migrate("web", "a", "b")
	w.run(time.Minute)
	w.want("moved", w.phase("web"), "Running@b")
	w.want("a", w.domains("a"), "")
	w.want("b", w.domains("b"), "vms_web running")
	w.want("writes", strings.Join(w.writes, ", "), "nova/b web Running@a, nova/a web Running@a, nova/b web Running@b")
	v := w.get("web")
	if !v.Status.MigrationState.Completed || v.Status.MigrationState.Failed {
		t.Errorf("%+v", v.Status.MigrationState)
	}
	if _, still := v.Labels[kubevirt.HostLabel("a")]; still || v.Labels[kubevirt.LabelNodeName] != "b" {
		t.Errorf("labels %v", v.Labels)
	}
	for _, v := range w.fleet.Ledger().Violations() {
		t.Error(v)
	}
}

// TestFaults strikes a migration, or an agent, and says where the VM must be
// two minutes later.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		strike func(w *world)
		want   string
		a, b   string
	}{
		{"the agent of the source dies while the job runs", func(w *world) {
			w.agents["a"].Crash()
			w.run(20 * time.Second)
			w.agents["a"].Start()
		}, "Running@b", "", "vms_web running"},
		{"the agent of the target dies while the job runs", func(w *world) {
			w.agents["b"].Crash()
			w.run(20 * time.Second)
			w.agents["b"].Start()
		}, "Running@b", "", "vms_web running"},
		{"cancelled while it runs", func(w *world) {
			w.change("web", func(v *kubevirtv1.VirtualMachineInstance) { v.Status.MigrationState.AbortRequested = true })
		}, "Running@a", "vms_web running", ""},
		{"libvirtd of the source crashes", func(w *world) {
			w.must(w.fleet.Inject(hwsim.Fault{Kind: "libvirtd.crash", On: []string{"a"}, For: 20 * time.Second}))
		}, "Running@a", "vms_web running", ""},
		{"the source cannot clean up", func(w *world) {
			w.must(w.fleet.Inject(hwsim.Fault{Kind: "migration.fail", VM: "vms_web", Phase: "completed-error", For: time.Minute}))
		}, "Running@b", "", "vms_web running"},
		{"QEMU of the source dies", func(w *world) {
			w.must(w.fleet.Inject(hwsim.Fault{Kind: "qemu.crash", VM: "vms_web", On: []string{"a"}}))
		}, "Failed@a", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, "a", "b")
			v := w.place("web", "a")
			w.fleet.SetGuest(kubevirt.DomainUUID(v), hwsim.Guest{UsedMemoryBytes: 900 << 20, DirtyBytesPerSecond: 1 << 20})
			w.run(30 * time.Second)
			slow := resource.MustParse("50Mi")
			w.migrate("web", "a", "b")
			w.change("web", func(v *kubevirtv1.VirtualMachineInstance) {
				v.Status.MigrationState.MigrationConfiguration = &kubevirtv1.MigrationConfiguration{BandwidthPerMigration: &slow}
			})
			w.run(8 * time.Second)
			if w.get("web").Status.MigrationState.StartTimestamp == nil {
				t.Fatal("the job does not run")
			}
			tt.strike(w)
			w.run(2 * time.Minute)
			w.want("VM", w.phase("web"), tt.want)
			w.want("a", w.domains("a"), tt.a)
			w.want("b", w.domains("b"), tt.b)
			for _, v := range w.fleet.Ledger().Violations() {
				t.Error(v)
			}
			if t.Failed() {
				t.Logf("%+v", w.get("web").Status.MigrationState)
			}
		})
	}
}

func TestGuestAgentIsSaidOnce(t *testing.T) {
	w := newWorld(t, "a", "b")
	v := w.place("web", "a")
	w.fleet.SetGuest(kubevirt.DomainUUID(v), hwsim.Guest{Agent: true})
	w.run(time.Minute)
	connected := func() bool {
		return slices.ContainsFunc(w.get("web").Status.Conditions, func(c kubevirtv1.VirtualMachineInstanceCondition) bool {
			return c.Type == kubevirtv1.VirtualMachineInstanceAgentConnected && c.Status == "True"
		})
	}
	if !connected() || len(w.writes) != 2 {
		t.Errorf("connected %v, writes %v", connected(), w.writes)
	}
	w.agents["a"].Crash()
	w.run(time.Second)
	w.agents["a"].Start()
	w.run(time.Minute)
	if !connected() || len(w.writes) != 2 {
		t.Errorf("after a restart: connected %v, writes %v", connected(), w.writes)
	}
	w.migrate("web", "a", "b")
	w.run(time.Minute)
	if !connected() || w.phase("web") != "Running@b" {
		t.Errorf("after a migration: connected %v, %s", connected(), w.phase("web"))
	}
}

func TestAgentRestartFailsNobody(t *testing.T) {
	w := newWorld(t, "a")
	for i := range 20 {
		w.place(fmt.Sprintf("vm-%d", i), "a")
	}
	w.run(2 * time.Minute)
	w.writes = nil
	w.must(w.fleet.Inject(hwsim.Fault{Kind: "libvirtd.crash", On: []string{"a"}, For: 40 * time.Second}))
	w.agents["a"].Crash()
	w.run(time.Second)
	w.agents["a"].Start()
	w.run(30 * time.Second)
	for i := range 20 {
		v := w.get(fmt.Sprintf("vm-%d", i))
		if v.Status.Phase != kubevirtv1.Running {
			t.Fatalf("%s is %s", v.Name, v.Status.Phase)
		}
		if c := synchronizedOf(v); c != "Unknown/HypervisorUnavailable" {
			t.Errorf("%s: Synchronized %s while libvirtd is away", v.Name, c)
		}
	}
	w.run(2 * time.Minute)
	for i := range 20 {
		v := w.get(fmt.Sprintf("vm-%d", i))
		if c := synchronizedOf(v); v.Status.Phase != kubevirtv1.Running || c != "True/" {
			t.Errorf("%s is %s, Synchronized %s", v.Name, v.Status.Phase, c)
		}
	}
	if len(w.writes) != 40 {
		t.Errorf("%d writes, want one for each VM and direction", len(w.writes))
	}
}

func synchronizedOf(v *kubevirtv1.VirtualMachineInstance) string {
	for _, c := range v.Status.Conditions {
		if c.Type == kubevirtv1.VirtualMachineInstanceSynchronized {
			return string(c.Status) + "/" + c.Reason
		}
	}
	return ""
}

func TestForeignDomainsAreLeftAlone(t *testing.T) {
	w := newWorld(t, "a")
	h := w.fleet.Host("a").Hardware("virsh")
	w.must(h.Define(context.Background(), hardware.DomainSpec{UUID: "2f6b7a10-5a1d-4e3c-8f51-0c6d2e9a3201", Name: "scratch", MemoryKiB: 1 << 20, VCPUs: 1}))
	w.must(h.Start(context.Background(), "2f6b7a10-5a1d-4e3c-8f51-0c6d2e9a3201", hardware.StartOptions{}))
	w.run(time.Hour)
	w.want("a", w.domains("a"), "scratch running")
}

func TestOrphan(t *testing.T) {
	w := newWorld(t, "a")
	w.place("web", "a")
	w.run(30 * time.Second)
	w.change("web", func(v *kubevirtv1.VirtualMachineInstance) { v.Finalizers = nil })
	w.must(w.user.Delete(context.Background(), w.get("web"))) // by force: nobody waited for us
	w.run(20 * time.Second)
	w.want("not at once", w.domains("a"), "vms_web running")
	w.run(2 * time.Minute)
	w.want("gently, and then gone", w.domains("a"), "")
}

func keyOf(name string) client.ObjectKey { return client.ObjectKey{Name: name} }

func (w *world) exists(name string) bool {
	w.Helper()
	err := w.user.Get(context.Background(), client.ObjectKey{Namespace: "vms", Name: name}, &kubevirtv1.VirtualMachineInstance{})
	w.must(client.IgnoreNotFound(err))
	return err == nil
}
