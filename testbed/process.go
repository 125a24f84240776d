// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/agents/node"
	"github.com/adit-hv/adit/agents/nova"
	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/config/rbac"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/operator"
	"github.com/adit-hv/adit/operator/migration"
)

// agentNamespace holds the agents' Leases and the Migration records.
const agentNamespace = rbac.Namespace

// startOperator starts the operator's replicas. One alone needs no election.
func (w *World) startOperator() {
	replicas := w.spec.operators()
	for _, name := range replicas {
		o := kubesim.ProcessOptions{Role: "operator"}
		if len(replicas) > 1 {
			o.LeaderElection = agentNamespace + "/operator"
		}
		w.start(name, o, w.setupOperator)
	}
}

// operators returns the names of the operator's replicas.
func (s Spec) operators() []string {
	if s.Operator.Replicas <= 1 {
		return []string{"operator"}
	}
	var names []string
	for i := range s.Operator.Replicas {
		names = append(names, fmt.Sprintf("operator-%d", i))
	}
	return names
}

// Processes returns the names of all processes a world has: the operator, the HA
// service and the agents of each host.
func (s Spec) Processes() []string {
	names := append(s.operators(), s.replicas()...)
	for _, h := range s.HostNames() {
		for _, kind := range s.agentKinds() {
			names = append(names, kind+"/"+h)
		}
	}
	return names
}

// ProcessesSaid names processes, for an error.
func ProcessesSaid(names []string) string { return "the processes are " + shorten(names) }

// restartAfter is how soon a process that ended is started again, as a kubelet
// restarts a container at first.
const restartAfter = 5 * time.Second

// setupOperator sets the operator up as cmd/operator does.
func (w *World) setupOperator(mgr manager.Manager) error {
	o := w.spec.Operator
	floor := intstr.FromInt32(int32(max(1, o.Floor)))
	options := operator.Options{
		Clock: w.runtime.Clock(w.Scheduler), Namespace: agentNamespace, MinActive: &floor, Parallel: o.PerHost,
		Migration: migration.Options{
			PerFleet: o.Migrations, PerHost: o.PerHost, PerTarget: o.PerTarget,
			CompletionTimeoutPerGiB: o.CompletionPerGiB, ProgressTimeout: o.Progress,
			AllowAutoConverge: o.AutoConverge, AllowPostCopy: o.PostCopy, AllowWorkloadDisruption: o.WorkloadDisruption,
			UnschedulableTimeout: o.Unschedulable,
		},
	}
	if o.Bandwidth > 0 {
		options.Migration.Bandwidth = resource.NewQuantity(int64(o.Bandwidth), resource.BinarySI)
	}
	if w.spec.HA != nil {
		options.RestartsPerTarget, options.AllowYield = w.spec.HA.PerTarget, w.spec.HA.Yields
	}
	return operator.Setup(mgr, options)
}

// startAgents starts a host's agents and ties them to the host: they end when
// it goes down and start when it has booted.
func (w *World) startAgents(h *hwsim.Host) {
	host := h.Name()
	onHost, err := labels.NewRequirement(kubevirt.HostLabel(host), selection.Exists, nil)
	if err != nil {
		panic(err) // a host's name is checked when it is added
	}
	ownHypervisor := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", host)}
	nodeAgent := w.start("node/"+host, kubesim.ProcessOptions{
		Role: "agents/node", Host: host, Clock: h.Clock(),
		ByObject: node.ByObject(host),
	}, func(mgr manager.Manager) error {
		return node.Setup(mgr, node.Options{Host: host, Namespace: agentNamespace, Hardware: w.hardware(h, "node/"+host), Clock: w.runtime.Clock(h.Clock())})
	})
	novaAgent := w.start("nova/"+host, kubesim.ProcessOptions{
		Role: "agents/nova", Host: host, Clock: h.Clock(),
		ByObject: map[client.Object]cache.ByObject{
			&kubevirtv1.VirtualMachineInstance{}: {Label: labels.NewSelector().Add(*onHost)},
			&kvmv1.Hypervisor{}:                  ownHypervisor,
		},
	}, func(mgr manager.Manager) error {
		return nova.Setup(mgr, nova.Options{Host: host, Hardware: w.hardware(h, "nova/"+host), Clock: w.runtime.Clock(h.Clock()), NeedPermit: w.spec.HA != nil})
	})
	agents := []Process{nodeAgent, novaAgent}
	if w.spec.HA != nil {
		agents = append(agents, w.startHAAgent(h))
		h.OnDown(func() { w.watch.hostFell(host) })
		h.OnHang(func(hung bool) {
			if hung {
				w.watch.hostFell(host)
			}
		})
	}
	w.networked[host] = []Process{nodeAgent, novaAgent}
	h.OnBoot(func() { w.network(h) })
	for _, p := range agents {
		h.OnDown(p.Crash)
		h.OnBoot(p.Start)
		h.OnHang(func(hung bool) {
			if hung {
				p.Pause()
			} else {
				p.Resume()
				if w.due[p] {
					delete(w.due, p)
					w.startIfUp(p)
				}
			}
		})
	}
}

