// SPDX-License-Identifier: Apache-2.0

package hwsim_test

import (
	"context"
	"testing"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/sim"
)

func beat(n uint64) hardware.Heartbeat { return hardware.Heartbeat{Boot: "b", Count: n} }

func (w *world) write(host string, b hardware.Heartbeat) error {
	return w.do(host, func(ctx context.Context, h hardware.Host) error { return h.WriteHeartbeat(ctx, "shared", b) })
}

// seen is a's heartbeat as another host reads it.
func (w *world) seen(by string) (b hardware.Heartbeat, err error) {
	err = w.do(by, func(ctx context.Context, h hardware.Host) (err error) {
		b, err = h.ReadHeartbeat(ctx, "shared", "a")
		return err
	})
	return b, err
}

func TestHeartbeatsAreReadByOthers(t *testing.T) {
	w := newWorld(t, 1)
	if b, err := w.seen("b"); err != nil || b != (hardware.Heartbeat{}) {
		t.Errorf("before the first: %+v, %v", b, err)
	}
	w.must(w.write("a", beat(1)))
	if b, err := w.seen("b"); err != nil || b != beat(1) {
		t.Errorf("%+v, %v", b, err)
	}
	w.inject("storage.lost on=a pool=shared for=1m")
	w.wantConsequence(w.write("a", beat(2)), hardware.Unavailable)
	w.pass(2 * time.Minute)
	if b, _ := w.seen("b"); b != beat(1) {
		t.Errorf("what failed has landed: %+v", b)
	}
}

func TestAHeartbeatIntoHangingStorageIsGivenUpAndMayLandLater(t *testing.T) {
	landed := 0
	for seed := range uint64(20) {
		w := newWorld(t, seed)
		w.inject("storage.hang pool=shared on=a for=1m")
		from := w.s.Elapsed()
		w.wantConsequence(w.write("a", beat(7)), hardware.Unknown)
		if took := w.s.Elapsed() - from; took < 3*time.Second || took > 5*time.Second {
			t.Fatalf("given up after %v", took)
		}
		_, err := w.seen("a")
		w.wantConsequence(err, hardware.Unavailable)
		if b, err := w.seen("b"); err != nil || b.Count != 0 {
			t.Fatalf("b's storage is well: %+v, %v", b, err)
		}
		w.pass(2 * time.Minute)
		if b, _ := w.seen("b"); b == beat(7) {
			landed++
		}
	}
	if landed == 0 || landed == 20 {
		t.Errorf("%d of 20 landed", landed)
	}
}

func TestAHeartbeatIsGivenUpWithItsContext(t *testing.T) {
	w := newWorld(t, 1)
	w.inject("storage.hang pool=shared on=a")
	ctx, cancel := context.WithCancel(context.Background())
	w.s.After(time.Second, cancel)
	from := w.s.Elapsed()
	err := w.do("a", func(_ context.Context, h hardware.Host) error { return h.WriteHeartbeat(ctx, "shared", beat(1)) })
	w.wantConsequence(err, hardware.Unknown)
	if took := w.s.Elapsed() - from; took > 1500*time.Millisecond {
		t.Errorf("given up after %v", took)
	}
}

func TestNoHeartbeatLandsAfterThePowerWent(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(t, seed)
		w.inject("storage.hang pool=shared on=a for=1m")
		w.wantConsequence(w.write("a", beat(7)), hardware.Unknown)
		w.inject("host.reboot on=a")
		w.pass(2 * time.Minute)
		if b, _ := w.seen("b"); b.Count != 0 {
			t.Fatal("a write outlived its machine")
		}
	}
}

