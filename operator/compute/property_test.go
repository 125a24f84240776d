// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// world is the API behind a ledger that lags: what is true, and for each VM the
// events that have not been delivered.
type world struct {
	t       *rapid.T
	f       *Fleet
	version int
	hosts   []string
	room    map[string]int64 // GiB

	truth  map[string]*kubevirtv1.VirtualMachineInstance
	cached map[string]*kubevirtv1.VirtualMachineInstance
	events map[string][]*kubevirtv1.VirtualMachineInstance // Nil: deleted.
	names  []string
}

func (w *world) next() string { w.version++; return strconv.Itoa(w.version) }

func (w *world) commit(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.VirtualMachineInstance {
	vmi.ResourceVersion = w.next()
	w.truth[vmi.Name] = vmi
	w.events[vmi.Name] = append(w.events[vmi.Name], vmi)
	return vmi
}

func (w *world) check() {
	used, groups := map[string]int64{}, map[string]string{}
	for _, name := range w.names {
		vmi := w.truth[name]
		if vmi == nil {
			continue
		}
		hosts, _ := claimsOf(vmi)
		for _, host := range hosts {
			memory := kubevirt.GuestMemory(vmi)
			used[host] += memory.Value() / gib
			if group := vmi.Labels["apart"]; group != "" {
				key := host + "/" + group
				if was, taken := groups[key]; taken {
					w.t.Fatalf("%s and %s are both on %s", was, name, host)
				}
				groups[key] = name
			}
		}
	}
	for _, host := range w.hosts {
		if used[host] > w.room[host] {
			w.t.Fatalf("%s holds %d GiB of %d", host, used[host], w.room[host])
		}
		for i, c := range w.f.byName[host].cells {
			if c.dueMemory+c.inMemory > c.memory {
				w.t.Fatalf("%s cell %d is promised %d of %d", host, i, c.dueMemory+c.inMemory, c.memory)
			}
		}
	}
}

func TestLaggingLedgerNeverOvercommits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, _ := newTestFleet()
		w := &world{
			t: t, f: f, version: 1, room: map[string]int64{},
			truth: map[string]*kubevirtv1.VirtualMachineInstance{}, cached: map[string]*kubevirtv1.VirtualMachineInstance{},
			events: map[string][]*kubevirtv1.VirtualMachineInstance{},
		}
		for i := range rapid.IntRange(1, 5).Draw(t, "hosts") {
			name := fmt.Sprint("h", i)
			size := int64(rapid.IntRange(4, 24).Draw(t, "GiB"))
			w.hosts = append(w.hosts, name)
			w.room[name] = size
			f.ObserveHost(hypervisor(name, 99, size, withCells(size/2, 0, size-size/2)))
		}
		pick := func() string {
			if len(w.names) == 0 {
				t.Skip("no VM yet")
			}
			return rapid.SampledFrom(w.names).Draw(t, "vm")
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				name := fmt.Sprint("v", len(w.names))
				var options []vmOption
				if rapid.Bool().Draw(t, "pinned") {
					options = append(options, onCell)
				}
				if group := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "apart"); group != "" {
					options = append(options, labelled("apart", group), apartFrom(kvmv1.LabelHostname, "apart", group))
				}
				w.names = append(w.names, name)
				w.commit(instance(name, 1, int64(rapid.IntRange(1, 8).Draw(t, "GiB")), options...))
			},
			"deliver": func(t *rapid.T) { w.deliver(pick()) },
			"resync": func(t *rapid.T) {
				if vmi := w.cached[pick()]; vmi != nil {
					f.Observe(vmi)
				}
			},
			"place or move": func(t *rapid.T) {
				vmi := w.cached[pick()]
				if vmi == nil || f.Ahead(vmi) {
					return
				}
				r := Request{VM: vmi}
				hosts, _ := claimsOf(vmi)
				if len(hosts) > 1 {
					return
				}
				if len(hosts) == 1 {
					r.Source, r.MaxIncoming = hosts[0], 2
				}
				host, _ := f.Place(r)
				if host == "" {
					return
				}
				w.write(t, vmi, host, r.Source != "")
			},
			"evacuate": func(t *rapid.T) {
				vmi := w.cached[pick()]
				if vmi == nil || f.Ahead(vmi) || vmi.Status.NodeName == "" || isMoving(vmi) {
					return
				}
				vmi = vmi.DeepCopy()
				from := vmi.Status.NodeName
				evacuatedFrom(from)(vmi)
				seen := observation{now: start, vmi: vmi}
				if !wantsHost(seen) {
					t.Fatalf("%s is evacuated and stays: %v", vmi.Name, vmi.Labels)
				}
				seen.host, seen.why = f.Place(Request{VM: vmi, Exclude: []string{from}})
				if seen.host == from {
					t.Fatalf("%s is to go where it comes from", vmi.Name)
				}
				w.patch(t, vmi, decide(seen).apply(seen), seen.host)
			},
			"arrive or fail": func(t *rapid.T) {
				vmi := w.truth[pick()]
				if vmi == nil || vmi.Status.MigrationState == nil || vmi.Status.MigrationState.Completed {
					return
				}
				vmi = vmi.DeepCopy()
				m := vmi.Status.MigrationState
				if rapid.Bool().Draw(t, "arrives") {
					delete(vmi.Labels, kubevirt.HostLabel(m.SourceNode))
					vmi.Status.NodeName, m.Completed = m.TargetNode, true
				} else {
					delete(vmi.Labels, kubevirt.HostLabel(m.TargetNode))
					vmi.Status.MigrationState = nil
				}
				w.commit(vmi)
			},
			"delete": func(t *rapid.T) {
				name := pick()
				if w.truth[name] != nil {
					w.truth[name] = nil
					w.events[name] = append(w.events[name], nil)
				}
			},
			"report": func(t *rapid.T) {
				host := rapid.SampledFrom(w.hosts).Draw(t, "host")
				f.ObserveHost(w.report(host))
			},
			"": func(*rapid.T) { w.check() },
		})
		// What fits is placed once the dust has settled.
		for _, name := range w.names {
			for len(w.events[name]) > 0 {
				w.deliver(name)
			}
		}
		for _, name := range w.names {
			if vmi := w.truth[name]; vmi != nil { // A new version ends what is assumed.
				f.Observe(w.commit(vmi.DeepCopy()))
			}
		}
		for _, name := range w.names {
			vmi := w.truth[name]
			if vmi == nil || isPlaced(vmi) {
				continue
			}
			if host, why := f.Place(Request{VM: vmi}); host == "" {
				if fit := w.fitting(vmi); len(fit) > 0 {
					t.Fatalf("%s fits %v and is not placed: %s", name, fit, why)
				}
				continue
			} else {
				vmi = placedOn(vmi, host, "")
				f.Observe(w.commit(vmi))
			}
			w.check()
		}
		// The sums are what the events say, whatever their order was.
		fresh, _ := newTestFleet()
		for _, host := range w.hosts {
			fresh.ObserveHost(hypervisor(host, 99, w.room[host]))
		}
		for _, name := range w.names {
			if vmi := w.truth[name]; vmi != nil {
				fresh.Observe(vmi)
			}
		}
		for _, host := range w.hosts {
			a, b := f.byName[host], fresh.byName[host]
			if a.claimedMemory != b.claimedMemory || a.incoming != b.incoming || len(a.pinned) != len(b.pinned) {
				t.Fatalf("%s: claimed %d, incoming %d, pinned %d; rebuilt %d, %d, %d",
					host, a.claimedMemory, a.incoming, len(a.pinned), b.claimedMemory, b.incoming, len(b.pinned))
			}
		}
		for _, v := range slices.Clone(w.names) {
			f.Forget(types.UID("uid-" + v))
		}
		if len(f.terms)+len(f.groups)+len(f.termsIn)+len(f.groupsOf)+len(f.vms)+len(f.byDomain) != 0 {
			t.Fatalf("something is left of VMs that are gone")
		}
	})
}

