// SPDX-License-Identifier: Apache-2.0

// Package v1 holds the kvm.cloud.sap/v1 types: Hypervisor, a host as the cloud
// sees it, and Eviction, the wish that a living host be emptied.
//
// On the wire they are CobaltCore's (openstack-hypervisor-operator): fields,
// defaults, rules and their messages are a contract with its clients. What Adit
// adds is optional and marked "Adit's own". The package owns the words; who
// writes which field is said beside it. It must never know a client, a clock or
// hardware.
//
// +kubebuilder:object:generate=true
// +groupName=kvm.cloud.sap
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types here.
var GroupVersion = schema.GroupVersion{Group: "kvm.cloud.sap", Version: "v1"}

var (
	// SchemeBuilder collects what AddToScheme registers.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme makes a scheme know the types here.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Hypervisor{}, &HypervisorList{},
		&Eviction{}, &EvictionList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
