// SPDX-License-Identifier: Apache-2.0

package hwsim_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/sim"
)

func file(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEveryModelIsAHost(t *testing.T) {
	for _, model := range hwsim.Models() {
		f := hwsim.New(sim.New(sim.Options{Seed: 1}), hwsim.Options{})
		h, err := f.AddHost(hwsim.HostSpec{Name: "n", Model: model})
		if err != nil {
			t.Fatal(err)
		}
		c, err := h.Hardware("test").Capabilities(context.Background())
		if err != nil || len(c.Cells) == 0 || c.CPU.Model == "" {
			t.Errorf("%s: %+v, %v", model, c, err)
		}
		var kib, pages uint64
		for _, cell := range c.Cells {
			kib += cell.MemoryKiB
			for _, p := range cell.Pages {
				pages += p.SizeKiB * p.Count
			}
		}
		if kib == 0 || pages != kib {
			t.Errorf("%s: %d KiB, %d in pages", model, kib, pages)
		}
		s, err := h.Hardware("test").System(context.Background())
		if err != nil || s.OSRelease["ID"] != "gardenlinux" || s.FirmwareDate.IsZero() {
			t.Errorf("%s: %+v, %v", model, s, err)
		}
	}
}

func TestWhiteBoxesHaveNoIdentityInTheirFirmware(t *testing.T) {
	f := hwsim.New(sim.New(sim.Options{Seed: 1}), hwsim.Options{})
	machines := map[string]bool{}
	for _, name := range []string{"x", "y"} {
		h, err := f.AddHost(hwsim.HostSpec{Name: name, Model: "whitebox"})
		if err != nil {
			t.Fatal(err)
		}
		id, err := h.Hardware("test").Identity(context.Background())
		if err != nil || id.Serial != "" || id.ProductUUID != "" || len(id.MachineID) != 32 {
			t.Errorf("%+v, %v", id, err)
		}
		machines[id.MachineID] = true
	}
	if len(machines) != 2 {
		t.Error("two hosts share a machine id")
	}
}

func TestCapturedInputsReplaceTheModel(t *testing.T) {
	f := hwsim.New(sim.New(sim.Options{Seed: 1}), hwsim.Options{})
	h, err := f.AddHost(hwsim.HostSpec{Name: "b", CapabilitiesXML: file(t, "NA-01_capabilities_cells_without_memory.xml"), OSRelease: file(t, "NA-08_os-release_quotes")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, hw := context.Background(), h.Hardware("test")
	c, err := hw.Capabilities(ctx)
	if err != nil || len(c.Cells) != 4 || c.Cells[3].MemoryKiB != 0 || len(c.Cells[3].CPUs) != 8 {
		t.Errorf("%+v, %v", c, err)
	}
	s, err := hw.System(ctx)
	if err != nil || s.OSRelease["VERSION_ID"] != "48.84.3" {
		t.Errorf("%+v, %v", s, err)
	}
	spec := hardware.DomainSpec{UUID: vmA, Name: "numa", MemoryKiB: 40 * gib, VCPUs: 2}
	for cell, want := range []hardware.Reason{"", hardware.ReasonNoMemory, "", hardware.ReasonNoMemory} {
		spec.NUMA = []hardware.GuestCell{{ID: 0, MemoryKiB: 40 * gib, VCPUs: []int{0, 1}, HostCell: cell}}
		if err := hw.Define(ctx, spec); err != nil {
			t.Fatal(err)
		}
		if err := hw.Start(ctx, vmA, hardware.StartOptions{}); hardware.ReasonOf(err) != want || (err == nil) != (want == "") {
			t.Errorf("bound to cell %d: %v, want %q", cell, err, want)
		}
		_ = hw.Destroy(ctx, vmA)
	}
}

func TestBadInputsNameThePlaceAndTheMend(t *testing.T) {
	for want, spec := range map[string]hwsim.HostSpec{
		"add host n: model \"cray\": unknown; there are": {Name: "n", Model: "cray"},
		"add host n: capabilities XML: line 2":           {Name: "n", CapabilitiesXML: []byte("<capabilities>\n<host>")},
		"add host n: os-release: line 1":                 {Name: "n", OSRelease: []byte("what")},
		"add host n: hugePages2M 999999999":              {Name: "n", HugePages2M: 999999999},
		"name is empty":                                  {},
	} {
		f := hwsim.New(sim.New(sim.Options{Seed: 1}), hwsim.Options{})
		if _, err := f.AddHost(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestDomainsOfOthersCountAndAreForeign(t *testing.T) {
	w := newWorld(t, 1)
	h := w.f.Host("a")
	for _, name := range []string{"CA-32_domain_without_metadata.xml", "CA-32_domain_foreign_metadata.xml", "NA-06_domain_memory_MB.xml"} {
		w.must(h.DefineXML(file(t, name)))
	}
	list, err := h.Hardware("test").Domains(context.Background())
	w.must(err)
	if len(list) != 3 {
		t.Fatalf("%d domains", len(list))
	}
	for _, d := range list {
		if !d.Foreign {
			t.Errorf("%s is not foreign", d.Spec.Name)
		}
	}
	w.must(h.StartByHand(list[0].UUID))
	if err := h.DefineXML([]byte("<domain><name>odd</name><memory unit='Gi'>1</memory></domain>")); err == nil || !strings.Contains(err.Error(), "odd") {
		t.Errorf("an unknown unit: %v", err)
	}
}

func TestHugePagesAreCounted(t *testing.T) {
	f := hwsim.New(sim.New(sim.Options{Seed: 1}), hwsim.Options{})
	h, err := f.AddHost(hwsim.HostSpec{Name: "n", Model: "lab", HugePages2M: 2048})
	if err != nil {
		t.Fatal(err)
	}
	ctx, hw := context.Background(), h.Hardware("test")
	start := func(uuid string, kib, page uint64) error {
		if err := hw.Define(ctx, hardware.DomainSpec{UUID: uuid, Name: uuid, MemoryKiB: kib, VCPUs: 1, HugePageKiB: page}); err != nil {
			t.Fatal(err)
		}
		return hw.Start(ctx, uuid, hardware.StartOptions{})
	}
	if err := start(vmA, 3*gib, 2048); err != nil {
		t.Error(err)
	}
	if err := start(vmB, 3*gib, 2048); hardware.ReasonOf(err) != hardware.ReasonNoMemory {
		t.Errorf("1 GiB of huge pages is left, 3 are given: %v", err)
	}
	if err := start(vmC, 60*gib, 0); err != nil {
		t.Errorf("ordinary pages are there: %v", err)
	}
}

func TestACallGoesOnWhenItsCallerDies(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.Define(ctx, w.spec(vmA, "vm", "shared/a")) }))
	task := w.s.Go(func(*sim.Task) {
		_ = w.f.Host("a").Hardware("agent").Start(context.Background(), vmA, hardware.StartOptions{})
		t.Error("a dead process goes on")
	})
	w.pass(500 * time.Millisecond)
	task.Kill()
	w.pass(2 * time.Second)
	w.wantState("a", hardware.StateRunning, hardware.DetailBooted)
}

func TestStepIsAskedBeforeAndAfterEachCall(t *testing.T) {
	lost := errors.New("lost")
	var seen []hwsim.Call
	failBefore, failAfter := false, false
	s := sim.New(sim.Options{Seed: 1})
	f := hwsim.New(s, hwsim.Options{Step: func(c hwsim.Call) error {
		seen = append(seen, c)
		if c.Name == "Define" && (failBefore && !c.After || failAfter && c.After) {
			return lost
		}
		return nil
	}})
	h, err := f.AddHost(hwsim.HostSpec{Name: "n", Model: "lab"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, hw := context.Background(), h.Hardware("agent")
	spec := hardware.DomainSpec{UUID: vmA, Name: "vm", MemoryKiB: gib, VCPUs: 1}
	failBefore = true
	if err := hw.Define(ctx, spec); !errors.Is(err, lost) {
		t.Error(err)
	}
	if list, _ := hw.Domains(ctx); len(list) != 0 {
		t.Error("a call that was not sent took effect")
	}
	failBefore, failAfter = false, true
	if err := hw.Define(ctx, spec); !errors.Is(err, lost) {
		t.Error(err)
	}
	if list, _ := hw.Domains(ctx); len(list) != 1 {
		t.Error("a call whose answer was lost took no effect")
	}
	want := hwsim.Call{Host: "n", Who: "agent", Name: "Define", Object: vmA, Mutating: true, After: true}
	if got := seen[len(seen)-3]; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestAHangingDaemonMayStillDoWhatItWasAsked(t *testing.T) {
	late, never := 0, 0
	for seed := range uint64(20) {
		w := newWorld(t, seed)
		w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.Define(ctx, w.spec(vmA, "vm", "shared/a")) }))
		w.inject("libvirtd.hang on=a for=2m")
		err := w.do("a", func(ctx context.Context, h hardware.Host) error { return h.Start(ctx, vmA, hardware.StartOptions{}) })
		if hardware.ConsequenceOf(err) != hardware.Unknown {
			t.Fatalf("start: %v", err)
		}
		w.pass(3 * time.Minute)
		if s, _ := w.state("a"); s == hardware.StateRunning {
			late++
		} else {
			never++
		}
	}
	if late == 0 || never == 0 {
		t.Errorf("%d done late, %d never: unknown means that it can be either", late, never)
	}
}

func TestPowerOffEndsAllAtOnceAndBootTakesItsTime(t *testing.T) {
	w := newWorld(t, 1)
	h := w.f.Host("a")
	var log []string
	h.OnDown(func() { log = append(log, "down") })
	h.OnBoot(func() { log = append(log, "boot") })
	w.must(w.boot("a", w.spec(vmA, "vm", "shared/a")))
	w.inject("host.power-off on=a for=5m")
	if h.State() != hwsim.HostOff || len(w.f.Ledger().Copies()) != 0 {
		t.Errorf("%s, %v", h.State(), w.f.Ledger().Copies())
	}
	w.pass(5*time.Minute + time.Second)
	if h.State() != hwsim.HostBooting {
		t.Errorf("it is %s a second after the power came back", h.State())
	}
	w.pass(time.Minute)
	if h.State() != hwsim.HostUp || strings.Join(log, " ") != "down boot" {
		t.Errorf("%s, %v", h.State(), log)
	}
	w.wantState("a", hardware.StateShutOff, "")
}

func TestAHungHostStandsStillAndItsGuestsDoNot(t *testing.T) {
	w := newWorld(t, 1)
	var log []bool
	w.f.Host("a").OnHang(func(hung bool) { log = append(log, hung) })
	w.must(w.boot("a", w.spec(vmA, "vm", "shared/a")))
	w.inject("host.hang on=a for=1m")
	err := w.do("a", func(ctx context.Context, h hardware.Host) error { _, err := h.Identity(ctx); return err })
	if hardware.ConsequenceOf(err) != hardware.Unavailable {
		t.Errorf("a read on a hung host: %v", err)
	}
	if r := w.f.Ledger().Running(vmA); len(r) != 1 {
		t.Errorf("running on %v", r)
	}
	w.pass(2 * time.Minute)
	if len(log) != 2 || !log[0] || log[1] {
		t.Errorf("hang was told as %v", log)
	}
	w.wantState("a", hardware.StateRunning, hardware.DetailBooted)
}

func TestALockOutlivesAHostByItsLease(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.f.AddPool(hwsim.PoolSpec{Name: "leased", Shared: true, LockLease: time.Minute}))
	w.must(w.f.AddVolume("leased/v", 1<<30))
	w.must(w.boot("a", w.spec(vmA, "vm", "leased/v")))
	w.inject("host.power-off on=a")
	if err := w.boot("b", w.spec(vmA, "vm", "leased/v")); hardware.ReasonOf(err) != hardware.ReasonStorageLocked {
		t.Errorf("before the lease ran out: %v", err)
	}
	w.pass(time.Minute)
	w.must(w.boot("b", w.spec(vmA, "vm", "leased/v")))
	w.wantNoViolation()
}

func TestUnitStatesCanBeShown(t *testing.T) {
	w := newWorld(t, 1)
	w.inject("unit.state on=a unit=libvirtd.service load=masked active=inactive sub=dead for=1m")
	unit := func() (u hardware.Unit) {
		w.must(w.do("a", func(ctx context.Context, h hardware.Host) (err error) {
			u, err = unitOf(ctx, h, "libvirtd.service")
			return err
		}))
		return u
	}
	if u := unit(); u.Load != "masked" || u.Active != "inactive" {
		t.Errorf("%+v", u)
	}
	w.pass(2 * time.Minute)
	if u := unit(); u.Load != "loaded" || u.Active != "active" {
		t.Errorf("%+v", u)
	}
}

func TestAGuestsTimePassesOnlyWhileItRuns(t *testing.T) {
	w := newWorld(t, 1)
	w.f.SetGuest(vmA, hwsim.Guest{Agent: true, BootTime: 10 * time.Second})
	w.must(w.boot("a", w.spec(vmA, "vm", "shared/a")))
	w.pass(5 * time.Second)
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.Suspend(ctx, vmA) }))
	w.pass(time.Hour)
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.Resume(ctx, vmA) }))
	info := func() error {
		return w.do("a", func(ctx context.Context, h hardware.Host) error { _, err := h.GuestInfo(ctx, vmA); return err })
	}
	if err := info(); hardware.ReasonOf(err) != hardware.ReasonNoAgent {
		t.Errorf("it booted while suspended: %v", err)
	}
	w.pass(6 * time.Second)
	w.must(info())
}

