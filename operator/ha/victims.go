// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/operator/compute"
)

// stuckAfter is how long a VM may be placed and not run before nobody waits for
// it any more: a lock of a dead host on its disks lasts a minute, a start seconds.
const stuckAfter = 5 * time.Minute

// victim is one VM of a fenced host and how far it has come.
type victim struct {
	vmi   *kubevirtv1.VirtualMachineInstance // nil: there is none of that UID any more
	entry kvmv1alpha1.EvacuatedVM

	ready    bool // it may be asked for
	unasked  bool // it is the host's still, and placement has not answered
	underWay bool // it is asked for or about to start
	open     bool // it holds up the end of the evacuation
}

// at is the table of a VM's states. It is pure. What once ran elsewhere, or has
// ended, stays so: what becomes of it there is another story.
//
//	runs, or ended before                  as it was
//	gone, or another of that name          Ended
//	final                                  Ended
//	on the host, not protected any more    Ended
//	on the host, marked                    Asked
//	on the host, others may act on it      Waiting: that host has to speak first
//	on the host                            Waiting, ready
//	on no host, being deleted              Ended
//	on no host                             Asked; placement's message says why it waits
//	elsewhere, migrated there              Ended
//	elsewhere, runs                        Running
//	elsewhere, stopped on request, deleted Ended
//	elsewhere                              Placed; its host's message says what it waits for
func (v victim) at(host string, now time.Time) victim {
	e, vmi := &v.entry, v.vmi
	v.ready, v.unasked, v.underWay, v.open = false, false, false, false
	set := func(state, target, message string) { e.State, e.Target, e.Message = state, target, message }
	switch {
	case e.State == kvmv1alpha1.VMRunning || e.State == kvmv1alpha1.VMEnded:
	case vmi == nil:
		set(kvmv1alpha1.VMEnded, "", "deleted")
	case vmi.IsFinal():
		set(kvmv1alpha1.VMEnded, vmi.Status.NodeName, "ended as "+string(vmi.Status.Phase))
	case vmi.Status.NodeName == host && !kubevirt.Protected(vmi):
		set(kvmv1alpha1.VMEnded, "", "not protected any more: left as it is")
	case vmi.Status.NodeName == host && isMarked(vmi, host):
		set(kvmv1alpha1.VMAsked, "", "")
		v.unasked, v.underWay, v.open = true, true, true
	case vmi.Status.NodeName == host && otherHost(vmi) != "":
		set(kvmv1alpha1.VMWaiting, "", "host "+otherHost(vmi)+", to or from which it was moving, has to speak first")
		v.open = true
	case vmi.Status.NodeName == host:
		set(kvmv1alpha1.VMWaiting, "", "")
		v.ready, v.unasked, v.open = true, true, true
	case vmi.Status.NodeName == "" && vmi.DeletionTimestamp != nil:
		set(kvmv1alpha1.VMEnded, "", "deleted")
	case vmi.Status.NodeName == "":
		set(kvmv1alpha1.VMAsked, "", "no host takes it: "+placementSays(vmi))
	case movedBy(vmi, host):
		set(kvmv1alpha1.VMEnded, vmi.Status.NodeName, "had moved to "+vmi.Status.NodeName)
	case vmi.IsRunning():
		set(kvmv1alpha1.VMRunning, vmi.Status.NodeName, "")
	case vmi.DeletionTimestamp != nil:
		set(kvmv1alpha1.VMEnded, vmi.Status.NodeName, "deleted")
	case kubevirt.WantedPowerState(vmi) == kubevirt.PowerStopped:
		set(kvmv1alpha1.VMEnded, vmi.Status.NodeName, "stopped on request")
	default:
		set(kvmv1alpha1.VMPlaced, vmi.Status.NodeName, hostSays(vmi))
		fresh := now.Sub(placedAt(vmi)) < stuckAfter
		v.underWay, v.open = fresh, fresh
	}
	return v
}

// victimsOf are the VMs of a host's Evacuation in its order: those listed, and
// those found on the host since.
func victimsOf(evacuation *kvmv1alpha1.Evacuation, vmis map[types.UID]*kubevirtv1.VirtualMachineInstance, now time.Time) []victim {
	host := evacuation.Spec.Hypervisor
	listed := map[types.UID]bool{}
	var all, found []victim
	for _, e := range evacuation.Status.VMs {
		listed[types.UID(e.UID)] = true
		all = append(all, victim{vmi: vmis[types.UID(e.UID)], entry: e})
	}
	for uid, vmi := range vmis { // sorted below
		if listed[uid] || vmi.Status.NodeName != host || !kubevirt.Protected(vmi) || vmi.IsFinal() {
			continue
		}
		found = append(found, victim{vmi: vmi, entry: kvmv1alpha1.EvacuatedVM{
			UID: string(uid), Namespace: vmi.Namespace, Name: vmi.Name, State: kvmv1alpha1.VMWaiting,
		}})
	}
	slices.SortFunc(found, func(a, b victim) int { return earlier(a.vmi, b.vmi) })
	all = append(all, found...)
	for i := range all {
		all[i] = all[i].at(host, now)
	}
	return all
}

