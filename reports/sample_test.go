// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// sample is a suite as a run of many scenarios leaves it: a drain of one host
// of six, the same drain with two copies running at once, a fleet of 200 hosts
// that loses a rack, many seeds that are rows only, and one not run.
func sample() Suite {
	s := Suite{Name: "Nightly rehearsal", Version: "0.4.0", Command: "adit run scenarios/ --seeds 40 --report adit-report"}
	for seed := range uint64(3) {
		s.Records = append(s.Records, drain(seed+1, seed == 1))
	}
	for seed := range uint64(40) {
		r := quiet("api-brownout", seed+1)
		r.About = "The API answers one call in ten with 503 for two minutes. Nothing may be lost, and no VM may be started twice."
		s.Records = append(s.Records, r)
	}
	s.Records = append(s.Records, rackLoss(200, 12, 1))
	s.Records = append(s.Records, Record{
		Scenario: "real-libvirt-drain", File: "scenarios/libvirt/drain.yaml", About: "The same drain with libvirt and QEMU.", Seed: 1, Mode: "libvirt",
		Verdict: NotRun, Reason: "mode libvirt needs /dev/kvm, which is not there", Replay: "adit run scenarios/libvirt/drain.yaml --mode libvirt --seed 1",
	})
	return s
}

func quiet(name string, seed uint64) Record {
	return Record{
		Scenario: name, File: "scenarios/" + name + ".yaml", Seed: seed, Mode: "sim", Verdict: Pass, Digest: fmt.Sprintf("%016x", seed*0x9e3779b97f4a7c15),
		VirtualSeconds: 1800, CPUSeconds: 0.21, HostHours: 3, Events: 51234 + seed, APIWrites: 812,
		Replay: fmt.Sprintf("adit run scenarios/%s.yaml --seed %d", name, seed),
	}
}

// lives builds VMs' segments step by step.
type lives struct {
	r    *Record
	on   map[int]string
	from map[int]float64
}

func (l *lives) start(vm int, host string, at float64) { l.on[vm], l.from[vm] = host, at }

func (l *lives) until(vm int, at float64, state string) {
	if at > l.from[vm] {
		l.r.VMs[vm].Segments = append(l.r.VMs[vm].Segments, Segment{Host: l.on[vm], From: l.from[vm], To: at, State: state})
	}
	l.from[vm] = at
}

func (l *lives) incoming(vm int, host string, from, to float64) {
	l.r.VMs[vm].Segments = append(l.r.VMs[vm].Segments, Segment{Host: host, From: from, To: to, State: "incoming"})
}

func (l *lives) migrate(vm int, to string, at, took float64, mode string, d *rand.Rand) {
	end := at + took
	m := Migration{VM: l.r.VMs[vm].Name, From: l.on[vm], To: to, Start: at, Switched: end, End: end + 0.4, Result: "completed", Mode: mode,
		DowntimeMS: 40 + 200*d.Float64(), Bytes: uint64(took * 1.1e9), Iterations: uint64(3 + took/4), Throttle: int(took) / 20 * 10}
	if mode == "post-copy" {
		m.Switched = at + took*0.6
	}
	l.incoming(vm, to, at, m.Switched)
	l.until(vm, m.Switched, "running")
	if mode == "post-copy" {
		l.r.VMs[vm].Segments = append(l.r.VMs[vm].Segments, Segment{Host: l.on[vm], From: m.Switched, To: m.End, State: "paused"})
	}
	l.start(vm, to, m.Switched+m.DowntimeMS/1000)
	l.r.Migrations = append(l.r.Migrations, m)
}

