// SPDX-License-Identifier: Apache-2.0

package precopy_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/adit-hv/adit/hwsim/precopy"
)

const none = -1 // a duration that is really zero, not the default

// follow drives a migration from boundary to boundary until it ends, stalls or
// passes the limit.
func follow(m *precopy.Migration, limit time.Duration) []precopy.Change {
	var all []precopy.Change
	for {
		at, ok := m.Next()
		if !ok || at > limit {
			return append(all, m.Advance(limit)...)
		}
		all = append(all, m.Advance(at)...)
	}
}

func migrate(p precopy.Params, bytesPerSecond float64, limit time.Duration) precopy.Progress {
	m := precopy.New(p)
	m.Start(0, bytesPerSecond)
	follow(m, limit)
	return m.Progress(limit)
}

func kinds(changes []precopy.Change) []precopy.ChangeKind {
	var all []precopy.ChangeKind
	for _, c := range changes {
		all = append(all, c.Kind)
	}
	return all
}

// busy is 8 GiB that dirty 0.5 GB/s, on a wire of 1.25 GB/s.
func busy() precopy.Params {
	return precopy.Params{
		MemoryBytes: 8 * gib,
		WorkingSets: []precopy.WorkingSet{{Bytes: 2 * gib, DirtyBytesPerSecond: 0.5e9}},
	}
}

// hopeless is busy with more dirt than the wire takes.
func hopeless() precopy.Params {
	p := busy()
	p.WorkingSets[0].DirtyBytesPerSecond = 5e9
	return p
}

const wire = 1.25e9

func TestConstantRatioFollowsTheClosedForm(t *testing.T) {
	// So large a set that it never saturates: V(i+1) = ρ·V(i). Memory is bounded
	// by it, so only its rate counts: the sum over rounds is geometric.
	const memory, limit = 8 * gib, 0.3
	for _, dirty := range []float64{0.05e9, 0.25e9, 0.5e9, 0.9e9} {
		ratio := dirty / wire
		n := math.Ceil(math.Log(wire*limit/memory) / math.Log(ratio))
		total := memory / wire * (1 - math.Pow(ratio, n+1)) / (1 - ratio)
		down := memory / wire * math.Pow(ratio, n)

		const huge = 1 << 50
		got := migrate(precopy.Params{
			MemoryBytes: huge, ZeroBytes: huge - memory, ZeroScanBytesPerSecond: 1e30,
			WorkingSets: []precopy.WorkingSet{{Bytes: huge, DirtyBytesPerSecond: dirty}},
			DeviceTime:  none, NetworkRTT: none,
		}, wire, time.Hour)
		near(t, "total", got.Elapsed.Seconds(), total, 1e-4)
		near(t, "down", got.Downtime.Seconds(), down, 1e-3)
		if got.Iteration != uint64(n)+1 {
			t.Errorf("ratio %.2f: switched over in round %d, want %d", ratio, got.Iteration, uint64(n)+1)
		}
	}
}

func TestTheStagesOfAMigration(t *testing.T) {
	tests := []struct {
		name   string
		params precopy.Params
		act    func(m *precopy.Migration)
		want   []precopy.ChangeKind
	}{{
		name:   "an idle guest needs one round",
		params: precopy.Params{MemoryBytes: gib},
		want:   []precopy.ChangeKind{precopy.SetupEnded, precopy.MemoryBegan, precopy.RoundEnded, precopy.SwitchOverBegan, precopy.Switched, precopy.Completed},
	}, {
		name:   "disks come before memory",
		params: precopy.Params{MemoryBytes: gib, DiskBytes: 10 * gib, Setup: time.Second},
		want:   []precopy.ChangeKind{precopy.SetupEnded, precopy.MemoryBegan, precopy.RoundEnded, precopy.SwitchOverBegan, precopy.Switched, precopy.Completed},
	}, {
		name:   "a busy guest needs more rounds",
		params: busy(),
		want:   []precopy.ChangeKind{precopy.SetupEnded, precopy.MemoryBegan, precopy.RoundEnded, precopy.RoundEnded, precopy.RoundEnded, precopy.SwitchOverBegan, precopy.Switched, precopy.Completed},
	}, {
		name:   "post-copy switches first and sends after",
		params: hopeless(),
		act: func(m *precopy.Migration) {
			if err := m.StartPostCopy(2 * time.Second); err != nil {
				panic(err)
			}
		},
		want: []precopy.ChangeKind{precopy.SetupEnded, precopy.MemoryBegan, precopy.RoundEnded, precopy.SwitchOverBegan, precopy.Switched, precopy.PostCopyStarted, precopy.Completed},
	}, {
		name:   "a guest of nothing but zero pages goes too",
		params: precopy.Params{MemoryBytes: gib, ZeroBytes: gib},
		want:   []precopy.ChangeKind{precopy.SetupEnded, precopy.MemoryBegan, precopy.RoundEnded, precopy.SwitchOverBegan, precopy.Switched, precopy.Completed},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := precopy.New(tt.params)
			m.Start(0, wire)
			if tt.act != nil {
				tt.act(m)
			}
			if got := kinds(follow(m, time.Hour)); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if p := m.Progress(time.Hour); p.MemoryRemaining != 0 || p.DiskRemaining != 0 {
				t.Errorf("left over: %+v", p)
			}
		})
	}
}

