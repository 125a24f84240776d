// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubevirtv1 "kubevirt.io/api/core/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

func news1(s *kvmv1.EvictionStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, kvmv1.ConditionMigratingInstance); c != nil {
		return c.Reason + ": " + c.Message
	}
	return ""
}

func TestOneWriteForEachVM(t *testing.T) {
	var vms []*vmi
	for i := range 50 {
		vms = append(vms, vm(fmt.Sprintf("vm-%02d", i)))
	}
	w := newWorld(vms...)
	writes := 0
	for i := range 50 {
		if w.step(2).status != nil {
			writes++
		}
		// Other news in between: hand-off, running, the VM's own conditions.
		name := fmt.Sprintf("vm-%02d", i)
		w.now = w.now.Add(5 * time.Second)
		w.phase(name, kubevirtv1.MigrationPreparingTarget, "")
		w.vms[i].Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{MigrationUID: w.migrations[i].UID, TargetNode: "b"}
		if w.step(2).status != nil {
			writes++
		}
		w.now = w.now.Add(5 * time.Second)
		w.phase(name, kubevirtv1.MigrationRunning, "")
		if w.step(2).status != nil {
			writes++
		}
		w.now = w.now.Add(10 * time.Second)
		w.phase(name, kubevirtv1.MigrationSucceeded, "")
	}
	if w.step(2).status != nil {
		writes++
	}
	if ended(w.eviction) {
		t.Error("done before the host can have let go of the last one")
	}
	w.now = w.now.Add(letGo)
	p := w.step(2)
	if !ended(w.eviction) || p.status.Moved != 50 || p.status.Total != 50 || len(p.status.OutstandingInstances) != 0 || p.status.OutstandingRAMMb != 0 {
		t.Errorf("not done: %+v", p.status)
	}
	if writes++; writes > 52 {
		t.Errorf("%d writes for 50 VMs", writes)
	}
}

func TestProgressAndETA(t *testing.T) {
	w := newWorld(vm("x"), vm("y"), vm("z", sized(2048)))
	if p := w.step(1); p.status.OutstandingRAMMb != 4096 || p.status.ETA != nil {
		t.Errorf("at the start %d MiB, ETA %v", p.status.OutstandingRAMMb, p.status.ETA)
	}
	w.now = at(10)
	w.phase("x", kubevirtv1.MigrationSucceeded, "")
	p := w.step(1)
	if s := p.status; s.OutstandingRAMMb != 3072 || s.Moved != 1 || s.Running != 1 || s.ETA == nil || !s.ETA.Time.Equal(at(40)) {
		t.Errorf("after one GiB in 10 s: %+v", s)
	}
	if got, want := p.status.OutstandingInstances, []string{idOf(w.vms[2]), idOf(w.vms[1])}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("outstanding %v, want the one that moves last: %v", got, want)
	}
	if got, want := news1(p.status), "Succeeded: Migration of instance "+idOf(w.vms[0])+" finished"; got != want {
		t.Errorf("news %q, want %q", got, want)
	}
}

func TestAFailedMigrationWaitsItsTurnAndIsNamed(t *testing.T) {
	w := newWorld(vm("x"), vm("y"))
	w.step(1)
	w.now = at(100)
	w.phase("x", kubevirtv1.MigrationFailed, "not converged in 150 s: dirties 900 MiB/s")
	p := w.step(1)
	if got := states(p.status); got != "x:Failed/MigrationFailed y:Moving" {
		t.Fatalf("states %q", got)
	}
	if p.lookAgain != 20*time.Second {
		t.Errorf("looks again after %v", p.lookAgain)
	}
	if c := meta.FindStatusCondition(p.status.Conditions, kvmv1.ConditionEvicting); c.Status != metav1.ConditionTrue ||
		c.Message != "Running: not moved yet: ns/x (not converged in 150 s: dirties 900 MiB/s)" {
		t.Errorf("Evicting = %+v", c)
	}
	w.now = at(110)
	w.phase("y", kubevirtv1.MigrationSucceeded, "")
	if p := w.step(1); len(p.ask) > 0 {
		t.Errorf("asked %s before its time", names(p.ask))
	}
	w.now = at(120)
	p = w.step(1)
	if names(p.ask) != "x#2" || states(p.status) != "x:Moving y:Moved" {
		t.Fatalf("asked %q, states %q", names(p.ask), states(p.status))
	}
	if c := meta.FindStatusCondition(p.status.Conditions, kvmv1.ConditionEvicting); c.Message != "Running: not moved yet: ns/x (not converged in 150 s: dirties 900 MiB/s)" {
		t.Errorf("Evicting = %+v", c)
	}
	w.now = at(300)
	w.phase("x", kubevirtv1.MigrationFailed, "again")
	if p := w.step(1); p.lookAgain != 40*time.Second {
		t.Errorf("the second time it waits %v", p.lookAgain)
	}
	// Kept migrations are few: the count stays when they go.
	w.migrations = nil
	w.now = at(340)
	if p := w.step(1); names(p.ask) != "x#3" {
		t.Errorf("asked %q", names(p.ask))
	}
}

