// SPDX-License-Identifier: Apache-2.0

package hwsim_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/sim"
)

// storm is a run of three hosts under random calls and faults, whose processes
// are killed now and then, ending with everything healed.
func storm(t *testing.T, seed uint64) *world {
	w := newWorld(t, seed)
	r := w.s.Rand("test/storm")
	hosts := []string{"a", "b", "c"}
	vms := []string{vmA, vmB, vmC}
	for i, uuid := range vms {
		volume := fmt.Sprintf("shared/vm%d", i)
		w.must(w.f.AddVolume(volume, 1<<30))
		w.f.SetGuest(uuid, hwsim.Guest{Agent: true, BootTime: 5 * time.Second, DirtyBytesPerSecond: 200 << 20, WorkingSetBytes: 512 << 20})
	}
	spec := func(i int) hardware.DomainSpec {
		return w.spec(vms[i], fmt.Sprintf("vm%d", i), fmt.Sprintf("shared/vm%d", i))
	}
	for range 150 {
		host, other, vm := hosts[r.IntN(3)], hosts[r.IntN(3)], r.IntN(3)
		op := r.IntN(20)
		h := w.f.Host(host).Hardware("storm")
		task := w.s.Go(func(*sim.Task) {
			ctx, uuid := context.Background(), vms[vm]
			switch op {
			case 0, 1, 2, 3:
				if h.Define(ctx, spec(vm)) == nil {
					_ = h.Start(ctx, uuid, hardware.StartOptions{})
				}
			case 4:
				_ = h.Destroy(ctx, uuid)
			case 5:
				_ = h.Shutdown(ctx, uuid)
			case 6:
				_ = h.Suspend(ctx, uuid)
			case 7:
				_ = h.Resume(ctx, uuid)
			case 8:
				_ = h.Undefine(ctx, uuid)
			case 9:
				_ = h.AbortJob(ctx, uuid)
			case 10, 11:
				_ = h.StartPostCopy(ctx, uuid)
			case 12:
				_ = h.RecoverPostCopy(ctx, uuid)
			case 13:
				_ = h.Reset(ctx, uuid)
			default:
				_ = h.Migrate(ctx, uuid, hardware.MigrateOptions{ID: fmt.Sprint(op), Target: other, PostCopy: op%2 == 0, AutoConverge: op%3 == 0, BytesPerSecond: 400e6})
			}
		})
		if r.IntN(8) == 0 {
			text := []string{
				"host.power-off on=%s for=1m", "host.hang on=%s for=20s", "libvirtd.crash on=%s for=5s", "libvirtd.hang on=%s for=20s", "net.cut link=migration on=%s for=5s",
				"storage.hang pool=shared on=%s for=25s", "net.cut link=storage on=%s for=5s", "host.flap on=%s every=40s for=2m", "net.oneway link=migration on=%s for=9s",
				"net.cut link=migration on=%s for=15s", "storage.lost on=%s pool=shared for=10s", "events.lost on=%s for=10s", "events.dup on=%s for=10s", "net.slow link=migration on=%s bandwidth=100MB for=20s",
			}[r.IntN(14)]
			w.inject(text, host)
		}
		if r.IntN(8) == 0 {
			text := []string{"qemu.crash vm=%s", "qemu.hang vm=%s for=10s", "guest.panic vm=%s", "guest.hang vm=%s for=10s", "guest.power-off vm=%s", "guest.reset vm=%s", "migration.fail vm=%s phase=switch-over for=20s"}[r.IntN(7)]
			if f, err := hwsim.ParseFault(fmt.Sprintf(text, vms[vm])); err == nil {
				_ = w.f.Inject(f) // the VM may not run now
			}
		}
		w.pass(time.Duration(r.Int64N(int64(4 * time.Second))))
		if r.IntN(3) == 0 {
			task.Kill()
		}
	}
	w.f.HealAll()
	w.pass(30 * time.Minute)
	return w
}

func TestOneSeedGivesOneTrace(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	digests := map[string]bool{}
	for seed := range uint64(5) {
		runtime.GOMAXPROCS(1)
		one := storm(t, seed)
		runtime.GOMAXPROCS(4)
		two := storm(t, seed)
		if i, a, b := sim.FirstDifference(one.s.Notes(), two.s.Notes()); i >= 0 {
			t.Fatalf("seed %d, note %d:\n%s\n%s", seed, i, a, b)
		}
		if one.s.Digest() != two.s.Digest() || one.s.NoteCount() < 100 {
			t.Fatalf("seed %d: %s and %s after %d notes", seed, one.s.Digest(), two.s.Digest(), one.s.NoteCount())
		}
		digests[one.s.Digest()] = true
	}
	if len(digests) != 5 {
		t.Errorf("5 seeds give %d traces", len(digests))
	}
}

// With locked storage nothing that agents ask or faults do may ever run a VM
// twice, and what the lists say in the end is what runs.
func TestNoStormRunsAVMTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		w := storm(t, seed)
		for _, v := range w.f.Ledger().Violations() {
			rt.Errorf("%+v", v)
		}
		running := map[string]int{}
		for _, h := range w.f.Hosts() {
			if h.State() != hwsim.HostUp {
				rt.Fatalf("%s is %s after all healed", h.Name(), h.State())
			}
			list, err := h.Hardware("check").Domains(context.Background())
			if err != nil {
				rt.Fatal(err)
			}
			for _, d := range list {
				if d.State == hardware.StateRunning {
					running[d.UUID]++
				}
				if d.State == hardware.StateShutOff && !d.Persistent {
					rt.Errorf("%s has a transient domain without QEMU", h.Name())
				}
				if j, err := h.Hardware("check").Job(context.Background(), d.UUID); err == nil && j.Running() && !j.PostCopy {
					rt.Errorf("%s: a job runs after half an hour of quiet: %+v", h.Name(), j)
				}
			}
		}
		for _, uuid := range []string{vmA, vmB, vmC} {
			if truth := len(w.f.Ledger().Running(uuid)); truth != running[uuid] || truth > 1 {
				rt.Errorf("%d copies of %s run, the lists have %d", truth, uuid, running[uuid])
			}
		}
	})
}

func TestALargeFleetIsCheap(t *testing.T) {
	s := sim.New(sim.Options{Seed: 1})
	f := hwsim.New(s, hwsim.Options{})
	if err := f.AddPool(hwsim.PoolSpec{Name: "p", Shared: true}); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for i := range 1000 {
		h, err := f.AddHost(hwsim.HostSpec{Name: fmt.Sprintf("node%04d", i)})
		if err != nil {
			t.Fatal(err)
		}
		hw := h.Hardware("test")
		for j := range 20 {
			n := i*20 + j
			volume := fmt.Sprintf("p/%d", n)
			if err := f.AddVolume(volume, 1<<30); err != nil {
				t.Fatal(err)
			}
			uuid := fmt.Sprintf("00000000-0000-4000-8000-%012x", n)
			spec := hardware.DomainSpec{UUID: uuid, Name: fmt.Sprint(n), MemoryKiB: 4 * gib, VCPUs: 2, Disks: []hardware.Disk{{Target: "vda", Volume: volume}}}
			if err := hw.Define(ctx, spec); err != nil {
				t.Fatal(err)
			}
			if err := hw.Start(ctx, uuid, hardware.StartOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Run(time.Minute) // all boot
	before := s.Events()
	s.Run(24 * time.Hour)
	if n := s.Events() - before; n != 0 {
		t.Errorf("a quiet day of 20000 VMs has %d events", n)
	}
}
