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

// site is a fleet of two racks with two hosts each: r1a, r1b, r2a, r2b.
func site(t *testing.T) *world {
	s := sim.New(sim.Options{Seed: 1, KeepNotes: true})
	w := &world{t: t, s: s, f: hwsim.New(s, hwsim.Options{})}
	for _, rack := range []string{"r1", "r2"} {
		for _, n := range []string{"a", "b"} {
			_, err := w.f.AddHost(hwsim.HostSpec{Name: rack + n, Rack: rack, Model: "lab"})
			w.must(err)
		}
	}
	w.must(w.f.AddPool(hwsim.PoolSpec{Name: "shared", Shared: true}))
	return w
}

// reaches asks as the agents do.
func (w *world) reaches(from, to string, n hardware.Network) error {
	return w.do(from, func(ctx context.Context, h hardware.Host) error { return h.Reach(ctx, n, to) })
}

func TestAFeedTakesItsHostsAndTheirControllers(t *testing.T) {
	w := site(t)
	w.inject("feed.off feed=r1 for=10m")
	for host, up := range map[string]bool{"r1a": false, "r1b": false, "r2a": true, "r2b": true} {
		if w.up(host) != up {
			t.Errorf("%s is %s", host, w.f.Host(host).State())
		}
	}
	w.wantConsequence(w.order("r1a", false), hardware.Unavailable)
	w.wantReading("r2a", hardware.PowerOn)
	w.pass(10*time.Minute - w.s.Elapsed() + 10*time.Second)
	w.wantConsequence(w.order("r1a", false), hardware.Unavailable) // the controller boots
	w.pass(3 * time.Minute)
	w.wantReading("r1a", hardware.PowerOn)
	if !w.up("r1a") || !w.up("r1b") {
		t.Error("the power is back and they did not boot")
	}
}

func TestTwoFeedsAtOnce(t *testing.T) {
	w := site(t)
	w.inject("feed.off feed=r1,r2")
	for _, h := range w.f.Hosts() {
		if h.State() != hwsim.HostOff {
			t.Errorf("%s is %s", h.Name(), h.State())
		}
	}
}

func TestASwitchTakesTheNetworksAndNotTheControllers(t *testing.T) {
	w := site(t)
	w.inject("switch.down switch=r1 for=1m")
	for _, n := range []hardware.Network{hardware.NetworkManagement, hardware.NetworkMigration} {
		for _, pair := range [][2]string{{"r1a", "r1b"}, {"r1a", "r2a"}, {"r2a", "r1a"}} {
			w.wantConsequence(w.reaches(pair[0], pair[1], n), hardware.Unavailable)
		}
		w.must(w.reaches("r2a", "r2b", n))
	}
	if w.f.Reaches("r1a", hwsim.Outside, hwsim.LinkManagement) || !w.f.Reaches("r2a", hwsim.Outside, hwsim.LinkManagement) {
		t.Error("the way out")
	}
	w.wantReading("r1a", hardware.PowerOn)
	w.pass(2 * time.Minute)
	w.must(w.reaches("r1a", "r2a", hardware.NetworkManagement))
}

func TestOneWayLossIsOneWay(t *testing.T) {
	w := site(t)
	changes := 0
	w.f.OnNetwork(func() { changes++ })
	w.inject("net.oneway link=management on=r1a to=outside for=1m")
	for _, c := range []struct {
		from, to, link string
		want           bool
	}{
		{"r1a", hwsim.Outside, hwsim.LinkManagement, false},
		{hwsim.Outside, "r1a", hwsim.LinkManagement, true},
		{"r1a", "r2a", hwsim.LinkManagement, true},
		{"r1a", hwsim.Outside, hwsim.LinkMigration, true},
		{"r1b", hwsim.Outside, hwsim.LinkManagement, true},
	} {
		if got := w.f.Reaches(c.from, c.to, c.link); got != c.want {
			t.Errorf("%+v", c)
		}
	}
	w.pass(2 * time.Minute)
	if !w.f.Reaches("r1a", hwsim.Outside, hwsim.LinkManagement) || changes != 2 {
		t.Errorf("after the fault; %d changes", changes)
	}
	w.inject("net.oneway link=migration on=r1a")
	w.wantConsequence(w.reaches("r2a", "r1a", hardware.NetworkMigration), hardware.Unavailable)
	w.must(w.reaches("r2a", "r1a", hardware.NetworkManagement))
}

