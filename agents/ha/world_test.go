// SPDX-License-Identifier: Apache-2.0

package ha_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/agents/ha"
	"github.com/adit-hv/adit/agents/permit"
	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/sim"
)

const (
	beats, disks = "beats", "disks" // pools

	// The default times, and what they add up to without a margin.
	term, stop, dog = 20 * time.Second, 10 * time.Second, 20 * time.Second
	safe            = term + stop + dog
)

// fataler is a test, or a property's.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// world is a fleet with HA agents, and a service that the test plays.
type world struct {
	fataler
	s       *sim.Scheduler
	fleet   *hwsim.Fleet
	cluster *kubesim.Cluster
	agents  map[string]*kubesim.Process
	calls   map[string]int // of the hardware, by name
	service *service
}

// service answers as it is told.
type service struct {
	w      *world
	down   bool            // nobody answers
	silent map[string]bool // these hear no answer
	follow bool            // the replica does not lead
	refuse bool
	off    bool
	slow   time.Duration
	watch  map[string][]string

	reports []*hav1.ReportRequest
	granted map[string]time.Duration // by host, when last
	taken   map[string]uint64        // the last report of a host that had the instances
	view    map[string]map[string]*hav1.Instance
	events  map[string]*hav1.Event // by host, boot and number
	resyncs int
}

// Report implements ha.Service.
func (s *service) Report(_ context.Context, r *hav1.ReportRequest) (*hav1.ReportResponse, error) {
	task := s.w.s.Current()
	task.Sleep(time.Millisecond + s.slow)
	if s.down || s.silent[r.Host] {
		task.Sleep(4 * time.Second)
		return nil, errors.New("no route to host")
	}
	if s.follow {
		return &hav1.ReportResponse{}, nil
	}
	s.reports = append(s.reports, r)
	answer := &hav1.ReportResponse{Leader: true, Seq: r.Seq, Granted: !s.refuse && !s.off, Off: s.off, Watch: s.watch[r.Host]}
	if answer.Granted {
		s.granted[r.Host] = s.w.s.Elapsed()
	}
	switch {
	case r.Full:
		s.view[r.Host] = map[string]*hav1.Instance{}
	case r.Base == 0 || r.Base > s.taken[r.Host]:
		answer.Resync = true
		s.resyncs++
	}
	if !answer.Resync {
		s.taken[r.Host] = r.Seq
		for _, i := range r.Instances {
			s.view[r.Host][i.Uuid] = i
		}
		for _, uuid := range r.Gone {
			delete(s.view[r.Host], uuid)
		}
	}
	for _, e := range r.Events {
		s.events[fmt.Sprint(r.Host, r.Boot, e.Seq)] = e
		answer.Events = e.Seq
	}
	task.Sleep(time.Millisecond + s.slow)
	return answer, nil
}

// last is a host's last report.
func (s *service) last(host string) *hav1.ReportRequest {
	for _, r := range slices.Backward(s.reports) {
		if r.Host == host {
			return r
		}
	}
	return &hav1.ReportRequest{}
}

func newWorld(t fataler, seed uint64, hosts ...hwsim.HostSpec) *world {
	t.Helper()
	w := &world{fataler: t, s: sim.New(sim.Options{Seed: seed, KeepNotes: true}), agents: map[string]*kubesim.Process{}, calls: map[string]int{}}
	w.service = &service{w: w, watch: map[string][]string{}, granted: map[string]time.Duration{}, taken: map[string]uint64{}, view: map[string]map[string]*hav1.Instance{}, events: map[string]*hav1.Event{}}
	calls := map[*sim.Task]func(){}
	w.fleet = hwsim.New(w.s, hwsim.Options{Step: func(c hwsim.Call) error {
		task := w.s.Current()
		p := w.agents[strings.TrimPrefix(c.Who, "ha/")]
		if p == nil || task == nil {
			return nil
		}
		if !c.After {
			w.calls[c.Name]++
			calls[task] = p.Step(c.Name)
		} else if done := calls[task]; done != nil {
			delete(calls, task)
			done()
		}
		return nil
	}})
	scheme := runtime.NewScheme()
	w.must(clientgoscheme.AddToScheme(scheme))
	var err error
	w.cluster, err = kubesim.New(w.s, kubesim.Options{Scheme: scheme, NamespacesOnDemand: true, OnWrite: func(x kubesim.Write) {
		if x.Role != "" {
			t.Errorf("%s wrote %s: it writes nothing to the API", x.Process, x.GVK.Kind)
		}
	}})
	w.must(err)
	w.cluster.OnPanic = func(p kubesim.Panic) { t.Errorf("%s: %v\n%s", p.Process, p.Value, p.Stack) }
	w.cluster.OnHotLoop = func(h kubesim.HotLoop) { t.Errorf("hot loop: %+v", h) }
	for _, pool := range []string{beats, disks} {
		w.must(w.fleet.AddPool(hwsim.PoolSpec{Name: pool, Shared: true, LockLease: time.Second}))
	}
	for _, spec := range hosts {
		h, err := w.fleet.AddHost(spec)
		w.must(err)
		w.start(h)
	}
	return w
}