// hardware is a host's hardware, as a process of that name on it has it.
func (w *World) hardware(h *hwsim.Host, process string) hardware.Host {
	return w.runtime.Hardware(w.processes[process], h.Hardware(process))
}

func (w *World) start(name string, o kubesim.ProcessOptions, setup func(manager.Manager) error) Process {
	onExit := func(p Process) { w.Scheduler.After(restartAfter, func() { w.startIfUp(p) }) }
	p := w.Cluster.Process(name, o, onExit, setup)
	w.processes[name] = p
	w.order = append(w.order, name)
	if c := w.options.Crash; c.Process == name && c.Nth > 0 {
		moment := kubesim.Before
		if c.After {
			moment = kubesim.After
		}
		p.CrashAt(c.Nth, moment)
	}
	p.Start()
	return p
}

// network parts a host's agents from the API while its management link does not
// carry both ways. Nothing goes over a link in one direction for long: what is
// not acknowledged is sent again and again.
func (w *World) network(h *hwsim.Host) {
	there := w.Fleet.Reaches(h.Name(), hwsim.Outside, hwsim.LinkManagement) && w.Fleet.Reaches(hwsim.Outside, h.Name(), hwsim.LinkManagement)
	if there == !w.offline[h.Name()] {
		return
	}
	w.offline[h.Name()] = !there
	for _, p := range w.networked[h.Name()] {
		w.partition(p, !there)
	}
}

// partition cuts a process off from the API, or heals that, as often as it was
// cut off.
func (w *World) partition(p Process, cut bool) {
	if cut {
		w.partitions[p]++
	} else {
		w.partitions[p]--
	}
	p.Partition(w.partitions[p] > 0)
}

// Process returns the process of that name, or nil.
func (w *World) Process(name string) Process { return w.processes[name] }

// Processes returns the names of all processes.
func (w *World) Processes() []string { return w.order }

// step is called for each call of the hardware: it is an instant at which the
// calling process may die, as each call of the API is.
func (w *World) step(c hwsim.Call) error {
	p, task := w.processes[c.Who], w.Scheduler.Current()
	if p == nil || task == nil {
		return nil
	}
	if !c.After {
		w.calls[task] = p.Step(c.Name)
	} else if done := w.calls[task]; done != nil {
		delete(w.calls, task)
		done()
	}
	return nil
}

// agents returns the agent processes of hosts, of one kind or of all.
func (w *World) agents(hosts []string, kind string) []Process {
	var out []Process
	for _, h := range hosts {
		for _, k := range w.spec.agentKinds() {
			if kind == "" || kind == k {
				out = append(out, w.processes[k+"/"+h])
			}
		}
	}
	return out
}

func (w *World) operators() []Process {
	var out []Process
	for _, name := range w.order {
		if strings.HasPrefix(name, "operator") {
			out = append(out, w.processes[name])
		}
	}
	return out
}
