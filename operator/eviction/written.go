// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// written remembers the last version of each Eviction that we wrote. While the
// cache shows an older one, a decision would only earn a conflict; the version
// we wrote is on its way as an event. After a restart nothing is remembered,
// and the conflicts say the same.
type written struct {
	mu       sync.Mutex
	versions map[types.UID]string
	times    map[types.UID]time.Time // of the last status
}

// told remembers when we wrote a status.
func (w *written) told(e *kvmv1.Eviction, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.times == nil {
		w.times = map[types.UID]time.Time{}
	}
	w.times[e.UID] = at
}

// last is when we wrote the last status; zero when we do not know.
func (w *written) last(e *kvmv1.Eviction) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.times[e.UID]
}

func (w *written) note(e *kvmv1.Eviction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.versions == nil {
		w.versions = map[types.UID]string{}
	}
	w.versions[e.UID] = e.ResourceVersion
}

func (w *written) forget(e *kvmv1.Eviction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.versions, e.UID)
	delete(w.times, e.UID)
}

// ahead says that we wrote a later version than this.
func (w *written) ahead(e *kvmv1.Eviction) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.versions[e.UID]
	if !known {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(e.ResourceVersion, last)
	if err != nil || order >= 0 {
		delete(w.versions, e.UID) // Caught up, or not to be compared.
		return false
	}
	return true
}
