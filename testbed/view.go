// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hwsim"
)

// The variables of an expectation: lists of rows, the same rows by name, numbers
// and whole numbers.
var (
	ViewLists   = []string{"vms", "hosts", "migrations", "evictions", "evacuations", "records"}
	ViewMaps    = []string{"vm", "host", "eviction", "evacuation"}
	ViewNumbers = []string{"now", "writes"}
	ViewCounts  = []string{"fences", "proofs"}
)

// ViewHelp describes the rows, for --help and the documentation.
var ViewHelp = [][2]string{
	{"vm.name, vm.group", "its name and its workload group"},
	{"vm.phase, vm.reason, vm.host", "status of its VMI: phase, reason, nodeName"},
	{"vm.ready, vm.readyReason", "its condition Ready"},
	{"vm.paused, vm.migratable, vm.placeable", "its conditions Paused, LiveMigratable and PodScheduled"},
	{"vm.message", "what the conditions that are not well say"},
	{"vm.power", "the power state wanted: Running, Paused or Stopped"},
	{"vm.running", "truth: exactly one copy runs, or stands still for its switch-over; paused ones do not run"},
	{"vm.on", "truth: the hosts on which a copy runs"},
	{"vm.copies", "truth: the hosts on which it has a QEMU, running or not"},
	{"vm.origin", "truth: the host it first ran on"},
	{"vm.moves, vm.starts", "truth: migrations that succeeded, and boots"},
	{"vm.protected", "whether it was placed as a VM that is restarted after a failure"},
	{"vm.evacuated, vm.recovery", "truth: times it ran again after its host's end; seconds from the host's loss until it did, the last time"},
	{"vm.migration", "the phase of its latest VMIM, or \"\""},
	{"host.name, host.zone, host.rack, host.up", "a host; up: powered, booted and not hung"},
	{"host.vms, host.domains", "truth: VMs that run there, and QEMUs there are"},
	{"host.instances, host.ids", "its Hypervisor: numInstances, and the names in instances"},
	{"host.ready, host.readyReason, host.readyMessage", "its Hypervisor's condition Ready"},
	{"host.libvirt, host.libvirtReason", "its condition LibVirtConnection"},
	{"host.disabled, host.disabledReason, host.disabledMessage", "its condition HypervisorDisabled"},
	{"host.evicting, host.evictingReason, host.evictingMessage, host.evicted", "its maintenance"},
	{"host.maintenance, host.identity, host.version, host.serial", "spec.maintenance, IdentityConfirmed, OS version, hardware serial"},
	{"host.cpus, host.memory", "capabilities: CPUs and bytes"},
	{"host.allocated, host.capacity", "bytes of memory allocated and there"},
	{"host.alive, host.aliveMessage", "its condition HostAlive: the reason, which is its state, and the message"},
	{"host.ha, host.haReason", "its condition HaEnabled"},
	{"host.fences, host.offs", "truth: Evacuations made of it; times its power went, by a fault or by its controller"},
	{"migration.name, migration.vm, migration.phase, migration.reason", "a VMIM"},
	{"migration.source, migration.target, migration.eviction", "its hosts, and the Eviction that asked"},
	{"eviction.host, eviction.state, eviction.message", "an Eviction and its condition Evicting"},
	{"eviction.total, eviction.moved, eviction.failed, eviction.running", "its progress"},
	{"eviction.waiting, eviction.stuck, eviction.would, eviction.dryRun", "names of VMs that wait, cannot move, would move"},
	{"evacuation.name, evacuation.host, evacuation.phase, evacuation.proof, evacuation.message", "an Evacuation: what is done about a host that failed"},
	{"evacuation.total, evacuation.running, evacuation.waiting, evacuation.ended, evacuation.orders", "its VMs; orders to switch the host off"},
	{"evacuation.vms", "its VMs as NAME STATE TARGET: MESSAGE, in the order in which they are restarted"},
	{"record.vm, record.name, record.type, record.operation, record.origin, record.destination, record.error", "a Migration record"},
	{"now, writes", "virtual seconds; API writes so far, heartbeats left out"},
	{"fences, proofs", "Evacuations made so far, and proofs found"},
}

