// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/operator/compute"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type vmiOption func(*kubevirtv1.VirtualMachineInstance)

// vmOn is a protected VM that has run on a host for an hour.
func vmOn(host, name string, options ...vmiOption) *kubevirtv1.VirtualMachineInstance {
	memory := resource.MustParse("1Gi")
	v := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "5",
		Labels:      map[string]string{kubevirt.LabelProtected: "true"},
		Annotations: map[string]string{kubevirt.AnnotationRunToken: "1"},
	}}
	if host != "" {
		v.Labels[kubevirt.HostLabel(host)], v.Labels[kubevirt.LabelNodeName] = "", host
	}
	v.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: &memory}
	v.Status.NodeName, v.Status.Phase = host, kubevirtv1.Running
	v.Status.PhaseTransitionTimestamps = []kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp{
		{Phase: kubevirtv1.Scheduled, PhaseTransitionTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
		{Phase: kubevirtv1.Running, PhaseTransitionTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
	}
	for _, option := range options {
		option(v)
	}
	return v
}

func says(kind kubevirtv1.VirtualMachineInstanceConditionType, reason, message string) vmiOption {
	return func(v *kubevirtv1.VirtualMachineInstance) {
		v.Status.Conditions = append(v.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		})
	}
}

func annotated(key, value string) vmiOption {
	return func(v *kubevirtv1.VirtualMachineInstance) { v.Annotations[key] = value }
}

func class(name string) vmiOption { return annotated(kubevirt.AnnotationRestartPriority, name) }

func marked(v *kubevirtv1.VirtualMachineInstance) {
	v.Annotations[kubevirt.AnnotationEvacuatedFrom] = v.Status.NodeName + "/" + v.Status.NodeName + "-1"
}

// placedAnew is a VM that placement has put on its host that long ago.
func placedAnew(ago time.Duration) vmiOption {
	return func(v *kubevirtv1.VirtualMachineInstance) {
		v.Status.Phase = kubevirtv1.Scheduled
		v.Status.PhaseTransitionTimestamps = []kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp{
			{Phase: kubevirtv1.Scheduled, PhaseTransitionTimestamp: metav1.NewTime(noon.Add(-ago))},
		}
		says(kubevirtv1.VirtualMachineInstanceReady, compute.ReasonEvacuated, "")(v)
	}
}

func inPhase(phase kubevirtv1.VirtualMachineInstancePhase) vmiOption {
	return func(v *kubevirtv1.VirtualMachineInstance) { v.Status.Phase = phase }
}

func deleted(v *kubevirtv1.VirtualMachineInstance) {
	t := metav1.NewTime(noon)
	v.DeletionTimestamp = &t
}

func hasMoved(from string, ago time.Duration) vmiOption {
	return func(v *kubevirtv1.VirtualMachineInstance) {
		end := metav1.NewTime(noon.Add(-ago))
		v.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{SourceNode: from, TargetNode: v.Status.NodeName, Completed: true, EndTimestamp: &end}
	}
}

