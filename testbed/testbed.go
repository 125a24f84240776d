// SPDX-License-Identifier: Apache-2.0

// Package testbed puts a fleet, an API, the operator and the agents together
// from one description, and watches that what must never happen does not.
//
// It owns the wiring of a world: which process runs where and what each may
// see; the actions and faults by which a scenario changes it; the view by which
// expectations look at it; and the invariants. It must never decide anything
// that the operator or an agent decides.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/agents/nova"
	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/config/crd"
	"github.com/adit-hv/adit/hardware/parse"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/sim"
)

// Options say how a world runs; they change nothing that a scenario means.
type Options struct {
	Seed     uint64
	Fidelity kubesim.Fidelity

	// Advance moves an outer clock along; see sim.Options.
	Advance func(time.Duration)

	// KeepNotes and OnNote are sim.Options'.
	KeepNotes bool
	OnNote    func(sim.Note)

	// EagerLeases writes each heartbeat, to prove that leaving them out
	// changes nothing else.
	EagerLeases bool

	// Runtime puts the world's programs on something else than simulation.
	Runtime Runtime

	// Crash, when its Process is set, kills that process at its n-th call.
	Crash Crash
}

// Crash names one instant at which a process dies: at its Nth call of the API
// or the hardware, before it is sent or after it took effect.
type Crash struct {
	Process string // "operator", "node/HOST" or "nova/HOST"
	Nth     int
	After   bool
}

// World is a fleet under its control plane. Its methods are called between
// events of its scheduler, never from a process within.
type World struct {
	Scheduler *sim.Scheduler
	Fleet     *hwsim.Fleet
	Cluster   Cluster

	spec       Spec
	options    Options
	runtime    Runtime
	user       client.WithWatch
	processes  map[string]Process // by name
	order      []string           // names of processes, sorted
	vms        map[string]*vm     // by name
	vmOrder    []string           // in order of creation
	byUUID     map[string]*vm
	created    map[string]int       // VMs made of each group
	calls      map[*sim.Task]func() // hardware calls under way, by the task that makes them
	ends       []func()             // of the faults that still last
	due        map[Process]bool     // to start once their hung host goes on
	networked  map[string][]Process // those of a host that reach the API over its management link
	offline    map[string]bool      // hosts whose management link does not carry
	partitions map[Process]int      // faults that cut a process off from the API
	ha         *highAvailability    // nil: a fleet without
	bare       map[string]bool      // hosts without a management controller
	watch      watch
}

// vm is a VM the world made, and when.
type vm struct {
	name, group, uuid string
	memory            uint64
	created           time.Duration
	running           time.Duration // first seen running; 0: not yet
	evacuated         int           // times it ran again after its host's end
	recovery          time.Duration // the last time, from the host's loss on
}

// New builds a world at virtual time zero: hosts up, operator and agents
// starting, the workload to come.
func New(spec Spec, o Options) (*World, error) {
	w := &World{
		spec:       spec,
		options:    o,
		processes:  map[string]Process{},
		vms:        map[string]*vm{},
		byUUID:     map[string]*vm{},
		created:    map[string]int{},
		calls:      map[*sim.Task]func(){},
		due:        map[Process]bool{},
		bare:       map[string]bool{},
		networked:  map[string][]Process{},
		offline:    map[string]bool{},
		partitions: map[Process]int{},
	}
	w.watch = newWatch(w)
	if w.runtime = o.Runtime; w.runtime == nil {
		w.runtime = simulated{w}
	}
	w.Scheduler = sim.New(sim.Options{Seed: o.Seed, Epoch: w.runtime.Epoch(), Advance: o.Advance, KeepNotes: o.KeepNotes, OnNote: o.OnNote})
	if err := w.buildAPI(); err != nil {
		return nil, err
	}
	if err := w.buildFleet(); err != nil {
		return nil, err
	}
	w.startOperator()
	if spec.HA != nil {
		if err := w.startHA(); err != nil {
			return nil, err
		}
	}
	for _, h := range w.Fleet.Hosts() {
		w.startAgents(h)
	}
	w.Fleet.OnNetwork(func() {
		for _, h := range w.Fleet.Hosts() {
			w.network(h)
		}
	})
	w.scheduleWorkload()
	return w, nil
}

// parts are what all simulated APIs have in common: reading and compiling the
// CRDs takes longer than many a run.
type parts struct {
	scheme  *runtime.Scheme
	crds    []*apiextensionsv1.CustomResourceDefinition
	schemas *kubesim.Schemas
}