// earlier is the order in which VMs are restarted: those that are to run, by class,
// the larger first, then by name.
func earlier(a, b *kubevirtv1.VirtualMachineInstance) int {
	stopped := func(v *kubevirtv1.VirtualMachineInstance) int {
		if v.DeletionTimestamp != nil || kubevirt.WantedPowerState(v) == kubevirt.PowerStopped {
			return 1
		}
		return 0
	}
	memory := func(v *kubevirtv1.VirtualMachineInstance) int64 {
		q := kubevirt.GuestMemory(v)
		return q.Value()
	}
	return cmp.Or(
		cmp.Compare(stopped(a), stopped(b)),
		cmp.Compare(kubevirt.RestartPriorityOf(b), kubevirt.RestartPriorityOf(a)),
		cmp.Compare(memory(b), memory(a)),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
	)
}

// nextVMs are the VMs to be asked for, of those that are ready, not more than free. A
// class waits for the one before it, here and, by highest, in all the fleet.
func nextVMs(all []victim, highest kubevirt.RestartPriority, free int) []*kubevirtv1.VirtualMachineInstance {
	var ready []*kubevirtv1.VirtualMachineInstance
	for _, v := range all {
		if v.unasked {
			highest = max(highest, kubevirt.RestartPriorityOf(v.vmi))
		}
		if v.ready {
			ready = append(ready, v.vmi)
		}
	}
	ready = slices.DeleteFunc(ready, func(v *kubevirtv1.VirtualMachineInstance) bool {
		return kubevirt.RestartPriorityOf(v) < highest
	})
	slices.SortFunc(ready, earlier)
	return ready[:min(len(ready), max(0, free))]
}

// summaryOf counts.
func summaryOf(all []victim) *kvmv1alpha1.EvacuationSummary {
	s := &kvmv1alpha1.EvacuationSummary{Total: int32(len(all))}
	for _, v := range all {
		switch v.entry.State {
		case kvmv1alpha1.VMRunning:
			s.Running++
		case kvmv1alpha1.VMEnded:
			s.Ended++
		default:
			s.Waiting++
		}
	}
	return s
}

// isMarked says that placement was asked to place a VM of a host anew.
func isMarked(vmi *kubevirtv1.VirtualMachineInstance, host string) bool {
	from, _ := kubevirt.EvacuatedFrom(vmi)
	return from == host
}

// otherHost is a host that a VM concerns besides the one it is placed on, the
// first by name, or "".
func otherHost(vmi *kubevirtv1.VirtualMachineInstance) string {
	first := ""
	for label := range vmi.Labels { // in any order: the first by name
		host, ours := strings.CutPrefix(label, kubevirt.LabelHostPrefix)
		if ours && host != vmi.Status.NodeName && (first == "" || host < first) {
			first = host
		}
	}
	return first
}

// movedBy says that a VM is where it is by a migration from a host.
func movedBy(vmi *kubevirtv1.VirtualMachineInstance, from string) bool {
	m := vmi.Status.MigrationState
	return m != nil && m.Completed && m.SourceNode == from && m.TargetNode == vmi.Status.NodeName &&
		m.EndTimestamp != nil && !placedAt(vmi).After(m.EndTimestamp.Time) // nor was it placed anew since
}

// isUnderWay says that a VM was asked for and has not answered, or that it was
// placed anew and is about to start.
func isUnderWay(vmi *kubevirtv1.VirtualMachineInstance, now time.Time) bool {
	return !vmi.IsFinal() && (isAsked(vmi) || compute.Starting(vmi) && now.Sub(placedAt(vmi)) < stuckAfter)
}

func isAsked(vmi *kubevirtv1.VirtualMachineInstance) bool {
	from, _ := kubevirt.EvacuatedFrom(vmi)
	return from != "" && from == vmi.Status.NodeName
}

// placedAt is when a VM was last Scheduled.
func placedAt(vmi *kubevirtv1.VirtualMachineInstance) (at time.Time) {
	for _, t := range vmi.Status.PhaseTransitionTimestamps {
		if t.Phase == kubevirtv1.Scheduled && t.PhaseTransitionTimestamp.After(at) {
			at = t.PhaseTransitionTimestamp.Time
		}
	}
	return at
}

func placementSays(vmi *kubevirtv1.VirtualMachineInstance) string {
	if c := conditionOf(vmi, kubevirtv1.VirtualMachineInstanceConditionType(corev1.PodScheduled)); c != nil && c.Status == corev1.ConditionFalse {
		return c.Message
	}
	return "placement has not said why"
}

func hostSays(vmi *kubevirtv1.VirtualMachineInstance) string {
	if c := conditionOf(vmi, kubevirtv1.VirtualMachineInstanceSynchronized); c != nil && c.Status == corev1.ConditionFalse {
		return fmt.Sprintf("%s: %s", c.Reason, c.Message)
	}
	return ""
}

func conditionOf(vmi *kubevirtv1.VirtualMachineInstance, kind kubevirtv1.VirtualMachineInstanceConditionType) *kubevirtv1.VirtualMachineInstanceCondition {
	i := slices.IndexFunc(vmi.Status.Conditions, func(c kubevirtv1.VirtualMachineInstanceCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &vmi.Status.Conditions[i]
}
