// SPDX-License-Identifier: Apache-2.0

package precopy_test

import (
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/adit-hv/adit/hwsim/precopy"
)

const (
	kib = 1 << 10
	gib = 1 << 30
)

type setup struct {
	Memory, Zero     uint64       // KiB
	WorkingSets      []workingSet `yaml:"workingSets"`
	Megabits         float64
	ZeroScanGiB      float64 `yaml:"zeroScanGiB"`
	CompressionRatio float64 `yaml:"compressionRatio"`
	Connections      int
	SetupMs          int  `yaml:"setupMs"`
	DeviceTimeMs     int  `yaml:"deviceTimeMs"`
	DowntimeMs       int  `yaml:"downtimeMs"`
	AutoConverge     bool `yaml:"autoConverge"`
}

type workingSet struct {
	Size           uint64
	DirtyPerSecond float64 `yaml:"dirtyPerSecond"`
}

type measurements struct {
	Rows []struct {
		ID, Name, Source string
		Setup            setup
		Fitted           []string
		Measured         struct {
			TotalMs float64 `yaml:"totalMs"`
			DownMs  float64 `yaml:"downMs"`
			Sent    float64
		}
		Assert struct {
			Total, Sent        float64
			DownMs             []float64 `yaml:"downMs"`
			NeverWithinSeconds float64   `yaml:"neverWithinSeconds"`
			WithinSeconds      float64   `yaml:"withinSeconds"`
			Throttled          bool
		}
	}
	Slopes []struct {
		ID, Name, Source string
		MemoryGiB        []float64 `yaml:"memoryGiB"`
		MeasuredSeconds  []float64 `yaml:"measuredSeconds"`
		Setup            setup
		UsedGiB          float64 `yaml:"usedGiB"`
		Fitted           []string
		Assert           struct {
			SecondsPerGiB []float64 `yaml:"secondsPerGiB"`
		}
	}
	Fleet struct {
		ID, Name, Source string
		MemoryGiB        []uint64 `yaml:"memoryGiB"`
		Megabits         []float64
		DowntimeMs       int `yaml:"downtimeMs"`
		Workloads        []struct {
			Name        string
			Weight      int
			WorkingSets []workingSet `yaml:"workingSets"`
		}
		Measured struct {
			P50Ms float64 `yaml:"p50Ms"`
			P99Ms float64 `yaml:"p99Ms"`
		}
		Assert struct{ Factor float64 }
	}
	NotCovered []struct{ ID, Source, Why string } `yaml:"notCovered"`
}

func (s setup) params() precopy.Params {
	p := precopy.Params{
		MemoryBytes:            s.Memory * kib,
		ZeroBytes:              s.Zero * kib,
		ZeroScanBytesPerSecond: s.ZeroScanGiB * gib,
		CompressionRatio:       s.CompressionRatio,
		Connections:            s.Connections,
		Setup:                  time.Duration(s.SetupMs) * time.Millisecond,
		DeviceTime:             time.Duration(s.DeviceTimeMs) * time.Millisecond,
		Downtime:               time.Duration(s.DowntimeMs) * time.Millisecond,
		AutoConverge:           s.AutoConverge,
	}
	for _, w := range s.WorkingSets {
		p.WorkingSets = append(p.WorkingSets, precopy.WorkingSet{Bytes: w.Size * kib, DirtyBytesPerSecond: w.DirtyPerSecond * kib})
	}
	// The measured rate is what the whole machine did: no thread's bound on top.
	p.StreamBytesPerSecond = 1e12
	return p
}

func (s setup) bytesPerSecond() float64 { return s.Megabits * 1e6 / 8 }

