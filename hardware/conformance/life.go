// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"time"

	"github.com/adit-hv/adit/hardware"
)

// given is the longest a call may take that nobody answers.
const given = 15 * time.Second

// bounded runs a call and expects it back in time.
func (l *lab) bounded(call func() error) error {
	before, err := l.b().Boot(l.ctx)
	l.ok(err)
	result := call()
	after, err := l.b().Boot(l.ctx)
	l.ok(err)
	isTrue(after.Uptime-before.Uptime < given, "it took %v", after.Uptime-before.Uptime)
	return result
}

// withWatchdog skips the case where arming one is not to be dared, or there is
// none.
func (l *lab) withWatchdog() {
	l.fault("events.dup on=%s", l.a().Name) // only a subject that can break things may be reset
	w, err := l.a().Watchdog(l.ctx)
	l.ok(err)
	if !w.Present {
		l.skip("the machine has no watchdog")
	}
}

func (l *lab) watchdog() hardware.WatchdogState {
	w, err := l.a().Watchdog(l.ctx)
	l.ok(err)
	return w
}

// boot waits until a host is up and returns its boot.
func (l *lab) boot(h Host) (id string) {
	l.until(20*time.Minute, h.Name+" is up", func() bool {
		b, err := h.Boot(l.ctx)
		id = b.ID
		return err == nil
	})
	return id
}

func watchdogs(s *suite) {
	s.it("reading does not arm", func(l *lab) {
		w, err := l.a().Watchdog(l.ctx)
		l.ok(err)
		equal(w.Armed, false)
	})
	s.it("a machine without one refuses to arm it", func(l *lab) {
		if w, err := l.a().Watchdog(l.ctx); err == nil && w.Present {
			l.skip("the machine has a watchdog")
		}
		l.refused(l.a().FeedWatchdog(l.ctx, 30*time.Second), hardware.ReasonUnsupported)
	})
	s.it("feeding arms, and sets the time anew", func(l *lab) {
		l.withWatchdog()
		l.ok(l.a().FeedWatchdog(l.ctx, 30*time.Second))
		equal(l.watchdog(), hardware.WatchdogState{Present: true, Armed: true, Timeout: 30 * time.Second})
		l.ok(l.a().FeedWatchdog(l.ctx, 60*time.Second))
		equal(l.watchdog().Timeout, 60*time.Second)
		l.ok(l.a().DisarmWatchdog(l.ctx))
	})
	s.it("a time of less than a second is refused", func(l *lab) {
		l.withWatchdog()
		l.refused(l.a().FeedWatchdog(l.ctx, 0), hardware.ReasonInvalidSpec)
		equal(l.watchdog().Armed, false)
	})
	s.it("disarmed it stays silent, and disarming twice is disarming once", func(l *lab) {
		l.withWatchdog()
		boot := l.boot(l.a())
		l.ok(l.a().FeedWatchdog(l.ctx, 10*time.Second))
		l.ok(l.a().DisarmWatchdog(l.ctx))
		l.ok(l.a().DisarmWatchdog(l.ctx))
		equal(l.watchdog().Armed, false)
		l.Pass(30 * time.Second)
		equal(l.boot(l.a()), boot)
	})
	s.it("fed in time it does not bite, unfed it resets the machine and is disarmed then", func(l *lab) {
		l.withWatchdog()
		boot := l.boot(l.a())
		for range 5 {
			l.ok(l.a().FeedWatchdog(l.ctx, 10*time.Second))
			l.Pass(6 * time.Second)
		}
		equal(l.boot(l.a()), boot)
		l.Pass(20 * time.Second)
		isTrue(l.boot(l.a()) != boot, "nobody fed it, and the boot is the same")
		equal(l.watchdog().Armed, false)
	})
	s.it("a guest does not outlive the reset", func(l *lab) {
		l.withWatchdog()
		d := l.started(l.a())
		l.ok(l.a().FeedWatchdog(l.ctx, 5*time.Second))
		l.Pass(20 * time.Second)
		l.boot(l.a())
		l.until(soon, "the daemon answers", func() bool { _, err := l.a().Domains(l.ctx); return err == nil })
		equal(l.domain(l.a(), d.UUID).Active(), false)
	})
	s.it("it bites a host whose programs stand still", func(l *lab) {
		l.withWatchdog()
		boot := l.boot(l.a())
		l.ok(l.a().FeedWatchdog(l.ctx, 10*time.Second))
		l.fault("host.hang on=%s", l.a().Name)
		l.Pass(20 * time.Second)
		isTrue(l.boot(l.a()) != boot, "it hangs on")
	})
	s.it("it runs on while the virtualisation daemon is gone, and can be fed", func(l *lab) {
		l.withWatchdog()
		boot := l.boot(l.a())
		l.fault("libvirtd.crash on=%s", l.a().Name)
		for range 5 {
			l.ok(l.a().FeedWatchdog(l.ctx, 10*time.Second))
			l.Pass(6 * time.Second)
		}
		equal(l.boot(l.a()), boot)
	})
}