// Case HA-01: storage goes without an error and comes back at once.
func TestWhenStorageHangsGuestsStallAndGoOnAtOnce(t *testing.T) {
	w := newWorld(t, 1)
	w.f.SetGuest(vmA, hwsim.Guest{BootTime: 20 * time.Second, Agent: true})
	w.must(w.boot("a", w.spec(vmA, "a", "shared/a")))
	w.inject("storage.hang pool=shared on=a for=5m")
	w.pass(4 * time.Minute)
	w.wantState("a", hardware.StateRunning, hardware.DetailBooted)
	if w.count("libvirt", string(hardware.EventIOError)) != 0 || w.count("libvirt", string(hardware.EventAgent)) != 0 {
		t.Error("it was told, or booted without its disk")
	}
	if l := w.f.Ledger(); len(l.Writers("shared/a")) != 1 || len(l.Running(vmA)) != 1 {
		t.Error("the ledger forgets that it can write again at any moment")
	}
	w.pass(2 * time.Minute)
	if w.count("libvirt", string(hardware.EventAgent)) != 1 {
		t.Error("it did not go on")
	}
}

func TestAGuestThatStallsDoesNotGoOnByAnotherDoor(t *testing.T) {
	w := newWorld(t, 1)
	w.f.SetGuest(vmA, hwsim.Guest{BootTime: 20 * time.Second, Agent: true})
	w.must(w.boot("a", w.spec(vmA, "a", "shared/a")))
	w.inject("qemu.hang vm=a for=10s")
	w.inject("storage.hang pool=shared for=5m")
	w.pass(4 * time.Minute)
	if w.count("libvirt", string(hardware.EventAgent)) != 0 {
		t.Error("it booted without its disk")
	}
}

func TestAStalledQEMUCannotBeKilledAndEndsWithItsIO(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.boot("a", w.spec(vmA, "a", "shared/a")))
	w.inject("storage.hang pool=shared on=a for=5m")
	destroy := func() error {
		return w.do("a", func(ctx context.Context, h hardware.Host) error { return h.Destroy(ctx, vmA) })
	}
	w.wantConsequence(destroy(), hardware.Unknown)
	w.wantConsequence(destroy(), hardware.Unknown)
	w.wantState("a", hardware.StateRunning, hardware.DetailBooted)
	if l := w.f.Ledger(); l.CopyAt(vmA, "a", w.s.Elapsed()) != hwsim.CopyRunning {
		t.Error("the ledger has it dead")
	}
	w.pass(6 * time.Minute)
	w.wantState("a", hardware.StateShutOff, hardware.DetailDestroyed)
	w.must(destroy())
}

func TestAStalledQEMUEndsWithTheMachine(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.boot("a", w.spec(vmA, "a", "shared/a")))
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.FeedWatchdog(ctx, 10*time.Second) }))
	w.inject("storage.hang pool=shared on=a")
	w.pass(15 * time.Second)
	if l := w.f.Ledger(); len(l.Running(vmA)) != 0 || len(l.Writers("shared/a")) != 0 {
		t.Error("it outlived the reset")
	}
	w.must(w.boot("b", w.spec(vmA, "a", "shared/a")))
	w.wantNoViolation()
}

func TestAStartIntoHangingStorageIsGivenUpAndMayYetHappen(t *testing.T) {
	started := 0
	for seed := range uint64(20) {
		w := newWorld(t, seed)
		w.inject("storage.hang pool=shared for=2m")
		w.wantConsequence(w.boot("a", w.spec(vmA, "a", "shared/a")), hardware.Unknown)
		w.pass(5 * time.Minute)
		started += len(w.f.Ledger().Running(vmA))
	}
	if started == 0 || started == 20 {
		t.Errorf("%d of 20 started late", started)
	}
}

func TestAllPathsDownIsEverywhereAndTheStorageLinkIsAllPools(t *testing.T) {
	for _, fault := range []string{"storage.hang pool=shared", "net.cut link=storage on=a,b,c"} {
		w := newWorld(t, 1)
		w.must(w.write("a", beat(1)))
		w.inject("%s for=1m", fault)
		for _, host := range []string{"a", "b", "c"} {
			_, err := w.seen(host)
			w.wantConsequence(err, hardware.Unavailable)
		}
		w.pass(2 * time.Minute)
		if b, err := w.seen("c"); err != nil || b != beat(1) {
			t.Errorf("%s: %+v, %v", fault, b, err)
		}
	}
}

