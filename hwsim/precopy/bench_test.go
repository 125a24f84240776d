// SPDX-License-Identifier: Apache-2.0

package precopy_test

import (
	"testing"
	"time"

	"github.com/adit-hv/adit/hwsim/precopy"
)

func BenchmarkMigration(b *testing.B) {
	steady := busy()
	steady.WorkingSets = []precopy.WorkingSet{
		{Bytes: 7 * gib, DirtyBytesPerSecond: 0.8e9},
		{Bytes: gib / 2, DirtyBytesPerSecond: 0.1e9},
	}
	b.Run("some ten rounds", func(b *testing.B) {
		b.ReportAllocs()
		var rounds uint64
		for b.Loop() {
			rounds = migrate(steady, wire, time.Hour).Iteration
		}
		b.ReportMetric(float64(rounds), "rounds")
	})
	b.Run("an hour without an end", func(b *testing.B) {
		b.ReportAllocs()
		var rounds uint64
		for b.Loop() {
			m := precopy.New(hopeless())
			m.Start(0, wire)
			m.Advance(time.Hour)
			rounds = m.Progress(time.Hour).Iteration
		}
		b.ReportMetric(float64(rounds), "rounds")
	})
	b.Run("post-copy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m := precopy.New(hopeless())
			m.Start(0, wire)
			if err := m.StartPostCopy(time.Second); err != nil {
				b.Fatal(err)
			}
			follow(m, time.Hour)
		}
	})
}
