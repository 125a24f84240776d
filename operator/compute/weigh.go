// SPDX-License-Identifier: Apache-2.0

package compute

import "math/bits"

// The weights of a host, in thousandths of a resource. A preference of weight
// 100, the highest, counts as much as an empty host against a full one in both
// resources; a migration already on its way there as a tenth of one.
const (
	perMille         = 1000
	perPreference    = 20
	incomingPenalty  = 100
	maxPreferenceSum = 1 << 40 // Keeps the sum of preferences from overflowing.
)

// weigh is how good a host that fits is for a VM: more is better. It spreads
// by free memory and CPU as they will be.
func (a *ask) weigh(h *host) int64 {
	memory, cpus := h.free()
	score := share(memory-a.vm.memory, h.memory) + share(cpus-a.vm.cpus, h.cpus)
	liking := a.neighbours.liking(h) + a.vm.nodes.liking(h)
	liking = max(-maxPreferenceSum, min(maxPreferenceSum, liking))
	return score + perPreference*liking - incomingPenalty*int64(h.incoming)
}

func share(free, of int64) int64 {
	if of <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(max(0, free)), perMille)
	if high >= uint64(of) {
		return perMille
	}
	quotient, _ := bits.Div64(high, low, uint64(of))
	return int64(quotient)
}

// tie orders hosts that weigh the same, for each VM differently and whatever
// their names: or the first in the alphabet would take all the heat.
func tie(v *vm, h *host) uint64 {
	x := v.hash ^ h.hash // Finaliser of splitmix64.
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
