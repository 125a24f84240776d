// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
)

// The invariants of high availability, held in every run that has it.
const (
	RuleProof      = "proof-is-true"     // a host that is proven to run nothing runs nothing
	RuleProofFirst = "proof-first"       // no VM is marked as evacuated without a proof
	RuleFences     = "fence-budget"      // not more hosts are being fenced at once than may be
	RuleStorm      = "storm-guard"       // nobody is fenced while too many of his zone are silent
	RuleRecovered  = "recovered-or-said" // the VMs of a fenced host run at the end, or say why not
	RuleEvacuated  = "evacuation-ends"   // every evacuation ends
)

var haRules = [][2]string{
	{RuleProof, "no protected VM has a QEMU on a host that is proven to run none"},
	{RuleProofFirst, "no VM is placed anew before its host is proven to run it no more"},
	{RuleFences, "not more hosts are being fenced at once than the budget allows"},
	{RuleStorm, "no host is fenced while too many of its zone are silent at once"},
	{RuleRecovered, "every protected VM of a fenced host runs in the end, or says why not"},
	{RuleEvacuated, "every evacuation ends"},
}

// fenced counts the Evacuations that were made.
func (x *watch) fenced() (n int) {
	for _, times := range x.fences { // a sum: the order is nothing
		n += times
	}
	return n
}

// evacuationWritten holds the rules at each write of an Evacuation.
func (x *watch) evacuationWritten(old, e *kvmv1alpha1.Evacuation) {
	host := e.Spec.Hypervisor
	if old == nil {
		x.fences[host]++
		x.budget(e)
		x.guard(e)
	}
	if e.Status.Proof != nil && (old == nil || old.Status.Proof == nil) {
		x.proofs++
		x.proven(e)
	}
	x.follow(old, e)
}

// proven holds a proof against the truth. A person's word is a person's matter.
func (x *watch) proven(e *kvmv1alpha1.Evacuation) {
	x.checks[RuleProof]++
	if e.Status.Proof.Kind == kvmv1alpha1.ProofConfirmed {
		return
	}
	host := e.Spec.Hypervisor
	for _, c := range x.w.Fleet.Ledger().Copies() {
		v := x.w.byUUID[c.VM]
		if c.Host != host || v == nil || !x.w.protected(v.name) {
			continue
		}
		x.violate(RuleProof, fmt.Sprintf("%s is proven to run no protected VM (%s: %s), and the copy of %s there is %s",
			host, e.Status.Proof.Kind, e.Status.Proof.Message, v.name, c.State))
	}
}

func (w *World) protected(vm string) bool {
	o, _ := w.Cluster.Lookup(kindVMI, client.ObjectKey{Namespace: Namespace, Name: vm}).(*kubevirtv1.VirtualMachineInstance)
	return o != nil && kubevirt.Protected(o)
}

// marked holds that a VM is given up for its host only after a proof.
func (x *watch) marked(old, vmi *kubevirtv1.VirtualMachineInstance) {
	host, name := kubevirt.EvacuatedFrom(vmi)
	if host == "" || old != nil && old.Annotations[kubevirt.AnnotationEvacuatedFrom] == vmi.Annotations[kubevirt.AnnotationEvacuatedFrom] {
		return
	}
	x.checks[RuleProofFirst]++
	e, _ := x.w.Cluster.Lookup(kindEvacuation, client.ObjectKey{Name: name}).(*kvmv1alpha1.Evacuation)
	if e == nil || e.Status.Proof == nil || e.Spec.Hypervisor != host {
		x.violate(RuleProofFirst, fmt.Sprintf("%s is marked as evacuated from %s by %q, which has no proof", vmi.Name, host, name))
	}
}