// View returns the state of the world, as expectations see it: what the API
// says beside what is true.
func (w *World) View() map[string]any {
	vmims := w.rowsOfMigrations()
	vms, vm := w.rowsOfVMs(vmims)
	hosts, host := w.rowsOfHosts()
	evictions, eviction := w.rowsOfEvictions()
	evacuations, evacuation := w.rowsOfEvacuations()
	return map[string]any{
		"vms": vms, "vm": vm, "hosts": hosts, "host": host, "migrations": vmims,
		"evictions": evictions, "eviction": eviction, "evacuations": evacuations, "evacuation": evacuation, "records": w.rowsOfRecords(),
		"now": w.Scheduler.Elapsed().Seconds(), "writes": float64(w.watch.writes), "fences": w.watch.fenced(), "proofs": w.watch.proofs,
	}
}

type row = map[string]any

func (w *World) rowsOfMigrations() []row {
	rows := []row{}
	w.Cluster.Each(kindVMIM, func(o client.Object) {
		m := o.(*kubevirtv1.VirtualMachineInstanceMigration)
		r := row{
			"name": m.Name, "vm": m.Spec.VMIName, "phase": string(m.Status.Phase), "eviction": m.Labels[kubevirt.LabelEviction],
			"reason": "", "source": "", "target": "", "created": m.CreationTimestamp.Unix(),
		}
		if s := m.Status.MigrationState; s != nil {
			r["reason"], r["source"], r["target"] = s.FailureReason, s.SourceNode, s.TargetNode
		}
		rows = append(rows, r)
	})
	slices.SortStableFunc(rows, func(a, b row) int { return int(a["created"].(int64) - b["created"].(int64)) })
	return rows
}

func (w *World) rowsOfVMs(vmims []row) ([]row, map[string]any) {
	latest := map[string]string{}
	for _, m := range vmims {
		latest[m["vm"].(string)] = m["phase"].(string)
	}
	copies := map[string][]string{}
	for _, c := range w.Fleet.Ledger().Copies() {
		copies[c.VM] = append(copies[c.VM], c.Host)
	}
	switching := w.switching()
	rows, byName := []row{}, map[string]any{}
	w.Cluster.Each(kindVMI, func(o client.Object) {
		vmi := o.(*kubevirtv1.VirtualMachineInstance)
		v := w.vms[vmi.Name]
		if v == nil {
			return
		}
		on := w.Fleet.Ledger().Running(v.uuid)
		r := row{
			"name": v.name, "group": v.group, "phase": string(vmi.Status.Phase), "reason": vmi.Status.Reason, "host": vmi.Status.NodeName,
			"power": string(kubevirt.WantedPowerState(vmi)), "running": len(on) == 1 || len(on) == 0 && switching[v.uuid], "on": list(on), "copies": list(copies[v.uuid]),
			"origin": w.watch.firstHost[v.uuid], "moves": w.watch.moves[v.uuid], "starts": w.watch.starts[v.uuid], "migration": latest[v.name], "deleting": vmi.DeletionTimestamp != nil,
			"ready": false, "readyReason": "", "paused": false, "migratable": false, "placeable": true, "message": "",
			"protected": kubevirt.Protected(vmi), "evacuated": v.evacuated, "recovery": int64((v.recovery + time.Second - 1) / time.Second),
		}
		var messages []string
		for _, c := range vmi.Status.Conditions {
			yes := c.Status == "True"
			switch c.Type {
			case kubevirtv1.VirtualMachineInstanceReady:
				r["ready"], r["readyReason"] = yes, c.Reason
			case kubevirtv1.VirtualMachineInstancePaused:
				r["paused"] = yes
			case kubevirtv1.VirtualMachineInstanceIsMigratable:
				r["migratable"] = yes
			case "PodScheduled":
				r["placeable"] = yes
			}
			if !yes && c.Message != "" {
				messages = append(messages, string(c.Type)+": "+c.Message)
			}
		}
		r["message"] = strings.Join(messages, "; ")
		rows = append(rows, r)
		byName[v.name] = r
	})
	return rows, byName
}

