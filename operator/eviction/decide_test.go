// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// die is a host that was fenced.
func die(w *world) {
	w.hypervisor.Spec.Maintenance = kvmv1.MaintenanceHA
	w.hypervisor.Status.Conditions = append(w.hypervisor.Status.Conditions, metav1.Condition{Type: kvmv1.ConditionHostAlive, Status: metav1.ConditionFalse, Reason: kvmv1.ReasonFenced})
}

// TestFirstLook: one look at a host as it is.
func TestFirstLook(t *testing.T) {
	tests := []struct {
		name   string
		vms    []*vmi
		change func(*world)
		ask    string
		states string
		want   string // Evicting: reason and message.
	}{
		{name: "an empty host is done", want: "Succeeded: eviction completed successfully"},
		{name: "as many as the limit are asked", vms: []*vmi{vm("x"), vm("y"), vm("z")}, ask: "x#1 y#1",
			states: "x:Moving y:Moving z:Waiting", want: "Running: Running"},
		{name: "the eviction's own limit counts", vms: []*vmi{vm("x"), vm("y")}, ask: "x#1", states: "x:Moving y:Waiting",
			change: func(w *world) { w.eviction.Spec.Parallel = ptr.To(int32(1)) }, want: "Running: Running"},
		{name: "priority, then running, then small", vms: []*vmi{vm("s", stopped, sized(1)), vm("big", sized(4096)), vm("small"), vm("gold", sized(8192), ranked("5"))},
			ask: "gold#1 small#1", states: "big:Waiting gold:Moving s:Waiting small:Moving", want: "Running: Running"},
		{name: "a stopped VM is moved too", vms: []*vmi{vm("x", stopped)}, ask: "x#1", states: "x:Moving", want: "Running: Running"},
		{name: "a stopped VM may have a device", vms: []*vmi{vm("x", stopped, pinned)}, ask: "x#1", states: "x:Moving", want: "Running: Running"},
		{name: "a VM that cannot move is stepped over and named", vms: []*vmi{vm("c", pinned), vm("x")}, ask: "x#1",
			states: "c:Blocked/HostDeviceNotLiveMigratable x:Moving",
			want:   "Running: Running: not moved yet: ns/c (host device card cannot follow the VM: remove it, or stop the VM)"},
		{name: "a disk of this host holds even a stopped VM", vms: []*vmi{vm("x", stopped, local)},
			states: "x:Blocked/DisksNotLiveMigratable",
			want:   "Running: Running: not moved yet: ns/x (volume scratch is on this host only: use a persistentVolumeClaim with access mode ReadWriteMany)"},
		{name: "what the agent says holds a VM", vms: []*vmi{vm("x", says(kubevirtv1.VirtualMachineInstanceIsMigratable, "Snapshot", "a snapshot is taken"))},
			states: "x:Blocked/Snapshot", want: "Running: Running: not moved yet: ns/x (a snapshot is taken)"},
		{name: "what its owner says holds a VM", vms: []*vmi{vm("x", strategy(kubevirtv1.EvictionStrategyNone))}, states: "x:Blocked/EvictionStrategy",
			want: "Running: Running: not moved yet: ns/x (its spec.evictionStrategy is None: set LiveMigrate, or shut it down)"},
		{name: "a VM being deleted is not asked, and not forgotten", vms: []*vmi{vm("x", deleted)}, states: "x:Waiting/Terminating", want: "Running: Running"},
		{name: "a VM that starts is waited for", vms: []*vmi{vm("x", starting)}, states: "x:Waiting/Starting", want: "Running: Running"},
		{name: "a VM that cannot start is named", vms: []*vmi{vm("x", starting, says(kubevirtv1.VirtualMachineInstanceSynchronized, "NoVolume", "volume v is not there"))},
			states: "x:Blocked/NotStarted", want: "Running: Running: not moved yet: ns/x (it cannot start here: volume v is not there)"},
		{name: "a VM on its way here settles first", vms: []*vmi{vm("x", arriving)}, states: "x:Waiting/Arriving", want: "Running: Running"},
		{name: "a VM that left is waited for until the source is clean", vms: []*vmi{vm("x", leaving)}, states: "x:Moving", want: "Running: Running"},
		{name: "an unmanaged domain is named and never touched", vms: []*vmi{vm("x")}, ask: "x#1",
			change: func(w *world) {
				w.hypervisor.Status.Instances = []kvmv1.Instance{{ID: "f00", Name: "theirs", Active: true}}
			},
			states: "theirs:Blocked/Unmanaged x:Moving",
			want:   "Running: Running: not moved yet: theirs (" + messageUnmanaged + ")"},
		{name: "a host that is not empty by its own list is not done",
			vms: []*vmi{vm("x", func(v *vmi) { place(v, "b") })},
			change: func(w *world) {
				w.hypervisor.Status.Instances = []kvmv1.Instance{{ID: idOf(w.vms[0]), Name: "x"}}
			},
			want: "Running: Running: " + messageAgentConfirm},
		{name: "a host in service keeps its VMs", vms: []*vmi{vm("x")}, states: "x:Waiting", want: "Running: Running",
			change: func(w *world) { w.hypervisor.Status.Conditions = nil }},
		{name: "a dead host's VMs are not asked", vms: []*vmi{vm("x")}, states: "x:Waiting", want: "Running: Running",
			change: func(w *world) { w.hypervisor.Spec.Maintenance = kvmv1.MaintenanceHA }},
		{name: "and stay the eviction's as long as they are there", vms: []*vmi{vm("x")}, states: "x:Waiting", want: "Running: Running",
			change: func(w *world) { die(w) }},
		{name: "when they are started elsewhere it ends, whatever the host had reported", vms: []*vmi{vm("x", func(v *vmi) { place(v, "b") })},
			change: func(w *world) {
				die(w)
				w.hypervisor.Status.Instances = []kvmv1.Instance{{ID: idOf(w.vms[0]), Name: "x"}}
			},
			want: "Succeeded: host a died, and the HA service had its VMs started elsewhere"},
		{name: "no such hypervisor", vms: nil, want: "Failed: failed to get hypervisor a: there is none of that name",
			change: func(w *world) { w.hypervisor = nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(tt.vms...)
			if tt.change != nil {
				tt.change(w)
			}
			p := w.step(2)
			if got := names(p.ask); got != tt.ask {
				t.Errorf("asked %q, want %q", got, tt.ask)
			}
			if got := states(p.status); got != tt.states {
				t.Errorf("states %q, want %q", got, tt.states)
			}
			c := meta.FindStatusCondition(p.status.Conditions, kvmv1.ConditionEvicting)
			if got := c.Reason + ": " + c.Message; got != tt.want {
				t.Errorf("Evicting = %s, want %s", got, tt.want)
			}
			w.now = at(1)
			if again := w.step(2); again.status != nil || len(again.ask) > 0 {
				t.Errorf("the second look asks %q and writes %s", names(again.ask), states(again.status))
			}
		})
	}
}

