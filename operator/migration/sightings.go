// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// sightings remembers what the API does not: when we first saw an answer or a
// failure, and which versions we wrote ourselves. After a restart it starts
// anew, which only makes short waits longer.
type sightings struct {
	mu      sync.Mutex
	ofVM    map[types.UID]sighting
	written map[types.UID]string // By migration.
}

type sighting struct {
	migration        types.UID
	answered, failed time.Time
}

func newSightings() *sightings {
	return &sightings{ofVM: map[types.UID]sighting{}, written: map[types.UID]string{}}
}

// see notes what a VMI's migration shows and says since when.
func (s *sightings) see(vmi *kubevirtv1.VirtualMachineInstance, now time.Time) (answered, failed time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := vmi.Status.MigrationState
	have := s.ofVM[vmi.UID]
	if have.migration != m.MigrationUID {
		have = sighting{migration: m.MigrationUID}
	}
	if m.TargetNodeAddress != "" && have.answered.IsZero() {
		have.answered = now
	}
	if m.Failed && have.failed.IsZero() {
		have.failed = now
	}
	s.ofVM[vmi.UID] = have
	return have.answered, have.failed
}

func (s *sightings) wrote(m *kubevirtv1.VirtualMachineInstanceMigration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[m.UID] = m.ResourceVersion
}

// ahead says whether we wrote a later version of one of these than is seen.
func (s *sightings) ahead(migrations []kubevirtv1.VirtualMachineInstanceMigration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range migrations {
		m := &migrations[i]
		if wrote, has := s.written[m.UID]; has && wrote != m.ResourceVersion && newer(wrote, m.ResourceVersion) {
			return true
		}
	}
	return false
}

func (s *sightings) forgetVM(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ofVM, uid)
}

func (s *sightings) forgetMigration(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.written, uid)
}