var commonParts = sync.OnceValues(func() (parts, error) {
	p := parts{scheme: runtime.NewScheme(), schemas: kubesim.NewSchemas()}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kvmv1.AddToScheme, kvmv1alpha1.AddToScheme, kubevirt.AddToScheme} {
		if err := add(p.scheme); err != nil {
			return p, err
		}
	}
	var err error
	if p.crds, err = crd.All(); err != nil {
		return p, fmt.Errorf("read CRDs: %w", err)
	}
	return p, nil
})

func (w *World) buildAPI() error {
	common, err := commonParts()
	if err != nil {
		return err
	}
	o := kubesim.Options{
		Scheme:             common.scheme,
		Fidelity:           w.options.Fidelity,
		CRDs:               common.crds,
		Schemas:            common.schemas,
		NamespacesOnDemand: true,
		EagerLeases:        w.options.EagerLeases || w.spec.API.EagerLeases,
		Owners:             owners.Table(),
		OnWrite:            w.watch.written,
	}
	if w.spec.API.Latency > 0 {
		o.Latency = around(w.spec.API.Latency)
	}
	if w.spec.API.Lag > 0 {
		o.CacheLag = around(w.spec.API.Lag)
	}
	if w.Cluster, err = w.runtime.Cluster(w.Scheduler, o); err != nil {
		return err
	}
	w.user = w.Cluster.Client("user")
	return nil
}

// around draws times whose median is m and whose 99th percentile is some ten
// times that, the shape of API latencies.
func around(m time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration {
		return time.Duration(float64(m) * math.Exp(r.NormFloat64()))
	}
}

func (w *World) buildFleet() error {
	w.Fleet = hwsim.New(w.Scheduler, hwsim.Options{Step: w.step, OnLedger: w.watch.ledger})
	for _, g := range w.spec.Hosts {
		for i := range g.Count {
			host := g.host(i)
			host.NoWatchdog = host.NoWatchdog || w.spec.HA != nil && w.spec.HA.NoWatchdog
			w.bare[host.Name] = host.NoBMC
			if _, err := w.Fleet.AddHost(host); err != nil {
				return err
			}
			if err := w.user.Create(context.Background(), g.node(i)); err != nil {
				return fmt.Errorf("create node %s: %w", g.hostName(i), err)
			}
		}
	}
	return w.Fleet.AddPool(hwsim.PoolSpec{Name: nova.SharedPool, Shared: true, NoLocks: w.spec.Storage.NoLocks, LockLease: w.spec.lockLease()})
}

// lockLease is how long a dead host's locks on disks stay. With HA it is short,
// as it is where storage is fenced by its own means.
func (s Spec) lockLease() time.Duration {
	switch {
	case s.Storage.LockLease > 0:
		return s.Storage.LockLease
	case s.HA != nil:
		return 10 * time.Second
	}
	return 60 * time.Second
}

func (g HostGroup) host(i int) hwsim.HostSpec {
	zone := g.Zone
	if zone == "" {
		zone = "a"
	}
	return hwsim.HostSpec{
		Name: g.hostName(i), Model: g.Model, Zone: zone, Rack: g.Rack, Feed: g.Feed, Switch: g.Switch,
		NoWatchdog: g.NoWatchdog, NoBMC: g.NoBMC, ClockSkew: g.Skew, Drift: g.Drift,
		CapabilitiesXML: g.Capabilities, OSRelease: g.OSRelease, DMI: g.DMI,
		MigrationBandwidth: g.MigrationBandwidth,
	}
}

// CheckModel says whether hwsim knows a model of host.
func CheckModel(model string) error {
	if model == "" || slices.Contains(hwsim.Models(), model) {
		return nil
	}
	return fmt.Errorf("%q is no model; the models are %v", model, hwsim.Models())
}

// CheckHosts says whether a group's hosts can be built, its captured inputs
// among them, and could take a VM.
func CheckHosts(g HostGroup) error {
	h, err := hwsim.New(sim.New(sim.Options{}), hwsim.Options{}).AddHost(g.host(0))
	if inner := errors.Unwrap(err); inner != nil {
		return inner // which host it is, is no news
	}
	if err != nil || g.Capabilities == nil {
		return err
	}
	c, err := parse.Capabilities(g.Capabilities)
	if err != nil {
		return fmt.Errorf("%s: %w", h.Name(), err)
	}
	for _, cell := range c.Cells {
		if cell.MemoryKiB > 0 {
			return nil
		}
	}
	return errors.New("capabilities XML: no host/topology/cells/cell has memory, so that no VM would fit: take the document of `virsh capabilities` whole")
}

