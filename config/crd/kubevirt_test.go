// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
)

func TestVMITable(t *testing.T) {
	server := serve(t, "virtualmachineinstances.kubevirt.io")
	vmi := server.object(t, `
metadata: {name: a, namespace: vms}
spec: {domain: {devices: {}}}
status:
  phase: Running
  nodeName: node001
  interfaces: [{ipAddress: 10.0.0.9}]
  conditions:
  - {type: Ready, status: "True"}
  - {type: LiveMigratable, status: "True"}
  - {type: Paused, status: "True"}
`)
	vmi["metadata"].(map[string]any)["creationTimestamp"] = time.Now().Add(-3 * 24 * time.Hour).UTC().Format(time.RFC3339)
	printed(t, server, vmi, false, "NAME | AGE | PHASE | IP | NODENAME | READY", "a | 3d | Running | 10.0.0.9 | node001 | True")
	printed(t, server, vmi, true, "NAME | AGE | PHASE | IP | NODENAME | READY | LIVE-MIGRATABLE | PAUSED", "a | 3d | Running | 10.0.0.9 | node001 | True | True | True")
}

func TestVMITakesLabelAndStatusInOneWrite(t *testing.T) {
	server := serve(t, "virtualmachineinstances.kubevirt.io")
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "vms"}}
	vmi.SetGroupVersionKind(kubevirtv1.VirtualMachineInstanceGroupVersionKind)
	kubevirt.Defaults(vmi)
	stored, err := server.create(plain(t, vmi))
	if err != nil {
		t.Fatal(err)
	}
	vmi.Labels = map[string]string{kubevirt.LabelNodeName: "node001"}
	vmi.Status.NodeName, vmi.Status.Phase = "node001", kubevirtv1.Running
	vmi.Status.Conditions = []kubevirtv1.VirtualMachineInstanceCondition{{Type: kubevirtv1.VirtualMachineInstanceReady, Status: "True"}}
	stored, err = server.update(stored, plain(t, vmi))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kubevirt.io/nodeName: node001", "nodeName: node001", "phase: Running", "firmware:", "type: q35"} {
		if !strings.Contains(asYAML(stored), want) {
			t.Errorf("%q is lost:\n%s", want, asYAML(stored))
		}
	}
}

func TestVMIMigration(t *testing.T) {
	server := serve(t, "virtualmachineinstancemigrations.kubevirt.io")
	wish := &kubevirtv1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "vms"},
		Spec:       kubevirtv1.VirtualMachineInstanceMigrationSpec{VMIName: "a"},
	}
	wish.SetGroupVersionKind(kubevirtv1.VirtualMachineInstanceMigrationGroupVersionKind)
	stored, err := server.create(plain(t, wish))
	if err != nil {
		t.Fatal(err)
	}
	wish.Status.Phase = kubevirtv1.MigrationRunning
	wish.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{SourceNode: "node001", TargetNode: "node002", MigrationUID: "u"}
	stored, err = server.updateStatus(stored, plain(t, wish))
	if err != nil {
		t.Fatal(err)
	}
	printed(t, server, stored, false, "NAME | PHASE | VMI", "m | Running | a")
}