func TestLinksTellWhenTheyGoAndCome(t *testing.T) {
	w := newWorld(t, 1)
	var log []string
	w.f.OnLink(func(host, link string, up bool) {
		if up {
			log = append(log, host+" "+link+" up")
		} else {
			log = append(log, host+" "+link+" down")
		}
	})
	w.inject("net.cut link=management on=a,b for=1m")
	a, b, c := w.f.Host("a"), w.f.Host("b"), w.f.Host("c")
	if a.LinkUp(hwsim.LinkManagement) || !a.LinkUp(hwsim.LinkMigration) || w.f.Reach(a, c, hwsim.LinkManagement) {
		t.Error("the wrong links are down")
	}
	w.inject("net.cut link=management between=b,c")
	w.pass(2 * time.Minute)
	if w.f.Reach(b, c, hwsim.LinkManagement) || !w.f.Reach(a, c, hwsim.LinkManagement) {
		t.Error("between= does not cut just between")
	}
	if got := strings.Join(log, ", "); got != "a management down, b management down, a management up, b management up" {
		t.Error(got)
	}
}

func TestAUnitThatCannotRunFailsAgainWhenStarted(t *testing.T) {
	w := newWorld(t, 1)
	const name = "ovs-vswitchd.service"
	unit := func() (u hardware.Unit) {
		w.must(w.do("a", func(ctx context.Context, h hardware.Host) (err error) { u, err = unitOf(ctx, h, name); return err }))
		return u
	}
	restart := func() {
		w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.RestartUnit(ctx, name) }))
		w.pass(time.Second)
	}
	w.inject("unit.fail on=a unit=%s", name)
	if u := unit(); u.Active != "failed" || u.Result == "success" {
		t.Errorf("%+v", u)
	}
	if restart(); unit().Active != "failed" {
		t.Errorf("%+v", unit())
	}
	w.inject("host.reboot on=a")
	w.pass(time.Minute)
	if u := unit(); u.Active != "failed" {
		t.Errorf("after a reboot: %+v", u)
	}
	w.f.HealAll()
	if restart(); unit().Active != "active" {
		t.Errorf("%+v", unit())
	}
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.ReloadUnit(ctx, name) }))
	if u := unit(); u.Active != "reloading" {
		t.Errorf("%+v", u)
	}
	w.pass(time.Second)
	if u := unit(); u.Active != "active" || u.Sub != "running" {
		t.Errorf("%+v", u)
	}
	w.inject("unit.fail on=a unit=libvirtd.service for=10s")
	if err := w.do("a", func(ctx context.Context, h hardware.Host) error { _, err := h.Domains(ctx); return err }); hardware.ConsequenceOf(err) != hardware.Unavailable {
		t.Errorf("libvirtd has failed: %v", err)
	}
	w.pass(15 * time.Second)
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { _, err := h.Domains(ctx); return err }))
}

