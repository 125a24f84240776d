// SPDX-License-Identifier: Apache-2.0

package kubevirt

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestMigratable(t *testing.T) {
	onClaim := func(modes ...string) string {
		return `{status: {phase: Running, volumeStatus: [{name: root, target: vda, persistentVolumeClaimInfo: {claimName: disk, accessModes: [` + strings.Join(modes, ",") + `]}}]}}`
	}
	for _, test := range []struct {
		name, vmi, reason, message string
	}{
		{"moves with all we support", everything, "", ""},
		{"moves with a shared claim", onClaim(string(corev1.ReadWriteOnce), string(corev1.ReadWriteMany)), "", ""},
		{"does not ask the condition it is the source of", `{status: {conditions: [{type: LiveMigratable, status: "False", reason: DisksNotLiveMigratable}]}}`, "", ""},
		{"stays with a claim of one host", onClaim(string(corev1.ReadWriteOnce)), "DisksNotLiveMigratable",
			"volume root: claim disk can be used by one host at a time: it needs access mode ReadWriteMany"},
		{"stays with a disk of the host", `{spec: {volumes: [{name: root, hostDisk: {path: /a, type: Disk}}]}}`, "DisksNotLiveMigratable",
			"volume root is on this host only: use a persistentVolumeClaim with access mode ReadWriteMany"},
		{"stays with a device of the host", `{spec: {domain: {devices: {hostDevices: [{name: nic, deviceName: x}]}}}}`, "HostDeviceNotLiveMigratable",
			"host device nic cannot follow the VM: remove it"},
		{"stays with a GPU", `{spec: {domain: {devices: {gpus: [{name: gpu, deviceName: x}]}}}}`, "HostDeviceNotLiveMigratable",
			"GPU gpu cannot follow the VM: remove it"},
		{"stays with a filesystem of the host", `{spec: {domain: {devices: {filesystems: [{name: fs, virtiofs: {}}]}}}}`, "VirtIOFSNotLiveMigratable",
			"filesystem fs cannot follow the VM: remove it"},
		{"stays with a piece of a network card", `{spec: {domain: {devices: {interfaces: [{name: fast, sriov: {}}]}}}}`, "InterfaceNotLiveMigratable",
			"interface fast is a piece of the host: use bridge"},
		{"stays when it has ended", `{status: {phase: Succeeded}}`, "NotMigratable", "the VM has ended (Succeeded)"},
		{"stays when it is being deleted", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}}`, "NotMigratable", "the VM is being deleted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			migratable, reason, message := Migratable(parse(t, test.vmi))
			if migratable != (test.reason == "") || reason != test.reason || message != test.message {
				t.Errorf("got %v, %q, %q; want %q, %q", migratable, reason, message, test.reason, test.message)
			}
		})
	}
}