// pool is the shared storage for heartbeats.
func (l *lab) pool() string {
	if l.Pool == "" {
		l.skip("there is no shared storage for heartbeats")
	}
	return l.Pool
}

func (l *lab) read(by, of Host) hardware.Heartbeat {
	b, err := by.ReadHeartbeat(l.ctx, l.pool(), of.Name)
	l.ok(err)
	return b
}

func heartbeats(s *suite) {
	one := hardware.Heartbeat{Boot: "first", Count: 1}
	two := hardware.Heartbeat{Boot: "first", Count: 2, Lapsed: true}
	s.it("one never written is empty", func(l *lab) {
		equal(l.read(l.a(), l.b()), hardware.Heartbeat{})
	})
	s.it("others read what a host writes, and the last write counts", func(l *lab) {
		l.ok(l.a().WriteHeartbeat(l.ctx, l.pool(), one))
		equal(l.read(l.b(), l.a()), one)
		equal(l.read(l.a(), l.a()), one)
		l.ok(l.a().WriteHeartbeat(l.ctx, l.pool(), two))
		equal(l.read(l.b(), l.a()), two)
		l.ok(l.a().WriteHeartbeat(l.ctx, l.pool(), hardware.Heartbeat{Boot: "second"}))
		equal(l.read(l.b(), l.a()), hardware.Heartbeat{Boot: "second"})
	})
	s.it("each host has its own", func(l *lab) {
		l.ok(l.a().WriteHeartbeat(l.ctx, l.pool(), one))
		l.ok(l.b().WriteHeartbeat(l.ctx, l.pool(), two))
		equal(l.read(l.b(), l.a()), one)
		equal(l.read(l.a(), l.b()), two)
	})
	s.it("storage that is not there is refused", func(l *lab) {
		l.pool()
		l.refused(l.a().WriteHeartbeat(l.ctx, "no-such-pool", one), hardware.ReasonNoStorage)
		_, err := l.a().ReadHeartbeat(l.ctx, "no-such-pool", l.b().Name)
		l.refused(err, hardware.ReasonNoStorage)
	})
	s.it("with its context done nothing is written", func(l *lab) {
		l.consequence(l.a().WriteHeartbeat(done(), l.pool(), one), hardware.Unavailable)
		equal(l.read(l.b(), l.a()), hardware.Heartbeat{})
	})
	s.it("it needs no virtualisation daemon", func(l *lab) {
		l.fault("libvirtd.crash on=%s", l.a().Name)
		l.ok(l.a().WriteHeartbeat(l.ctx, l.pool(), one))
		equal(l.read(l.a(), l.a()), one)
	})
	s.it("it outlives the host's boot", func(l *lab) {
		l.ok(l.a().WriteHeartbeat(l.ctx, l.pool(), one))
		l.fault("host.power-off on=%s", l.a().Name)
		equal(l.read(l.b(), l.a()), one)
	})
	s.it("storage that is lost is unavailable, and what failed does not land", func(l *lab) {
		l.ok(l.a().WriteHeartbeat(l.ctx, l.pool(), one))
		heal := l.fault("storage.lost on=%s pool=%s", l.a().Name, l.pool())
		l.consequence(l.a().WriteHeartbeat(l.ctx, l.pool(), two), hardware.Unavailable)
		_, err := l.a().ReadHeartbeat(l.ctx, l.pool(), l.a().Name)
		l.consequence(err, hardware.Unavailable)
		equal(l.read(l.b(), l.a()), one)
		heal()
		equal(l.read(l.b(), l.a()), one)
		l.ok(l.a().WriteHeartbeat(l.ctx, l.pool(), two))
	})
	s.it("storage that hangs hangs no caller, and the other hosts go on", func(l *lab) {
		l.ok(l.a().WriteHeartbeat(l.ctx, l.pool(), one))
		heal := l.fault("storage.hang on=%s pool=%s", l.a().Name, l.pool())
		l.consequence(l.bounded(func() error { return l.a().WriteHeartbeat(l.ctx, l.pool(), two) }), hardware.Unknown)
		l.consequence(l.bounded(func() error {
			_, err := l.a().ReadHeartbeat(l.ctx, l.pool(), l.a().Name)
			return err
		}), hardware.Unavailable)
		equal(l.read(l.b(), l.a()), one)
		l.ok(l.b().WriteHeartbeat(l.ctx, l.pool(), two))
		heal()
		l.until(soon, "it works again", func() bool {
			return l.a().WriteHeartbeat(l.ctx, l.pool(), hardware.Heartbeat{Boot: "first", Count: 3}) == nil
		})
		l.Pass(soon)
		equal(l.read(l.b(), l.a()).Count, 3, "an old write has overtaken")
	})
}