func TestAGuestThatCannotConverge(t *testing.T) {
	start := func(change func(*precopy.Params)) *precopy.Migration {
		p := hopeless()
		if change != nil {
			change(&p)
		}
		m := precopy.New(p)
		m.Start(0, wire)
		follow(m, 30*time.Second)
		if m.Phase() != precopy.PhaseRounds {
			t.Fatalf("phase %d after 30 s", m.Phase())
		}
		return m
	}
	ends := func(t *testing.T, m *precopy.Migration, limit time.Duration) precopy.Progress {
		t.Helper()
		follow(m, limit)
		p := m.Progress(limit)
		if p.Phase != precopy.PhaseCompleted {
			t.Fatalf("phase %d at %v: %+v", p.Phase, limit, p)
		}
		return p
	}
	t.Run("goes round and round at a plateau", func(t *testing.T) {
		m := start(nil)
		before := m.Progress(30 * time.Second)
		rounds := follow(m, 10*time.Minute)
		after := m.Progress(10 * time.Minute)
		if after.Phase != precopy.PhaseRounds || after.Iteration < before.Iteration+100 {
			t.Errorf("round %d, then %d", before.Iteration, after.Iteration)
		}
		if len(rounds) > 10*60*4 {
			t.Errorf("%d changes: rounds are shorter than the downtime limit", len(rounds))
		}
	})
	t.Run("goes home with a longer downtime", func(t *testing.T) {
		m := start(nil)
		m.SetLimits(30*time.Second, 3*time.Second, 0)
		if p := ends(t, m, time.Minute); p.Downtime < time.Second || p.Downtime > 3100*time.Millisecond {
			t.Errorf("downtime %v", p.Downtime)
		}
	})
	t.Run("goes home when suspended", func(t *testing.T) {
		m := start(nil)
		m.SetPaused(30*time.Second, true)
		if p := ends(t, m, time.Minute); p.BlackOut < p.Downtime {
			t.Errorf("black-out %v below downtime %v", p.BlackOut, p.Downtime)
		}
	})
	t.Run("goes home by post-copy", func(t *testing.T) {
		m := start(nil)
		if err := m.StartPostCopy(30 * time.Second); err != nil {
			t.Fatal(err)
		}
		p := ends(t, m, time.Minute)
		if p.Downtime > 50*time.Millisecond || p.PostCopyRequests == 0 || p.BrownOut == 0 || !p.PostCopy {
			t.Errorf("%+v", p)
		}
	})
	t.Run("is slowed by auto-converge step by step until it goes home", func(t *testing.T) {
		p := hopeless()
		p.AutoConverge = true
		m := precopy.New(p)
		m.Start(0, wire)
		changes := follow(m, 5*time.Minute)
		last := 0
		for _, c := range changes {
			if c.Kind == precopy.Throttled {
				if last == 0 && c.ThrottlePercent != 20 || last > 0 && c.ThrottlePercent != min(last+10, 99) {
					t.Errorf("throttle from %d to %d", last, c.ThrottlePercent)
				}
				last = c.ThrottlePercent
			}
		}
		if got := ends(t, m, 5*time.Minute); last == 0 || got.BrownOut == 0 || got.GuestSpeed != 1 {
			t.Errorf("throttle %d, %+v", last, got)
		}
	})
	t.Run("is looked at every five seconds in long rounds", func(t *testing.T) {
		p := hopeless()
		p.AutoConverge = true
		p.WorkingSets[0].Bytes = 8 * gib
		m := precopy.New(p)
		m.Start(0, wire/10)
		var syncs []time.Duration
		for _, c := range follow(m, 2*time.Minute) {
			if c.Kind == precopy.RoundEnded {
				syncs = append(syncs, c.At)
			}
		}
		if len(syncs) < 4 || syncs[0] < time.Minute || syncs[3]-syncs[2] != 5*time.Second {
			t.Errorf("syncs at %v", syncs)
		}
	})
}

