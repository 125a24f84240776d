// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
)

// teller is an agent as far as its reports go: it tells what changed since what
// was taken, also what came and went meanwhile, and all of it when it is asked to
// or has begun anew.
type teller struct {
	boot  string
	began time.Duration // the boot
	epoch uint64
	seq   uint64
	base  uint64
	runs  map[string]string // state by domain
	since map[string]uint64 // the last report before a domain changed
}

func (a *teller) next(now time.Duration) *hav1.ReportRequest {
	a.seq++
	r := &hav1.ReportRequest{Host: "a", Boot: a.boot, Epoch: a.epoch, Seq: a.seq, Uptime: durationpb.New(now - a.began), Full: a.base == 0, Base: a.base}
	for _, uuid := range slices.Sorted(maps.Keys(a.runs)) {
		if r.Full || a.since[uuid] >= a.base {
			r.Instances = append(r.Instances, &hav1.Instance{Uuid: uuid, State: a.runs[uuid]})
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(a.since)) {
		if !r.Full && a.since[uuid] >= a.base && a.runs[uuid] == "" {
			r.Gone = append(r.Gone, uuid)
		}
	}
	return r
}

func (a *teller) changes(uuid, state string) {
	a.since[uuid] = a.seq
	if a.runs[uuid] = state; state == "" {
		delete(a.runs, uuid)
	}
}

// answered is what an agent does with an answer to its latest report.
func (a *teller) answered(r *hav1.ReportRequest, out *hav1.ReportResponse) {
	if a.base = r.Seq; out.Resync {
		a.base = 0
	}
}

func (a *teller) begins(boot string, began time.Duration, epoch uint64) {
	runs := a.runs
	if boot != a.boot {
		runs = map[string]string{}
	}
	*a = teller{boot: boot, began: began, epoch: epoch, runs: runs, since: map[string]uint64{}}
}

// TestReportsMayComeAnyhow draws reports that are lost, come twice, late (by less
// than a boot takes, or after they have come once) and out of order, with answers that are lost, agents that begin anew and hosts that boot.
// What is known of a host is what it said last, or it is asked to say all of it;
// nothing that is over is heard again; and a host of which a new report came within
// three intervals is never called silent.
func TestReportsMayComeAnyhow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &steady{now: 100 * seconds}
		s := newService(Options{Steady: c, Limits: limits})
		s.meet("a")
		agent := &teller{}
		agent.begins("boot-1", c.now, 1)
		boots := 1
		type sent struct {
			r    *hav1.ReportRequest
			runs map[string]string
			at   int // in the order of making
			when time.Duration
			came bool
		}
		var wires []sent // all that were ever made: any may come again
		latest := sent{at: -1}
		var latestAt time.Duration
		write := func() int {
			wires = append(wires, sent{r: agent.next(c.now), runs: maps.Clone(agent.runs), at: len(wires), when: c.now})
			return len(wires) - 1
		}
		deliver := func(which int) *hav1.ReportResponse {
			wires[which].came = true
			m := wires[which]
			s.lead(c.now + sureFor)
			out, err := s.Report(t.Context(), m.r)
			if err != nil {
				t.Fatal(err)
			}
			if m.at > latest.at {
				latest, latestAt = m, c.now
			}
			return out
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c.now += time.Duration(rapid.IntRange(0, 8).Draw(t, "seconds")) * seconds
			switch rapid.SampledFrom([]string{"report", "report", "report", "answer lost", "report lost", "again", "change", "restart", "boot"}).Draw(t, "step") {
			case "report":
				m := write()
				agent.answered(wires[m].r, deliver(m))
			case "answer lost":
				deliver(write())
			case "report lost":
				write()
			case "again":
				if len(wires) == 0 {
					continue
				}
				if m := rapid.IntRange(0, len(wires)-1).Draw(t, "which"); wires[m].came || c.now-wires[m].when < minute {
					deliver(m)
				}
			case "change":
				agent.changes(fmt.Sprint("vm-", rapid.IntRange(0, 3).Draw(t, "vm")), rapid.SampledFrom([]string{"running", "paused", ""}).Draw(t, "state"))
			case "restart":
				agent.begins(agent.boot, agent.began, agent.epoch+1)
			case "boot":
				if boots++; boots < mostPastBoots {
					c.now += minute
					agent.begins(fmt.Sprint("boot-", boots), c.now, 1)
				}
			}
			h, known := s.snapshot("a")
			if latest.at < 0 {
				if known {
					t.Fatal("known without a word")
				}
				continue
			}
			if h.boot != latest.r.Boot || h.epoch != latest.r.Epoch || h.seq != latest.r.Seq {
				t.Fatalf("it goes by %s/%d/%d, the latest is %s/%d/%d", h.boot, h.epoch, h.seq, latest.r.Boot, latest.r.Epoch, latest.r.Seq)
			}
			if h.last != latestAt {
				t.Fatalf("heard at %v, it was %v", h.last, latestAt)
			}
			if h.synced {
				got := map[string]string{}
				for uuid, i := range h.instances {
					got[uuid] = i.GetState()
				}
				if !maps.Equal(got, latest.runs) {
					t.Fatalf("it believes %v, the host said %v", got, latest.runs)
				}
			}
			v := judge(evidence{now: c.now, limits: limits, heard: true, silence: c.now - h.last, pulse: pulseStill})
			if c.now-latestAt < 3*limits.Interval && v.state != kvmv1.ReasonOnline {
				t.Fatalf("%s after %v", v.state, c.now-latestAt)
			}
		}
	})
}

