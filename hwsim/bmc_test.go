// SPDX-License-Identifier: Apache-2.0

package hwsim_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/sim"
)

// service runs fn as a process outside that dials a host's controller.
func (w *world) service(host string, fn func(context.Context, hardware.Power)) {
	w.t.Helper()
	done := false
	w.s.Go(func(*sim.Task) {
		fn(context.Background(), w.f.Power(host, "service"))
		done = true
	})
	w.s.RunWhile(func() bool { return !done })
	if !done {
		w.t.Fatal("the call never returned")
	}
}

// order switches a host off or on; reading reads its power.
func (w *world) order(host string, on bool) (err error) {
	w.t.Helper()
	w.service(host, func(ctx context.Context, p hardware.Power) { err = p.SetPower(ctx, on) })
	return err
}

func (w *world) reading(host string) (s hardware.PowerState) {
	w.t.Helper()
	w.service(host, func(ctx context.Context, p hardware.Power) {
		var err error
		s, err = p.PowerState(ctx)
		w.must(err)
	})
	return s
}

func (w *world) wantReading(host string, want hardware.PowerState) {
	w.t.Helper()
	if got := w.reading(host); got != want {
		w.t.Errorf("at %v the controller of %s says %q, want %q", w.s.Elapsed(), host, got, want)
	}
}

func (w *world) wantConsequence(err error, want hardware.Consequence) {
	w.t.Helper()
	if got := hardware.ConsequenceOf(err); got != want {
		w.t.Errorf("%v: %q, want %q", err, got, want)
	}
}

func TestAnOrderIsAcceptedBeforeItIsDone(t *testing.T) {
	w := newWorld(t, 1)
	w.inject("bmc.slow on=a by=30s")
	w.wantReading("a", hardware.PowerOn)
	w.must(w.order("a", false))
	w.wantReading("a", hardware.PowerPoweringOff)
	if !w.up("a") {
		t.Error("it is off at once")
	}
	w.pass(31 * time.Second)
	w.wantReading("a", hardware.PowerOff)
	if w.up("a") {
		t.Error("it is on still")
	}
	w.must(w.order("a", true))
	w.wantReading("a", hardware.PowerPoweringOn)
	w.pass(31 * time.Second)
	w.wantReading("a", hardware.PowerOn) // before the system is up
	w.pass(time.Minute)
	if !w.up("a") {
		t.Error("it did not boot")
	}
}

func TestAControllerWorksWhileItsHostHangs(t *testing.T) {
	w := newWorld(t, 1)
	w.inject("host.hang on=a")
	w.must(w.order("a", false))
	w.pass(time.Minute)
	w.wantReading("a", hardware.PowerOff)
}

func TestAnOrderToPowerOffOutlastsAFault(t *testing.T) {
	w := newWorld(t, 1)
	w.must(w.order("a", false))
	w.pass(time.Minute)
	w.inject("host.power-off on=a for=1m")
	w.pass(time.Hour)
	if w.f.Host("a").State() != hwsim.HostOff {
		t.Error("it was told to be off and booted with the power's return")
	}
	w.f.Host("a").PowerOn()
	w.pass(time.Minute)
	if !w.up("a") {
		t.Error("the button does not work")
	}
	if log := w.f.Host("a").PowerLog(); len(log) != 2 || log[0].On || !log[1].On {
		t.Errorf("%+v", log)
	}
}

func TestAPersonCannotPowerOnWithoutAFeed(t *testing.T) {
	w := newWorld(t, 1)
	w.inject("host.power-off on=a")
	w.f.Host("a").PowerOn()
	w.must(w.order("a", true))
	w.pass(time.Hour)
	if w.f.Host("a").State() != hwsim.HostOff {
		t.Error("it runs without power")
	}
}

