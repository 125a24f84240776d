// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/api/kubevirt"
)

func TestASlimVMLeavesTheOtherAsItIs(t *testing.T) {
	full := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "web", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	full.Spec.Volumes = []kubevirtv1.Volume{{Name: "root"}}
	full.Status.NodeName = "node1"
	full.Status.Conditions = []kubevirtv1.VirtualMachineInstanceCondition{
		{Type: kubevirtv1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue},
		{Type: kubevirtv1.VirtualMachineInstanceSynchronized, Status: corev1.ConditionFalse},
	}
	before := full.DeepCopy()
	out, err := slim(full)
	if err != nil || !reflect.DeepEqual(full, before) {
		t.Fatalf("%v, and it is %v now", err, full)
	}
	vmi := out.(*kubevirtv1.VirtualMachineInstance)
	if vmi.Name != "web" || vmi.Status.NodeName != "node1" || len(vmi.Status.Conditions) != 1 || vmi.Status.Conditions[0].Type != kubevirtv1.VirtualMachineInstanceSynchronized {
		t.Errorf("it lacks %v", vmi)
	}
	if len(vmi.Spec.Volumes)+len(vmi.ManagedFields) > 0 {
		t.Errorf("it is fat: %v", vmi)
	}
	if o, err := slim("a tombstone"); o != "a tombstone" || err != nil {
		t.Errorf("%v, %v", o, err)
	}
}

// A VM that stands still for want of its disks is found by what is True of it.
func TestASlimVMStillStandsStill(t *testing.T) {
	full := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{kubevirt.LabelProtected: "true", kubevirt.HostLabel("a"): ""},
	}}
	full.Status.Phase, full.Status.NodeName = kubevirtv1.Running, "a"
	full.Status.Conditions = []kubevirtv1.VirtualMachineInstanceCondition{{
		Type: kubevirtv1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue, Reason: reasonPausedIOError, LastTransitionTime: midday,
	}}
	for _, paused := range []bool{true, false} {
		want := asksToLeave
		if !paused {
			want = mayStay
			full.Annotations = map[string]string{kubevirt.AnnotationLeave: "a/" + kubevirt.LeaveStorageLost}
			full.Status.Conditions = []kubevirtv1.VirtualMachineInstanceCondition{{Type: kubevirtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}}
		}
		out, _ := slim(full)
		if got, _ := strandedVerdict(out.(*kubevirtv1.VirtualMachineInstance), "a", true, midday.Add(strandedAfter)); got != want {
			t.Errorf("paused %v: %q, want %q", paused, got, want)
		}
	}
}

// A patch made from two slim objects must say only what was changed.
func TestAPatchOfASlimVMForgetsNothing(t *testing.T) {
	full := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	full.Spec.Volumes = []kubevirtv1.Volume{{Name: "root"}}
	out, _ := slim(full)
	was := out.(*kubevirtv1.VirtualMachineInstance)
	now := was.DeepCopy()
	now.Annotations = map[string]string{"a": "b"}
	data, err := client.MergeFrom(was).Data(now)
	if want := `{"metadata":{"annotations":{"a":"b"}}}`; err != nil || string(data) != want {
		t.Errorf("%s, %v, want %s", data, err, want)
	}
}