func TestAStalledWire(t *testing.T) {
	m := precopy.New(hopeless())
	m.Start(0, wire)
	m.SetBandwidth(time.Second, 0)
	if at, ok := m.Next(); !ok || at != time.Second {
		t.Fatalf("next %v %v, want the setup's end to be fetched", at, ok)
	}
	m.Advance(time.Second)
	if at, ok := m.Next(); ok {
		t.Errorf("something happens at %v without bandwidth", at)
	}
	before := m.Progress(time.Second)
	after := m.Progress(time.Hour)
	if before.MemoryProcessed != after.MemoryProcessed || before.MemoryProcessed == 0 {
		t.Errorf("%d bytes, then %d", before.MemoryProcessed, after.MemoryProcessed)
	}
	m.SetBandwidth(time.Hour, wire)
	if _, ok := m.Next(); !ok {
		t.Error("the wire is back and nothing happens")
	}

	if err := m.StartPostCopy(time.Hour); err != nil {
		t.Fatal(err)
	}
	m.SetBandwidth(time.Hour+20*time.Millisecond, 0)
	m.Advance(2 * time.Hour)
	if m.Phase() != precopy.PhaseSwitchOver {
		t.Errorf("phase %d: a switch-over needs the wire", m.Phase())
	}
	m.SetBandwidth(2*time.Hour, wire)
	m.SetBandwidth(2*time.Hour+time.Second, 0)
	if p := m.Progress(3 * time.Hour); p.Phase != precopy.PhasePostCopy || p.GuestSpeed != 0 {
		t.Errorf("phase %d, speed %v: in post-copy a guest without its pages stands", p.Phase, p.GuestSpeed)
	}
	m.SetBandwidth(3*time.Hour, wire)
	follow(m, 4*time.Hour)
	if m.Phase() != precopy.PhaseCompleted {
		t.Errorf("phase %d", m.Phase())
	}
}

func TestAStuckWireThrottlesNobody(t *testing.T) {
	p := hopeless()
	p.AutoConverge = true
	m := precopy.New(p)
	m.Start(0, wire)
	m.Advance(8 * time.Second) // in the second round
	before := m.Progress(8 * time.Second)
	m.SetBandwidth(8*time.Second, 0)
	if at, ok := m.Next(); ok {
		t.Errorf("something happens at %v", at)
	}
	m.SetBandwidth(time.Hour, wire)
	m.Advance(time.Hour)
	if now := m.Progress(time.Hour); before.Iteration != 2 || now.Iteration != 3 || now.ThrottlePercent > 20 {
		t.Errorf("round %d, then %d throttled %d %%", before.Iteration, now.Iteration, now.ThrottlePercent)
	}
	follow(m, 2*time.Hour)
	if m.Phase() != precopy.PhaseCompleted {
		t.Errorf("phase %d", m.Phase())
	}
}

func TestLimitsBindRoundsOnly(t *testing.T) {
	p := precopy.Params{MemoryBytes: 8 * gib, MaxBytesPerSecond: wire / 10}
	m := precopy.New(p)
	m.Start(0, wire)
	m.Advance(time.Second)
	if got := m.Progress(time.Second); got.MemoryBytesPerSecond != wire/10 || m.Demand() != wire/10 {
		t.Errorf("%d bytes a second, demand %v", got.MemoryBytesPerSecond, m.Demand())
	}
	m.SetLimits(time.Second, 0, 0)
	if got := m.Progress(time.Second); got.MemoryBytesPerSecond != wire || m.Demand() != 1.3e9 {
		t.Errorf("%d bytes a second, demand %v", got.MemoryBytesPerSecond, m.Demand())
	}
	m.SetBandwidth(2*time.Second, 100*wire)
	if got := m.Progress(2 * time.Second); got.MemoryBytesPerSecond != 1.3e9 {
		t.Errorf("%d bytes a second through one thread", got.MemoryBytesPerSecond)
	}
}