// drain empties host kvm-a1 while one target's network is slow; with broken,
// an agent that crashed starts a VM a second time.
func drain(seed uint64, broken bool) Record {
	d := rand.New(rand.NewPCG(seed, 7))
	r := Record{
		Scenario: "drain-under-faults", File: "scenarios/drain-under-faults.yaml", Seed: seed, Mode: "sim", Verdict: Pass,
		About:  "Maintenance empties a host while the migration network of its neighbour is slow and an agent crashes.\n\nA drain is the commonest thing a fleet does. It must finish, it must not hurry a VM to death, and whatever crashes on the way must not leave two copies of a VM running.",
		Digest: fmt.Sprintf("%016x", seed*0x9e3779b97f4a7c15), VirtualSeconds: 900, CPUSeconds: 0.83, HostHours: 1.5, Events: 48211, APIWrites: 1204, Violations: []Violation{},
		Replay: fmt.Sprintf("adit run scenarios/drain-under-faults.yaml --seed %d", seed),
	}
	hosts := []string{"kvm-a1", "kvm-a2", "kvm-a3", "kvm-b1", "kvm-b2", "kvm-b3"}
	for i, h := range hosts {
		r.Hosts = append(r.Hosts, Host{Name: h, Zone: []string{"zone a", "zone b"}[i/3], Rack: "", Model: "2 × 32 cores, 512 GiB"})
	}
	l := &lives{r: &r, on: map[int]string{}, from: map[int]float64{}}
	for i := range 30 {
		group := []string{"web", "db", "batch"}[i%3]
		r.VMs = append(r.VMs, VM{UUID: fmt.Sprintf("7c1e0000-0000-4000-8000-%012d", i), Name: fmt.Sprintf("%s-%d", group, i/3), Group: group})
		host := "kvm-a1"
		if i >= 20 {
			host = hosts[1+i%5]
		}
		l.start(i, host, 8+float64(i)*0.9+4*d.Float64())
	}
	at := 180.0
	for i := range 20 {
		to := hosts[1+(i*7+int(seed))%5]
		took := 9 + 14*d.Float64()
		mode := "pre-copy"
		if i == 7 || i == 13 {
			mode, took = "post-copy", took+18
		}
		if i == 5 || i == 11 { // the first attempt fails
			r.Migrations = append(r.Migrations, Migration{VM: r.VMs[i].Name, From: "kvm-a1", To: "kvm-a2", Start: at, End: at + 31, Result: "failed", Mode: "pre-copy",
				Bytes: 9e9, Iterations: 14, Throttle: 60, Error: "migration: no progress for 30 s: the dirty rate is above the bandwidth"})
			l.incoming(i, "kvm-a2", at, at+31)
			l.migrate(i, "kvm-b2", at+70, took, mode, d)
		} else {
			l.migrate(i, to, at, took, mode, d)
		}
		at += 9 + 6*d.Float64()
	}
	l.until(22, 300, "running")
	l.until(22, 520, "paused")
	end := 900.0
	for i := range r.VMs {
		l.until(i, end, "running")
	}
	r.Spans = []Span{
		{Text: "network-slow on=kvm-a2 plane=migration rate=1Gbit for=3m", On: []string{"kvm-a2"}, From: 210, To: 390},
		{Text: "api-errors code=503 rate=0.1 for=90s", From: 330, To: 420},
		{Text: "storage-slow on=zone b latency=40ms for=2m", On: []string{"zone b"}, From: 560, To: 680},
	}
	r.Marks = []Mark{
		{At: 0, Kind: "start", Text: "fleet is up"}, {At: 180, Kind: "action", Text: "set maintenance kvm-a1", On: "kvm-a1"},
		{At: 288, Kind: "crash", Text: "crash agents/kvm-b1", On: "kvm-b1"}, {At: 296, Kind: "return", Text: "agents/kvm-b1 return", On: "kvm-b1"},
		{At: 600, Kind: "action", Text: "reboot kvm-a1", On: "kvm-a1"},
	}
	for t := 0.0; t < end; t += 10 {
		w := 6 + 3*d.Float64()
		if t < 50 {
			w = 40 + 30*d.Float64()
		} else if t > 170 && t < 420 {
			w = 18 + 16*d.Float64()
		}
		r.WritesOver = append(r.WritesOver, Sample{At: t, Value: float64(int(w))})
	}
	r.finish(d)
	if broken {
		r.Verdict = Fail
		r.VMs[10].Segments = append(r.VMs[10].Segments, Segment{Host: "kvm-b1", From: 297, To: 349, State: "running"})
		r.Violations = []Violation{
			{At: 297.25, Rule: "single-run", Text: "db-3 runs on kvm-a1 and on kvm-b1 (run tokens 4 and 4)"},
			{At: 420, Rule: "eventually evicted within 4m", Text: `host.kvm-a1.evicted was false; 3 VMs were left: web-6, db-6, batch-6`},
		}
		r.Invariants[0].Result, r.Invariants[0].At = "violated", 297.25
		r.Expectations[0].Result, r.Expectations[0].At = "violated", 420
		for i := range 40 {
			r.LastNotes = append(r.LastNotes, fmt.Sprintf("%10.3f  kvm-b1  agents/nova    reconcile  vms/db-%d  observed running, wanted running", 297+float64(i)*0.013, i%10))
		}
	}
	return r
}

// finish adds what each drawn run has.
func (r *Record) finish(d *rand.Rand) {
	var took, down, start []float64
	for _, m := range r.Migrations {
		if m.Result == "completed" {
			took, down = append(took, m.End-m.Start), append(down, m.DowntimeMS)
		}
	}
	for range r.VMs {
		start = append(start, 2+6*d.Float64()*d.Float64())
	}
	r.Percentiles = []Percentile{Percentiles("start", "s", start), Percentiles("migration", "s", took), Percentiles("downtime", "ms", down), Percentiles("drain", "s", []float64{311})}
	r.Expectations = []Check{
		{Name: "eventually evicted within 4m", Text: `host["kvm-a1"].evicted`, Result: "held", At: 416, Checks: 1403},
		{Name: "always", Text: "vms.all(v, v.running || now < 60)", Result: "held", Checks: 8121},
		{Name: "never", Text: "migrations.exists(m, m.downtime > 2s)", Result: "held", Checks: 8121},
		{Name: "guest-agent answers", Text: "mode sim has no guest agents", Result: "notrun"},
	}
	r.Invariants = []Check{
		{Name: "single-run", Text: "one running copy of a VM at any time", Result: "held", Checks: 48211},
		{Name: "single-writer", Text: "one host that can write a disk not meant to be shared", Result: "held", Checks: 48211},
		{Name: "source-stays-stopped", Text: "no source runs on once the target has taken over", Result: "held", Checks: 22},
		{Name: "one-owner", Text: "each status field has one writer", Result: "held", Checks: 1204},
	}
	r.API = []APICount{
		{"agents", "patch", "virtualmachineinstances/status", 412, 812345}, {"agents", "update", "leases", 1080, 540000}, {"agents", "patch", "hypervisors/status", 96, 310000},
		{"agents", "watch", "virtualmachineinstances", 12, 4200000}, {"operator", "patch", "virtualmachineinstances", 133, 99000}, {"operator", "create", "virtualmachineinstancemigrations", 22, 31000},
		{"operator", "patch", "evictions/status", 41, 52000}, {"operator", "list", "hypervisors", 3, 180000},
	}
}

