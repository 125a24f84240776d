// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kvm.cloud.sap/v1alpha1 types: Migration, what the
// agents of two hosts have seen of a VM's move, and Evacuation, what was decided
// about a host that fell silent. Both are records and never wishes; a move is
// wished by KubeVirt's VirtualMachineInstanceMigration.
//
// On the wire Migration is CobaltCore's (kvm-node-agent), except that the schema does
// not require status: with a status subresource no object could be created. It
// must never know a client, a clock or hardware, nor how the strings are made.
//
// +kubebuilder:object:generate=true
// +groupName=kvm.cloud.sap
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types here.
var GroupVersion = schema.GroupVersion{Group: "kvm.cloud.sap", Version: "v1alpha1"}

var (
	// SchemeBuilder collects what AddToScheme registers.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme makes a scheme know the types here.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Migration{}, &MigrationList{}, &Evacuation{}, &EvacuationList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Migration is what was seen of a VM's latest move. Its name is the VM's UUID;
// earlier ones are kept under the UUID and the time they started.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Origin",type=string,JSONPath=`.status.origin`
// +kubebuilder:printcolumn:name="Destination",type=string,JSONPath=`.status.destination`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.status.type`
// +kubebuilder:printcolumn:name="Operation",type=string,JSONPath=`.status.operation`
// +kubebuilder:printcolumn:name="Started",type=date,JSONPath=`.status.started`
// +kubebuilder:printcolumn:name="Elapsed",type=string,JSONPath=`.status.timeElapsed`
// +kubebuilder:printcolumn:name="Data Total",type=string,JSONPath=`.status.dataTotal`
// +kubebuilder:printcolumn:name="Data Processed",type=string,JSONPath=`.status.dataProcessed`,priority=1
// +kubebuilder:printcolumn:name="Data Remaining",type=string,JSONPath=`.status.dataRemaining`,priority=1
// +kubebuilder:printcolumn:name="Memory TX",type=string,JSONPath=`.status.memBps`,priority=1
// +kubebuilder:printcolumn:name="Memory Dirty Rate",type=string,JSONPath=`.status.memDirtyRate`,priority=1
// +kubebuilder:printcolumn:name="Memory Iteration",type=string,JSONPath=`.status.memIteration`,priority=1
type Migration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MigrationSpec   `json:"spec,omitempty"`
	Status MigrationStatus `json:"status,omitempty"`
}

// MigrationList is a list of Migrations.
//
// +kubebuilder:object:root=true
type MigrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Migration `json:"items"`
}

// MigrationSpec is empty: an observation wishes nothing.
type MigrationSpec struct{}

// MigrationStatus is a migration job as libvirt tells it, in text for people.
//
// Times are durations as Go prints them: 2.755s, 1m0.5s. Amounts are bytes with
// a binary unit: 0 B, 10.4 MiB, 4.0 GiB. Rates are amounts per second: 1.8 GiB/s.
type MigrationStatus struct {
	// Origin is the host the VM leaves. Written by the origin's agent.
	// +optional
	Origin string `json:"origin,omitempty"`
	// Destination is the host the VM goes to. Written by the destination's agent.
	// +optional
	Destination string `json:"destination,omitempty"`
	// Type is the state of the job, one of the Type constants.
	// +optional
	Type string `json:"type,omitempty"`
	// Operation is what kind of job it is, one of the Operation constants.
	// +optional
	Operation string `json:"operation,omitempty"`
	// Started is when the job was first seen.
	// +optional
	Started *metav1.Time `json:"started,omitempty"`
	// ErrMsg is libvirt's own word on what went wrong.
	// +optional
	ErrMsg string `json:"errMsg,omitempty"`

	// TimeElapsed is how long the job has run.
	// +optional
	TimeElapsed string `json:"timeElapsed,omitempty"`
	// TimeRemaining is how long it should still take.
	// +optional
	TimeRemaining string `json:"timeRemaining,omitempty"`
	// Downtime is how long the VM stood still, or should stand still.
	// +optional
	Downtime string `json:"downtime,omitempty"`
	// SetupTime is how long it took until the first page was sent.
	// +optional
	SetupTime string `json:"setupTime,omitempty"`

	// Data is memory and disk together.
	// +optional
	DataTotal string `json:"dataTotal,omitempty"`
	// +optional
	DataProcessed string `json:"dataProcessed,omitempty"`
	// +optional
	DataRemaining string `json:"dataRemaining,omitempty"`

	// +optional
	MemTotal string `json:"memTotal,omitempty"`
	// +optional
	MemProcessed string `json:"memProcessed,omitempty"`
	// +optional
	MemRemaining string `json:"memRemaining,omitempty"`
	// MemBps is the rate at which memory is sent.
	// +optional
	MemBps string `json:"memBps,omitempty"`
	// MemPageSize is the size of the pages counted below.
	// +optional
	MemPageSize string `json:"memPageSize,omitempty"`
	// MemDirtyRate is how fast the VM dirties its pages: 1250/s.
	// +optional
	MemDirtyRate string `json:"memDirtyRate,omitempty"`
	// MemIteration is the number of times memory was gone through.
	// +optional
	MemIteration int64 `json:"memIteration,omitempty"`
	// MemConstant is the number of pages of one repeated byte.
	// +optional
	MemConstant int64 `json:"memConstant,omitempty"`
	// MemNormal is the number of pages sent as they are.
	// +optional
	MemNormal int64 `json:"memNormal,omitempty"`
	// +optional
	MemNormalBytes string `json:"memNormalBytes,omitempty"`
	// MemPostcopyRequests is the number of pages the destination had to ask for.
	// +optional
	MemPostcopyRequests int64 `json:"memPostcopyRequests,omitempty"`

	// +optional
	DiskTotal string `json:"diskTotal,omitempty"`
	// +optional
	DiskProcessed string `json:"diskProcessed,omitempty"`
	// +optional
	DiskRemaining string `json:"diskRemaining,omitempty"`
	// DiskBps is the rate at which disks are sent.
	// +optional
	DiskBps string `json:"diskBps,omitempty"`

	// AutoConvergeThrottle is how much of its CPU time the VM is denied: 20%.
	// +optional
	AutoConvergeThrottle string `json:"autoConvergeThrottle,omitempty"`
}

// Values of MigrationStatus.Type: libvirt's virDomainJobType in words.
const (
	TypeBounded   = "bounded"
	TypeUnbounded = "unbounded"
	TypeCompleted = "completed"
	TypeFailed    = "failed"
	TypeCancelled = "cancelled"
	// TypeSuccess is what a job is called that says "success" itself.
	TypeSuccess = "success"
)

// Values of MigrationStatus.Operation: libvirt's virDomainJobOperation in words.
const (
	OperationUnknown        = "unknown"
	OperationStart          = "start"
	OperationSave           = "save"
	OperationRestore        = "restore"
	OperationMigrationIn    = "migration_in"
	OperationMigrationOut   = "migration_out"
	OperationSnapshot       = "snapshot"
	OperationSnapshotRevert = "snapshot_revert"
	OperationDump           = "dump"
	OperationBackup         = "backup"
	OperationSnapshotDelete = "snapshot_delete"
)
