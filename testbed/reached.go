// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/kubesim"
)

// Reached is what a run has been through: which decisions were written, in
// which state of the host they were about and under which faults. It tells an
// exploration what it has never seen.
type Reached struct {
	Places map[Place]int     // how often
	Faults map[string]int    // faults begun, by kind
	Pairs  map[[2]string]int // kinds of which one began while the other lasted; sorted within
}

// Place is a decision and the circumstances in which it was written.
type Place struct {
	Point string // "evacuation Fencing", "vm Running", "host Ready Maintenance"
	State string // the reason of the host's HostAlive; "" if it has none
	Fault string // a kind of fault that concerns the host; "" if none did
}

// Points are the decisions that an exploration is expected to reach. Others are
// counted when they come.
var Points = slices.Concat(
	points("host HostAlive ", kvmv1.ReasonOnline, kvmv1.ReasonSuspect, kvmv1.ReasonIsolated, kvmv1.ReasonUnreachable, kvmv1.ReasonHeld, kvmv1.ReasonFencing,
		kvmv1.ReasonUnproven, kvmv1.ReasonFenced, kvmv1.ReasonEvacuating, kvmv1.ReasonHostEmpty, kvmv1.ReasonRecovering),
	points("evacuation ", kvmv1alpha1.EvacuationFencing, kvmv1alpha1.EvacuationFenced, kvmv1alpha1.EvacuationEvacuating, kvmv1alpha1.EvacuationEvacuated,
		kvmv1alpha1.EvacuationRecovering, kvmv1alpha1.EvacuationDone, kvmv1alpha1.EvacuationCancelled),
	points("proof ", kvmv1alpha1.ProofPowerOff, kvmv1alpha1.ProofLeaseExpired, kvmv1alpha1.ProofNewBoot, kvmv1alpha1.ProofConfirmed),
	points("evacuated vm ", kvmv1alpha1.VMWaiting, kvmv1alpha1.VMAsked, kvmv1alpha1.VMPlaced, kvmv1alpha1.VMRunning, kvmv1alpha1.VMEnded),
	points("host Ready ", kvmv1.ReasonReady, kvmv1.ReasonEvicting, kvmv1.ReasonEvicted, kvmv1.ReasonMaintenance),
	points("eviction ", kvmv1.ReasonRunning, kvmv1.ReasonSucceeded),
	points("evicted vm ", kvmv1.EvictionInstanceWaiting, kvmv1.EvictionInstanceMoving, kvmv1.EvictionInstanceMoved, kvmv1.EvictionInstanceBlocked,
		kvmv1.EvictionInstanceFailed, kvmv1.EvictionInstanceWouldMove),
	points("migration ", kubevirtv1.MigrationPending, kubevirtv1.MigrationScheduling, kubevirtv1.MigrationPreparingTarget, kubevirtv1.MigrationRunning,
		kubevirtv1.MigrationSucceeded, kubevirtv1.MigrationFailed),
	points("vm ", kubevirtv1.Pending, kubevirtv1.Scheduled, kubevirtv1.Running, kubevirtv1.Succeeded, kubevirtv1.Failed),
)

func points[T ~string](of string, reasons ...T) (out []string) {
	for _, r := range reasons {
		out = append(out, of+string(r))
	}
	return out
}

// aftermath is how long a fault counts that was over in an instant.
const aftermath = 30 * time.Second

// mayLast are the kinds of faults that, without for=, are not over in an
// instant.
var mayLast = func() map[string]bool {
	kinds := map[string]bool{}
	for _, line := range hwsim.FaultHelp() {
		kind, takes, _ := strings.Cut(line[0], " ")
		kinds[kind] = strings.Contains(takes, "for=")
	}
	for _, kind := range kubesim.FaultKinds() {
		kinds[kind] = kind != "api.compact" && kind != "watch.cut" && kind != "watch.expire"
	}
	return kinds
}()

func newReached() Reached {
	return Reached{Places: map[Place]int{}, Faults: map[string]int{}, Pairs: map[[2]string]int{}}
}

// faultStruck counts a fault that has begun, and those it meets.
func (x *watch) faultStruck(kind string) {
	x.reached.Faults[kind]++
	for _, other := range x.lasting("") {
		if other != kind {
			pair := [2]string{kind, other}
			slices.Sort(pair[:])
			x.reached.Pairs[pair]++
		}
	}
}