func TestEventsComeLateOrNotAtAllAsFaultsHaveIt(t *testing.T) {
	w := newWorld(t, 1)
	var seen []hardware.Event
	var at []time.Duration
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error {
		return h.Subscribe(ctx, func(e hardware.Event) { seen, at = append(seen, e), append(at, w.s.Elapsed()) })
	}))
	w.pass(time.Second)
	w.inject("events.delay on=a by=5s for=20s")
	w.must(w.boot("a", w.spec(vmA, "vm", "shared/a")))
	w.pass(20 * time.Second)
	if len(seen) < 4 || at[1]-seen[1].At.Sub(sim.Epoch) < 5*time.Second {
		t.Errorf("%v at %v", seen, at)
	}
	n := len(seen)
	w.inject("events.lost on=a for=10s")
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.Destroy(ctx, vmA) }))
	w.pass(20 * time.Second)
	if len(seen) != n {
		t.Errorf("lost events came: %v", seen[n:])
	}
	w.must(w.do("a", func(ctx context.Context, h hardware.Host) error { return h.Start(ctx, vmA, hardware.StartOptions{}) }))
	n = len(seen)
	w.inject("memory.failure on=a vm=%s", vmA)
	w.pass(time.Second)
	if seen[len(seen)-1].Kind != hardware.EventMemoryFailure {
		t.Errorf("%v", seen[n:])
	}
}

func unitOf(ctx context.Context, h hardware.Host, name string) (hardware.Unit, error) {
	units, err := h.Units(ctx, name)
	if err != nil {
		return hardware.Unit{}, err
	}
	return units[0], nil
}
