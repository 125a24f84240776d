// SPDX-License-Identifier: Apache-2.0

package hwsim_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/sim"
)

// rate is how fast a migration of 8 GiB out of a host goes, in bytes a second.
func (w *world) rate(host, uuid string) float64 {
	w.t.Helper()
	read := func() (j hardware.Job) {
		w.must(w.do(host, func(ctx context.Context, h hardware.Host) (err error) {
			j, err = h.Job(ctx, uuid)
			return err
		}))
		return j
	}
	first, at := read(), w.s.Elapsed()
	w.pass(2 * time.Second)
	second := read()
	return float64(second.DataProcessed-first.DataProcessed) / (w.s.Elapsed() - at).Seconds()
}

// big boots a VM with 8 GiB in use and lets it migrate.
func (w *world) big(uuid, name, from, to string, o hardware.MigrateOptions) {
	w.t.Helper()
	s := w.spec(uuid, name, "")
	s.MemoryKiB = 8 * gib
	w.f.SetGuest(uuid, hwsim.Guest{UsedMemoryBytes: 8 << 30, DirtyBytesPerSecond: hwsim.DirtyNothing})
	w.must(w.boot(from, s))
	o.ID, o.Target = name, to
	w.must(w.do(from, func(ctx context.Context, h hardware.Host) error { return h.Migrate(ctx, uuid, o) }))
}

func near(a, b float64) bool { return math.Abs(a-b) <= 0.03*b }

func slowNetwork(t *testing.T) *world {
	t.Helper()
	s := sim.New(sim.Options{Seed: 7})
	f := hwsim.New(s, hwsim.Options{})
	w := &world{t: t, s: s, f: f}
	for _, name := range []string{"a", "b", "c", "d"} {
		_, err := f.AddHost(hwsim.HostSpec{Name: name, Model: "lab", MigrationBandwidth: 125e6})
		w.must(err)
	}
	return w
}

const (
	vmB = "00000000-0000-4000-8000-00000000000b"
	vmC = "00000000-0000-4000-8000-00000000000c"
)

func TestMigrationsShareTheirNICsFairly(t *testing.T) {
	t.Run("two out of one host have half each", func(t *testing.T) {
		w := slowNetwork(t)
		w.big(vmA, "a", "a", "b", hardware.MigrateOptions{})
		w.big(vmB, "b", "a", "c", hardware.MigrateOptions{})
		if a, b := w.rate("a", vmA), w.rate("a", vmB); !near(a, 62.5e6) || !near(b, 62.5e6) {
			t.Errorf("%.0f and %.0f", a, b)
		}
	})
	t.Run("two into one host have half each", func(t *testing.T) {
		w := slowNetwork(t)
		w.big(vmA, "a", "a", "c", hardware.MigrateOptions{})
		w.big(vmB, "b", "b", "c", hardware.MigrateOptions{})
		if a, b := w.rate("a", vmA), w.rate("b", vmB); !near(a, 62.5e6) || !near(b, 62.5e6) {
			t.Errorf("%.0f and %.0f", a, b)
		}
	})
	t.Run("what one may not use the other gets", func(t *testing.T) {
		w := slowNetwork(t)
		w.big(vmA, "a", "a", "b", hardware.MigrateOptions{BytesPerSecond: 25e6})
		w.big(vmB, "b", "a", "c", hardware.MigrateOptions{})
		if a, b := w.rate("a", vmA), w.rate("a", vmB); !near(a, 25e6) || !near(b, 100e6) {
			t.Errorf("%.0f and %.0f", a, b)
		}
	})
	t.Run("max-min over both NICs", func(t *testing.T) {
		// c receives from a and b; a sends to d as well. Nobody gets more while
		// another with less could have it.
		w := slowNetwork(t)
		w.inject("net.slow link=migration on=c bandwidth=50MB")
		w.big(vmA, "a", "a", "c", hardware.MigrateOptions{})
		w.big(vmB, "b", "b", "c", hardware.MigrateOptions{})
		w.big(vmC, "c", "a", "d", hardware.MigrateOptions{})
		if a, b, c := w.rate("a", vmA), w.rate("b", vmB), w.rate("a", vmC); !near(a, 25e6) || !near(b, 25e6) || !near(c, 100e6) {
			t.Errorf("%.0f, %.0f, %.0f", a, b, c)
		}
	})
	t.Run("both ways at once are independent", func(t *testing.T) {
		w := slowNetwork(t)
		w.big(vmA, "a", "a", "b", hardware.MigrateOptions{})
		w.big(vmB, "b", "b", "a", hardware.MigrateOptions{})
		if a, b := w.rate("a", vmA), w.rate("b", vmB); !near(a, 125e6) || !near(b, 125e6) {
			t.Errorf("%.0f and %.0f", a, b)
		}
	})
	t.Run("one that ends leaves its share", func(t *testing.T) {
		w := slowNetwork(t)
		w.big(vmA, "a", "a", "b", hardware.MigrateOptions{})
		w.big(vmB, "b", "a", "c", hardware.MigrateOptions{})
		w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.AbortJob(ctx, vmA) }))
		if b := w.rate("a", vmB); !near(b, 125e6) {
			t.Errorf("%.0f", b)
		}
	})
}