// The handed out case: the reply sequence of a real controller that reports its
// target, then the truth, then an error.
func TestCaseHS01IsPlayed(t *testing.T) {
	text, err := os.ReadFile("testdata/HS-01_bmc_replies_early_ok.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var input struct {
		Truth   []struct{ At, Power string }
		Replies []struct{ At, Call, Answer string }
	}
	if err := yaml.Unmarshal(text, &input); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 1)
	at := func(s string) time.Duration {
		d, err := time.ParseDuration(s)
		w.must(err)
		return d
	}
	says := func(answer string) hardware.PowerState {
		for word, state := range map[string]hardware.PowerState{"off": hardware.PowerOff, "powering off": hardware.PowerPoweringOff, "on": hardware.PowerOn, "Error": "Error"} {
			if answer == word || strings.HasPrefix(answer, word+" (") {
				return state
			}
		}
		t.Fatalf("no state in %q", answer)
		return ""
	}
	var states []string
	for _, r := range input.Replies {
		if r.Call == "status" {
			states = append(states, fmt.Sprintf("%s:%s", r.At, says(r.Answer)))
		}
	}
	if len(states) != 6 {
		t.Fatalf("%d replies", len(states))
	}
	w.inject("bmc.slow on=a by=%s", input.Truth[1].At)
	w.inject("bmc.script on=a states=%s", strings.Join(states, ","))
	w.must(w.order("a", false))
	from := w.s.Elapsed()
	for _, r := range input.Replies {
		if r.Call != "status" {
			continue
		}
		w.pass(from + at(r.At) - w.s.Elapsed())
		w.wantReading("a", says(r.Answer))
		if on := at(r.At) < at(input.Truth[1].At); w.up("a") != on {
			t.Errorf("at %s the host is %s", r.At, w.f.Host("a").State())
		}
	}
}

func TestTheVicesOfControllers(t *testing.T) {
	for name, c := range map[string]struct {
		fault string
		order hardware.Consequence // of an order to switch off
		read  hardware.Consequence // of a reading before it
		off   bool                 // whether the host is off in the end, with the fault healed after a minute
	}{
		"dead":                          {"bmc.down on=a", hardware.Unavailable, hardware.Unavailable, false},
		"cut off":                       {"net.cut link=bmc on=a", hardware.Unavailable, hardware.Unavailable, false},
		"cut off from the outside":      {"net.cut link=bmc between=a,outside", hardware.Unavailable, hardware.Unavailable, false},
		"the outside is cut off":        {"net.cut link=bmc on=outside", hardware.Unavailable, hardware.Unavailable, false},
		"requests are lost":             {"net.oneway link=bmc on=outside", hardware.Unavailable, hardware.Unavailable, false},
		"answers are lost":              {"net.oneway link=bmc on=a", hardware.Unknown, hardware.Unavailable, true},
		"mute":                          {"bmc.mute on=a", hardware.Unknown, hardware.Unavailable, true},
		"refuses":                       {"bmc.refuse on=a", hardware.Refused, "", false},
		"wrong credentials":             {"bmc.credentials on=a", hardware.Refused, hardware.Refused, false},
		"accepts and does nothing":      {"bmc.ignore on=a", "", "", false},
		"early":                         {"bmc.early on=a", "", "", true},
		"well, with another one's down": {"bmc.down on=b", "", "", true},
		"the host's own links are down": {"switch.down switch=rack-a", "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			_, err := w.f.AddHost(hwsim.HostSpec{Name: "in-rack", Model: "lab", Rack: "rack-a"})
			w.must(err)
			w.inject("%s", c.fault)
			w.service("a", func(ctx context.Context, p hardware.Power) {
				_, err := p.PowerState(ctx)
				w.wantConsequence(err, c.read)
			})
			w.wantConsequence(w.order("a", false), c.order)
			w.pass(time.Minute)
			w.f.HealAll()
			w.pass(time.Minute)
			if off := !w.up("a"); off != c.off {
				t.Errorf("off: %v", off)
			}
		})
	}
}

func TestAControllerThatHangsMayStillDoWhatItWasTold(t *testing.T) {
	done := 0
	for seed := range uint64(20) {
		w := newWorld(t, seed)
		w.inject("bmc.hang on=a for=1m")
		w.wantConsequence(w.order("a", false), hardware.Unknown)
		if !w.up("a") {
			t.Fatal("it stands still and works")
		}
		w.pass(3 * time.Minute)
		if !w.up("a") {
			done++
		}
	}
	if done == 0 || done == 20 {
		t.Errorf("done in %d of 20", done)
	}
}

