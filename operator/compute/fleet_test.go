// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/operator/maintenance"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newTestFleet() (*Fleet, *clocktesting.FakePassiveClock) {
	c := clocktesting.NewFakePassiveClock(start)
	return NewFleet(c), c
}

const gib = int64(1) << 30

func amount(cpus, memoryGiB int64) map[kvmv1.ResourceName]resource.Quantity {
	return map[kvmv1.ResourceName]resource.Quantity{
		kvmv1.ResourceCPU:    *resource.NewQuantity(cpus, resource.DecimalSI),
		kvmv1.ResourceMemory: *resource.NewQuantity(memoryGiB*gib, resource.BinarySI),
	}
}

type hostOption func(*kvmv1.Hypervisor)

func hypervisor(name string, cpus, memoryGiB int64, options ...hostOption) *kvmv1.Hypervisor {
	hv := &kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{
		Name: name, ResourceVersion: "1", Labels: map[string]string{kvmv1.LabelHostname: name},
	}}
	hv.Status.EffectiveCapacity = amount(cpus, memoryGiB)
	hv.Status.Conditions = []metav1.Condition{{Type: kvmv1.ConditionReady, Status: metav1.ConditionTrue}}
	hv.Status.DomainCapabilities = kvmv1.DomainCapabilities{
		Arch: "x86_64", HypervisorType: "QEMU", SupportedCPUModes: []string{"mode/host-model", "mode/host-passthrough"},
	}
	for _, option := range options {
		option(hv)
	}
	return hv
}

func alive(status metav1.ConditionStatus) hostOption {
	return func(hv *kvmv1.Hypervisor) {
		hv.Status.Conditions = append(hv.Status.Conditions, metav1.Condition{Type: kvmv1.ConditionHostAlive, Status: status})
	}
}
func inZone(zone string) hostOption {
	return func(hv *kvmv1.Hypervisor) { hv.Labels[kvmv1.LabelZone] = zone }
}
func inMaintenanceBy(m kvmv1.Maintenance) hostOption {
	return func(hv *kvmv1.Hypervisor) { hv.Spec.Maintenance = m }
}
func waits(hv *kvmv1.Hypervisor) {
	hv.Status.Conditions = append(hv.Status.Conditions, metav1.Condition{Type: kvmv1.ConditionHypervisorDisabled, Status: metav1.ConditionFalse, Reason: maintenance.ReasonWaiting})
}
func isUnready(hv *kvmv1.Hypervisor) { hv.Status.Conditions[0].Status = metav1.ConditionFalse }
func withModes(modes ...string) hostOption {
	return func(hv *kvmv1.Hypervisor) { hv.Status.DomainCapabilities.SupportedCPUModes = modes }
}
func withTraits(traits ...string) hostOption {
	return func(hv *kvmv1.Hypervisor) { hv.Status.Traits = traits }
}
func withCells(memoryGiB ...int64) hostOption {
	return func(hv *kvmv1.Hypervisor) {
		for i, memory := range memoryGiB {
			hv.Status.Cells = append(hv.Status.Cells, kvmv1.Cell{
				CellID: uint64(i), Capacity: amount(8, memory), Allocation: amount(0, 0),
			})
		}
	}
}
func reporting(cpus, memoryGiB int64, domains ...string) hostOption {
	return func(hv *kvmv1.Hypervisor) {
		hv.Status.Allocation = amount(cpus, memoryGiB)
		hv.Status.Instances = nil
		for _, id := range domains {
			hv.Status.Instances = append(hv.Status.Instances, kvmv1.Instance{ID: id, Active: true})
		}
	}
}
func atVersion(version string) hostOption {
	return func(hv *kvmv1.Hypervisor) { hv.ResourceVersion = version }
}

type vmOption func(*kubevirtv1.VirtualMachineInstance)

func instance(name string, cpus, memoryGiB int64, options ...vmOption) *kubevirtv1.VirtualMachineInstance {
	memory := resource.NewQuantity(memoryGiB*gib, resource.BinarySI)
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
		CreationTimestamp: metav1.NewTime(start),
	}}
	vmi.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: uint32(cpus), Sockets: 1, Threads: 1}
	vmi.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: memory}
	for _, option := range options {
		option(vmi)
	}
	return vmi
}