// interruptions are what can happen to a migration at any moment of it.
var interruptions = []string{
	"qemu.crash vm=" + vmA + " on=a", "qemu.crash vm=" + vmA + " on=b",
	"libvirtd.crash on=a for=2s", "libvirtd.crash on=b for=2s",
	"libvirtd.hang on=a for=20s", "libvirtd.hang on=b for=20s",
	"host.power-off on=a for=1m", "host.power-off on=b for=1m", "host.hang on=a for=20s", "host.hang on=b for=20s",
	"net.cut link=migration on=a for=20s", "net.cut link=migration between=a,b for=3s", "guest.panic vm=" + vmA,
	"guest.power-off vm=" + vmA, "guest.reset vm=" + vmA, "storage.lost on=a pool=shared for=5s", "host.reboot on=b",
}

func TestAnInterruptionAtAnyMomentLeavesOneCopyOrNone(t *testing.T) {
	// The run is 1 s of preparation, 5 s of copying, the switch-over and the
	// confirmation 250 ms later: moments each 100 ms meet all of them.
	for _, o := range []hardware.MigrateOptions{
		{ID: "m", BytesPerSecond: 200e6},
		{ID: "m", BytesPerSecond: 200e6, PostCopy: true},
	} {
		for _, fault := range interruptions {
			for at := time.Duration(0); at < 9*time.Second; at += 100 * time.Millisecond {
				w := newWorld(t, uint64(at))
				w.must(w.boot("a", w.spec(vmA, "vm", "shared/a")))
				w.pass(30 * time.Second)
				w.s.Go(func(*sim.Task) {
					o := o
					o.Target = "b"
					_ = w.f.Host("a").Hardware("test").Migrate(context.Background(), vmA, o)
				})
				if o.PostCopy {
					w.s.After(3*time.Second, func() {
						w.s.Go(func(*sim.Task) { _ = w.f.Host("a").Hardware("test").StartPostCopy(context.Background(), vmA) })
					})
				}
				w.pass(at)
				f, err := hwsim.ParseFault(fault)
				w.must(err)
				if err := w.f.Inject(f); err != nil {
					continue // the VM is not there at this moment
				}
				w.pass(15 * time.Minute)
				if w.check(fault, at); t.Failed() {
					return
				}
			}
		}
	}
}

// check holds a quiet fleet to what must always be.
func (w *world) check(about string, at time.Duration) {
	w.t.Helper()
	for _, v := range w.f.Ledger().Violations() {
		w.t.Errorf("%s at %v: %+v", about, at, v)
	}
	running := 0
	for _, h := range w.f.Hosts() {
		if h.State() != hwsim.HostUp {
			continue
		}
		list, err := h.Hardware("check").Domains(context.Background())
		if err != nil {
			w.t.Errorf("%s at %v: %s: %v", about, at, h.Name(), err)
			continue
		}
		for _, d := range list {
			if d.Incoming {
				w.t.Errorf("%s at %v: %s is left half-made on %s", about, at, d.Spec.Name, h.Name())
			}
			if d.Active() && d.State == hardware.StateRunning {
				running++
			}
		}
	}
	if n := len(w.f.Ledger().Running(vmA)); n > 1 || n != running {
		w.t.Errorf("%s at %v: %d copies run in truth, %d in the lists", about, at, n, running)
	}
	for _, m := range w.f.Ledger().Migrations() {
		if m.Result == "" && !m.PostCopy {
			w.t.Errorf("%s at %v: a migration has no end: %+v", about, at, m)
		}
	}
}

func TestASourceWhoseDaemonDiesBeforeItConfirmsNeverRunsOn(t *testing.T) {
	w := newWorld(t, 3)
	w.must(w.boot("a", w.spec(vmA, "vm", "shared/a")))
	w.pass(time.Minute)
	w.must(w.migrate("a", "b", hardware.MigrateOptions{ID: "m"}))
	w.s.RunWhile(func() bool { return len(w.f.Ledger().Running(vmA)) == 0 || w.f.Ledger().Running(vmA)[0] != "b" })
	w.inject("libvirtd.crash on=a for=1s")
	w.pass(time.Minute)
	w.wantState("a", hardware.StatePaused, hardware.DetailMigrating)
	w.wantState("b", hardware.StateRunning, hardware.DetailMigrated)
	err := w.do("a", func(ctx context.Context, h hardware.Host) error { return h.Resume(ctx, vmA) })
	if hardware.ReasonOf(err) != hardware.ReasonInvalidState {
		t.Errorf("the leftover can be resumed: %v", err)
	}
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.Destroy(ctx, vmA) }))
	w.wantNoViolation()
}

func TestATargetThatCannotTakeTheDomainRefuses(t *testing.T) {
	w := newWorld(t, 1)
	for _, spec := range []hwsim.HostSpec{
		{Name: "old", Model: "whitebox", CPUModel: "EPYC"},
		{Name: "tiny", Model: "lab", MemoryKiB: gib},
		{Name: "blind", Model: "lab"},
	} {
		_, err := w.f.AddHost(spec)
		w.must(err)
	}
	w.must(w.f.AddPool(hwsim.PoolSpec{Name: "few", Shared: true, Hosts: []string{"a", "old", "tiny"}}))
	w.must(w.f.AddVolume("few/v", 1<<30))
	w.must(w.boot("a", w.spec(vmA, "vm", "few/v")))
	for target, want := range map[string]hardware.Reason{
		"old": hardware.ReasonIncompatible, "tiny": hardware.ReasonNoMemory, "blind": hardware.ReasonNoStorage, "nowhere": hardware.ReasonOther,
	} {
		err := w.migrate("a", target, hardware.MigrateOptions{ID: target})
		if hardware.ConsequenceOf(err) != hardware.Refused || hardware.ReasonOf(err) != want {
			t.Errorf("to %s: %v, want %q", target, err, want)
		}
	}
	w.wantState("a", hardware.StateRunning, hardware.DetailBooted)
	w.wantNoViolation()
}
