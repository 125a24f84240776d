// SPDX-License-Identifier: Apache-2.0

package precopy_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/adit-hv/adit/hwsim/precopy"
)

func anyParams(t *rapid.T) precopy.Params {
	memory := rapid.Uint64Range(0, 64*gib).Draw(t, "memory")
	p := precopy.Params{
		MemoryBytes:  memory,
		ZeroBytes:    rapid.Uint64Range(0, memory).Draw(t, "zero"),
		DiskBytes:    rapid.SampledFrom([]uint64{0, 0, 3 * gib}).Draw(t, "disk"),
		Setup:        time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "setup")),
		Downtime:     time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "downtime")),
		AutoConverge: rapid.Bool().Draw(t, "auto-converge"),
		Connections:  rapid.IntRange(1, 4).Draw(t, "connections"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "sets") {
		p.WorkingSets = append(p.WorkingSets, precopy.WorkingSet{
			Bytes:               rapid.Uint64Range(0, 16*gib).Draw(t, "size"),
			DirtyBytesPerSecond: rapid.Float64Range(0, 2e9).Draw(t, "dirty"),
		})
	}
	if rapid.Bool().Draw(t, "compressed") {
		p.CompressionRatio = rapid.Float64Range(0.1, 1).Draw(t, "ratio")
	}
	return p
}

// act is something done to a migration at a time.
type act struct {
	at   time.Duration
	do   func(*precopy.Migration)
	rate *float64 // granted instead of do
}

func anyActs(t *rapid.T) []act {
	var acts []act
	for range rapid.IntRange(0, 6).Draw(t, "acts") {
		at := time.Duration(rapid.Int64Range(0, 60e9).Draw(t, "at"))
		switch rapid.IntRange(0, 5).Draw(t, "act") {
		case 0, 1, 2:
			rate := rapid.SampledFrom([]float64{0, 1e7, 1e8, 1.25e9, 3e9}).Draw(t, "bandwidth")
			acts = append(acts, act{at: at, rate: &rate})
		case 3:
			limit := time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "limit"))
			most := rapid.SampledFrom([]float64{0, 5e7, 5e8}).Draw(t, "most")
			acts = append(acts, act{at: at, do: func(m *precopy.Migration) { m.SetLimits(at, limit, most) }})
		case 4:
			paused := rapid.Bool().Draw(t, "paused")
			acts = append(acts, act{at: at, do: func(m *precopy.Migration) { m.SetPaused(at, paused) }})
		case 5:
			acts = append(acts, act{at: at, do: func(m *precopy.Migration) { _ = m.StartPostCopy(at) }})
		}
	}
	slices.SortStableFunc(acts, func(a, b act) int { return int(a.at - b.at) })
	return acts
}

// play performs the acts and stops at each of the looks between them; granted is
// the share of the wire there.
func play(p precopy.Params, acts []act, looks []time.Duration, look func(at time.Duration, m *precopy.Migration, granted float64)) {
	granted := wire
	m := precopy.New(p)
	m.Start(0, granted)
	for _, at := range looks {
		for len(acts) > 0 && acts[0].at <= at {
			if acts[0].rate != nil {
				granted = *acts[0].rate
				m.SetBandwidth(acts[0].at, granted)
			} else {
				acts[0].do(m)
			}
			acts = acts[1:]
		}
		look(at, m, granted)
	}
}

func anyLooks(t *rapid.T, end time.Duration) []time.Duration {
	looks := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(end)).Draw(t, "look"))
	}), 0, 30).Draw(t, "looks")
	looks = append(looks, end)
	slices.Sort(looks)
	return looks
}

func TestCuttingTimeChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, acts := anyParams(t), anyActs(t)
		const end = 100 * time.Second
		var once, often []precopy.Change
		var last, lastOften precopy.Progress
		play(p, acts, []time.Duration{end}, func(at time.Duration, m *precopy.Migration, _ float64) {
			once, last = m.Advance(at), m.Progress(at)
		})
		play(p, acts, anyLooks(t, end), func(at time.Duration, m *precopy.Migration, granted float64) {
			before := m.Progress(at)
			m.SetBandwidth(at, granted) // the same share again is no change
			often = append(often, m.Advance(at)...)
			if lastOften = m.Progress(at); before != lastOften {
				t.Fatalf("read ahead %+v, then %+v", before, lastOften)
			}
		})
		if !slices.Equal(once, often) || last != lastOften {
			t.Fatalf("in one step %v\n%+v\nin many %v\n%+v", once, last, often, lastOften)
		}
	})
}