func labelled(key, value string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		if vmi.Labels == nil {
			vmi.Labels = map[string]string{}
		}
		vmi.Labels[key] = value
	}
}
func onCell(vmi *kubevirtv1.VirtualMachineInstance) {
	vmi.Spec.Domain.CPU.NUMA = &kubevirtv1.NUMA{GuestMappingPassthrough: &kubevirtv1.NUMAGuestMappingPassthrough{}}
}
func wantingTraits(traits string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Annotations = map[string]string{kubevirt.AnnotationRequiredTraits: traits}
	}
}
func selecting(key, value string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Spec.NodeSelector = map[string]string{key: value} }
}
func podTerm(topology, key, value string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{
		TopologyKey: topology, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}},
	}
}
func apartFrom(topology, key, value string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{podTerm(topology, key, value)},
		}}
	}
}
func ratherApartFrom(topology, key, value string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: podTerm(topology, key, value)}},
		}}
	}
}
func togetherWith(topology, key, value string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{podTerm(topology, key, value)},
		}}
	}
}

// placedOn is the VMI as the API holds it once it is placed.
func placedOn(vmi *kubevirtv1.VirtualMachineInstance, host, version string) *kubevirtv1.VirtualMachineInstance {
	vmi = vmi.DeepCopy()
	place(vmi, host, 1)
	vmi.Status.Phase = kubevirtv1.Scheduled
	vmi.ResourceVersion = version
	return vmi
}

