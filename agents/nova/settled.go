// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

// wakeUnsettled wakes the VMs at which a look is worth its calls, or with all,
// every VM. Of twenty VMs on a quiet host it is none: one list of domains says
// of each what a look of its own would, and a host need not ask twenty times.
//
// Where nothing has stirred since the last time they are not even read: what
// settles a VM is its object, its domain and what we remember, and each of them
// changes only with an event that brings the VM itself, or in the list.
func (r *Reconciler) wakeUnsettled(ctx context.Context, all bool) error {
	stirs, rested := r.host.stirred()
	if rested && !all {
		return nil
	}
	var vmis kubevirtv1.VirtualMachineInstanceList
	if err := r.client.List(ctx, &vmis, client.UnsafeDisableDeepCopy); err != nil { // only read below
		return fmt.Errorf("list VMs of %s: %w", r.o.Host, err)
	}
	settled, woken := map[string]bool{}, false
	for i := range vmis.Items {
		vmi := &vmis.Items[i]
		if uuid := kubevirt.DomainUUID(vmi); !all && r.host.settled(vmi, uuid) {
			settled[uuid] = true
			continue
		}
		woken = true
		r.host.wake(types.NamespacedName{Namespace: vmi.Namespace, Name: vmi.Name})
	}
	for _, owner := range r.host.unexplained(settled) {
		woken = true
		r.host.wake(owner)
	}
	if !woken {
		r.host.rest(stirs)
	}
	return nil
}

// stir says that something of the host's VMs may be another.
func (h *host) stir() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stirs++
}

// stirred returns the count of stirs, and whether all was well at it.
func (h *host) stirred() (stirs int, rested bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stirs, h.stirs == h.restedAt
}

// rest notes that all VMs were as they should be when so much had stirred.
func (h *host) rest(stirs int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.restedAt = stirs
}

// settled says that a VM runs here as it should and as it says, and nothing
// about it waits for time to pass. Whatever changes that is an event, of the
// VM or of its domain, or shows in the next list.
func (h *host) settled(vmi *kubevirtv1.VirtualMachineInstance, uuid string) bool {
	if vmi.DeletionTimestamp != nil || vmi.Status.NodeName != h.name || vmi.Status.Phase != kubevirtv1.Running ||
		migrating(vmi) != nil || kubevirt.WantedPowerState(vmi) != kubevirt.PowerRunning {
		return false
	}
	if ready := condition(vmi, kubevirtv1.VirtualMachineInstanceReady); ready == nil || ready.Status != yes {
		return false
	}
	if c := condition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized); c != nil && c.Status != yes {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d, here := h.domains[uuid]
	if !here || d.State != hardware.StateRunning || d.Incoming || d.Foreign || d.Spec.Owner == nil || d.Spec.Owner.UID != string(vmi.UID) {
		return false
	}
	m := h.memory[uuid]
	return m.stoppedAt.IsZero() && m.shutdownAt.IsZero() && m.askedAt.IsZero() && m.absentAt.IsZero() &&
		m.missingAt.IsZero() && m.migration == "" && m.tries == 0
}

// unexplained are the owners of the domains of ours that are not those of
// settled VMs, sorted by UUID.
func (h *host) unexplained(settled map[string]bool) []types.NamespacedName {
	h.mu.Lock()
	defer h.mu.Unlock()
	var owners []types.NamespacedName
	for _, uuid := range slices.Sorted(maps.Keys(h.domains)) {
		if d := h.domains[uuid]; !settled[uuid] && !d.Foreign && d.Spec.Owner != nil {
			owners = append(owners, types.NamespacedName{Namespace: d.Spec.Owner.Namespace, Name: d.Spec.Owner.Name})
		}
	}
	return owners
}