func (g HostGroup) node(i int) *corev1.Node {
	name := g.hostName(i)
	zone := g.Zone
	if zone == "" {
		zone = "a"
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		kvmv1.LabelVirtDriver: "", kvmv1.LabelHostname: name, kvmv1.LabelMetalName: name, kvmv1.LabelZone: zone,
	}}}
	if g.Rack != "" {
		node.Labels[labelRack] = g.Rack
	}
	for _, k := range slices.Sorted(maps.Keys(g.Labels)) {
		node.Labels[k] = g.Labels[k]
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)}}
	return node
}

// labelRack is a Node's rack, a topology key for anti-affinity.
const labelRack = kvmv1.LabelBuildingBlock

// overcommit sets a host's ratios, as the person who runs the fleet does when
// the host has come.
func (w *World) overcommit(host string) {
	for _, g := range w.spec.Hosts {
		if len(g.Overcommit) == 0 || !slices.Contains(Spec{Hosts: []HostGroup{g}}.HostNames(), host) {
			continue
		}
		err := w.patch(&kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: host}}, func(o client.Object) {
			hv := o.(*kvmv1.Hypervisor)
			hv.Spec.Overcommit = map[kvmv1.ResourceName]float64{}
			for _, k := range slices.Sorted(maps.Keys(g.Overcommit)) {
				hv.Spec.Overcommit[kvmv1.ResourceName(k)] = g.Overcommit[k]
			}
		})
		if err != nil {
			w.watch.violate("testbed", fmt.Sprintf("overcommit %s: %v", host, err))
		}
	}
}

func (w *World) scheduleWorkload() {
	for _, g := range w.spec.VMs {
		for i := range g.Count {
			w.Scheduler.At(g.At+time.Duration(i)*g.Every, func() { w.createVM(g) })
		}
	}
}

// createVM makes the next VM of a group, its volume and its guest.
func (w *World) createVM(g VMGroup) {
	w.created[g.Name]++
	vmi := g.build(w.created[g.Name])
	uuid := kubevirt.DomainUUID(vmi)
	v := &vm{name: vmi.Name, group: g.Name, uuid: uuid, memory: g.Memory, created: w.Scheduler.Elapsed()}
	w.vms[v.name], w.byUUID[uuid] = v, v
	w.vmOrder = append(w.vmOrder, v.name)
	w.Fleet.SetGuest(uuid, g.Guest.model())
	volume := nova.VolumeName(Namespace, vmi.Name+"-root")
	if err := w.Fleet.AddVolume(volume, 20<<30); err != nil {
		w.watch.violate("testbed", fmt.Sprintf("add volume %s: %v", volume, err))
	}
	if err := w.user.Create(context.Background(), vmi); err != nil {
		w.watch.violate("testbed", fmt.Sprintf("create %s: %v", vmi.Name, err))
	}
}

func (g Guest) model() hwsim.Guest {
	m := hwsim.Guest{
		BootTime: g.Boot, UsedMemoryBytes: g.Used, DirtyBytesPerSecond: g.DirtyRate, WorkingSetBytes: g.WorkingSet,
		Agent: g.Agent, ShutdownAfter: g.Shutdown, IgnoresShutdown: g.Deaf,
	}
	if g.DirtyRate == 0 {
		m.DirtyBytesPerSecond = hwsim.DirtyNothing
	}
	return m
}

// Run plays the world until the virtual time until.
func (w *World) Run(until time.Duration) { w.runtime.Run(w.Scheduler, until) }

// Over says that the world ended before its time: what it shows means nothing.
func (w *World) Over() bool { return w.runtime.Over() }

// Close ends all processes. The world cannot be used afterwards.
func (w *World) Close() { w.Cluster.Close() }

// Created returns how many VMs were made so far.
func (w *World) Created() int { return len(w.vmOrder) }

// OnHost returns how many of the world's VMs have a QEMU on a host.
func (w *World) OnHost(host string) int { return len(w.watch.onHost[host]) }

// Hypervisor returns a host's Hypervisor as it is stored, or nil.
func (w *World) Hypervisor(host string) *kvmv1.Hypervisor {
	o, _ := w.Cluster.Lookup(kindHypervisor, client.ObjectKey{Name: host}).(*kvmv1.Hypervisor)
	return o
}

// Evacuations returns those of a host as they are stored, the oldest first.
func (w *World) Evacuations(host string) []kvmv1alpha1.Evacuation {
	var all []kvmv1alpha1.Evacuation
	w.Cluster.Each(kindEvacuation, func(o client.Object) {
		if e := o.(*kvmv1alpha1.Evacuation); e.Spec.Hypervisor == host {
			all = append(all, *e.DeepCopy())
		}
	})
	slices.SortStableFunc(all, func(a, b kvmv1alpha1.Evacuation) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return all
}
