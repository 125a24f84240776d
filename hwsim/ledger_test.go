// SPDX-License-Identifier: Apache-2.0

package hwsim_test

import (
	"testing"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
)

func rules(f *hwsim.Fleet) map[string]int {
	n := map[string]int{}
	for _, v := range f.Ledger().Violations() {
		n[v.Rule]++
	}
	return n
}

func TestAPlantedDoubleStartIsReported(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.boot("a", w.spec(vmA, "vm", "open/a"))) // storage that lets two write
	w.must(w.boot("b", w.spec(vmA, "vm", "open/a")))
	got := rules(w.f)
	if got[hwsim.RuleSingleRun] != 1 || got[hwsim.RuleSingleWriter] != 1 {
		t.Errorf("violations: %+v", w.f.Ledger().Violations())
	}
}

func TestADoubleStartWithoutDisksIsReported(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.boot("a", w.spec(vmA, "vm", "")))
	w.must(w.boot("b", w.spec(vmA, "vm", "")))
	if got := rules(w.f); got[hwsim.RuleSingleRun] != 1 {
		t.Errorf("violations: %+v", w.f.Ledger().Violations())
	}
}

func TestAPausedCopyIsNoSecondRun(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.boot("a", w.spec(vmA, "vm", "")))
	w.inject("qemu.hang vm=%s for=1m", vmA)
	w.must(w.boot("b", w.spec(vmA, "vm", "")))
	w.wantNoViolation()
	w.pass(2 * time.Minute) // the hung one goes on
	if got := rules(w.f); got[hwsim.RuleSingleRun] != 1 {
		t.Errorf("violations: %+v", w.f.Ledger().Violations())
	}
}

func TestLocksKeepASecondStartAway(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.boot("a", w.spec(vmA, "vm", "shared/a")))
	if err := w.boot("b", w.spec(vmA, "vm", "shared/a")); hardware.ReasonOf(err) != hardware.ReasonStorageLocked {
		t.Errorf("the second start: %v", err)
	}
	w.wantNoViolation()
}

func TestSegmentsAreTheLifeOfACopy(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.boot("a", w.spec(vmA, "vm", "shared/a")))
	w.pass(time.Minute)
	w.must(w.migrate("a", "b", hardware.MigrateOptions{ID: "m"}))
	w.pass(time.Minute)
	type row struct {
		host  string
		state hwsim.CopyState
		open  bool
	}
	want := []row{
		{"a", hwsim.CopyRunning, false}, {"b", hwsim.CopyIncoming, false},
		{"a", hwsim.CopyPaused, false}, {"b", hwsim.CopyRunning, true},
	}
	var got []row
	for _, s := range w.f.Ledger().Segments() {
		got = append(got, row{s.Host, s.State, s.Open})
		if s.Token != 1 {
			t.Errorf("token of %+v", s)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("segment %d: %v, want %v", i, got[i], want[i])
		}
	}
	if r := w.f.Ledger().Running(vmA); len(r) != 1 || r[0] != "b" {
		t.Errorf("running on %v", r)
	}
	if r := w.f.Ledger().Writers("shared/a"); len(r) != 1 || r[0] != "b" {
		t.Errorf("written from %v", r)
	}
	m := w.f.Ledger().Migrations()[0]
	if m.Result != "succeeded" || m.Downtime <= 0 || m.Downtime > 400*time.Millisecond || m.End <= m.Switch || m.Bytes == 0 || m.Rounds == 0 {
		t.Errorf("%+v", m)
	}
	w.wantNoViolation()
}