func TestAnEarlyControllerShowsTheWishForAWhile(t *testing.T) {
	w := newWorld(t, 1)
	w.inject("bmc.early on=a")
	w.inject("bmc.slow on=a by=40s")
	w.must(w.order("a", false))
	w.wantReading("a", hardware.PowerOff)
	if !w.up("a") {
		t.Error("it is no lie")
	}
	w.pass(6 * time.Second)
	w.wantReading("a", hardware.PowerPoweringOff)
	w.pass(40 * time.Second)
	w.wantReading("a", hardware.PowerOff)
}

func TestAControllerThatDoesNotKnowSaysNeitherOnNorOff(t *testing.T) {
	w := newWorld(t, 1)
	w.inject("bmc.unknown on=a")
	for range 20 {
		if s := w.reading("a"); s == hardware.PowerOn || s == hardware.PowerOff {
			t.Fatalf("it says %q", s)
		}
	}
}

// identity is whose controller answers under a host's address.
func (w *world) identity(host string) (c hardware.Controller) {
	w.t.Helper()
	w.service(host, func(ctx context.Context, p hardware.Power) {
		var err error
		c, err = p.Controller(ctx)
		w.must(err)
	})
	return c
}

// named are two machines whose firmware knows who they are: x and y.
func named(t *testing.T) *world {
	w := newWorld(t, 1)
	for _, name := range []string{"x", "y"} {
		_, err := w.f.AddHost(hwsim.HostSpec{Name: name, Model: "r640"})
		w.must(err)
	}
	return w
}

func TestAWrongCableLeadsToAnotherMachine(t *testing.T) {
	w := named(t)
	own, other := w.identity("x"), w.identity("y")
	if own == other || own.SystemUUID == "" {
		t.Fatalf("%+v and %+v", own, other)
	}
	w.inject("bmc.wrong-host on=x to=y")
	if got := w.identity("x"); got != other {
		t.Errorf("%+v answers, want %+v", got, other)
	}
	w.must(w.order("x", false))
	w.pass(time.Minute)
	if w.up("y") || !w.up("x") {
		t.Errorf("x is %s, y is %s", w.f.Host("x").State(), w.f.Host("y").State())
	}
	w.f.HealAll()
	if got := w.identity("x"); got != own {
		t.Errorf("%+v answers after all healed", got)
	}
}

func TestTwoControllersUnderOneAddressAnswerInTurns(t *testing.T) {
	w := named(t)
	own, other := w.identity("x"), w.identity("y")
	w.inject("bmc.twin on=x to=y")
	seen := map[hardware.Controller]int{}
	for range 40 {
		seen[w.identity("x")]++
	}
	if len(seen) != 2 || seen[own] == 0 || seen[other] == 0 {
		t.Errorf("%v", seen)
	}
}

func TestAMachineWithoutAControllerHasNone(t *testing.T) {
	w := newWorld(t, 1)
	_, err := w.f.AddHost(hwsim.HostSpec{Name: "bare", Model: "lab", NoBMC: true})
	w.must(err)
	w.wantConsequence(w.order("bare", false), hardware.Unavailable)
	w.wantConsequence(w.order("nobody", false), hardware.Refused)
}

// A leader that dies has sent what it has sent.
func TestAnOrderGoesOnWhenItsSenderDies(t *testing.T) {
	w := newWorld(t, 1)
	w.inject("bmc.slow on=a by=10s")
	p := w.f.Power("a", "service")
	task := w.s.Go(func(*sim.Task) { _ = p.SetPower(context.Background(), false) })
	w.s.RunWhile(func() bool { return w.reading("a") == hardware.PowerOn })
	task.Kill()
	w.pass(time.Minute)
	if w.up("a") {
		t.Error("the order died with its sender")
	}
}

func TestCallsOfAControllerAreSchedulingPoints(t *testing.T) {
	var points []string
	s := sim.New(sim.Options{Seed: 1})
	f := hwsim.New(s, hwsim.Options{Step: func(c hwsim.Call) error {
		points = append(points, fmt.Sprintf("%s %s %s %s %v %v", c.Who, c.Host, c.Name, c.Object, c.Mutating, c.After))
		return nil
	}})
	if _, err := f.AddHost(hwsim.HostSpec{Name: "a", Model: "lab"}); err != nil {
		t.Fatal(err)
	}
	if err := f.Power("a", "ha/1").SetPower(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(points, "; "), "ha/1 a SetPower off true false; ha/1 a SetPower off true true"; got != want {
		t.Errorf("%s", got)
	}
}
