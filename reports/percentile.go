// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"math"
	"slices"
)

// Percentiles sums up values, in unit, by nearest rank: each figure is a value
// that did occur. NaN is no value; without any all figures are 0.
func Percentiles(name, unit string, values []float64) Percentile {
	sorted := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(sorted)
	p := Percentile{Name: name, Unit: unit, Count: len(sorted)}
	if len(sorted) == 0 {
		return p
	}
	rank := func(percent int) float64 {
		return sorted[max((len(sorted)*percent+99)/100, 1)-1]
	}
	p.Min, p.Max = sorted[0], sorted[len(sorted)-1]
	p.P50, p.P90, p.P99 = rank(50), rank(90), rank(99)
	return p
}