func read(t *testing.T) measurements {
	t.Helper()
	text, err := os.ReadFile("testdata/measurements.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all measurements
	if err := yaml.UnmarshalWithOptions(text, &all, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPublishedMeasurementsAreMet(t *testing.T) {
	for _, row := range read(t).Rows {
		t.Run(row.ID+" "+row.Name, func(t *testing.T) {
			limit := time.Hour
			if never := row.Assert.NeverWithinSeconds; never > 0 {
				limit = time.Duration(never * 1e9)
			}
			got := migrate(row.Setup.params(), row.Setup.bytesPerSecond(), limit)
			t.Logf("total %v (%v ms), down %v (%v ms), sent %d KiB (%.0f), round %d, throttle %d %%",
				got.Elapsed, row.Measured.TotalMs, got.Downtime, row.Measured.DownMs,
				got.MemoryProcessed/kib, row.Measured.Sent, got.Iteration, got.ThrottlePercent)

			if ended := got.Phase == precopy.PhaseCompleted; ended == (row.Assert.NeverWithinSeconds > 0) {
				t.Errorf("completed: %v", ended)
			}
			near(t, "total", got.Elapsed.Seconds()*1e3, row.Measured.TotalMs, row.Assert.Total)
			near(t, "sent", float64(got.MemoryProcessed)/kib, row.Measured.Sent, row.Assert.Sent)
			if d := row.Assert.DownMs; d != nil {
				within(t, "down", got.Downtime.Seconds()*1e3, d)
			}
			if most := row.Assert.WithinSeconds; most > 0 {
				within(t, "total", got.Elapsed.Seconds(), []float64{0, most})
			}
			if row.Assert.Throttled && got.ThrottlePercent == 0 {
				t.Error("the guest was not throttled")
			}
		})
	}
}

func TestPublishedSlopesAreMet(t *testing.T) {
	for _, series := range read(t).Slopes {
		t.Run(series.ID+" "+series.Name, func(t *testing.T) {
			var seconds []float64
			for _, size := range series.MemoryGiB {
				p := series.Setup.params()
				p.MemoryBytes = uint64(size * gib)
				p.ZeroBytes = uint64((size - series.UsedGiB) * gib)
				seconds = append(seconds, migrate(p, series.Setup.bytesPerSecond(), time.Hour).Elapsed.Seconds())
			}
			t.Logf("model %.1f, measured %.1f", seconds, series.MeasuredSeconds)
			within(t, "model's slope", slope(series.MemoryGiB, seconds), series.Assert.SecondsPerGiB)
			within(t, "measured slope", slope(series.MemoryGiB, series.MeasuredSeconds), series.Assert.SecondsPerGiB)
		})
	}
}

func TestPublishedFleetIsMet(t *testing.T) {
	fleet := read(t).Fleet
	t.Run(fleet.ID+" "+fleet.Name, func(t *testing.T) {
		var blackouts []float64
		for _, load := range fleet.Workloads {
			for _, size := range fleet.MemoryGiB {
				for _, megabits := range fleet.Megabits {
					s := setup{Memory: size << 20, Megabits: megabits, WorkingSets: load.WorkingSets, DowntimeMs: fleet.DowntimeMs}
					got := migrate(s.params(), s.bytesPerSecond(), time.Hour)
					if got.Phase != precopy.PhaseCompleted {
						t.Errorf("%s with %d GiB does not end", load.Name, size)
					}
					blackouts = append(blackouts, slices.Repeat([]float64{got.BlackOut.Seconds() * 1e3}, load.Weight)...)
				}
			}
		}
		slices.Sort(blackouts)
		p50, p99 := blackouts[len(blackouts)/2], blackouts[len(blackouts)*99/100]
		t.Logf("black-out p50 %.0f ms, p99 %.0f ms", p50, p99)
		factor := fleet.Assert.Factor
		within(t, "p50", p50, []float64{fleet.Measured.P50Ms / factor, fleet.Measured.P50Ms * factor})
		within(t, "p99", p99, []float64{fleet.Measured.P99Ms / factor, fleet.Measured.P99Ms * factor})
	})
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if tolerance > 0 && math.Abs(got-want) > tolerance*want {
		t.Errorf("%s: got %.1f, want %.1f ± %.0f %%", what, got, want, tolerance*100)
	}
}

func within(t *testing.T, what string, got float64, bounds []float64) {
	t.Helper()
	if got < bounds[0] || got > bounds[1] {
		t.Errorf("%s: got %.3f, want %v", what, got, bounds)
	}
}

// slope is the least-squares one.
func slope(x, y []float64) float64 {
	n, sx, sy, sxx, sxy := float64(len(x)), 0.0, 0.0, 0.0, 0.0
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