func TestPlace(t *testing.T) {
	tests := []struct {
		name  string
		hosts []*kvmv1.Hypervisor
		there map[string][]*kubevirtv1.VirtualMachineInstance
		ask   Request
		want  string
		why   string
	}{
		{
			name:  "says how many hosts each filter refused, most first",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 4), hypervisor("b", 8, 4), hypervisor("c", 8, 64, inMaintenanceBy("manual")), hypervisor("d", 8, 64, isUnready)},
			ask:   Request{VM: instance("v", 2, 8)},
			why:   "0/4 hosts: 2 not enough memory, 1 in maintenance, 1 not ready",
		},
		{
			name:  "takes a host whose maintenance waits for its turn, and none whose own is the HA service's",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 64, inMaintenanceBy("manual"), waits), hypervisor("b", 8, 64, inMaintenanceBy("ha"), waits)},
			ask:   Request{VM: instance("v", 2, 8)}, want: "a",
		},
		{
			name:  "takes no host that the HA service does not hear, and any of which it does not speak",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 64, alive(metav1.ConditionUnknown)), hypervisor("b", 8, 64, alive(metav1.ConditionFalse)), hypervisor("c", 8, 64, alive(metav1.ConditionTrue), withTraits("CUSTOM_C")), hypervisor("d", 8, 4)},
			ask:   Request{VM: instance("v", 2, 8, wantingTraits("CUSTOM_X"))}, why: "0/4 hosts: 2 not heard of, 2 required traits",
		},
		{name: "says that there is no host", ask: Request{VM: instance("v", 1, 1)}, why: "0/0 hosts: there is no hypervisor"},
		{
			name:  "takes the emptiest host",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 16, 64), hypervisor("b", 16, 64)},
			there: map[string][]*kubevirtv1.VirtualMachineInstance{"a": {instance("x", 4, 16)}},
			ask:   Request{VM: instance("v", 2, 8)}, want: "b",
		},
		{
			name:  "counts CPUs as well as memory",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 2, 64)},
			ask:   Request{VM: instance("v", 4, 1)}, why: "0/1 hosts: 1 not enough CPU",
		},
		{
			name:  "counts what the host holds and we do not know",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 16, 16, reporting(4, 12, "foreign"))},
			ask:   Request{VM: instance("v", 1, 8)}, why: "0/1 hosts: 1 not enough memory",
		},
		{
			name: "counts a VM that its host reports once",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 16, 16,
				reporting(1, 8, kubevirt.DomainUUID(instance("x", 1, 8))))},
			there: map[string][]*kubevirtv1.VirtualMachineInstance{"a": {instance("x", 1, 8)}},
			ask:   Request{VM: instance("v", 1, 8)}, want: "a",
		},
		{
			name: "counts a VM not yet reported beside a foreign domain that is",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 16, 16,
				reporting(1, 6, "foreign"))},
			there: map[string][]*kubevirtv1.VirtualMachineInstance{"a": {instance("x", 1, 6)}},
			ask:   Request{VM: instance("v", 1, 6)}, why: "0/1 hosts: 1 not enough memory",
		},
		{
			name:  "honours a node selector",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 8, inZone("z1")), hypervisor("b", 8, 8, inZone("z2"))},
			ask:   Request{VM: instance("v", 1, 1, selecting(kvmv1.LabelZone, "z2"))}, want: "b",
		},
		{
			name:  "an added selector restricts and does not override the VM's own",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 8, inZone("z1")), hypervisor("b", 8, 8, inZone("z2"))},
			ask: Request{VM: instance("v", 1, 1, selecting(kvmv1.LabelZone, "z2")),
				NodeSelector: map[string]string{kvmv1.LabelZone: "z1", kvmv1.LabelHostname: "b"}},
			want: "b",
		},
		{
			name:  "honours required traits",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 8), hypervisor("b", 8, 8, withTraits("CUSTOM_B", "CUSTOM_A"))},
			ask:   Request{VM: instance("v", 1, 1, wantingTraits("CUSTOM_A, CUSTOM_B"))}, want: "b",
		},
		{
			name:  "a host reserved for a project takes no others",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 8, func(hv *kvmv1.Hypervisor) { hv.Spec.AllowedProjects = []string{"p"} })},
			ask:   Request{VM: instance("v", 1, 1)}, why: "0/1 hosts: 1 reserved for other projects",
		},
		{
			name:  "a VM that needs a cell fits no two halves, nor a cell without memory (NA-01)",
			hosts: []*kvmv1.Hypervisor{hypervisor("b", 32, 125, withCells(62, 0, 62, 0))},
			there: map[string][]*kubevirtv1.VirtualMachineInstance{"b": {instance("x", 2, 40, onCell), instance("y", 2, 40, onCell)}},
			ask:   Request{VM: instance("v", 2, 40, onCell)}, why: "0/1 hosts: 1 no NUMA cell that fits",
		},
		{
			name:  "memory-less cells do not keep other VMs away (NA-01)",
			hosts: []*kvmv1.Hypervisor{hypervisor("b", 32, 125, withCells(62, 0, 62, 0))},
			ask:   Request{VM: instance("v", 2, 40, onCell)}, want: "b",
		},
		{
			name: "dedicated CPUs are not overcommitted",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 64, 64, withCells(64), func(hv *kvmv1.Hypervisor) {
				hv.Status.Cells[0].EffectiveCapacity = amount(64, 64)
			})},
			ask: Request{VM: instance("v", 12, 1, func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Spec.Domain.CPU.DedicatedCPUPlacement = true })},
			why: "0/1 hosts: 1 no NUMA cell that fits",
		},
		{
			name:  "a live VM goes only where all of its source's CPU is",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 8, withModes("m1", "m2")), hypervisor("b", 8, 8, withModes("m1")), hypervisor("c", 8, 8, withModes("m1", "m2", "m3"))},
			ask:   Request{VM: placedOn(instance("v", 1, 1), "a", "2"), Source: "a"}, want: "c",
		},
		{
			name:  "a stopped VM does not care for its source's CPU",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 8, withModes("m1", "m2")), hypervisor("b", 8, 8, withModes("m1"))},
			ask:   Request{VM: placedOn(instance("v", 1, 1), "a", "2"), Source: "a", Cold: true}, want: "b",
		},
		{
			name:  "keeps apart what wants to be apart",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 99, 99, inZone("z1")), hypervisor("b", 8, 8, inZone("z1")), hypervisor("c", 8, 8, inZone("z2"))},
			there: map[string][]*kubevirtv1.VirtualMachineInstance{"b": {instance("x", 1, 1, labelled("app", "db"))}},
			ask:   Request{VM: instance("v", 1, 1, apartFrom(kvmv1.LabelZone, "app", "db"))}, want: "c",
		},
		{
			name:  "keeps away from a VM that wants it away",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 8)},
			there: map[string][]*kubevirtv1.VirtualMachineInstance{"a": {instance("x", 1, 1, apartFrom(kvmv1.LabelHostname, "app", "web"))}},
			ask:   Request{VM: instance("v", 1, 1, labelled("app", "web"))}, why: "0/1 hosts: 1 VM anti-affinity",
		},
		{
			name:  "a VM is no neighbour of itself: it may move within its zone",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 8, inZone("z1")), hypervisor("b", 8, 8, inZone("z1"))},
			ask:   Request{VM: placedOn(instance("v", 1, 1, labelled("app", "db"), apartFrom(kvmv1.LabelZone, "app", "db")), "a", "2"), Source: "a"},
			want:  "b",
		},
		{
			name:  "puts together what wants to be together",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 99, 99), hypervisor("b", 8, 8)},
			there: map[string][]*kubevirtv1.VirtualMachineInstance{"b": {instance("x", 1, 1, labelled("app", "db"))}},
			ask:   Request{VM: instance("v", 1, 1, togetherWith(kvmv1.LabelHostname, "app", "db"))}, want: "b",
		},
		{
			name:  "the first of those that want to be together goes anywhere",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 8)},
			ask:   Request{VM: instance("v", 1, 1, labelled("app", "db"), togetherWith(kvmv1.LabelHostname, "app", "db"))}, want: "a",
		},
		{
			name:  "a preference outweighs room, and does not forbid",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 99, 99), hypervisor("b", 8, 8)},
			there: map[string][]*kubevirtv1.VirtualMachineInstance{"a": {instance("x", 1, 1, labelled("app", "db"))}},
			ask:   Request{VM: instance("v", 1, 1, ratherApartFrom(kvmv1.LabelHostname, "app", "db"))}, want: "b",
		},
		{
			name:  "what it cannot judge it does not ignore",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 8)},
			ask: Request{VM: instance("v", 1, 1, func(vmi *kubevirtv1.VirtualMachineInstance) {
				apartFrom("t", "app", "db")(vmi)
				vmi.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector =
					&metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			})},
			why: "affinity namespaceSelector: not supported: name the namespaces, or leave it empty for all",
		},
		{
			name:  "leaves out what it is told to",
			hosts: []*kvmv1.Hypervisor{hypervisor("a", 8, 8)},
			ask:   Request{VM: instance("v", 1, 1), Exclude: []string{"a"}}, why: "0/1 hosts: 1 refused it lately",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := newTestFleet()
			for _, hv := range tt.hosts {
				f.ObserveHost(hv)
			}
			for host, list := range tt.there {
				for _, vmi := range list {
					f.Observe(placedOn(vmi, host, "2"))
				}
			}
			host, why := f.Place(tt.ask)
			if host != tt.want {
				t.Errorf("host = %q (%s), want %q", host, why, tt.want)
			}
			if host == "" && why.String() != tt.why {
				t.Errorf("why = %q, want %q", why, tt.why)
			}
		})
	}
}

