// SPDX-License-Identifier: Apache-2.0

package hwsim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/sim"
)

const (
	vmA = "00000000-0000-4000-8000-00000000000a"
	gib = 1 << 20 // in KiB
)

// world is a small fleet: hosts a, b, c, shared storage, storage without locks.
type world struct {
	t *testing.T
	s *sim.Scheduler
	f *hwsim.Fleet
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	s := sim.New(sim.Options{Seed: seed, KeepNotes: true})
	f := hwsim.New(s, hwsim.Options{})
	for _, name := range []string{"a", "b", "c"} {
		if _, err := f.AddHost(hwsim.HostSpec{Name: name, Model: "lab"}); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, s: s, f: f}
	w.must(f.AddPool(hwsim.PoolSpec{Name: "shared", Shared: true}))
	w.must(f.AddPool(hwsim.PoolSpec{Name: "open", Shared: true, NoLocks: true}))
	w.must(f.AddVolume("shared/a", 1<<30))
	w.must(f.AddVolume("open/a", 1<<30))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// do runs fn as a process on a host's hardware and returns when it is done.
func (w *world) do(host string, fn func(context.Context, hardware.Host) error) error {
	w.t.Helper()
	var err error
	done := false
	w.s.Go(func(*sim.Task) {
		err = fn(context.Background(), w.f.Host(host).Hardware("test"))
		done = true
	})
	w.s.RunWhile(func() bool { return !done })
	if !done {
		w.t.Fatal("the call never returned")
	}
	return err
}

func (w *world) pass(d time.Duration) { w.s.Run(w.s.Elapsed() + d) }

func (w *world) inject(format string, args ...any) {
	w.t.Helper()
	fault, err := hwsim.ParseFault(fmt.Sprintf(format, args...))
	w.must(err)
	w.must(w.f.Inject(fault))
}

func (w *world) spec(uuid, name, volume string) hardware.DomainSpec {
	s := hardware.DomainSpec{
		UUID: uuid, Name: name, MemoryKiB: 2 * gib, VCPUs: 2, GuestAgent: true, SerialConsole: true, Graphics: true,
		Owner: &hardware.Owner{Namespace: "default", Name: name, UID: uuid, Generation: 1},
	}
	if volume != "" {
		s.Disks = []hardware.Disk{{Target: "vda", Bus: "virtio", Volume: volume}}
	}
	return s
}

// boot defines and starts a VM on a host.
func (w *world) boot(host string, s hardware.DomainSpec) error {
	w.t.Helper()
	return w.do(host, func(ctx context.Context, h hardware.Host) error {
		if err := h.Define(ctx, s); err != nil {
			return err
		}
		return h.Start(ctx, s.UUID, hardware.StartOptions{})
	})
}

func (w *world) migrate(from, to string, o hardware.MigrateOptions) error {
	w.t.Helper()
	o.Target = to
	return w.do(from, func(ctx context.Context, h hardware.Host) error { return h.Migrate(ctx, vmA, o) })
}

// state is a domain's state on a host as its list has it; "" when it is not there.
func (w *world) state(host string) (state hardware.State, detail hardware.Detail) {
	w.t.Helper()
	w.must(w.do(host, func(ctx context.Context, h hardware.Host) error {
		d, err := h.Domain(ctx, vmA)
		if hardware.ReasonOf(err) == hardware.ReasonNoDomain {
			return nil
		}
		state, detail = d.State, d.Detail
		return err
	}))
	return state, detail
}

func (w *world) wantState(host string, state hardware.State, detail hardware.Detail) {
	w.t.Helper()
	if s, d := w.state(host); s != state || d != detail {
		w.t.Errorf("on %s the domain is %q (%s), want %q (%s)", host, s, d, state, detail)
	}
}

func (w *world) wantNoViolation() {
	w.t.Helper()
	for _, v := range w.f.Ledger().Violations() {
		w.t.Errorf("violation: %+v", v)
	}
}