// start starts a host's agent and ties it to the host.
func (w *world) start(h *hwsim.Host) {
	p := w.cluster.Process("ha/"+h.Name(), kubesim.ProcessOptions{Role: "agents/ha", Host: h.Name()}, func(mgr manager.Manager) error {
		return ha.Setup(mgr, ha.Options{Host: h.Name(), Hardware: h.Hardware("ha/" + h.Name()), Service: w.service, Steady: h.Steady(), Pool: beats})
	})
	w.agents[h.Name()] = p
	p.Start()
	h.OnDown(p.Crash)
	h.OnBoot(p.Start)
	h.OnHang(func(hung bool) {
		if hung {
			p.Pause()
		} else {
			p.Resume()
		}
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%v", err)
	}
}

func (w *world) run(d time.Duration) { w.s.Run(w.s.Elapsed() + d) }

func (w *world) want(what string, got, want any) {
	w.Helper()
	if got != want {
		w.Errorf("at %v, %s: %v, want %v", w.s.Elapsed(), what, got, want)
	}
}

// inject strikes, until the fault is over or healed.
func (w *world) inject(faults ...string) {
	w.Helper()
	for _, text := range faults {
		f, err := hwsim.ParseFault(text)
		w.must(err)
		w.must(w.fleet.Inject(f))
	}
}

func uuidOf(name string) string {
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", []byte(fmt.Sprintf("%6.6s", name)))
}

// boot starts a domain with a disk as nova does, protected or not.
func (w *world) boot(host, name string, protected bool) {
	w.Helper()
	w.must(w.fleet.AddVolume(disks+"/"+name, 1<<30))
	hw := w.fleet.Host(host).Hardware("nova")
	w.must(hw.Define(context.Background(), hardware.DomainSpec{
		UUID: uuidOf(name), Name: name, MemoryKiB: 1 << 20, VCPUs: 1,
		Owner: &hardware.Owner{Namespace: "vms", Name: name, UID: name, Generation: 1, Protected: protected},
		Disks: []hardware.Disk{{Target: "vda", Bus: "virtio", Volume: disks + "/" + name}},
	}))
	w.must(hw.Start(context.Background(), uuidOf(name), hardware.StartOptions{}))
}

// domains prints a host's domains.
func (w *world) domains(host string) string {
	w.Helper()
	all, err := w.fleet.Host(host).Hardware("test").Domains(context.Background())
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, d := range all {
		out = append(out, fmt.Sprintf("%s %s", d.Spec.Name, d.State))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// permitLeft is how long nova may start protected VMs still.
func (w *world) permitLeft(host string) time.Duration {
	w.Helper()
	h := w.fleet.Host(host)
	hw := h.Hardware("test")
	boot, err := hw.Boot(context.Background())
	if err != nil {
		return 0
	}
	note, err := hw.LoadNote(context.Background(), permit.NoteName)
	w.must(err)
	p, err := permit.Decode(note)
	w.must(err)
	now := h.Steady().Elapsed()
	if !p.Valid(now, boot.ID) {
		return 0
	}
	return p.Until - now
}

func (w *world) permitted(host string) bool { return w.permitLeft(host) > 0 }

func (w *world) stopped(host string) []string {
	w.Helper()
	note, err := w.fleet.Host(host).Hardware("test").LoadNote(context.Background(), permit.StoppedName)
	if err != nil {
		return nil // it is off
	}
	s, err := permit.DecodeStopped(note)
	w.must(err)
	return s.Domains
}

func (w *world) watchdog(host string) hardware.WatchdogState {
	w.Helper()
	state, err := w.fleet.Host(host).Hardware("test").Watchdog(context.Background())
	w.must(err)
	return state
}

func (w *world) heartbeat(host string) hardware.Heartbeat {
	w.Helper()
	b, err := w.fleet.Host(host).Hardware("test").ReadHeartbeat(context.Background(), beats, host)
	w.must(err)
	return b
}

// bites is how often a watchdog reset a host.
func (w *world) bites(host string) (n int) {
	for _, note := range w.s.Notes() {
		if note.Host == host && note.Component == "watchdog" && note.What == "bites" {
			n++
		}
	}
	return n
}

func (w *world) sound() {
	w.Helper()
	for _, v := range w.fleet.Ledger().Violations() {
		w.Errorf("%+v", v)
	}
}

func one(name string) hwsim.HostSpec { return hwsim.HostSpec{Name: name} }

// healthy is a fleet that has run for half a minute, with a VM of each kind on a:
// web is protected, batch is not, and scratch is somebody else's.
func healthy(t *testing.T, hosts ...hwsim.HostSpec) *world {
	t.Helper()
	if len(hosts) == 0 {
		hosts = []hwsim.HostSpec{one("a")}
	}
	w := newWorld(t, 1, hosts...)
	t.Cleanup(w.cluster.Close)
	w.run(5 * time.Second)
	w.boot("a", "web", true)
	w.boot("a", "batch", false)
	hw := w.fleet.Host("a").Hardware("virsh")
	w.must(hw.Define(context.Background(), hardware.DomainSpec{UUID: uuidOf("scratch"), Name: "scratch", MemoryKiB: 1 << 20, VCPUs: 1}))
	w.must(hw.Start(context.Background(), uuidOf("scratch"), hardware.StartOptions{}))
	w.run(25 * time.Second)
	return w
}