const minute = time.Minute

// drawObservation draws evidence of all kinds, of a host with an open Evacuation
// without a proof.
func drawObservation(t *rapid.T) observation {
	yes := func(what string) bool { return rapid.Bool().Draw(t, what) }
	at := func(what string) time.Duration {
		return rapid.SampledFrom([]time.Duration{0, 10, 53, 54, 90, 500, 900, 940, 965, 980, 990, 999}).Draw(t, what) * seconds
	}
	seen := dead(evacuating(v1alpha1.EvacuationFencing))
	boot := rapid.SampledFrom([]string{"b", "c"})
	seen.ledAt, seen.protected = at("led"), rapid.IntRange(0, 3).Draw(t, "protected")
	if yes("ordered") {
		ordered(seen.evacuation)
	}
	if yes("never recorded") {
		seen.evacuation.Spec.Boot = ""
	}
	if yes("confirmed") {
		confirm(&seen)
	}
	if yes("known") {
		seen.memory = memory(boot.Draw(t, "boot"), at("last"))
		seen.memory.first, seen.memory.granted = at("first"), at("granted")
		seen.memory.lease = &hav1.Lease{Valid: yes("valid"), Lapsed: yes("lapsed"), Stopped: yes("stopped"), Off: yes("off")}
		seen.memory.synced = yes("synced")
		if yes("runs") {
			seen.memory.instances = map[string]*hav1.Instance{"u": {State: "running", Protected: true}}
		}
	} else {
		seen.memory = hostMemory{}
	}
	x := &seen.expiry
	x.granted, x.ledAt, x.armed, x.terms.pools = seen.memory.granted, seen.ledAt, yes("armed"), yes("pools")
	x.boot = boot.Draw(t, "boot on record")
	for range rapid.IntRange(0, 2).Draw(t, "witnesses") {
		x.sightings = append(x.sightings, sighting{
			at: at("seen"), storage: yes("readable"), boot: boot.Draw(t, "boot of the heartbeat"), still: at("still"),
			count: uint64(rapid.IntRange(0, 1).Draw(t, "count")), lapsed: yes("heartbeat lapsed"), lapsedAt: at("lapsed at"),
		})
	}
	if yes("controller") {
		seen.power = powerMemory{evacuation: rapid.SampledFrom([]string{"kvm-1-4/", "kvm-1-3/"}).Draw(t, "of"), wish: wishOff}
		if yes("said off") {
			seen.power.proof = "off"
		}
	}
	seen.brakes.blind, seen.brakes.dryRun = yes("blind"), yes("dry run")
	seen.verdict = verdict{state: rapid.SampledFrom([]string{kvmv1.ReasonOnline, kvmv1.ReasonSuspect, kvmv1.ReasonIsolated, kvmv1.ReasonUnreachable}).Draw(t, "verdict")}
	return seen
}

