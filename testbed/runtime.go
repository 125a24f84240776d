// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/wiring"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/sim"
)

// Runtime is what lies under a world's programs: an API with its processes, and
// how they reach their clocks and their hosts' hardware. The world's own, which
// nil means, is kubesim on virtual time; another puts the same programs on a real
// API server and the wall clock.
type Runtime interface {
	// Epoch is the date at which the world begins.
	Epoch() time.Time

	// Cluster makes the API. o.OnWrite is called between the scheduler's events.
	Cluster(s *sim.Scheduler, o kubesim.Options) (Cluster, error)

	// Run plays the world until the virtual time until.
	Run(s *sim.Scheduler, until time.Duration)

	// Clock, Steady and Hardware are what a process is given in the place of
	// the simulator's own.
	Clock(clock.PassiveClock) clock.PassiveClock
	Steady(wiring.Steady) wiring.Steady
	Hardware(p Process, h hardware.Host) hardware.Host

	// Unseen are the invariants that nobody judges here.
	Unseen() []string

	// Refused are the calls that a program made and has no right to.
	Refused() []string

	// Caller is how the life that p begins calls something else in the world: fn
	// lets time pass as a task does. When it returns without fn having ended, the
	// life or the world is over.
	Caller(p Process) func(fn func())

	// Over says that the world ended before its time.
	Over() bool
}

// Cluster is the Kubernetes API of a world, with the processes that use it. What
// it returns belongs to it and is not to be changed.
type Cluster interface {
	Client(user string) client.WithWatch
	Process(name string, o kubesim.ProcessOptions, onExit func(Process), setup func(manager.Manager) error) Process

	// Lookup and Each read what is stored.
	Lookup(schema.GroupVersionKind, client.ObjectKey) client.Object
	Each(schema.GroupVersionKind, func(client.Object))

	Inject(kubesim.Fault) (end func())
	Counts() []kubesim.Count
	Totals() kubesim.Totals
	Close()
}

// Process is one replica of the operator or the HA service, or one agent, as
// kubesim.Process describes it.
type Process interface {
	Name() string
	Start()
	Crash()
	Pause()
	Resume()
	Partition(cut bool)
	Alive() bool
	Leads() bool
	Restarts() int

	Calls() int
	CrashAt(n int, when kubesim.Moment)
	Step(what string) (done func())
	Deliver(fn func())
}

// Watched are the kinds of objects whose writes the world looks at: empty ones,
// the caller's.
func Watched() []client.Object {
	return []client.Object{
		&kvmv1.Hypervisor{}, &kvmv1.Eviction{}, &kvmv1alpha1.Migration{}, &kvmv1alpha1.Evacuation{},
		&kubevirtv1.VirtualMachineInstance{}, &kubevirtv1.VirtualMachineInstanceMigration{}, &corev1.Node{},
	}
}

// Namespaces are those that a world needs.
func Namespaces() []string { return []string{agentNamespace, Namespace} }

// simulated is the world's own runtime.
type simulated struct{ w *World }

func (simulated) Epoch() time.Time { return sim.Epoch }

func (r simulated) Cluster(s *sim.Scheduler, o kubesim.Options) (Cluster, error) {
	c, err := kubesim.New(s, o)
	if err != nil {
		return nil, err
	}
	c.OnHotLoop, c.OnForeignWrite, c.OnPanic = r.w.watch.hotLoop, r.w.watch.foreignWrite, r.w.watch.panicked
	return simulatedCluster{c}, nil
}

func (simulated) Run(s *sim.Scheduler, until time.Duration)         { s.Run(until) }
func (simulated) Clock(c clock.PassiveClock) clock.PassiveClock     { return c }
func (simulated) Steady(s wiring.Steady) wiring.Steady              { return s }
func (simulated) Hardware(_ Process, h hardware.Host) hardware.Host { return h }

func (simulated) Unseen() []string               { return nil }
func (simulated) Refused() []string              { return nil }
func (simulated) Caller(Process) func(fn func()) { return func(fn func()) { fn() } }
func (simulated) Over() bool                     { return false }

type simulatedCluster struct{ *kubesim.Cluster }

func (c simulatedCluster) Process(name string, o kubesim.ProcessOptions, onExit func(Process), setup func(manager.Manager) error) Process {
	o.OnExit = func(p *kubesim.Process, _ error) { onExit(p) }
	return c.Cluster.Process(name, o, setup)
}
