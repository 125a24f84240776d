// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/api/kubevirt"
)

// standby is a VM that may be stopped for one of a higher class.
type standby struct {
	vm      *vm
	leaving bool // It was asked to.
}

// yielding finds the host on which the fewest VMs of lower classes would have to
// stop for a VM to fit that has run before and fits nowhere: those that yield and
// are placed there for good. asked are the ones not asked yet; with none and a
// host, room is being made there already. A VM that needs a cell of its own is not
// helped.
func (f *Fleet) yielding(vmi *kubevirtv1.VirtualMachineInstance, exclude []string) (name string, asked []types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.see(vmi)
	if v.priority == 0 || v.pinned {
		return "", nil
	}
	a := f.askFor(v, Request{VM: vmi, Exclude: exclude})
	there := map[*host][]standby{}
	for _, other := range f.vms { // Sorted below.
		if !other.yields || other.priority >= v.priority || len(other.claims) != 1 || other.claims[0].assumed {
			continue
		}
		if w := other.forWhom; other.leaving && w != nil && w != v && w.waiting {
			continue // its room is spoken for
		}
		h := other.claims[0].host
		there[h] = append(there[h], standby{other, other.leaving})
	}
	best := -1
	for _, h := range f.hosts {
		if !h.known || slices.Contains(exclude, h.name) || v.claimOn(h) != nil || a.now.Before(v.avoid[h.name]) {
			continue
		}
		if why := f.refuse(h, a); why != noMemory && why != noCPU {
			continue
		}
		keys, enough := h.roomBy(there[h], v)
		if !enough || best >= 0 && (len(keys) > best || len(keys) == best && h.name > name) {
			continue
		}
		best, name, asked = len(keys), h.name, keys
	}
	for _, key := range asked {
		f.byKey[key].forWhom = v
	}
	return name, asked
}

// roomBy are the VMs that would have to be asked for another to fit: those of the
// lowest class first, then the larger.
func (h *host) roomBy(standbys []standby, v *vm) (keys []types.NamespacedName, enough bool) {
	slices.SortFunc(standbys, func(a, b standby) int {
		return cmp.Or(compare(b.leaving, a.leaving), cmp.Compare(a.vm.priority, b.vm.priority),
			cmp.Compare(b.vm.memory, a.vm.memory), cmp.Compare(a.vm.uid, b.vm.uid))
	})
	memory, cpus := h.free()
	for _, s := range standbys {
		if memory >= v.memory && cpus >= v.cpus {
			break
		}
		memory, cpus = memory+s.vm.memory, cpus+s.vm.cpus
		if !s.leaving {
			keys = append(keys, s.vm.key)
		}
	}
	return keys, memory >= v.memory && cpus >= v.cpus
}

func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// askToYield asks VMs to leave a host for one that waits. Whoever changed one
// meanwhile comes first: the one that waits looks again.
func (r *Reconciler) askToYield(ctx context.Context, seen observation) error {
	for _, key := range seen.yield {
		var vmi kubevirtv1.VirtualMachineInstance
		if err := r.Client.Get(ctx, key, &vmi); err != nil {
			return client.IgnoreNotFound(err)
		}
		if vmi.Status.NodeName != seen.yieldOn || !yields(&vmi) || vmi.IsFinal() || vmi.DeletionTimestamp != nil || isMoving(&vmi) {
			return nil
		}
		after := vmi.DeepCopy()
		after.Annotations[kubevirt.AnnotationLeave] = seen.yieldOn + "/" + kubevirt.LeaveYielded
		err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(&vmi, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("ask VM %s to make room on %s: %w", key, seen.yieldOn, err)
		}
		r.Fleet.Observe(after)
		ctrl.LoggerFrom(ctx).Info("Asked VM to make room", "VirtualMachineInstance", klog.KObj(after), "host", seen.yieldOn, "for", klog.KObj(seen.vmi))
	}
	return nil
}

// yields says that a VM's owner lets it be stopped for others.
func yields(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return vmi.Annotations[kubevirt.AnnotationYields] == "true"
}
