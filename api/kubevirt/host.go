// SPDX-License-Identifier: Apache-2.0

package kubevirt

// LabelHostPrefix begins the labels that say which hosts a VMI concerns: one
// host.kvm.cloud.sap/HOST for the host it is placed on, and one for the target
// while it migrates. An agent watches those of its own host and no others.
const LabelHostPrefix = "host.kvm.cloud.sap/"

// HostLabel is the key of the label that a VMI carries while it concerns host.
// Its value is empty.
func HostLabel(host string) string { return LabelHostPrefix + host }

// AnnotationRunToken, on a VMI, is the number under which the VM may be started;
// each placement raises it. A host starts no domain under an older one.
const AnnotationRunToken = "kvm.cloud.sap/run-token"

// AnnotationRequiredTraits, on a VMI, lists the traits that its host must have,
// separated by commas.
const AnnotationRequiredTraits = "kvm.cloud.sap/required-traits"

// Finalizer keeps a placed VMI until its domain is gone. It is KubeVirt's own,
// which it sets to the same end.
const Finalizer = "kubevirt.io/foregroundDeleteVirtualMachine"