func TestMovingTheAnchorsChangesOnlyRounding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyParams(t)
		const end = 10 * time.Minute
		want := migrate(p, wire, end)
		var got precopy.Progress
		play(p, nil, anyLooks(t, end), func(at time.Duration, m *precopy.Migration, granted float64) {
			m.SetBandwidth(at, granted/2)
			m.SetPaused(at, true)
			m.SetBandwidth(at, granted)
			m.SetPaused(at, false)
			got = m.Progress(at)
		})
		const slack = time.Microsecond
		if got.Phase != want.Phase || (got.Elapsed-want.Elapsed).Abs() > slack ||
			(got.BrownOut-want.BrownOut).Abs() > slack || got.Iteration != want.Iteration ||
			math.Abs(float64(got.NormalBytes)-float64(want.NormalBytes)) > 2*4096 {
			t.Fatalf("at rest %+v\nmoved %+v", want, got)
		}
	})
}

func TestNumbersAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, acts := anyParams(t), anyActs(t)
		var before precopy.Progress
		play(p, acts, anyLooks(t, 100*time.Second), func(at time.Duration, m *precopy.Migration, granted float64) {
			changes, now := m.Advance(at), m.Progress(at)
			check(t, before, now)
			next, ok := m.Next()
			if ok && next <= at {
				t.Fatalf("at %v the next boundary is %v", at, next)
			}
			sending := now.Phase > precopy.PhaseSetup && now.Phase < precopy.PhaseCompleted
			if sending && granted > 0 && !ok {
				t.Fatalf("nothing happens after %+v", now)
			}
			for i := 1; i < len(changes); i++ {
				if changes[i].At < changes[i-1].At {
					t.Fatalf("changes go back: %v", changes)
				}
			}
			before = now
		})
	})
}

func TestActsTakeNothingBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyParams(t)
		m := precopy.New(p)
		m.Start(0, wire)
		at := time.Duration(0)
		for range rapid.IntRange(1, 20).Draw(t, "acts") {
			at += time.Duration(rapid.Int64Range(0, 10e9).Draw(t, "wait"))
			before := m.Progress(at)
			switch rapid.IntRange(0, 3).Draw(t, "act") {
			case 0, 1:
				m.SetBandwidth(at, rapid.SampledFrom([]float64{0, 1e7, 1e8, wire}).Draw(t, "rate"))
			case 2:
				m.SetPaused(at, rapid.Bool().Draw(t, "paused"))
			case 3:
				_ = m.StartPostCopy(at)
			}
			check(t, before, m.Progress(at))
		}
	})
}

// check states what holds of any two readings, one after the other.
func check(t *rapid.T, before, now precopy.Progress) {
	t.Helper()
	switch {
	case now.MemoryRemaining > now.MemoryTotal, now.DiskRemaining > now.DiskTotal,
		now.DiskProcessed+now.DiskRemaining != now.DiskTotal, now.NormalBytes != now.NormalPages*now.PageSize:
		t.Fatalf("sums: %+v", now)
	case now.MemoryProcessed < before.MemoryProcessed, now.NormalPages < before.NormalPages,
		now.ConstantPages < before.ConstantPages, now.DiskProcessed < before.DiskProcessed,
		now.Iteration < before.Iteration, now.Elapsed < before.Elapsed, now.Setup < before.Setup,
		now.BlackOut < before.BlackOut, now.BrownOut < before.BrownOut,
		now.ThrottlePercent < before.ThrottlePercent,
		now.PostCopyRequests < before.PostCopyRequests, now.Phase < before.Phase:
		t.Fatalf("goes back:\n%+v\n%+v", before, now)
	case now.BlackOut+now.BrownOut > now.Elapsed+100, now.GuestSpeed < 0, now.GuestSpeed > 1, now.ThrottlePercent > 99:
		t.Fatalf("guest: %+v", now)
	case now.PostCopyRequests > now.MemoryTotal/now.PageSize+1:
		t.Fatalf("more pages asked for than there are: %+v", now)
	case now.Phase == precopy.PhaseCompleted && (now.MemoryRemaining != 0 || now.GuestSpeed != 1 || now.Downtime == 0):
		t.Fatalf("completed: %+v", now)
	}
}

func TestBytesAreConserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyParams(t)
		p.AutoConverge = false // so that rounds end when their volume is sent
		p.CompressionRatio = 1
		m := precopy.New(p)
		m.Start(0, wire)
		volumes := float64(p.MemoryBytes - p.ZeroBytes)
		for m.Phase() != precopy.PhaseCompleted {
			at, ok := m.Next()
			if !ok || at > 60*time.Second {
				return // it does not converge, which is not the question here
			}
			for _, c := range m.Advance(at) {
				if c.Kind == precopy.RoundEnded {
					volumes += float64(m.Progress(at).MemoryRemaining)
				}
			}
		}
		now := m.Progress(time.Minute)
		rounds := float64(now.Iteration)
		if d := math.Abs(float64(now.MemoryProcessed) - volumes); d > 2*rounds+volumes*1e-12 {
			t.Fatalf("sent %d, rounds held %.0f", now.MemoryProcessed, volumes)
		}
		if now.ConstantPages != p.ZeroBytes/now.PageSize {
			t.Fatalf("%d zero pages of %d bytes", now.ConstantPages, p.ZeroBytes)
		}
	})
}

func TestMoreBandwidthIsNeverSlower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyParams(t)
		p.AutoConverge = false // throttling answers to bandwidth in steps
		rate := rapid.Float64Range(1e7, 2e9).Draw(t, "rate")
		more := rate * rapid.Float64Range(1, 4).Draw(t, "more")
		const end = 10 * time.Minute
		slow, fast := migrate(p, rate, end), migrate(p, more, end)
		if slow.Phase != precopy.PhaseCompleted {
			return
		}
		// The last round may be cut one earlier, and then longer by a downtime.
		slack := p.Downtime
		if slack == 0 {
			slack = 300 * time.Millisecond
		}
		if fast.Phase != precopy.PhaseCompleted || fast.Elapsed > slow.Elapsed+slack {
			t.Fatalf("%v at %.0f, %v at %.0f", slow.Elapsed, rate, fast.Elapsed, more)
		}
	})
}

func TestConvergesWhenTheorySaysSo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := precopy.WorkingSet{
			Bytes:               rapid.Uint64Range(gib/64, 4*gib).Draw(t, "size"),
			DirtyBytesPerSecond: rapid.Float64Range(1e6, 4e9).Draw(t, "dirty"),
		}
		p := precopy.Params{MemoryBytes: 8 * gib, WorkingSets: []precopy.WorkingSet{set}}
		rate := rapid.Float64Range(1e8, 1.3e9).Draw(t, "rate")

		// Rounds shrink towards the V that dirties V while it is sent. They reach
		// the limit exactly when dirtying for one downtime leaves less than fits.
		limit := rate * 0.3
		dirty := float64(set.Bytes) * -math.Expm1(-set.DirtyBytesPerSecond*0.3/float64(set.Bytes))
		if math.Abs(dirty-limit) < 0.05*limit {
			return // too near to wait for
		}
		got := migrate(p, rate, 3*time.Hour).Phase == precopy.PhaseCompleted
		if want := dirty < limit; got != want {
			t.Fatalf("converged %v, want %v: %.0f dirty in a downtime, %.0f fit", got, want, dirty, limit)
		}
	})
}

func TestPostCopyAlwaysEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyParams(t)
		rate := rapid.Float64Range(1e7, 3e9).Draw(t, "rate")
		at := time.Duration(rapid.Int64Range(0, 2000e9).Draw(t, "at"))
		m := precopy.New(p)
		m.Start(0, rate)
		m.Advance(at)
		if m.StartPostCopy(at) != nil {
			return
		}
		began := m.Progress(at)
		changes := follow(m, math.MaxInt64/2)
		if m.Phase() != precopy.PhaseCompleted {
			t.Fatalf("phase %d", m.Phase())
		}
		want := []precopy.ChangeKind{precopy.SwitchOverBegan, precopy.Switched, precopy.PostCopyStarted, precopy.Completed}
		if got := kinds(changes); !slices.Equal(got[len(got)-4:], want) {
			t.Fatalf("%v", got)
		}
		ended := m.Progress(math.MaxInt64 / 2)
		check(t, began, ended)
		whole := func(p precopy.Progress) float64 { return float64(p.NormalBytes + p.ConstantPages*p.PageSize) }
		if d := math.Abs(whole(ended) - whole(began) - float64(began.MemoryRemaining)); d > 4*4096 {
			t.Fatalf("%.0f bytes lost or sent twice: %+v, then %+v", d, began, ended)
		}
	})
}
