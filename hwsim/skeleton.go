// SPDX-License-Identifier: Apache-2.0

package hwsim

import "github.com/adit-hv/adit/hardware"

type view struct {
	hardware.Host
	h   *Host
	who string
}
type pool struct{}
type nic struct{}
type flow struct{}
type move struct{}
type activeFault struct{}
type domain struct{ uuid, name string }

func (d *domain) token() int64 { return 0 }

var links = []string{"migration", "management"}

func (f *Fleet) workloadChanged(uuid string) {}

// AddPool adds storage. A pool is there before the volumes in it.
func (f *Fleet) AddPool(spec PoolSpec) error { return nil }

// AddVolume adds a volume POOL/NAME. In a pool that is not shared it exists
// only on the hosts named.
func (f *Fleet) AddVolume(volume string, sizeBytes uint64, hosts ...string) error { return nil }

// RemoveVolume removes a volume everywhere.
func (f *Fleet) RemoveVolume(volume string) error { return nil }

// Inject lets a fault begin. It returns an error for names the fleet does not
// have.
func (f *Fleet) Inject(fault Fault) error { return fault.Validate() }

// Heal ends all active faults that print as this one.
func (f *Fleet) Heal(fault Fault) {}

// HealAll ends all active faults: power returns, links and daemons come back.
func (f *Fleet) HealAll() {}

// ActiveFaults returns the faults that last, in the order they began.
func (f *Fleet) ActiveFaults() []Fault { return nil }
