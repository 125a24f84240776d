// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/kubesim"
)

// The roles that write.
var (
	byOperator = []string{"operator"}
	byNode     = []string{"agents/node"}
	byNova     = []string{"agents/nova"}
	byPeople   = []string{"nobody"} // no process; people have no role and may write anything
	byHA       = []string{"operator/ha"}
	byBoth     = []string{"operator", "agents/nova"}
	byAskers   = []string{"operator/ha", "operator"} // the HA service asks, the operator takes the question away
)

// owners is ARCHITECTURE.md's table of who writes which field. The first rule
// that matches a field decides.
var owners = kubesim.OwnerRules{
	{Group: kvmv1.GroupVersion.Group, Kind: "Hypervisor"}: {
		{Field: "status.conditions[HostAlive]", Roles: byHA},
		{Field: "status.conditions[HaEnabled]", Roles: byHA},
		{Field: "metadata.annotations[" + kvmv1alpha1.AnnotationRunLease + "]", Roles: byHA},
		{Field: "metadata.annotations[" + kvmv1alpha1.AnnotationConfirmFenced + "]", Roles: byHA}, // people give it, the service takes it away
		{Field: "spec.maintenance", Roles: byHA},
		{Field: "spec.maintenanceReason", Roles: byHA},
		{Field: "status.conditions[Ready]", Roles: byOperator},
		{Field: "status.conditions[Tainted]", Roles: byOperator},
		{Field: "status.conditions[Terminating]", Roles: byOperator},
		{Field: "status.conditions[HypervisorDisabled]", Roles: byOperator},
		{Field: "status.conditions[Evicting]", Roles: byOperator},
		{Field: "status.conditions[*]", Roles: byNode},
		{Field: "status.internalIp", Roles: byOperator},
		{Field: "status.evicted", Roles: byOperator},
		{Field: "status.*", Roles: byNode},
		{Field: "metadata.annotations[kvm.cloud.sap/identity]", Roles: byNode},
		{Field: "*", Roles: byOperator},
	},
	{Group: kvmv1.GroupVersion.Group, Kind: "Eviction"}:             {{Field: "*", Roles: byOperator}},
	{Group: kvmv1.GroupVersion.Group, Kind: "Evacuation"}:           {{Field: "*", Roles: byHA}},
	{Group: kvmv1.GroupVersion.Group, Kind: "Migration"}:            {{Field: "*", Roles: byNode}},
	{Group: "coordination.k8s.io", Kind: "Lease"}:                   {{Field: "*", Roles: []string{"agents/node", "operator", "operator/ha"}}},
	{Group: "", Kind: "Node"}:                                       {{Field: "spec.taints", Roles: byOperator}, {Field: "spec", Roles: byOperator}, {Field: "*", Roles: byPeople}},
	{Group: "kubevirt.io", Kind: "VirtualMachineInstanceMigration"}: {{Field: "*", Roles: byOperator}},
	{Group: "kubevirt.io", Kind: "VirtualMachineInstance"}: {
		{Field: "spec", Roles: byPeople},
		{Field: "metadata.annotations[" + kubevirt.AnnotationPowerState + "]", Roles: byPeople},
		{Field: "metadata.annotations[" + kubevirt.AnnotationRunToken + "]", Roles: byOperator},
		{Field: "metadata.annotations[" + kubevirt.AnnotationEvacuatedFrom + "]", Roles: byAskers},
		{Field: "metadata.annotations[" + kubevirt.AnnotationLeave + "]", Roles: byAskers},
		{Field: "metadata.finalizers", Roles: byBoth},
		{Field: "metadata.labels[*]", Roles: byBoth},
		{Field: "status.conditions[PodScheduled]", Roles: byOperator},
		{Field: "status.conditions[*]", Roles: byBoth}, // nova's; compute refuses what is not supported
		{Field: "status.nodeName", Roles: byBoth},
		{Field: "status.phase", Roles: byBoth},
		{Field: "status.phaseTransitionTimestamps", Roles: byBoth},
		{Field: "status.reason", Roles: byBoth},
		{Field: "status.migrationState", Roles: byBoth},
		{Field: "status.*", Roles: byNova},
		{Field: "*", Roles: byBoth},
	},
}

// kind is a kind of ours or of KubeVirt's.
func kind(group, version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

// The kinds the view looks at.
var (
	kindHypervisor = kind("kvm.cloud.sap", "v1", "Hypervisor")
	kindEvacuation = kind("kvm.cloud.sap", "v1alpha1", "Evacuation")
	kindEviction   = kind("kvm.cloud.sap", "v1", "Eviction")
	kindRecord     = kind("kvm.cloud.sap", "v1alpha1", "Migration")
	kindVMI        = kind("kubevirt.io", "v1", "VirtualMachineInstance")
	kindVMIM       = kind("kubevirt.io", "v1", "VirtualMachineInstanceMigration")
)