// TestStates walks the table of a VM's states.
func TestStates(t *testing.T) {
	stopped := annotated(kubevirt.AnnotationPowerState, "Stopped")
	for _, tt := range []struct {
		name string
		was  string
		vmi  *kubevirtv1.VirtualMachineInstance
		want string // state target: message; what else
	}{
		{"one that runs elsewhere is done with, whatever becomes of it there", kvmv1alpha1.VMRunning, nil, "Running"},
		{"so is one that has ended", kvmv1alpha1.VMEnded, vmOn("a", "v"), "Ended"},
		{"one that was deleted meanwhile has ended", kvmv1alpha1.VMWaiting, nil, "Ended: deleted"},
		{"one that is over has", kvmv1alpha1.VMWaiting, vmOn("a", "v", inPhase(kubevirtv1.Succeeded)), "Ended a: ended as Succeeded"},
		{"one that is not protected any more is left as it is", kvmv1alpha1.VMWaiting, vmOn("a", "v", func(v *kubevirtv1.VirtualMachineInstance) { delete(v.Labels, kubevirt.LabelProtected) }), "Ended: not protected any more: left as it is"},
		{"one on the host waits for its turn", kvmv1alpha1.VMWaiting, vmOn("a", "v"), "Waiting; ready unasked open"},
		{"one that is being deleted as well, since nobody else lets it go", kvmv1alpha1.VMWaiting, vmOn("a", "v", deleted), "Waiting; ready unasked open"},
		{"one that another host may act on waits for that host", kvmv1alpha1.VMWaiting,
			vmOn("a", "v", func(v *kubevirtv1.VirtualMachineInstance) { v.Labels[kubevirt.HostLabel("b")] = "" }),
			"Waiting: host b, to or from which it was moving, has to speak first; open"},
		{"one that is marked was asked for", kvmv1alpha1.VMWaiting, vmOn("a", "v", marked), "Asked; unasked underway open"},
		{"one that finds no room is placement's to do", kvmv1alpha1.VMAsked, vmOn("", "v", inPhase(kubevirtv1.Pending), says("PodScheduled", "Unschedulable", "0/3 hosts: 3 not enough memory")),
			"Asked: no host takes it: 0/3 hosts: 3 not enough memory"},
		{"if somebody deletes it there it has ended", kvmv1alpha1.VMAsked, vmOn("", "v", inPhase(kubevirtv1.Failed), deleted), "Ended: ended as Failed"},
		{"one that was placed is about to start", kvmv1alpha1.VMAsked, vmOn("b", "v", placedAnew(time.Second)), "Placed b; underway open"},
		{"its host says what it waits for", kvmv1alpha1.VMPlaced, vmOn("b", "v", placedAnew(time.Second), says(kubevirtv1.VirtualMachineInstanceSynchronized, "VolumeInUse", "locked by a")), "Placed b: VolumeInUse: locked by a; underway open"},
		{"nobody waits for it for ever", kvmv1alpha1.VMPlaced, vmOn("b", "v", placedAnew(6*time.Minute)), "Placed b"},
		{"one that runs elsewhere runs", kvmv1alpha1.VMPlaced, vmOn("b", "v"), "Running b"},
		{"also when a new leader has not seen it asked for", kvmv1alpha1.VMWaiting, vmOn("b", "v"), "Running b"},
		{"one that a migration had brought away before has moved", kvmv1alpha1.VMWaiting, vmOn("b", "v", hasMoved("a", time.Minute)), "Ended b: had moved to b"},
		{"a migration of long ago does not make it so", kvmv1alpha1.VMPlaced, vmOn("b", "v", hasMoved("a", 2*time.Hour)), "Running b"},
		{"one that was stopped meanwhile has ended", kvmv1alpha1.VMPlaced, vmOn("b", "v", placedAnew(time.Second), stopped), "Ended b: stopped on request"},
		{"one that was deleted after it was placed has ended", kvmv1alpha1.VMPlaced, vmOn("b", "v", placedAnew(time.Second), deleted), "Ended b: deleted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := victim{vmi: tt.vmi, entry: kvmv1alpha1.EvacuatedVM{State: tt.was}}.at("a", noon)
			got := v.entry.State
			if v.entry.Target != "" {
				got += " " + v.entry.Target
			}
			if v.entry.Message != "" {
				got += ": " + v.entry.Message
			}
			flags := ""
			for _, f := range []struct {
				is   bool
				name string
			}{{v.ready, " ready"}, {v.unasked, " unasked"}, {v.underWay, " underway"}, {v.open, " open"}} {
				if f.is {
					flags += f.name
				}
			}
			if flags != "" {
				got += ";" + flags
			}
			if got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestStranded(t *testing.T) {
	stalled := func(ago time.Duration) vmiOption {
		return func(v *kubevirtv1.VirtualMachineInstance) {
			v.Status.Conditions = append(v.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{
				Type: kubevirtv1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue, Reason: reasonPausedIOError,
				LastTransitionTime: metav1.NewTime(noon.Add(-ago)),
			})
		}
	}
	ready := func(v *kubevirtv1.VirtualMachineInstance) {
		v.Status.Conditions = append(v.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{Type: kubevirtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue})
	}
	leaving := annotated(kubevirt.AnnotationLeave, "a/StorageLost")
	for _, tt := range []struct {
		name string
		vmi  *kubevirtv1.VirtualMachineInstance
		lost bool
		want strandedState
		left time.Duration
	}{
		{"one that runs stays", vmOn("a", "v", ready), true, standsStill, 0},
		{"one that stands still is given a minute", vmOn("a", "v", stalled(20*time.Second)), true, standsStill, 40 * time.Second},
		{"and then asked to leave", vmOn("a", "v", stalled(time.Minute)), true, asksToLeave, 0},
		{"once", vmOn("a", "v", stalled(time.Minute), leaving), true, standsStill, 0},
		{"not when the storage is everybody's trouble", vmOn("a", "v", stalled(time.Hour)), false, standsStill, 0},
		{"nor when it is to wait", vmOn("a", "v", stalled(time.Hour), annotated(kubevirt.AnnotationOnIOError, "wait")), true, standsStill, 0},
		{"nor when it is moving", vmOn("a", "v", stalled(time.Hour), func(v *kubevirtv1.VirtualMachineInstance) { v.Labels[kubevirt.HostLabel("b")] = "" }), true, standsStill, 0},
		{"nor when it is not protected", vmOn("a", "v", stalled(time.Hour), func(v *kubevirtv1.VirtualMachineInstance) { delete(v.Labels, kubevirt.LabelProtected) }), true, standsStill, 0},
		{"nor when its host is being evacuated", vmOn("a", "v", stalled(time.Hour), marked), true, standsStill, 0},
		{"one that has its disks back may stay after all", vmOn("a", "v", ready, leaving), true, mayStay, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, left := strandedVerdict(tt.vmi, "a", tt.lost, noon); got != tt.want || left != tt.left {
				t.Errorf("%s, look again in %s; want %s, %s", got, left, tt.want, tt.left)
			}
		})
	}
}

// TestOrder draws VMs and looks at who is asked for: never more than there is room
// for, none before one that comes before it, no class before the one above it.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		evacuation := &kvmv1alpha1.Evacuation{Spec: kvmv1alpha1.EvacuationSpec{Hypervisor: "a"}}
		vmis := map[types.UID]*kubevirtv1.VirtualMachineInstance{}
		for i := range rapid.IntRange(0, 12).Draw(t, "VMs") {
			memory := resource.MustParse(fmt.Sprintf("%dGi", rapid.IntRange(1, 3).Draw(t, "GiB")))
			v := vmOn("a", fmt.Sprint("v", i), class(rapid.SampledFrom([]string{"high", "", "low"}).Draw(t, "class")))
			v.Spec.Domain.Memory.Guest = &memory
			switch rapid.SampledFrom([]string{"there", "there", "marked", "placed", "elsewhere", "no room", "stopped"}).Draw(t, "state") {
			case "marked":
				marked(v)
			case "placed":
				v.Status.NodeName = "b"
				placedAnew(0)(v)
			case "elsewhere":
				v.Status.NodeName = "b"
			case "no room":
				v.Status.NodeName, v.Status.Phase = "", kubevirtv1.Pending
			case "stopped":
				v.Annotations[kubevirt.AnnotationPowerState] = "Stopped"
			}
			vmis[v.UID] = v
			if rapid.Bool().Draw(t, "listed") || v.Status.NodeName != "a" {
				evacuation.Status.VMs = append(evacuation.Status.VMs, kvmv1alpha1.EvacuatedVM{UID: string(v.UID), State: kvmv1alpha1.VMWaiting})
			}
		}
		free := rapid.IntRange(-1, 5).Draw(t, "free")
		all := victimsOf(evacuation, vmis, noon)
		if len(all) != len(vmis) {
			t.Fatalf("%d of %d VMs are the host's", len(all), len(vmis))
		}
		asked := nextVMs(all, kubevirt.PriorityLow, free)
		if len(asked) > max(0, free) {
			t.Fatalf("%d are asked for, %d may be", len(asked), free)
		}
		ready := 0
		for _, v := range all {
			if !v.unasked {
				continue
			}
			if v.ready {
				ready++
			}
			for _, a := range asked {
				if kubevirt.RestartPriorityOf(a) < kubevirt.RestartPriorityOf(v.vmi) {
					t.Fatalf("%s is asked for while %s of a higher class has no answer", a.Name, v.vmi.Name)
				}
				if v.ready && !slices.Contains(asked, v.vmi) && kubevirt.RestartPriorityOf(a) == kubevirt.RestartPriorityOf(v.vmi) && earlier(v.vmi, a) < 0 {
					t.Fatalf("%s is asked for before %s", a.Name, v.vmi.Name)
				}
			}
		}
		if s := summaryOf(all); s.Running+s.Waiting+s.Ended != s.Total {
			t.Fatalf("%+v does not add up", s)
		}
		if len(asked) == 0 && ready > 0 && free > 0 && !slices.ContainsFunc(all, func(v victim) bool { return v.unasked && !v.ready }) {
			t.Fatalf("%d are ready, %d may be asked for, and none is", ready, free)
		}
	})
}
