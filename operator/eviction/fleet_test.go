// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func quantity(mib int) *resource.Quantity {
	return resource.NewQuantity(int64(mib)<<20, resource.BinarySI)
}

type vmi = kubevirtv1.VirtualMachineInstance
type vmim = kubevirtv1.VirtualMachineInstanceMigration

// world is what an observation is made of: one host "a" that is being emptied.
type world struct {
	now        time.Time
	eviction   *kvmv1.Eviction
	hypervisor *kvmv1.Hypervisor
	vms        []*vmi
	migrations []*vmim
	verdicts   map[string]Verdict
}

func newWorld(vms ...*vmi) *world {
	w := &world{
		now: start,
		eviction: &kvmv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "e1", Finalizers: []string{Finalizer}},
			Spec:       kvmv1.EvictionSpec{Hypervisor: "a", Reason: "test"},
		},
		hypervisor: &kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		vms:        vms,
	}
	meta.SetStatusCondition(&w.hypervisor.Status.Conditions, metav1.Condition{
		Type: kvmv1.ConditionHypervisorDisabled, Status: metav1.ConditionTrue, Reason: "Succeeded",
	})
	return w
}

// seen is what Reconcile would observe.
func (w *world) seen() observation {
	seen := observation{
		now: w.now, eviction: w.eviction, hypervisor: w.hypervisor, verdicts: w.verdicts,
		active: map[types.NamespacedName]*vmim{},
	}
	explained := map[string]bool{}
	for _, v := range w.vms {
		if slices.Contains(HostsOf(v), "a") {
			seen.vms = append(seen.vms, v)
			explained[idOf(v)] = true
		}
	}
	slices.SortFunc(seen.vms, func(a, b *vmi) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range w.migrations {
		seen.addOwn([]vmim{*m})
		if !m.IsFinal() {
			seen.addActive(m)
		}
	}
	if w.hypervisor != nil {
		for _, i := range w.hypervisor.Status.Instances {
			if !explained[i.ID] {
				known := slices.ContainsFunc(w.vms, func(v *vmi) bool { return idOf(v) == i.ID })
				seen.domains = append(seen.domains, domain{id: i.ID, name: i.Name, lingering: known})
			}
		}
	}
	return seen
}

// step decides and does what act would do, but for the moving.
func (w *world) step(limit int) plan {
	p := decide(w.seen(), limit)
	for _, a := range p.ask {
		m := newMigration(w.eviction, a.vmi, a.attempt)
		m.UID, m.CreationTimestamp = types.UID(m.Name), metav1.Time{Time: w.now}
		w.migrations = append(w.migrations, m)
	}
	for _, m := range p.withdraw {
		w.migrations = slices.DeleteFunc(w.migrations, func(o *vmim) bool { return o.Name == m.Name })
	}
	if p.status != nil {
		w.eviction.Status = *p.status.DeepCopy()
	}
	return p
}

// phase sets that of a VM's latest migration.
func (w *world) phase(vm string, phase kubevirtv1.VirtualMachineInstanceMigrationPhase, why string) {
	var last *vmim
	for _, m := range w.migrations {
		if m.Spec.VMIName == vm {
			last = m
		}
	}
	last.Status.Phase = phase
	last.Status.PhaseTransitionTimestamps = append(last.Status.PhaseTransitionTimestamps,
		kubevirtv1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: metav1.Time{Time: w.now}})
	if why != "" {
		last.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{FailureReason: why}
	}
	if phase == kubevirtv1.MigrationSucceeded {
		for _, v := range w.vms {
			if v.Name == vm {
				place(v, "b")
			}
		}
	}
}

func place(v *vmi, host string) {
	v.Status.NodeName = host
	v.Labels = map[string]string{kubevirt.HostLabel(host): "", kubevirt.LabelNodeName: host}
}

// states reads "a:Moving b:Waiting" out of a status, by name.
func states(s *kvmv1.EvictionStatus) string {
	if s == nil {
		return "unchanged"
	}
	var all []string
	for _, i := range s.Instances {
		text := i.Name + ":" + string(i.State)
		if i.Reason != "" {
			text += "/" + i.Reason
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func names(asked []asked) string {
	var all []string
	for _, a := range asked {
		all = append(all, fmt.Sprintf("%s#%d", a.vmi.Name, a.attempt))
	}
	return strings.Join(all, " ")
}

// vm is a running one of 1 GiB on host a.
func vm(name string, change ...func(*vmi)) *vmi {
	v := &vmi{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}}}
	v.Status.Phase = kubevirtv1.Running
	v.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: quantity(1024)}
	place(v, "a")
	for _, c := range change {
		c(v)
	}
	return v
}

func stopped(v *vmi) {
	v.Status.Phase = kubevirtv1.Scheduled
	v.Annotations[kubevirt.AnnotationPowerState] = "Stopped"
}
func starting(v *vmi) { v.Status.Phase = kubevirtv1.Scheduled }
func deleted(v *vmi)  { v.DeletionTimestamp = &metav1.Time{Time: start} }
func sized(mib int) func(*vmi) {
	return func(v *vmi) { v.Spec.Domain.Memory.Guest = quantity(mib) }
}
func ranked(n string) func(*vmi) { return func(v *vmi) { v.Annotations[AnnotationPriority] = n } }
func pinned(v *vmi) {
	v.Spec.Domain.Devices.HostDevices = []kubevirtv1.HostDevice{{Name: "card"}}
}
func local(v *vmi) {
	v.Spec.Volumes = []kubevirtv1.Volume{{Name: "scratch", VolumeSource: kubevirtv1.VolumeSource{EmptyDisk: &kubevirtv1.EmptyDiskSource{}}}}
}
func strategy(s kubevirtv1.EvictionStrategy) func(*vmi) {
	return func(v *vmi) { v.Spec.EvictionStrategy = &s }
}
func says(kind kubevirtv1.VirtualMachineInstanceConditionType, reason, message string) func(*vmi) {
	return func(v *vmi) {
		v.Status.Conditions = append(v.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message})
	}
}
func arriving(v *vmi) {
	v.Status.NodeName = "b"
	v.Labels[kubevirt.HostLabel("b")] = ""
	v.Labels[kubevirt.LabelMigrationTargetNodeName] = "a"
}
func leaving(v *vmi) {
	v.Status.NodeName = "b"
	v.Labels[kubevirt.HostLabel("b")] = ""
}