func TestPreflight(t *testing.T) {
	w := newWorld(vm("x"))
	w.hypervisor.Status.Conditions = nil
	c := meta.FindStatusCondition(w.step(2).status.Conditions, kvmv1.ConditionPreflightChecksSucceeded)
	if c.Status != metav1.ConditionFalse || c.Message != "hypervisor not disabled" {
		t.Errorf("before: %+v", c)
	}
	w = newWorld(vm("x"))
	c = meta.FindStatusCondition(w.step(2).status.Conditions, kvmv1.ConditionPreflightChecksSucceeded)
	if c.Status != metav1.ConditionTrue || c.Message != "Preflight checks passed, hypervisor is disabled and ready for eviction" {
		t.Errorf("after: %+v", c)
	}
}

func TestTheFinalizerIsThereBeforeAnythingIsAsked(t *testing.T) {
	w := newWorld(vm("x"))
	w.eviction.Finalizers = nil
	if p := w.step(2); !p.hold {
		t.Error("not held")
	}
	if p := w.step(2); len(p.ask) > 0 {
		t.Error("asked twice")
	}
}

func TestDryRun(t *testing.T) {
	w := newWorld(vm("x"), vm("y"), vm("c", pinned))
	w.eviction.Spec.DryRun = true
	w.eviction.Finalizers = nil
	w.hypervisor.Status.Conditions = nil // A dry run may be had of a host in service.
	w.hypervisor.Status.Instances = []kvmv1.Instance{{ID: "f00", Name: "theirs"}}
	w.verdicts = map[string]Verdict{
		idOf(w.vms[0]): {Destination: "b"},
		idOf(w.vms[1]): {Reason: "NoHost", Message: "no host has 1 GiB"},
	}
	p := w.step(2)
	if p.hold || len(p.ask) > 0 || len(w.migrations) > 0 {
		t.Error("a dry run does something")
	}
	want := "c:CannotMove/HostDeviceNotLiveMigratable theirs:CannotMove/Unmanaged x:WouldMove y:CannotMove/NoHost"
	if got := states(p.status); got != want {
		t.Errorf("states %q, want %q", got, want)
	}
	c := meta.FindStatusCondition(p.status.Conditions, kvmv1.ConditionEvicting)
	if c.Status != metav1.ConditionFalse || c.Reason != "Succeeded" || !strings.HasPrefix(c.Message, "dry run: 1 of 4 VMs would move; cannot: ") {
		t.Errorf("Evicting = %+v", c)
	}
	for _, i := range p.status.Instances {
		if i.Name == "x" && i.Destination != "b" {
			t.Errorf("x goes to %q", i.Destination)
		}
	}
}