// blackout is the longest pause of a VM between two hosts that still counts as
// running; what lasts longer is no switch-over.
const blackout = 3 * time.Second

// switching returns the VMs that stand still for their switch-over just now.
func (w *World) switching() map[string]bool {
	out := map[string]bool{}
	for _, m := range w.Fleet.Ledger().Migrations() {
		if m.End == 0 && m.Switch > 0 && w.now()-m.Switch < blackout {
			out[m.VM] = true
		}
	}
	return out
}

func (w *World) rowsOfHosts() ([]row, map[string]any) {
	running, domains := map[string]int{}, map[string]int{}
	for _, c := range w.Fleet.Ledger().Copies() {
		domains[c.Host]++
		if c.State == hwsim.CopyRunning {
			running[c.Host]++
		}
	}
	rows, byName := []row{}, map[string]any{}
	for _, h := range w.Fleet.Hosts() {
		r := row{
			"name": h.Name(), "zone": h.Zone(), "rack": h.Rack(), "up": h.State() == hwsim.HostUp, "vms": running[h.Name()], "domains": domains[h.Name()],
			"instances": 0, "ids": list(nil), "ready": false, "readyReason": "", "readyMessage": "", "libvirt": false, "libvirtReason": "",
			"disabled": false, "disabledReason": "", "disabledMessage": "", "evicting": false, "evictingReason": "", "evictingMessage": "", "evicted": false, "maintenance": "", "identity": true,
			"version": "", "serial": "", "cpus": int64(0), "memory": int64(0), "allocated": int64(0), "capacity": int64(0), "known": false,
			"alive": "", "aliveMessage": "", "ha": false, "haReason": "", "fences": w.watch.fences[h.Name()], "offs": timesOff(h),
		}
		if o, _ := w.Cluster.Lookup(kindHypervisor, client.ObjectKey{Name: h.Name()}).(*kvmv1.Hypervisor); o != nil {
			describe(r, o)
		}
		rows = append(rows, r)
		byName[h.Name()] = r
	}
	return rows, byName
}

func describe(r row, hv *kvmv1.Hypervisor) {
	is := func(condition string) (bool, string, string) {
		if c := meta.FindStatusCondition(hv.Status.Conditions, condition); c != nil {
			return c.Status == metav1.ConditionTrue, c.Reason, c.Message
		}
		return false, "", ""
	}
	r["known"] = true
	r["ready"], r["readyReason"], r["readyMessage"] = is(kvmv1.ConditionReady)
	r["libvirt"], r["libvirtReason"], _ = is(kvmv1.ConditionLibVirtConnection)
	r["disabled"], r["disabledReason"], r["disabledMessage"] = is(kvmv1.ConditionHypervisorDisabled)
	r["evicting"], r["evictingReason"], r["evictingMessage"] = is(kvmv1.ConditionEvicting)
	_, r["alive"], r["aliveMessage"] = is(kvmv1.ConditionHostAlive)
	r["ha"], r["haReason"], _ = is(kvmv1.ConditionHaEnabled)
	r["identity"] = !meta.IsStatusConditionFalse(hv.Status.Conditions, "IdentityConfirmed")
	r["evicted"], r["maintenance"], r["instances"] = hv.Status.Evicted, string(hv.Spec.Maintenance), hv.Status.NumInstances
	var ids []string
	for _, i := range hv.Status.Instances {
		ids = append(ids, i.Name)
	}
	r["ids"] = list(ids)
	r["version"], r["serial"] = hv.Status.OperatingSystem.Version, hv.Status.OperatingSystem.HardwareSerial
	r["cpus"], r["memory"] = hv.Status.Capabilities.HostCPUs.Value(), hv.Status.Capabilities.HostMemory.Value()
	allocated, capacity := hv.Status.Allocation[kvmv1.ResourceMemory], hv.Status.Capacity[kvmv1.ResourceMemory]
	r["allocated"], r["capacity"] = allocated.Value(), capacity.Value()
}