// budget holds the number of hosts that are being fenced.
func (x *watch) budget(created *kvmv1alpha1.Evacuation) {
	x.checks[RuleFences]++
	all, zone := 0, 0
	of := x.w.Fleet.Host(created.Spec.Hypervisor)
	x.w.Cluster.Each(kindEvacuation, func(o client.Object) {
		e := o.(*kvmv1alpha1.Evacuation)
		if e.Status.Phase != "" && e.Status.Phase != kvmv1alpha1.EvacuationFencing || x.confirmed(e.Spec.Hypervisor) {
			return // a person's word passes the brakes
		}
		all++
		if h := x.w.Fleet.Host(e.Spec.Hypervisor); h != nil && of != nil && h.Zone() == of.Zone() {
			zone++
		}
	})
	ha := x.w.spec.HA
	if most := cmp.Or(ha.Fences, 10); all > most {
		x.violate(RuleFences, fmt.Sprintf("%d hosts are being fenced at once, the last of them %s, and the budget is %d", all, created.Spec.Hypervisor, most))
	}
	if most := cmp.Or(ha.FencesPerZone, 5); zone > most {
		x.violate(RuleFences, fmt.Sprintf("%d hosts of a zone are being fenced at once, the last of them %s, and the budget is %d", zone, created.Spec.Hypervisor, most))
	}
}

func (x *watch) confirmed(host string) bool {
	hv := x.w.Hypervisor(host)
	return hv != nil && hv.Annotations[kvmv1alpha1.AnnotationConfirmFenced] != ""
}

// guard holds that nobody is fenced in a storm. Silent is a host that no leader
// has heard for so long that whoever decided has to know.
func (x *watch) guard(created *kvmv1alpha1.Evacuation) {
	host := x.w.Fleet.Host(created.Spec.Hypervisor)
	if host == nil || x.confirmed(host.Name()) {
		return
	}
	x.checks[RuleStorm]++
	ha := x.w.spec.HA
	silence := 6 * cmp.Or(ha.Interval, 5*time.Second)
	silent, hosts := 0, 0
	for _, h := range x.w.Fleet.Hosts() {
		hv := x.w.Hypervisor(h.Name())
		if h.Zone() != host.Zone() || hv == nil || !hv.Spec.HighAvailability {
			continue
		}
		hosts++
		if c := meta.FindStatusCondition(hv.Status.Conditions, kvmv1.ConditionHostAlive); c != nil && c.Status == "False" {
			continue // known to be dead
		}
		if l := x.w.ha.lines[h.Name()]; x.w.now()-l.heard > silence {
			silent++
		}
	}
	if silent > cmp.Or(ha.StormHosts, 2) && float64(silent) > cmp.Or(ha.StormShare, 0.25)*float64(hosts) {
		x.violate(RuleStorm, fmt.Sprintf("%s is to be fenced while %d of the %d hosts of its zone are silent", host.Name(), silent, hosts))
	}
}

// unfinished are the phases in which nothing rests.
var unfinished = []kvmv1alpha1.EvacuationPhase{"", kvmv1alpha1.EvacuationFencing, kvmv1alpha1.EvacuationFenced, kvmv1alpha1.EvacuationEvacuating}

// haAtRest holds what must be true of evacuations once nothing happens any more.
func (w *World) haAtRest() {
	w.Cluster.Each(kindEvacuation, func(o client.Object) {
		e := o.(*kvmv1alpha1.Evacuation)
		w.watch.checks[RuleEvacuated]++
		if slices.Contains(unfinished, e.Status.Phase) {
			w.watch.violate(RuleEvacuated, fmt.Sprintf("%s is still %q in a fleet at rest: %s", e.Name, e.Status.Phase, e.Status.Message))
		}
		if e.Status.Proof == nil {
			return
		}
		for _, vm := range e.Status.VMs {
			w.recovered(e, vm.Name, vm.UID)
		}
	})
}

// recovered holds that a VM of a fenced host is well or says why not.
func (w *World) recovered(e *kvmv1alpha1.Evacuation, name, uid string) {
	w.watch.checks[RuleRecovered]++
	vmi, _ := w.Cluster.Lookup(kindVMI, client.ObjectKey{Namespace: Namespace, Name: name}).(*kubevirtv1.VirtualMachineInstance)
	v := w.vms[name]
	if vmi == nil || v == nil || string(vmi.UID) != uid || vmi.DeletionTimestamp != nil || vmi.IsFinal() || kubevirt.WantedPowerState(vmi) != kubevirt.PowerRunning {
		return
	}
	if len(w.Fleet.Ledger().Running(v.uuid)) == 1 {
		return
	}
	for _, c := range vmi.Status.Conditions {
		if c.Status != "True" && c.Message != "" {
			return
		}
	}
	w.watch.violate(RuleRecovered, fmt.Sprintf("%s, which was on %s (%s), does not run in a fleet at rest and says nothing: phase %s", name, e.Spec.Hypervisor, e.Name, vmi.Status.Phase))
}