// TestNothingIsFencedWithoutProof draws evidence and says again, in other words
// than the code, what each proof takes.
func TestNothingIsFencedWithoutProof(t *testing.T) {
	kinds := map[v1alpha1.ProofKind]int{}
	once := func(t *rapid.T) {
		seen := drawObservation(t)
		p := decide(seen)
		if p.evacuate || p.policy != nil || p.create != nil || p.refuse == "" {
			t.Fatalf("without a proof: evacuates %v, policy %+v, makes %v, refuses %q", p.evacuate, p.policy, p.create, p.refuse)
		}
		if p.power == wishOff && seen.evacuation.Status.Power == nil {
			t.Fatal("ordered off before that is on record")
		}
		if p.status == nil || p.status.Phase != v1alpha1.EvacuationFenced {
			if p.status != nil && p.status.Proof != nil {
				t.Fatal("a proof without its phase")
			}
			return
		}
		m, x, spec := seen.memory, seen.expiry, seen.evacuation.Spec
		kinds[p.status.Proof.Kind]++
		heard := m.last != 0 && seen.now-m.last < 15*seconds
		if seen.brakes.blind {
			t.Fatal("by one that may lead no more")
		}
		if power := seen.evacuation.Status.Power; seen.brakes.dryRun && (power == nil || power.Ordered == nil) {
			t.Fatal("in a dry run")
		}
		switch p.status.Proof.Kind {
		case v1alpha1.ProofPowerOff:
			if seen.power.proof == "" || seen.power.evacuation != "kvm-1-4/" {
				t.Fatalf("%+v", seen.power)
			}
		case v1alpha1.ProofNewBoot:
			if !heard || spec.Boot == "" || m.boot == spec.Boot || m.granted != 0 || m.lease.Valid || m.lease.Off || m.last <= seen.ledAt || len(m.instances) > 0 {
				t.Fatalf("%+v", m)
			}
		case v1alpha1.ProofStopped:
			if !heard || m.boot != spec.Boot || !m.lease.Lapsed || !m.lease.Stopped || m.last <= max(m.granted, seen.ledAt) || len(m.instances) > 0 || !m.synced {
				t.Fatalf("%+v", m)
			}
		case v1alpha1.ProofLeaseExpired:
			if !x.armed || x.boot != spec.Boot || max(m.granted, seen.ledAt)+54*seconds > seen.now || heard && m.boot == spec.Boot {
				t.Fatalf("%+v, granted %v, heard %v", x, m.granted, heard)
			}
			if x.terms.pools && !slices.ContainsFunc(x.sightings, func(w sighting) bool { return showsTheEnd(w, x) }) {
				t.Fatalf("nobody saw it: %+v", x.sightings)
			}
		case v1alpha1.ProofConfirmed:
			if heard || len(seen.hypervisor.Annotations) == 0 {
				t.Fatal("nobody said so, or it is heard")
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			once(t)
		}
	})
	for _, kind := range []v1alpha1.ProofKind{v1alpha1.ProofPowerOff, v1alpha1.ProofLeaseExpired, v1alpha1.ProofConfirmed} {
		if kinds[kind] == 0 {
			t.Errorf("%s was never drawn", kind)
		}
	}
}

// showsTheEnd says whether one witness is enough.
func showsTheEnd(w sighting, x expiry) bool {
	for _, o := range x.sightings {
		if o.storage && o.boot == x.boot && (w.boot != x.boot || o.count > w.count) {
			return false // Another has seen a later sign of life.
		}
	}
	quiet := w.still >= 54*seconds || w.boot == x.boot && w.lapsed && x.now-w.lapsedAt >= 34*seconds
	return w.storage && x.now-w.at < 15*seconds && quiet
}

// BenchmarkReport is a thousand hosts whose reports say that nothing has changed.
func BenchmarkReport(b *testing.B) {
	c := &steady{now: 100 * seconds}
	s := newService(Options{Steady: c, Limits: limits})
	const hosts = 1000
	reports := make([]*hav1.ReportRequest, hosts)
	for i := range reports {
		name := fmt.Sprint("host-", i)
		s.meet(name)
		s.setPolicy(name, policy{boot: "b", grant: true})
		r := &hav1.ReportRequest{
			Host: name, Boot: "b", Epoch: 1, Seq: 1, Full: true, Virtualisation: &hav1.Virtualisation{Answers: true},
			Watchdog: &hav1.Watchdog{Present: true, Armed: true, Timeout: durationpb.New(20 * seconds)},
			Lease:    &hav1.Lease{Valid: true, Term: durationpb.New(20 * seconds), Stop: durationpb.New(10 * seconds)},
			Storage:  []*hav1.Storage{{Pool: "shared", Writable: true, Age: durationpb.New(seconds)}},
		}
		for w := range witnesses {
			r.Witnesses = append(r.Witnesses, &hav1.Witness{
				Host: fmt.Sprint("host-", (i+w+1)%hosts), Management: true, Migration: true, Storage: true, Boot: "b", Still: durationpb.New(seconds),
			})
		}
		for v := range 20 {
			r.Instances = append(r.Instances, &hav1.Instance{Uuid: fmt.Sprint(v), State: "running", Protected: true})
		}
		reports[i] = r
	}
	woken := 0
	s.onNews(func(string) { woken++ })
	s.lead(time.Hour * 1e6)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		r := reports[n%hosts]
		if n%hosts == 0 {
			c.now += 5 * seconds
		}
		if n >= hosts {
			r.Seq++
			r.Full, r.Base, r.Instances = false, r.Seq-1, nil
		}
		if out, err := s.Report(b.Context(), r); err != nil || !out.Granted {
			b.Fatal(out, err)
		}
	}
	if b.N > hosts && woken > hosts {
		b.Fatalf("woken %d times", woken)
	}
}
