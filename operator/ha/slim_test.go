// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestASlimVMLeavesTheOtherAsItIs(t *testing.T) {
	full := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "web", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	full.Spec.Volumes = []kubevirtv1.Volume{{Name: "root"}}
	full.Status.NodeName = "node1"
	full.Status.Conditions = []kubevirtv1.VirtualMachineInstanceCondition{
		{Type: kubevirtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue},
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
