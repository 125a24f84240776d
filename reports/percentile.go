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

// RecoveryPercentiles sums up recoveries: the whole way for each priority, and
// each part of it.
func RecoveryPercentiles(all []Recovery) []Percentile {
	if len(all) == 0 {
		return nil
	}
	var out []Percentile
	add := func(name string, of func(Recovery) (float64, bool)) {
		var values []float64
		for _, r := range all {
			if v, counts := of(r); counts {
				values = append(values, v)
			}
		}
		if len(values) > 0 {
			out = append(out, Percentiles(name, "s", values))
		}
	}
	for _, priority := range []string{"high", "medium", "low"} {
		add("recovery, "+priority, func(r Recovery) (float64, bool) { return r.Total(), r.Priority == priority })
	}
	add("of it: detect", func(r Recovery) (float64, bool) { return r.Detect, true })
	add("of it: decide", func(r Recovery) (float64, bool) { return r.Decide, true })
	add("of it: fence", func(r Recovery) (float64, bool) { return r.Fence, true })
	add("of it: place", func(r Recovery) (float64, bool) { return r.Place, true })
	add("of it: start", func(r Recovery) (float64, bool) { return r.Start, true })
	return out
}