func (w *world) deliver(name string) {
	if len(w.events[name]) == 0 {
		return
	}
	e := w.events[name][0]
	w.events[name] = w.events[name][1:]
	w.cached[name] = e
	if e == nil {
		w.f.Forget(types.UID("uid-" + name))
		return
	}
	w.f.Observe(e)
}

// write is a patch with a lock, with each of its ends.
func (w *world) write(t *rapid.T, seen *kubevirtv1.VirtualMachineInstance, host string, moves bool) {
	after := seen.DeepCopy()
	if moves {
		after.Labels[kubevirt.HostLabel(host)] = ""
		after.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{
			MigrationUID: "m", SourceNode: seen.Status.NodeName, TargetNode: host,
		}
	} else {
		place(after, host, 1)
	}
	w.patch(t, seen, after, host)
}

func (w *world) patch(t *rapid.T, seen, after *kubevirtv1.VirtualMachineInstance, host string) {
	truth := w.truth[seen.Name]
	switch end := rapid.SampledFrom([]string{"done", "done", "done, not heard", "lost"}).Draw(t, "write"); {
	case end == "lost":
	case truth == nil || truth.ResourceVersion != seen.ResourceVersion:
		if end == "done" {
			w.f.Release(seen.UID, host) // A conflict.
		}
	default:
		after = w.commit(after)
		if end == "done" {
			w.f.Observe(after)
		}
	}
}

