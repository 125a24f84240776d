// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	clocktesting "k8s.io/utils/clock/testing"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
)

// steady is a clock that a test moves.
type steady struct{ now time.Duration }

func (s *steady) Elapsed() time.Duration { return s.now }

func leading(t *testing.T) (*Service, *steady) {
	t.Helper()
	c := &steady{now: 100 * seconds}
	s := newService(Options{Steady: c, Clock: clocktesting.NewFakePassiveClock(midday.Time), Limits: limits})
	s.lead(c.now + sureFor)
	s.meet("a")
	s.setPolicy("a", policy{boot: "b", grant: true})
	return s, c
}

func report(boot string, epoch, seq uint64, change ...func(*hav1.ReportRequest)) *hav1.ReportRequest {
	r := &hav1.ReportRequest{Host: "a", Boot: boot, Epoch: epoch, Seq: seq, Full: true}
	for _, c := range change {
		c(r)
	}
	return r
}

func send(t *testing.T, s *Service, r *hav1.ReportRequest) *hav1.ReportResponse {
	t.Helper()
	out, err := s.Report(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestGrants(t *testing.T) {
	s, c := leading(t)
	if out := send(t, s, report("b", 1, 1)); !out.Leader || !out.Granted {
		t.Errorf("%+v", out)
	}
	if out := send(t, s, report("b", 1, 1)); out.Granted {
		t.Error("a report that comes twice is granted twice")
	}
	if out := send(t, s, report("c", 1, 1)); out.Granted || out.Refused == "" {
		t.Error("a boot that is not on record is granted")
	}
	if out := send(t, s, report("b", 9, 9)); out.Granted {
		t.Error("a boot that is over is heard again")
	}
	s.setPolicy("a", policy{boot: "c", grant: true})
	c.now += sureFor
	if out := send(t, s, report("c", 1, 2)); out.Granted || out.Refused == "" {
		t.Error("granted by one that may lead no more")
	}
	s.lead(c.now + sureFor)
	if out := send(t, s, report("c", 1, 3)); !out.Granted {
		t.Errorf("%+v", out)
	}
	s.refuse("a", "evacuated")
	if out := send(t, s, report("c", 1, 4)); out.Granted || out.Refused != "evacuated" {
		t.Errorf("%+v", out)
	}
}

func TestAReplicaThatDoesNotLeadKeepsNothing(t *testing.T) {
	s := newService(Options{Steady: &steady{}, Limits: limits})
	if out := send(t, s, report("b", 1, 1)); out.Leader || out.Granted {
		t.Errorf("%+v", out)
	}
	if _, known := s.snapshot("a"); known {
		t.Error("it keeps the report")
	}
}

func TestInstancesFollowReports(t *testing.T) {
	vm := func(uuid, state string) *hav1.Instance { return &hav1.Instance{Uuid: uuid, State: state} }
	full := func(i ...*hav1.Instance) func(*hav1.ReportRequest) {
		return func(r *hav1.ReportRequest) { r.Instances = i }
	}
	delta := func(base uint64, gone []string, i ...*hav1.Instance) func(*hav1.ReportRequest) {
		return func(r *hav1.ReportRequest) { r.Full, r.Base, r.Gone, r.Instances = false, base, gone, i }
	}
	s, _ := leading(t)
	states := func() string {
		h, _ := s.snapshot("a")
		text := ""
		for _, k := range sortedKeys(h.instances) {
			text += k + "=" + h.instances[k].GetState() + " "
		}
		return text
	}
	for _, tt := range []struct {
		name   string
		r      *hav1.ReportRequest
		want   string
		resync bool
	}{
		{"a delta without a base", report("b", 1, 1, delta(0, nil, vm("x", "running"))), "", true},
		{"all", report("b", 1, 2, full(vm("x", "running"), vm("y", "running"))), "x=running y=running ", false},
		{"a delta", report("b", 1, 3, delta(2, []string{"y"}, vm("x", "paused"))), "x=paused ", false},
		{"its answer was lost, so that it builds on the one before", report("b", 1, 4, delta(2, []string{"y"}, vm("x", "running"))), "x=running ", false},
		{"an old one comes late", report("b", 1, 3, delta(2, nil, vm("y", "running"))), "x=running ", false},
		{"it builds on what never came", report("b", 1, 6, delta(5, nil, vm("z", "running"))), "x=running ", true},
		{"and goes on so", report("b", 1, 7, delta(6, nil, vm("z", "running"))), "x=running ", true},
		{"until all comes", report("b", 1, 8, full(vm("z", "running"))), "z=running ", false},
		{"a new agent begins with all", report("b", 2, 1, full(vm("z", "running"))), "z=running ", false},
		{"the old one's last word comes late", report("b", 1, 9, full()), "z=running ", false},
		{"a new boot has none", report("c", 1, 1, full()), "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := send(t, s, tt.r)
			if got := states(); got != tt.want || out.Resync != tt.resync {
				t.Errorf("%q, resync %v; want %q, %v", got, out.Resync, tt.want, tt.resync)
			}
		})
	}
}

func TestOfTwoBootsTheLaterCounts(t *testing.T) {
	s, c := leading(t)
	up := func(d time.Duration) func(*hav1.ReportRequest) {
		return func(r *hav1.ReportRequest) { r.Uptime = durationpb.New(d) }
	}
	goesBy := func(want string) {
		t.Helper()
		if h, _ := s.snapshot("a"); h.boot != want {
			t.Errorf("it goes by boot %s, not %s", h.boot, want)
		}
	}
	send(t, s, report("c", 1, 1, up(2*seconds)))
	goesBy("c")
	c.now += seconds
	send(t, s, report("b", 7, 99, up(80*seconds)))
	goesBy("c") // The last word of the boot before, which this leader had not heard.
	c.now += time.Hour
	send(t, s, report("d", 1, 1, up(2*seconds)))
	goesBy("d")
	send(t, s, report("c", 1, 9, up(time.Hour)))
	goesBy("d")
}

func TestNobodyIsRememberedWhoIsNotThere(t *testing.T) {
	s, _ := leading(t)
	s.forget("a")
	if out := send(t, s, report("b", 1, 1)); out.Granted || !out.Leader || !out.Resync || out.Refused == "" {
		t.Errorf("%+v", out)
	}
	if _, known := s.snapshot("a"); known {
		t.Error("it is remembered")
	}
}

// A leader that was overtaken in its sleep must not have a watchdog disarmed on
// which its successor relies.
func TestOff(t *testing.T) {
	s, c := leading(t)
	armed := func(r *hav1.ReportRequest) { r.Watchdog = &hav1.Watchdog{Present: true, Armed: true} }
	s.setPolicy("a", policy{boot: "b", off: true})
	if out := send(t, s, report("b", 1, 1, armed)); !out.Off || out.Granted || out.Refused != "" {
		t.Errorf("%+v", out)
	}
	if h, _ := s.snapshot("a"); h.watchdog.GetArmed() {
		t.Error("a watchdog that is about to be disarmed is relied on")
	}
	if out := send(t, s, report("x", 1, 1)); out.Off {
		t.Error("a boot that is not on record is told to disarm")
	}
	s = newService(Options{Steady: c, Limits: limits}) // Another leader, who does not know yet that it is none.
	s.lead(c.now + sureFor)
	s.meet("a")
	s.setPolicy("a", policy{boot: "b", off: true})
	c.now += sureFor
	if out := send(t, s, report("b", 1, 2, armed)); out.Off || out.Refused == "" {
		t.Errorf("%+v", out)
	}
	if h, _ := s.snapshot("a"); !h.watchdog.GetArmed() {
		t.Error("what it says counts")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s, _ := leading(t)
	for boot := range 100 {
		send(t, s, report(fmt.Sprint(boot), 1, 1))
	}
	if h := s.hosts["a"]; len(h.pastBoots) != mostPastBoots {
		t.Errorf("%d boots", len(h.pastBoots))
	}
	if out := send(t, s, report("98", 1, 2)); out.Resync || s.hosts["a"].boot != "99" {
		t.Error("a boot that is over is heard again")
	}
	resync := false
	for seq := uint64(2); seq < 8; seq++ {
		out := send(t, s, report("99", 1, seq, func(r *hav1.ReportRequest) {
			r.Full, r.Base = false, seq-1
			for i := range 1000 {
				r.Instances = append(r.Instances, &hav1.Instance{Uuid: fmt.Sprint(seq, i)})
			}
		}))
		resync = resync || out.Resync
	}
	if n := len(s.hosts["a"].instances); n > mostInstances || !resync {
		t.Errorf("%d instances of one host, resync %v", n, resync)
	}
}

// What a leader was told and has not written down its successor has to be told,
// too.
func TestEventsAreTakenWhenTheyAreOnRecord(t *testing.T) {
	s, _ := leading(t)
	woken := 0
	s.onNews(func(string) { woken++ })
	events := func(kinds ...string) func(*hav1.ReportRequest) {
		return func(r *hav1.ReportRequest) {
			for i, kind := range kinds {
				r.Events = append(r.Events, &hav1.Event{Seq: uint64(i + 1), Kind: kind, Uuid: fmt.Sprint("vm-", i+1)})
			}
		}
	}
	say := func(seq, want uint64, news bool, r func(*hav1.ReportRequest)) {
		t.Helper()
		before := woken
		if out := send(t, s, report("b", 1, seq, r)); out.Events != want || (woken > before) != news {
			t.Errorf("taken up to %d, woken %d times; want %d, %v", out.Events, woken-before, want, news)
		}
	}
	say(1, 2, true, events("lifecycle", "lifecycle"))
	say(2, 2, true, events("lifecycle", "lifecycle", "memory-failure", "memory-failure"))
	if h, _ := s.snapshot("a"); h.memoryFailed != "vm-3" {
		t.Errorf("%q", h.memoryFailed)
	}
	say(3, 2, false, events("lifecycle", "lifecycle", "memory-failure", "memory-failure"))
	s.eventsHandled("a", "another boot")
	say(4, 2, false, events())
	s.eventsHandled("a", "b")
	say(5, 4, false, events())
}

func TestOnlyNewsWakes(t *testing.T) {
	s, c := leading(t)
	woken := 0
	s.onNews(func(string) { woken++ })
	send(t, s, report("b", 1, 1))
	if woken != 1 {
		t.Fatal("a host that is heard for the first time is no news")
	}
	for seq := uint64(2); seq < 100; seq++ {
		c.now += 5 * seconds
		s.lead(c.now + sureFor)
		send(t, s, report("b", 1, seq, func(r *hav1.ReportRequest) { r.Full, r.Base = false, seq-1 }))
	}
	if woken != 1 {
		t.Errorf("woken %d times while nothing happened", woken)
	}
	c.now += 15 * seconds
	send(t, s, report("b", 1, 100))
	if woken != 2 {
		t.Error("its coming back is no news")
	}
}

func TestWitnessesAreKeptOfHostsWeKnow(t *testing.T) {
	s, c := leading(t)
	s.meet("w")
	s.assign(map[string][]string{"w": {"a"}}, c.now)
	say := func(seq uint64, lapsed bool) {
		send(t, s, &hav1.ReportRequest{Host: "w", Boot: "b", Epoch: 1, Seq: seq, Full: true, Witnesses: []*hav1.Witness{
			{Host: "a", Storage: true, Boot: "b", Lapsed: lapsed}, {Host: "stranger", Storage: true},
		}})
	}
	say(1, false)
	say(2, true)
	first := c.now
	c.now += 30 * seconds
	say(3, true)
	h, _ := s.snapshot("a")
	if got := h.sightings["w"]; !got.lapsed || got.lapsedAt != first || got.at != c.now {
		t.Errorf("%+v", got)
	}
	if _, known := s.snapshot("stranger"); known {
		t.Error("anybody can make us remember anything")
	}
}
