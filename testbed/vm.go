// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
)

// Namespace is where the scenarios' VMs live.
const Namespace = "vms"

// labelGroup is the label of a VM's group.
const labelGroup = "group"

// build returns the VMI of a group's n-th VM, as its user would write it.
func (g VMGroup) build(n int) *kubevirtv1.VirtualMachineInstance {
	name := fmt.Sprintf("%s-%d", g.Name, n)
	memory := *resource.NewQuantity(int64(g.Memory), resource.BinarySI)
	vmi := &kubevirtv1.VirtualMachineInstance{
		TypeMeta:   metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name, Labels: map[string]string{labelGroup: g.Name}, Annotations: map[string]string{}},
	}
	for _, k := range slices.Sorted(maps.Keys(g.Labels)) {
		vmi.Labels[k] = g.Labels[k]
	}
	if g.Stopped {
		vmi.Annotations[kubevirt.AnnotationPowerState] = string(kubevirt.PowerStopped)
	}
	if len(g.Traits) > 0 {
		vmi.Annotations[kubevirt.AnnotationRequiredTraits] = strings.Join(g.Traits, ",")
	}
	g.Policy.annotate(vmi.Annotations)
	spec := &vmi.Spec
	spec.Domain.Memory = &kubevirtv1.Memory{Guest: &memory}
	spec.Domain.CPU = &kubevirtv1.CPU{Sockets: 1, Cores: uint32(g.CPUs), Threads: 1, Model: g.CPUModel, DedicatedCPUPlacement: g.Pinned || g.NUMA}
	if g.NUMA {
		spec.Domain.CPU.NUMA = &kubevirtv1.NUMA{GuestMappingPassthrough: &kubevirtv1.NUMAGuestMappingPassthrough{}}
	}
	spec.Domain.Devices.Disks = []kubevirtv1.Disk{{
		Name: "root", DiskDevice: kubevirtv1.DiskDevice{Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusVirtio}},
	}}
	spec.Volumes = []kubevirtv1.Volume{{Name: "root", VolumeSource: kubevirtv1.VolumeSource{
		PersistentVolumeClaim: &kubevirtv1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-root"},
		},
	}}}
	spec.PriorityClassName = g.Priority
	if g.Grace > 0 {
		seconds := int64(g.Grace.Seconds())
		spec.TerminationGracePeriodSeconds = &seconds
	}
	if g.Host != "" {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: g.Host}
	}
	if g.Apart != "" {
		spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:   g.Apart,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{labelGroup: g.Name}},
			}},
		}}
	}
	kubevirt.Defaults(vmi)
	return vmi
}

// annotate says the policy as a VMI's annotations do.
func (p Policy) annotate(annotations map[string]string) {
	for _, a := range []struct{ name, value string }{
		{kubevirt.AnnotationHighAvailability, p.Protected}, {kubevirt.AnnotationRestartPriority, p.Restart}, {kubevirt.AnnotationYields, p.Yields},
		{kubevirt.AnnotationOnCrash, p.OnCrash}, {kubevirt.AnnotationOnPanic, p.OnPanic}, {kubevirt.AnnotationOnIOError, p.OnIOError},
	} {
		if a.value != "" {
			annotations[a.name] = a.value
		}
	}
}