// rackLoss is a fleet that loses a rack at once, restarts its VMs elsewhere
// and drains three other hosts.
func rackLoss(hosts, perHost int, seed uint64) Record {
	d := rand.New(rand.NewPCG(seed, 11))
	r := quiet("rack-loss", seed)
	r.About, r.VirtualSeconds, r.CPUSeconds, r.HostHours, r.Events, r.APIWrites = "A whole rack goes dark. Its VMs come back elsewhere within ten minutes, within capacity.", 3600, 14.2, float64(hosts), 2_412_332, 61_001
	racks := max(hosts/20, 2)
	for i := range hosts {
		rack := i * racks / hosts
		r.Hosts = append(r.Hosts, Host{Name: fmt.Sprintf("node-%03d", i), Zone: fmt.Sprintf("zone %c", 'a'+rune(rack*3/racks)), Rack: fmt.Sprintf("r%02d", rack), Model: "1 × 64 cores"})
	}
	l := &lives{r: &r, on: map[int]string{}, from: map[int]float64{}}
	lost := r.Hosts[hosts/3].Rack
	alive := slices.DeleteFunc(slices.Clone(r.Hosts), func(h Host) bool { return h.Rack == lost })
	for i := range hosts * perHost {
		group := []string{"shop", "mail", "ci", "build", "cache"}[i%5]
		r.VMs = append(r.VMs, VM{UUID: fmt.Sprintf("9d000000-0000-4000-8000-%012d", i), Name: fmt.Sprintf("%s-%d", group, i), Group: group})
		h := r.Hosts[i/perHost]
		l.start(i, h.Name, 20+300*d.Float64())
		if h.Rack == lost {
			l.until(i, 1200, "running")
			again := 1330 + 420*d.Float64()*d.Float64()
			l.start(i, alive[d.IntN(len(alive))].Name, again)
			decide, fence := 8+3*d.Float64(), 30+60*d.Float64()
			place := (again - 1200 - 15 - decide - fence) * 0.8
			r.Recoveries = append(r.Recoveries, Recovery{VM: r.VMs[i].Name, Priority: []string{"high", "medium", "low"}[i%3], Host: h.Name, Evacuation: h.Name + "-1",
				Lost: 1200, Detect: 15, Decide: decide, Fence: fence, Place: place, Start: again - 1200 - 15 - decide - fence - place})
		} else if i/perHost%67 == 5 {
			l.migrate(i, alive[d.IntN(len(alive))].Name, 2100+600*d.Float64(), 8+20*d.Float64(), "pre-copy", d)
		}
		l.until(i, 3600, "running")
	}
	r.Spans = []Span{{Text: "power-loss on=rack " + lost, On: []string{lost}, From: 1200, To: 2500}, {Text: "api-slow latency=250ms for=5m", From: 1210, To: 1510}}
	r.Marks = []Mark{{At: 1200, Kind: "crash", Text: "rack " + lost + " lost"}, {At: 1327, Kind: "action", Text: "rack " + lost + " fenced"}, {At: 2100, Kind: "action", Text: "set maintenance, 3 hosts"}}
	for i, h := range r.Hosts {
		if h.Rack != lost {
			continue
		}
		n := float64(i % 20)
		r.Marks = append(r.Marks, Mark{At: 1215, Kind: "decision", Text: "Suspect: The host's HA agent has missed three reports", On: h.Name},
			Mark{At: 1225, Kind: "brake", Text: "Held: 5 hosts of the zone are being fenced already; this one is next in turn", On: h.Name},
			Mark{At: 1226 + 4*n, Kind: "decision", Text: "Fencing: power off is ordered", On: h.Name}, Mark{At: 1240 + 4*n, Kind: "decision", Text: "Proof: PowerOff: said Off for more than 10s", On: h.Name})
	}
	slices.SortStableFunc(r.Marks, func(a, b Mark) int { return cmp.Compare(a.At, b.At) })
	for t := 0.0; t < 3600; t += 30 {
		w := 180.0
		if t > 1200 && t < 1800 {
			w = 1400 - (t-1200)*1.9
		}
		r.WritesOver = append(r.WritesOver, Sample{At: t, Value: float64(int(w + 40*d.Float64()))})
	}
	r.finish(d)
	r.Percentiles = append(r.Percentiles, RecoveryPercentiles(r.Recoveries)...)
	return r
}
