// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Evacuation is what was decided about one host that fell silent: how it was
// fenced, by what proof, and what became of its VMs. Each step is written here
// before it is taken, so that any replica of the HA service goes on from it.
// It is named HOST-NUMBER and is written by the HA service alone.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=evac
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Hypervisor",type=string,JSONPath=`.spec.hypervisor`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Proof",type=string,JSONPath=`.status.proof.kind`
// +kubebuilder:printcolumn:name="VMs",type=integer,JSONPath=`.status.summary.total`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.summary.running`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.summary.waiting`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
type Evacuation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EvacuationSpec   `json:"spec,omitempty"`
	Status EvacuationStatus `json:"status,omitempty"`
}

// EvacuationList is a list of Evacuations.
//
// +kubebuilder:object:root=true
type EvacuationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Evacuation `json:"items"`
}

// EvacuationSpec says which host is meant.
type EvacuationSpec struct {
	// Hypervisor is the host's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="hypervisor is immutable"
	Hypervisor string `json:"hypervisor"`

	// Boot is the boot of the host that is fenced: what runs there later is
	// another life. Empty when it was never heard of.
	// +optional
	Boot string `json:"boot,omitempty"`

	// Maintenance and MaintenanceReason are those the host had before, and has
	// again afterwards.
	// +optional
	Maintenance string `json:"maintenance,omitempty"`
	// +optional
	MaintenanceReason string `json:"maintenanceReason,omitempty"`
}

// EvacuationPhase is how far an Evacuation has come. Phases only move forward,
// except from Fencing to Cancelled.
//
// +kubebuilder:validation:Enum="";Fencing;Fenced;Evacuating;Evacuated;Recovering;Done;Cancelled
type EvacuationPhase string

// The phases of an Evacuation.
const (
	// EvacuationFencing: proof that the host runs nothing is being sought. The
	// VMs are not touched.
	EvacuationFencing EvacuationPhase = "Fencing"
	// EvacuationFenced: there is proof.
	EvacuationFenced EvacuationPhase = "Fenced"
	// EvacuationEvacuating: the VMs are being started elsewhere.
	EvacuationEvacuating EvacuationPhase = "Evacuating"
	// EvacuationEvacuated: no VM of the host waits any more. The host is out of
	// service.
	EvacuationEvacuated EvacuationPhase = "Evacuated"
	// EvacuationRecovering: the host is back and is being looked at.
	EvacuationRecovering EvacuationPhase = "Recovering"
	// EvacuationDone: the host serves again.
	EvacuationDone EvacuationPhase = "Done"
	// EvacuationCancelled: the host was heard again before it was fenced.
	EvacuationCancelled EvacuationPhase = "Cancelled"
)

// ProofKind is what shows that a host runs nothing.
//
// +kubebuilder:validation:Enum=PowerOff;LeaseExpired;NewBoot;Stopped;Confirmed
type ProofKind string

// The kinds of proof.
const (
	// ProofPowerOff: the right management controller said off, twice with a
	// pause between, after it was ordered off.
	ProofPowerOff ProofKind = "PowerOff"
	// ProofLeaseExpired: the host's run lease ran out, its watchdog was armed,
	// and the time in which both stop its protected VMs is over.
	ProofLeaseExpired ProofKind = "LeaseExpired"
	// ProofNewBoot: the host itself reported from a later boot, in which it
	// has not been allowed to run anything yet.
	ProofNewBoot ProofKind = "NewBoot"
	// ProofStopped: the host itself reported that its lease has lapsed and that
	// it has stopped all protected VMs; it gets no new lease before they run
	// elsewhere.
	ProofStopped ProofKind = "Stopped"
	// ProofConfirmed: a person said so.
	ProofConfirmed ProofKind = "Confirmed"
)

// AnnotationConfirmFenced, on a Hypervisor, is a person's word that the host runs
// nothing and cannot come back unseen: "WHO until TIME: REASON", TIME in RFC
// 3339. After that time it counts for nothing.
const AnnotationConfirmFenced = "kvm.cloud.sap/confirm-fenced"

// LabelEvacuated, on an Evacuation, is its host's name.
const LabelEvacuated = "kvm.cloud.sap/evacuated"

// EvacuationStatus is how far it has come.
type EvacuationStatus struct {
	// +optional
	Phase EvacuationPhase `json:"phase,omitempty"`
	// Message says what it waits for and what a person could do.
	// +optional
	Message string `json:"message,omitempty"`

	// Power is what was asked of the host's management controller.
	// +optional
	Power *PowerRecord `json:"power,omitempty"`
	// Proof is what shows that the host runs nothing. Nothing starts elsewhere
	// without it.
	// +optional
	Proof *Proof `json:"proof,omitempty"`

	// +optional
	Summary *EvacuationSummary `json:"summary,omitempty"`
	// VMs are those that were the host's, in the order in which they are
	// restarted.
	// +optional
	// +listType=map
	// +listMapKey=uid
	VMs []EvacuatedVM `json:"vms,omitempty"`

	// Decisions are the latest steps, oldest first; not more than 50.
	// +optional
	// +listType=atomic
	Decisions []Decision `json:"decisions,omitempty"`
}

// PowerRecord is what was asked of a management controller. It is written before
// the order is sent: a new leader must know that there may have been one.
type PowerRecord struct {
	// Ordered is when the first order to power off was about to be sent.
	// +optional
	Ordered *metav1.Time `json:"ordered,omitempty"`
	// Attempts is how many orders were sent.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// LastError is the controller's latest refusal or silence.
	// +optional
	LastError string `json:"lastError,omitempty"`
}

// Proof is what shows that a host runs nothing.
type Proof struct {
	Kind ProofKind `json:"kind"`
	// Message is the evidence in words.
	// +optional
	Message string `json:"message,omitempty"`
	// At is when it was complete.
	At metav1.Time `json:"at"`
}

// EvacuationSummary counts the VMs.
type EvacuationSummary struct {
	Total   int32 `json:"total"`
	Running int32 `json:"running"` // elsewhere
	Waiting int32 `json:"waiting"` // for their turn or for room
	Ended   int32 `json:"ended"`   // stopped, deleted or moved by somebody else meanwhile
}

// EvacuatedVM is one VM of the host.
type EvacuatedVM struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is one of the EvacuatedVM constants.
	State string `json:"state"`
	// Target is where it went.
	// +optional
	Target string `json:"target,omitempty"`
	// Message says why it waits or how it ended.
	// +optional
	Message string `json:"message,omitempty"`
}

// The states of an EvacuatedVM.
const (
	VMWaiting = "Waiting" // for its turn
	VMAsked   = "Asked"   // placement has been asked for a host
	VMPlaced  = "Placed"  // a host was chosen
	VMRunning = "Running" // it runs there
	VMEnded   = "Ended"   // nothing is left to do; Message says why
)

// Decision is one step and why it was taken.
type Decision struct {
	At      metav1.Time `json:"at"`
	What    string      `json:"what"`
	Message string      `json:"message"`
}

// AnnotationRunLease, on a Hypervisor, is what the HA service knows of the run
// lease of the host's present boot: a new leader judges a silent host by it. It is
// written before the first grant of a boot.
const AnnotationRunLease = "kvm.cloud.sap/run-lease"