func TestAVMThatFindsNoHostDoesNotHoldUpTheOthers(t *testing.T) {
	w := newWorld(vm("x"), vm("y"))
	w.step(1)
	w.phase("x", kubevirtv1.MigrationScheduling, "")
	if p := w.step(1); p.lookAgain != stuckAfter {
		t.Errorf("looks again after %v", p.lookAgain)
	}
	w.now = at(30)
	p := w.step(1)
	if len(p.withdraw) != 1 || states(p.status) != "x:Failed/NoHost y:Waiting" {
		t.Fatalf("withdrew %d, states %q", len(p.withdraw), states(p.status))
	}
	if p := w.step(1); names(p.ask) != "y#1" {
		t.Errorf("asked %q", names(p.ask))
	}
	w.now = at(40)
	w.phase("y", kubevirtv1.MigrationSucceeded, "")
	w.step(1)
	w.now = at(50)
	if p := w.step(1); names(p.ask) != "x#2" {
		t.Errorf("asked %q", names(p.ask))
	}
	// With nobody behind it, it may look for a host as long as it likes.
	w.phase("x", kubevirtv1.MigrationScheduling, "")
	w.now = at(100)
	if p := w.step(1); len(p.withdraw) > 0 || states(p.status) != "x:Moving/NoHost y:Moved" {
		t.Errorf("withdrew %d, states %q", len(p.withdraw), states(p.status))
	}
	if p := w.step(1); p.status != nil || p.lookAgain != 0 {
		t.Errorf("writes %s, looks again after %v", states(p.status), p.lookAgain)
	}
}

func TestAWithdrawnMigrationIsAskedForAgainLater(t *testing.T) {
	w := newWorld(vm("x"))
	w.step(1)
	w.migrations = nil // Somebody deleted it.
	p := w.step(1)
	if len(p.ask) > 0 || states(p.status) != "x:Failed/Withdrawn" || p.lookAgain != 20*time.Second {
		t.Errorf("asked %q, states %q, again %v", names(p.ask), states(p.status), p.lookAgain)
	}
	w.now = at(20)
	if p := w.step(1); names(p.ask) != "x#2" {
		t.Errorf("asked %q", names(p.ask))
	}
}

func TestAMigrationOfSomebodyElseHoldsASlot(t *testing.T) {
	w := newWorld(vm("x"), vm("y"), vm("z"))
	w.migrations = []*vmim{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "theirs"}, Spec: kubevirtv1.VirtualMachineInstanceMigrationSpec{VMIName: "z"}}}
	if p := w.step(2); names(p.ask) != "x#1" || states(p.status) != "x:Moving y:Waiting z:Moving" {
		t.Errorf("asked %q, states %q", names(p.ask), states(p.status))
	}
}

func TestAVMThatArrivesDuringTheDrainIsMovedToo(t *testing.T) {
	w := newWorld(vm("x"), vm("late", arriving))
	w.step(2)
	w.now = at(10)
	w.phase("x", kubevirtv1.MigrationSucceeded, "")
	if w.step(2); ended(w.eviction) {
		t.Fatal("done with a VM on its way here")
	}
	place(w.vms[1], "a")
	if p := w.step(2); names(p.ask) != "late#1" {
		t.Errorf("asked %q", names(p.ask))
	}
	w.phase("late", kubevirtv1.MigrationSucceeded, "")
	w.step(2)
	w.now = w.now.Add(letGo)
	if p := w.step(2); !ended(w.eviction) || p.status.Total != 2 || p.status.Moved != 2 {
		t.Errorf("%+v", p.status)
	}
}

func TestAVMThatVanishesIsGoneAndTheOthersGoOn(t *testing.T) {
	w := newWorld(vm("x"), vm("y"))
	w.step(1)
	id := idOf(w.vms[0])
	w.vms, w.migrations = w.vms[1:], nil
	p := w.step(1)
	if names(p.ask) != "y#1" || states(p.status) != "x:Moved/Gone y:Moving" {
		t.Errorf("asked %q, states %q", names(p.ask), states(p.status))
	}
	if got := news1(p.status); got != "Succeeded: Instance "+id+" is gone" {
		t.Errorf("news %q", got)
	}
}

