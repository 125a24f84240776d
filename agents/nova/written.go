// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// written bridges the time until the cache shows our own last write of a VM:
// its domain's events come sooner, and deciding by the older version would say
// the same again and earn a conflict. Our writes are locked, so between what
// they started from and what they made there is nothing. After a restart
// nothing is remembered, and the conflicts say the same.
type written struct {
	mu   sync.Mutex
	last map[types.NamespacedName]*kubevirtv1.VirtualMachineInstance
}

// note keeps what a write returned; nobody may change it any more.
func (w *written) note(vmi *kubevirtv1.VirtualMachineInstance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = map[types.NamespacedName]*kubevirtv1.VirtualMachineInstance{}
	}
	w.last[types.NamespacedName{Namespace: vmi.Namespace, Name: vmi.Name}] = vmi
}

// forget drops a VM that the cache does not have.
func (w *written) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.last, key)
}

// newer returns the later of what the cache shows and what we wrote.
func (w *written) newer(cached *kubevirtv1.VirtualMachineInstance) *kubevirtv1.VirtualMachineInstance {
	key := types.NamespacedName{Namespace: cached.Namespace, Name: cached.Name}
	w.mu.Lock()
	defer w.mu.Unlock()
	ours := w.last[key]
	if ours == nil {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, ours.ResourceVersion)
	if err != nil || order >= 0 || cached.UID != ours.UID {
		delete(w.last, key) // Caught up, or not to be compared.
		return cached
	}
	return ours
}