// report is what a host's agent finds: all VMs that are there in truth.
func (w *world) report(host string) *kvmv1.Hypervisor {
	hv := hypervisor(host, 99, w.room[host], withCells(w.room[host]/2, 0, w.room[host]-w.room[host]/2), atVersion(w.next()))
	var memory, cpus int64
	var domains []string
	for _, name := range w.names {
		vmi := w.truth[name]
		if vmi == nil {
			continue
		}
		if hosts, _ := claimsOf(vmi); slices.Contains(hosts, host) && !vmi.Spec.Domain.CPU.DedicatedCPUPlacement && vmi.Spec.Domain.CPU.NUMA == nil {
			q := kubevirt.GuestMemory(vmi)
			memory += q.Value() / gib
			cpus++
			domains = append(domains, kubevirt.DomainUUID(vmi))
		}
	}
	reporting(cpus, memory, domains...)(hv)
	return hv
}

// fitting are the hosts that could take a VM by its memory and its group alone,
// reckoned from the truth. One that needs a cell is judged by the ledger.
func (w *world) fitting(vmi *kubevirtv1.VirtualMachineInstance) (fit []string) {
	if vmi.Spec.Domain.CPU.NUMA != nil {
		return nil
	}
	need := kubevirt.GuestMemory(vmi)
	for _, host := range w.hosts {
		h := w.f.byName[host]
		foreign, _ := h.foreign()
		free := w.room[host]*gib - foreign
		apart := false
		for _, name := range w.names {
			there := w.truth[name]
			if there == nil || there.Name == vmi.Name {
				continue
			}
			if hosts, _ := claimsOf(there); slices.Contains(hosts, host) {
				q := kubevirt.GuestMemory(there)
				free -= q.Value()
				apart = apart || vmi.Labels["apart"] != "" && there.Labels["apart"] == vmi.Labels["apart"]
			}
		}
		if free >= need.Value() && !apart {
			fit = append(fit, host)
		}
	}
	return fit
}