func TestNoMigrationSwitchesOverWhileIOHangs(t *testing.T) {
	for _, fault := range []string{"storage.hang pool=shared on=a", "storage.hang pool=shared on=b"} {
		w := newWorld(t, 1)
		w.f.SetGuest(vmA, hwsim.Guest{BootTime: time.Second})
		w.must(w.boot("a", w.spec(vmA, "a", "shared/a")))
		w.pass(10 * time.Second)
		w.must(w.migrate("a", "b", hardware.MigrateOptions{ID: "m", BytesPerSecond: 100e6}))
		w.inject("%s for=2m", fault)
		w.pass(3 * time.Minute)
		if m := w.f.Ledger().Migrations(); len(m) != 1 || m[0].Result != "failed" {
			t.Errorf("%s: %+v", fault, m)
		}
		if got := w.f.Ledger().Running(vmA); len(got) != 1 || got[0] != "a" {
			t.Errorf("%s: it runs on %v", fault, got)
		}
		w.wantNoViolation()
	}
}

func TestTheLedgerTellsThePast(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.boot("a", w.spec(vmA, "a", "shared/a")))
	w.pass(time.Minute - w.s.Elapsed())
	w.inject("host.power-off on=a for=1m")
	w.pass(10 * time.Minute)
	w.must(w.boot("b", w.spec(vmA, "a", "shared/a")))
	l, now := w.f.Ledger(), w.s.Elapsed()
	for _, c := range []struct {
		host string
		at   time.Duration
		want hwsim.CopyState
	}{
		{"a", 0, hwsim.CopyGone},
		{"a", 59 * time.Second, hwsim.CopyRunning},
		{"a", time.Minute, hwsim.CopyGone},
		{"a", now, hwsim.CopyGone},
		{"b", 5 * time.Minute, hwsim.CopyGone},
		{"b", now, hwsim.CopyRunning},
		{"c", now, hwsim.CopyGone},
	} {
		if got := l.CopyAt(vmA, c.host, c.at); got != c.want {
			t.Errorf("on %s at %v: %s, want %s", c.host, c.at, got, c.want)
		}
	}
	want := []hwsim.PowerChange{{At: time.Minute}, {At: 2 * time.Minute, On: true}}
	if log := w.f.Host("a").PowerLog(); len(log) != 2 || log[0] != want[0] || log[1] != want[1] {
		t.Errorf("%+v", log)
	}
}

func TestQuietCallsAreNotNewsUntilTheyFail(t *testing.T) {
	w := newWorld(t, 1)
	notes := w.s.NoteCount()
	for n := range uint64(100) {
		w.must(w.write("a", beat(n)))
		w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.SaveNote(ctx, "run-permit", nil) }))
	}
	if got := w.s.NoteCount() - notes; got != 0 {
		t.Errorf("%d notes", got)
	}
	w.inject("storage.lost on=a pool=shared")
	notes = w.s.NoteCount()
	_ = w.write("a", beat(100))
	if got := w.s.NoteCount() - notes; got != 1 {
		t.Errorf("%d notes of a failure", got)
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	s := sim.New(sim.Options{Seed: 1})
	f := hwsim.New(s, hwsim.Options{})
	h, err := f.AddHost(hwsim.HostSpec{Name: "a", Model: "lab"})
	if err != nil {
		b.Fatal(err)
	}
	if err := f.AddPool(hwsim.PoolSpec{Name: "shared", Shared: true}); err != nil {
		b.Fatal(err)
	}
	hw, done := h.Hardware("ha"), false
	s.Go(func(*sim.Task) {
		for n := range b.N {
			_ = hw.FeedWatchdog(context.Background(), 20*time.Second)
			_ = hw.WriteHeartbeat(context.Background(), "shared", beat(uint64(n)))
		}
		done = true
	})
	s.RunWhile(func() bool { return !done })
}
