// SPDX-License-Identifier: Apache-2.0

package precopy

import (
	"math"
	"testing"
)

func TestIntegralsOfDecay(t *testing.T) {
	const steps = 10000
	for _, k := range []float64{0, 1e-12, 1e-4, 0.9e-3, 1.1e-3, 0.1, 1, 10} {
		span, plain, moment := 1.0, 0.0, 0.0
		for i := range steps { // midpoint rule
			x := (float64(i) + 0.5) * span / steps
			plain += math.Exp(-k*x) * span / steps
			moment += x * math.Exp(-k*x) * span / steps
		}
		if got := decay(k, span); math.Abs(got-plain) > 1e-6 {
			t.Errorf("k %v: %v, want %v", k, got, plain)
		}
		if got := decayMoment(k, span); math.Abs(got-moment) > 1e-6 {
			t.Errorf("k %v: %v by its moment, want %v", k, got, moment)
		}
	}
}