func (w *World) rowsOfEvictions() ([]row, map[string]any) {
	rows, byName := []row{}, map[string]any{}
	w.Cluster.Each(kindEviction, func(o client.Object) {
		e := o.(*kvmv1.Eviction)
		r := row{
			"name": e.Name, "host": e.Spec.Hypervisor, "dryRun": e.Spec.DryRun, "state": "", "message": "",
			"total": e.Status.Total, "moved": e.Status.Moved, "failed": e.Status.Failed, "running": e.Status.Running,
		}
		if c := meta.FindStatusCondition(e.Status.Conditions, kvmv1.ConditionEvicting); c != nil {
			r["state"], r["message"] = c.Reason, c.Message
		}
		var waiting, stuck, would []string
		for _, i := range e.Status.Instances {
			switch i.State {
			case kvmv1.EvictionInstanceWaiting, kvmv1.EvictionInstanceMoving:
				waiting = append(waiting, i.Name)
			case kvmv1.EvictionInstanceBlocked, kvmv1.EvictionInstanceCannotMove, kvmv1.EvictionInstanceFailed:
				stuck = append(stuck, i.Name+": "+i.Reason+": "+i.Message)
			case kvmv1.EvictionInstanceWouldMove:
				would = append(would, i.Name+" to "+i.Destination)
			}
		}
		r["waiting"], r["stuck"], r["would"] = list(waiting), list(stuck), list(would)
		rows = append(rows, r)
		byName[e.Name] = r
	})
	return rows, byName
}

// rowsOfEvacuations are all Evacuations, the oldest first, and the latest of each
// host.
func (w *World) rowsOfEvacuations() ([]row, map[string]any) {
	var all []*kvmv1alpha1.Evacuation
	w.Cluster.Each(kindEvacuation, func(o client.Object) { all = append(all, o.(*kvmv1alpha1.Evacuation)) })
	slices.SortStableFunc(all, func(a, b *kvmv1alpha1.Evacuation) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	rows, byHost := []row{}, map[string]any{}
	for _, e := range all {
		r := row{
			"name": e.Name, "host": e.Spec.Hypervisor, "phase": string(e.Status.Phase), "proof": "", "message": e.Status.Message,
			"total": int32(0), "running": int32(0), "waiting": int32(0), "ended": int32(0), "orders": int32(0), "vms": list(nil),
		}
		if p := e.Status.Proof; p != nil {
			r["proof"] = string(p.Kind)
		}
		if s := e.Status.Summary; s != nil {
			r["total"], r["running"], r["waiting"], r["ended"] = s.Total, s.Running, s.Waiting, s.Ended
		}
		if p := e.Status.Power; p != nil {
			r["orders"] = p.Attempts
		}
		var vms []string
		for _, v := range e.Status.VMs {
			vms = append(vms, v.Name+" "+v.State+" "+v.Target+": "+v.Message)
		}
		r["vms"] = list(vms)
		rows = append(rows, r)
		byHost[e.Spec.Hypervisor] = r
	}
	return rows, byHost
}

// timesOff counts how often a host's power went.
func timesOff(h *hwsim.Host) (n int) {
	for _, c := range h.PowerLog() {
		if !c.On {
			n++
		}
	}
	return n
}

func (w *World) rowsOfRecords() []row {
	rows := []row{}
	w.Cluster.Each(kindRecord, func(o client.Object) {
		m := o.(*kvmv1alpha1.Migration)
		uuid, _, _ := strings.Cut(m.Name, ".")
		name := ""
		if v := w.byUUID[uuid]; v != nil {
			name = v.name
		}
		rows = append(rows, row{
			"name": m.Name, "vm": name, "type": m.Status.Type, "operation": m.Status.Operation, "origin": m.Status.Origin,
			"destination": m.Status.Destination, "error": m.Status.ErrMsg, "elapsed": m.Status.TimeElapsed, "downtime": m.Status.Downtime,
		})
	})
	return rows
}

// list is a list CEL takes, also when it is empty.
func list(in []string) []string {
	if in == nil {
		return []string{}
	}
	return in
}