func TestAssumptions(t *testing.T) {
	one := func(t *testing.T) *Fleet {
		f, _ := newTestFleet()
		f.ObserveHost(hypervisor("a", 8, 8))
		return f
	}
	other := Request{VM: instance("other", 1, 8)}
	mine := instance("v", 1, 8)
	takes := func(t *testing.T, f *Fleet, want bool) {
		t.Helper()
		host, _ := f.Place(other)
		if (host != "") != want {
			t.Errorf("room for another: %t, want %t", host != "", want)
		}
		if host != "" {
			f.Release(other.VM.UID, host)
		}
	}
	t.Run("a placement holds before any event shows it", func(t *testing.T) {
		f := one(t)
		f.Place(Request{VM: mine})
		takes(t, f, false)
	})
	t.Run("a release gives the room back", func(t *testing.T) {
		f := one(t)
		f.Place(Request{VM: mine})
		f.Release(mine.UID, "a")
		takes(t, f, true)
	})
	t.Run("an event of the version decided on does not end it", func(t *testing.T) {
		f := one(t)
		f.Place(Request{VM: mine})
		f.Observe(mine)
		takes(t, f, false)
	})
	t.Run("a later version that does not show it does", func(t *testing.T) {
		f := one(t)
		f.Place(Request{VM: mine})
		later := mine.DeepCopy()
		later.ResourceVersion = "10" // Not "9" < "10" by letters.
		f.Observe(later)
		takes(t, f, true)
	})
	t.Run("a conflict after an unknown write does not: that one may be what conflicts", func(t *testing.T) {
		f := one(t)
		f.Place(Request{VM: mine})
		if host, _ := f.Place(Request{VM: mine}); host != "a" {
			t.Fatalf("asked again: %q, want the same host", host)
		}
		f.Release(mine.UID, "a")
		takes(t, f, false)
	})
	t.Run("what an event shows counts once", func(t *testing.T) {
		f := one(t)
		f.ObserveHost(hypervisor("a", 16, 16, atVersion("2")))
		f.Place(Request{VM: mine})
		f.Observe(placedOn(mine, "a", "2"))
		takes(t, f, true)
	})
	t.Run("an older event undoes nothing", func(t *testing.T) {
		f := one(t)
		f.Observe(placedOn(mine, "a", "12"))
		f.Observe(mine)
		takes(t, f, false)
	})
	t.Run("a VM that is gone leaves its room when its host says so", func(t *testing.T) {
		f := one(t)
		f.Observe(placedOn(mine, "a", "2"))
		f.ObserveHost(hypervisor("a", 8, 8, atVersion("2"), reporting(1, 8, kubevirt.DomainUUID(mine))))
		f.Forget(mine.UID)
		takes(t, f, false)
		if !f.ObserveHost(hypervisor("a", 8, 8, atVersion("3"))) {
			t.Error("the host's report of more room is no news")
		}
		takes(t, f, true)
	})
}