func peers(s *suite) {
	both := []hardware.Network{hardware.NetworkManagement, hardware.NetworkMigration}
	s.it("hosts reach each other on both networks", func(l *lab) {
		for _, n := range both {
			l.ok(l.a().Reach(l.ctx, n, l.b().Name))
			l.ok(l.b().Reach(l.ctx, n, l.a().Name))
		}
	})
	s.it("a host or a network nobody knows is refused", func(l *lab) {
		l.refused(l.a().Reach(l.ctx, hardware.NetworkManagement, "no-such-host"), hardware.ReasonOther)
		l.refused(l.a().Reach(l.ctx, "no-such-network", l.b().Name), hardware.ReasonOther)
	})
	for i, n := range both {
		s.it("with the "+string(n)+" link cut a host is silent there, and on no other", func(l *lab) {
			heal := l.fault("net.cut link=%s on=%s", n, l.b().Name)
			l.consequence(l.bounded(func() error { return l.a().Reach(l.ctx, n, l.b().Name) }), hardware.Unavailable)
			l.ok(l.a().Reach(l.ctx, both[1-i], l.b().Name))
			heal()
			l.until(soon, "it answers again", func() bool { return l.a().Reach(l.ctx, n, l.b().Name) == nil })
		})
	}
	s.it("loss in one direction is silence in both", func(l *lab) {
		l.fault("net.oneway link=management on=%s to=%s", l.b().Name, l.a().Name)
		l.consequence(l.a().Reach(l.ctx, hardware.NetworkManagement, l.b().Name), hardware.Unavailable)
		l.consequence(l.b().Reach(l.ctx, hardware.NetworkManagement, l.a().Name), hardware.Unavailable)
	})
	s.it("a host that is off is silent", func(l *lab) {
		l.fault("host.power-off on=%s", l.a().Name)
		for _, n := range both {
			l.consequence(l.b().Reach(l.ctx, n, l.a().Name), hardware.Unavailable)
		}
	})
	s.it("it needs no virtualisation daemon, here or there", func(l *lab) {
		l.fault("libvirtd.crash on=%s", l.a().Name)
		l.ok(l.a().Reach(l.ctx, hardware.NetworkManagement, l.b().Name))
		l.ok(l.b().Reach(l.ctx, hardware.NetworkManagement, l.a().Name))
	})
}

func notes(s *suite) {
	load := func(l *lab, h Host, name string) []byte {
		data, err := h.LoadNote(l.ctx, name)
		l.ok(err)
		return data
	}
	s.it("one never saved is nil, an empty one is not", func(l *lab) {
		isTrue(load(l, l.a(), "conformance-none") == nil, "it is not nil")
		l.ok(l.a().SaveNote(l.ctx, "conformance-empty", nil))
		isTrue(load(l, l.a(), "conformance-empty") != nil, "it is nil")
	})
	s.it("a note is what was saved last, and only under its name and on its host", func(l *lab) {
		data := []byte("a longer text than the next")
		l.ok(l.a().SaveNote(l.ctx, "conformance-one", data))
		data[0] = 'X' // the caller may do so
		equal(string(load(l, l.a(), "conformance-one")), "a longer text than the next")
		l.ok(l.a().SaveNote(l.ctx, "conformance-one", []byte("short\x00")))
		equal(string(load(l, l.a(), "conformance-one")), "short\x00")
		isTrue(load(l, l.a(), "conformance-two") == nil, "another note has it")
		isTrue(load(l, l.b(), "conformance-one") == nil, "another host has it")
	})
	s.it("names that are paths or worse are refused", func(l *lab) {
		for _, name := range []string{"", "../secret", "a/b", "Upper", "a b", "a-", "."} {
			l.refused(l.a().SaveNote(l.ctx, name, []byte("x")), hardware.ReasonInvalidSpec)
		}
	})
	s.it("with its context done nothing is saved", func(l *lab) {
		l.consequence(l.a().SaveNote(done(), "conformance-late", []byte("x")), hardware.Unavailable)
		isTrue(load(l, l.a(), "conformance-late") == nil, "it is there")
	})
	s.it("notes need no virtualisation daemon and outlive it", func(l *lab) {
		l.ok(l.a().SaveNote(l.ctx, "conformance-kept", []byte("x")))
		heal := l.fault("libvirtd.crash on=%s", l.a().Name)
		equal(string(load(l, l.a(), "conformance-kept")), "x")
		heal()
		equal(string(load(l, l.a(), "conformance-kept")), "x")
	})
	s.it("notes end with the boot", func(l *lab) {
		l.fault("events.dup on=%s", l.a().Name)
		l.ok(l.a().SaveNote(l.ctx, "conformance-old", []byte("x")))
		l.rebooted(l.a())
		isTrue(load(l, l.a(), "conformance-old") == nil, "it is still there")
	})
}