func TestAHostThatHangsAnswersNobody(t *testing.T) {
	w := site(t)
	w.inject("host.hang on=r1a for=1m")
	w.wantConsequence(w.reaches("r2a", "r1a", hardware.NetworkManagement), hardware.Unavailable)
	w.pass(2 * time.Minute)
	w.must(w.reaches("r2a", "r1a", hardware.NetworkManagement))
	w.wantConsequence(w.reaches("r2a", "nobody", hardware.NetworkManagement), hardware.Refused)
}

func TestAFlappingHostGoesAndComes(t *testing.T) {
	w := site(t)
	w.inject("host.flap on=r1a every=2m for=19m")
	w.pass(time.Hour)
	if log := w.f.Host("r1a").PowerLog(); len(log) != 10 || !w.up("r1a") {
		t.Errorf("%+v, %s", log, w.f.Host("r1a").State())
	}
	w.inject("host.flap on=r1b every=30s link=management for=70s")
	cut := 0
	for range 7 {
		if !w.f.Reaches("r1b", "r2b", hwsim.LinkManagement) {
			cut++
		}
		w.pass(10 * time.Second)
	}
	if cut != 4 || len(w.f.Host("r1b").PowerLog()) != 0 || !w.f.Reaches("r1b", "r2b", hwsim.LinkManagement) {
		t.Errorf("%d of 7 looks find it cut", cut)
	}
}

func TestAWallClockJumpsAndTheSteadyOneDoesNot(t *testing.T) {
	w := site(t)
	h := w.f.Host("r1a")
	from := h.Steady().Elapsed()
	w.inject("clock.jump on=r1a by=-1h for=1m")
	if behind := w.s.Now().Sub(h.Clock().Now()); behind != time.Hour {
		t.Errorf("%v behind", behind)
	}
	if h.Steady().Elapsed() != from || !w.f.Host("r1b").Clock().Now().Equal(w.s.Now()) {
		t.Error("another clock jumped")
	}
	w.pass(2 * time.Minute)
	if !h.Clock().Now().Equal(w.s.Now()) || h.Steady().Elapsed() != from+2*time.Minute {
		t.Error("after the fault")
	}
}

func TestAStuckWatchdogSaysThatItIsArmed(t *testing.T) {
	w := site(t)
	w.inject("watchdog.dead on=r1a for=10m")
	w.must(w.do("r1a", func(ctx context.Context, h hardware.Host) error { return h.FeedWatchdog(ctx, 20*time.Second) }))
	w.pass(time.Minute)
	w.must(w.do("r1a", func(ctx context.Context, h hardware.Host) error {
		s, err := h.Watchdog(ctx)
		if !s.Present || !s.Armed {
			return fmt.Errorf("%+v", s)
		}
		return err
	}))
	w.pass(time.Hour)
	if !w.up("r1a") || w.count("watchdog", "does not bite") != 1 {
		t.Error("it bit")
	}
}

func TestAMachineWithoutAWatchdogRefusesToArmIt(t *testing.T) {
	w := site(t)
	_, err := w.f.AddHost(hwsim.HostSpec{Name: "bare", Model: "lab", NoWatchdog: true})
	w.must(err)
	err = w.do("bare", func(ctx context.Context, h hardware.Host) error { return h.FeedWatchdog(ctx, 20*time.Second) })
	if hardware.ReasonOf(err) != hardware.ReasonUnsupported {
		t.Error(err)
	}
}