func TestWhatIfCountsEachBeforeTheNextAndReservesNothing(t *testing.T) {
	f, _ := newTestFleet()
	f.ObserveHost(hypervisor("a", 32, 64))
	f.ObserveHost(hypervisor("b", 32, 16))
	f.ObserveHost(hypervisor("c", 32, 8))
	var vms []*kubevirtv1.VirtualMachineInstance
	for i := range 4 {
		vmi := placedOn(instance(fmt.Sprint("v", i), 1, 8), "a", "2")
		vmi.Status.Phase = kubevirtv1.Running
		f.Observe(vmi)
		vms = append(vms, vmi)
	}
	for range 2 {
		placed := map[string]int{}
		for _, v := range f.WhatIf(vms, "a") {
			placed[v.Host]++
			if v.Host == "" && v.Why != "0/3 hosts: 2 not enough memory, 1 its own host" {
				t.Errorf("why = %q", v.Why)
			}
		}
		if placed["b"] != 2 || placed["c"] != 1 || placed[""] != 1 {
			t.Fatalf("placed %v, want 2 on b, 1 on c, 1 nowhere", placed)
		}
	}
}

func TestWakeServesThoseThatHaveRunThenTheOldest(t *testing.T) {
	f, _ := newTestFleet()
	f.ObserveHost(hypervisor("a", 8, 8, isUnready))
	add := func(name string, memory int64, age time.Duration, ran bool) {
		vmi := instance(name, 1, memory)
		vmi.CreationTimestamp = metav1.NewTime(start.Add(-age))
		if ran {
			vmi.Annotations = map[string]string{kubevirt.AnnotationRunToken: "3"}
		}
		f.Observe(vmi)
		f.waits(vmi.UID)
	}
	add("young", 2, time.Minute, false)
	add("old", 2, time.Hour, false)
	add("ran", 2, 0, true)
	add("big", 16, 2*time.Hour, false)
	if !f.ObserveHost(hypervisor("a", 8, 5, atVersion("2"))) {
		t.Fatal("a host that comes back is no news")
	}
	var got []string
	for _, w := range f.wake("a") {
		got = append(got, w.key.Name)
	}
	if fmt.Sprint(got) != "[ran old]" {
		t.Errorf("woke %v, want [ran old]: as many as fit", got)
	}
}

func TestAHostStartsSoManyEvacuatedVMsAtOnce(t *testing.T) {
	f, _ := newTestFleet()
	f.ObserveHost(hypervisor("a", 99, 99))
	var started []*kubevirtv1.VirtualMachineInstance
	ask := func(i int) (string, Refusal) {
		vmi := instance(fmt.Sprint("v", i), 1, 1)
		vmi = placedOn(vmi, "dead", "2")
		vmi.Annotations[kubevirt.AnnotationEvacuatedFrom] = "dead/dead-1"
		f.Observe(vmi)
		host, why := f.Place(Request{VM: vmi, MaxStarting: 2})
		if host != "" {
			after := plan{host: host, token: 2}.apply(observation{now: start, vmi: vmi})
			after.ResourceVersion = "3"
			f.Observe(after)
			started = append(started, after)
		}
		return host, why
	}
	for i, want := range []string{"a", "a", ""} {
		if host, why := ask(i); host != want || want == "" && !why.Busy() {
			t.Fatalf("VM %d: host %q (%s), want %q", i, host, why, want)
		}
	}
	if host, why := f.Place(Request{VM: instance("new", 1, 1)}); host != "a" {
		t.Errorf("a new VM is held up by the starts of others: %s", why)
	}
	runs := started[0].DeepCopy()
	runs.ResourceVersion, runs.Status.Phase = "4", kubevirtv1.Running
	f.Observe(runs)
	if host, why := ask(9); host != "a" {
		t.Errorf("one of them runs, and the next finds no host: %s", why)
	}
}
