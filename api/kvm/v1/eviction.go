// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Eviction is the wish that a living host be emptied of its VMs. It is named as
// its Hypervisor, so that a host has one at a time. Deleting it withdraws the
// wish.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=evi
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Hypervisor",type=string,JSONPath=`.spec.hypervisor`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Evicting")].reason`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.total`,priority=1
// +kubebuilder:printcolumn:name="Moved",type=integer,JSONPath=`.status.moved`,priority=1
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.running`,priority=1
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failed`,priority=1
// +kubebuilder:printcolumn:name="ETA",type=string,JSONPath=`.status.eta`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Evicting")].message`,priority=1
// +kubebuilder:printcolumn:name="Created",type=date,JSONPath=`.metadata.creationTimestamp`
type Eviction struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EvictionSpec   `json:"spec"`
	Status EvictionStatus `json:"status,omitempty"`
}

// EvictionList is a list of Evictions.
//
// +kubebuilder:object:root=true
type EvictionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Eviction `json:"items"`
}

// EvictionSpec is what is asked for.
type EvictionSpec struct {
	// Hypervisor is the name of the host to empty.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="Value is immutable"
	Hypervisor string `json:"hypervisor"`

	// Reason says why, for people.
	// +kubebuilder:validation:MinLength=1
	Reason string `json:"reason"`

	// DryRun only says what would move and what could not. Adit's own.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// Parallel is the number of VMs that may move at once; absent takes the
	// operator's own limit. Adit's own.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Parallel *int32 `json:"parallel,omitempty"`
}

// EvictionStatus is how far the eviction has come. All of it is written by the
// eviction controller.
type EvictionStatus struct {
	// HypervisorServiceID is the compute service's id of the hypervisor (not of
	// its service: the wire name is older than its meaning).
	// +optional
	HypervisorServiceID string `json:"hypervisorServiceId,omitempty"`

	// OutstandingRAMMb is the memory of the VMs still to leave, in MiB (Nova's
	// memory_mb).
	// +kubebuilder:default=0
	// +optional
	OutstandingRAMMb int64 `json:"outstandingRamMb,omitempty"`

	// OutstandingInstances are the UUIDs of the VMs still to leave; the last is
	// the next.
	// +optional
	OutstandingInstances []string `json:"outstandingInstances,omitempty"`

	// Conditions are Evicting, PreflightChecksSucceeded and MigratingInstance.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Total is the number of VMs this eviction has had to deal with, those that
	// arrived later included. Adit's own.
	// +optional
	Total int32 `json:"total,omitempty"`

	// Moved is the number of them that have left. Adit's own.
	// +optional
	Moved int32 `json:"moved,omitempty"`

	// Failed is the number of them whose last attempt failed. Adit's own.
	// +optional
	Failed int32 `json:"failed,omitempty"`

	// Running is the number of them on the move now. Adit's own.
	// +optional
	Running int32 `json:"running,omitempty"`

	// StartedAt is when the first VM was asked to leave. Adit's own.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// FinishedAt is when the host was found empty. Adit's own.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// ETA is when the host should be empty, if it goes on as so far. Adit's own.
	// +optional
	ETA *metav1.Time `json:"eta,omitempty"`

	// Instances says of each VM how it stands; of more than 500, those that
	// need a person come first and the rest is counted only. Adit's own.
	// +kubebuilder:validation:MaxItems=500
	// +listType=map
	// +listMapKey=id
	// +optional
	Instances []EvictionInstance `json:"instances,omitempty"`
}

// MaxEvictionInstances is the longest EvictionStatus.Instances may be. At 500
// entries of some 300 bytes the object stays near a tenth of etcd's 1.5 MiB.
const MaxEvictionInstances = 500

// EvictionInstance is one VM's part of an eviction. Adit's own.
type EvictionInstance struct {
	// ID is the VM's UUID, the same as in outstandingInstances.
	// +kubebuilder:validation:MinLength=1
	ID string `json:"id"`
	// Name is that of the VM's object.
	// +optional
	Name string `json:"name,omitempty"`
	// Namespace is that of the VM's object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// State is how the VM stands.
	State EvictionInstanceState `json:"state"`
	// Reason is one word for the state, for machines.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says what to do, for people.
	// +optional
	Message string `json:"message,omitempty"`
	// Attempts is how often the VM was asked to leave.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// NextAttempt is when it is asked again.
	// +optional
	NextAttempt *metav1.Time `json:"nextAttempt,omitempty"`
	// Destination is the host it goes or went to.
	// +optional
	Destination string `json:"destination,omitempty"`
}

// EvictionInstanceState is how a VM of an eviction stands.
//
// +kubebuilder:validation:Enum=Waiting;Moving;Moved;Blocked;Failed;WouldMove;CannotMove
type EvictionInstanceState string

const (
	// EvictionInstanceWaiting: its turn has not come.
	EvictionInstanceWaiting EvictionInstanceState = "Waiting"
	// EvictionInstanceMoving: it is on its way.
	EvictionInstanceMoving EvictionInstanceState = "Moving"
	// EvictionInstanceMoved: it has left.
	EvictionInstanceMoved EvictionInstanceState = "Moved"
	// EvictionInstanceBlocked: it cannot leave until something else changes.
	EvictionInstanceBlocked EvictionInstanceState = "Blocked"
	// EvictionInstanceFailed: the last attempt failed; see nextAttempt.
	EvictionInstanceFailed EvictionInstanceState = "Failed"
	// EvictionInstanceWouldMove: in a dry run, it would leave.
	EvictionInstanceWouldMove EvictionInstanceState = "WouldMove"
	// EvictionInstanceCannotMove: in a dry run, it would stay.
	EvictionInstanceCannotMove EvictionInstanceState = "CannotMove"
)