func TestCancelWithdrawsWhatHasNotBegun(t *testing.T) {
	w := newWorld(vm("p"), vm("s"), vm("r"), vm("t"), vm("w"))
	w.step(4)
	w.phase("r", kubevirtv1.MigrationRunning, "")
	w.phase("s", kubevirtv1.MigrationScheduling, "")
	w.phase("t", kubevirtv1.MigrationTargetReady, "")
	// The source has begun, and the migration's object does not say so yet.
	for _, m := range w.migrations {
		if m.Spec.VMIName == "t" {
			w.vms[3].Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{MigrationUID: m.UID, StartTimestamp: &metav1.Time{Time: start}}
		}
	}
	w.eviction.DeletionTimestamp = &metav1.Time{Time: at(5)}
	p := w.step(4)
	if !p.release || len(p.ask) > 0 || p.status != nil {
		t.Errorf("plan %+v", p)
	}
	var withdrawn []string
	for _, m := range p.withdraw {
		withdrawn = append(withdrawn, m.Spec.VMIName)
	}
	if got := strings.Join(withdrawn, " "); got != "p s" {
		t.Errorf("withdrew %q, want p and s", got)
	}
}

func TestBackOff(t *testing.T) {
	for failures, want := range []time.Duration{20, 20, 40, 80, 160, 320, 320, 320} {
		if got := backOff(int32(failures)); got != want*time.Second {
			t.Errorf("after %d failures: %v, want %v s", failures, got, want)
		}
	}
}

func TestNamesFit(t *testing.T) {
	long := strings.Repeat("n", 200)
	e := &kvmv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: long, UID: "e"}}
	m := newMigration(e, vm(long), 99999)
	for what, text := range map[string]string{"name": m.Name, "eviction": m.Labels["kvm.cloud.sap/eviction"], "vmi": m.Labels["kubevirt.io/vmi-name"]} {
		if len(text) > 63 || text == "" {
			t.Errorf("%s %q has %d characters", what, text, len(text))
		}
	}
	if migrationName(e, vm("x"), 1) == migrationName(e, vm("x"), 2) {
		t.Error("two attempts share a name")
	}
}