func TestAnEvictionPausesWhileItsHostIsInService(t *testing.T) {
	w := newWorld(vm("x"), vm("y"), vm("z"))
	disabled := w.hypervisor.Status.Conditions
	w.step(2)
	w.phase("x", kubevirtv1.MigrationRunning, "")
	w.hypervisor.Status.Conditions = nil
	p := w.step(2)
	if len(p.ask) > 0 || len(p.withdraw) != 1 || states(p.status) != "x:Moving y:Waiting/Paused z:Waiting" {
		t.Errorf("asked %q, withdrew %d, states %q", names(p.ask), len(p.withdraw), states(p.status))
	}
	w.step(2)
	w.hypervisor.Status.Conditions = disabled
	w.phase("x", kubevirtv1.MigrationSucceeded, "")
	if p := w.step(2); names(p.ask) != "z#1 y#2" {
		t.Errorf("asked %q", names(p.ask))
	}
}

func TestAVMHasLeftWhenItsMigrationSaysSo(t *testing.T) {
	w := newWorld(vm("x"), vm("y"))
	w.step(1)
	w.phase("x", kubevirtv1.MigrationRunning, "")
	place(w.vms[0], "b")
	if p := w.step(1); p.status != nil || len(p.ask) > 0 {
		t.Errorf("asked %q, states %q", names(p.ask), states(p.status))
	}
	w.phase("x", kubevirtv1.MigrationSucceeded, "")
	if p := w.step(1); names(p.ask) != "y#1" || states(p.status) != "x:Moved y:Moving" {
		t.Errorf("asked %q, states %q", names(p.ask), states(p.status))
	}
}

func TestAVMThatLeftInAnotherWayIsNotMovedTwice(t *testing.T) {
	w := newWorld(vm("x"), vm("y"))
	w.step(2)
	w.phase("x", kubevirtv1.MigrationPending, "")
	place(w.vms[0], "c")
	if p := w.step(2); len(p.withdraw) != 1 || p.withdraw[0].Spec.VMIName != "x" || states(p.status) != "x:Moved/Gone y:Moving" {
		t.Errorf("withdrew %d, states %q", len(p.withdraw), states(p.status))
	}
}

func TestARefusalIsOneVMsFailure(t *testing.T) {
	w := newWorld(vm("x"), vm("y"))
	p := decide(w.seen(), 2)
	why := apierrors.NewForbidden(schema.GroupResource{Resource: "vmims"}, "m", errors.New("not this one"))
	if !refused(why) {
		t.Fatal("not a refusal")
	}
	refuse(p.status, w.seen(), p.ask[0], why)
	if got := states(p.status); got != "x:Failed/Refused y:Moving" || p.status.Failed != 1 || p.status.Running != 1 {
		t.Errorf("states %q", got)
	}
	w.eviction.Status = *p.status
	w.migrations = []*vmim{newMigration(w.eviction, w.vms[1], 1)}
	if p := w.step(2); len(p.ask) > 0 || p.lookAgain != 20*time.Second {
		t.Errorf("asked %q, again %v", names(p.ask), p.lookAgain)
	}
	w.now = at(20)
	if p := w.step(2); names(p.ask) != "x#2" {
		t.Errorf("asked %q", names(p.ask))
	}
}

func TestADestinationIsToldAfterAMinute(t *testing.T) {
	w := newWorld(vm("x"))
	w.step(1)
	w.now = at(5)
	w.vms[0].Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{MigrationUID: w.migrations[0].UID, TargetNode: "b"}
	if p := w.step(1); p.status != nil || p.lookAgain != 55*time.Second {
		t.Errorf("writes %s, again %v", states(p.status), p.lookAgain)
	}
	w.now = at(60)
	if p := w.step(1); p.status == nil || p.status.Instances[0].Destination != "b" {
		t.Errorf("not told: %+v", p.status)
	}
	if p := w.step(1); p.status != nil || p.lookAgain != 0 {
		t.Errorf("writes %s, again %v", states(p.status), p.lookAgain)
	}
}

func TestAThousandVMsFitAStatus(t *testing.T) {
	var vms []*vmi
	for i := range 1000 {
		vms = append(vms, vm(fmt.Sprintf("vm-%04d", i)))
	}
	vms = append(vms, vm("zz", pinned))
	w := newWorld(vms...)
	p := w.step(2)
	if s := p.status; len(s.Instances) != kvmv1.MaxEvictionInstances || s.Total != 1001 || s.Instances[0].Name != "zz" {
		t.Errorf("%d instances of %d, first %s", len(s.Instances), s.Total, s.Instances[0].Name)
	}
}