func TestThoseThatWaitAreServedInOrderWhateverChangesMeanwhile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, _ := newTestFleet()
		f.ObserveHost(hypervisor("a", 1000, 1000))
		version := 1
		vms := map[string]*kubevirtv1.VirtualMachineInstance{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			name := fmt.Sprint("v", rapid.IntRange(0, 7).Draw(t, "vm"))
			version++
			vmi := instance(name, 1, int64(rapid.IntRange(1, 4).Draw(t, "GiB")))
			vmi.ResourceVersion, vmi.Generation = strconv.Itoa(version), int64(version)
			vmi.Annotations = map[string]string{kubevirt.AnnotationRestartPriority: rapid.SampledFrom([]string{"high", "", "low"}).Draw(t, "class")}
			if rapid.Bool().Draw(t, "ran") {
				vmi.Annotations[kubevirt.AnnotationRunToken] = "1"
			}
			vms[name] = vmi
			f.Observe(vmi)
			f.waits(vmi.UID)
		}
		woken := f.wake("a")
		if len(woken) != len(vms) {
			t.Fatalf("%d of %d VMs that fit are woken", len(woken), len(vms))
		}
		for i := 1; i < len(woken); i++ {
			a, b := vms[woken[i-1].key.Name], vms[woken[i].key.Name]
			switch {
			case hasRun(a) != hasRun(b):
				if hasRun(b) {
					t.Fatalf("%s comes before %s, which has run", a.Name, b.Name)
				}
			case !hasRun(a):
			case kubevirt.RestartPriorityOf(a) < kubevirt.RestartPriorityOf(b):
				t.Fatalf("%s comes before %s of a higher class", a.Name, b.Name)
			case kubevirt.RestartPriorityOf(a) == kubevirt.RestartPriorityOf(b) && guestMemory(a) < guestMemory(b):
				t.Fatalf("%s comes before %s, which is larger", a.Name, b.Name)
			}
		}
	})
}

func TestChoiceDoesNotDependOnTheOrderOfEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "hosts")
		sizes := rapid.SliceOfN(rapid.Int64Range(8, 10), n, n).Draw(t, "GiB")
		there := rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 12).Draw(t, "there")
		run := func(hosts, vms []int) string {
			f, _ := newTestFleet()
			for _, i := range hosts {
				f.ObserveHost(hypervisor(fmt.Sprint("h", i), 99, sizes[i]))
			}
			for _, i := range vms {
				f.Observe(placedOn(instance(fmt.Sprint("there", i), 1, 1, labelled("app", "x")), fmt.Sprint("h", there[i]), "2"))
			}
			var got []string
			for i := range 4 {
				host, why := f.Place(Request{VM: instance(fmt.Sprint("v", i), 1, 2, ratherApartFrom(kvmv1.LabelHostname, "app", "x"))})
				got = append(got, host+why.String())
			}
			return fmt.Sprint(got)
		}
		straight := run(upTo(n), upTo(len(there)))
		shuffled := run(rapid.Permutation(upTo(n)).Draw(t, "order"), rapid.Permutation(upTo(len(there))).Draw(t, "vm order"))
		if straight != shuffled {
			t.Fatalf("in order: %s\nshuffled: %s", straight, shuffled)
		}
	})
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func BenchmarkPlaceAtThousandHosts(b *testing.B) {
	for _, kind := range []string{"plain", "anti-affinity", "cell"} {
		b.Run(kind, func(b *testing.B) {
			f, _ := newTestFleet()
			for i := range 1000 {
				name := fmt.Sprintf("host-%04d", i)
				f.ObserveHost(hypervisor(name, 400, 1000, withCells(500, 500), inZone(fmt.Sprint("z", i%3))))
				for j := range 20 {
					vmi := instance(fmt.Sprintf("vm-%d-%d", i, j), 2, 8, labelled("app", fmt.Sprint("app", (i*20+j)%4000)))
					f.Observe(placedOn(vmi, name, "2"))
				}
			}
			vmi := instance("new", 2, 8, labelled("app", "app1"))
			switch kind {
			case "anti-affinity":
				apartFrom(kvmv1.LabelHostname, "app", "app1")(vmi)
			case "cell":
				onCell(vmi)
			}
			f.Observe(vmi)
			b.ReportAllocs()
			for b.Loop() {
				host, why := f.Place(Request{VM: vmi})
				if host == "" {
					b.Fatal(why)
				}
				f.Release(vmi.UID, host)
			}
		})
	}
}