// lasting are the kinds of faults that concern a host just now; "" is any host.
func (x *watch) lasting(host string) (kinds []string) {
	now := x.w.now()
	for _, s := range x.faults {
		if s.to >= 0 && now > max(s.to, s.from+aftermath) || host != "" && len(s.on) > 0 && !slices.Contains(s.on, host) || slices.Contains(kinds, s.kind) {
			continue
		}
		kinds = append(kinds, s.kind)
	}
	return kinds
}

// reach counts a decision about a host.
func (x *watch) reach(point, host string) {
	state := ""
	if hv := x.w.Hypervisor(host); hv != nil {
		state = reasonOf(hv.Status.Conditions, kvmv1.ConditionHostAlive)
	}
	kinds := x.lasting(host)
	if len(kinds) == 0 {
		kinds = []string{""}
	}
	for _, kind := range kinds {
		x.reached.Places[Place{point, state, kind}]++
	}
}

func reasonOf(conditions []metav1.Condition, kind string) string {
	for i := range conditions {
		if conditions[i].Type == kind {
			return conditions[i].Reason
		}
	}
	return ""
}

// decided counts the decisions that a write shows.
func (x *watch) decided(w kubesim.Write) {
	switch n := w.New.(type) {
	case *kubevirtv1.VirtualMachineInstance:
		if old, _ := w.Old.(*kubevirtv1.VirtualMachineInstance); n.Status.Phase != "" && (old == nil || old.Status.Phase != n.Status.Phase) {
			x.reach("vm "+string(n.Status.Phase), n.Status.NodeName)
		}
	case *kubevirtv1.VirtualMachineInstanceMigration:
		if old, _ := w.Old.(*kubevirtv1.VirtualMachineInstanceMigration); n.Status.Phase != "" && (old == nil || old.Status.Phase != n.Status.Phase) {
			x.reach("migration "+string(n.Status.Phase), sourceOf(n))
		}
	case *kvmv1.Eviction:
		old, _ := w.Old.(*kvmv1.Eviction)
		x.decidedEviction(old, n)
	case *kvmv1.Hypervisor:
		old, _ := w.Old.(*kvmv1.Hypervisor)
		for _, kind := range []string{kvmv1.ConditionHostAlive, kvmv1.ConditionReady} {
			if reason := reasonOf(n.Status.Conditions, kind); reason != "" && (old == nil || reasonOf(old.Status.Conditions, kind) != reason) {
				x.reach("host "+kind+" "+reason, n.Name)
			}
		}
	case *kvmv1alpha1.Evacuation:
		old, _ := w.Old.(*kvmv1alpha1.Evacuation)
		x.decidedEvacuation(old, n)
	}
}

func sourceOf(m *kubevirtv1.VirtualMachineInstanceMigration) string {
	if m.Status.MigrationState == nil {
		return ""
	}
	return m.Status.MigrationState.SourceNode
}

func (x *watch) decidedEviction(old, e *kvmv1.Eviction) {
	if old == nil {
		old = &kvmv1.Eviction{}
	}
	if reason := reasonOf(e.Status.Conditions, kvmv1.ConditionEvicting); reason != "" && reason != reasonOf(old.Status.Conditions, kvmv1.ConditionEvicting) {
		x.reach("eviction "+reason, e.Spec.Hypervisor)
	}
	before := map[string]kvmv1.EvictionInstanceState{}
	for _, i := range old.Status.Instances {
		before[i.Name] = i.State
	}
	for _, i := range e.Status.Instances {
		if i.State != before[i.Name] {
			x.reach("evicted vm "+string(i.State), e.Spec.Hypervisor)
		}
	}
}

func (x *watch) decidedEvacuation(old, e *kvmv1alpha1.Evacuation) {
	if old == nil {
		old = &kvmv1alpha1.Evacuation{}
	}
	host := e.Spec.Hypervisor
	if e.Status.Phase != "" && e.Status.Phase != old.Status.Phase {
		x.reach("evacuation "+string(e.Status.Phase), host)
	}
	if e.Status.Proof != nil && old.Status.Proof == nil {
		x.reach("proof "+string(e.Status.Proof.Kind), host)
	}
	before := map[string]string{}
	for _, v := range old.Status.VMs {
		before[v.UID] = v.State
	}
	for _, v := range e.Status.VMs {
		if v.State != before[v.UID] {
			x.reach("evacuated vm "+v.State, host)
		}
	}
}

// Reached returns what the run has been through so far.
func (w *World) Reached() Reached { return w.watch.reached }
