// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"testing"

	kubevirtv1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/adit-hv/adit/api/kubevirt"
)

// of is a VM of a class that has run.
func of(class string, yield bool) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Annotations = map[string]string{
			kubevirt.AnnotationRestartPriority: class, kubevirt.AnnotationRunToken: "1", kubevirt.AnnotationYields: fmt.Sprint(yield),
		}
	}
}

func leaves(host string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Annotations[kubevirt.AnnotationLeave] = host + "/" + kubevirt.LeaveYielded
	}
}

func TestYielding(t *testing.T) {
	type there = map[string][]*kubevirtv1.VirtualMachineInstance
	for _, tt := range []struct {
		name  string
		there there
		vm    *kubevirtv1.VirtualMachineInstance
		want  string
	}{
		{"one of a lower class that yields makes room", there{"a": {instance("x", 1, 4, of("low", true))}}, instance("v", 1, 4, of("high", false)), "a: x"},
		{"one that does not yield stays", there{"a": {instance("x", 1, 4, of("low", false))}}, instance("v", 1, 4, of("high", false)), ": "},
		{"one of the same class stays", there{"a": {instance("x", 1, 4, of("high", true))}}, instance("v", 1, 4, of("high", false)), ": "},
		{"nobody makes room for a VM that has never run", there{"a": {instance("x", 1, 4, of("low", true))}}, with(instance("v", 1, 4), func(vmi *kubevirtv1.VirtualMachineInstance) {
			vmi.Annotations = map[string]string{kubevirt.AnnotationRestartPriority: "high"}
		}), ": "},
		{"nor in vain", there{"a": {instance("x", 1, 2, of("low", true)), instance("y", 1, 2, of("", false))}}, instance("v", 1, 4, of("high", false)), ": "},
		{"the lowest class first, and no more than need be", there{"a": {instance("x", 1, 2, of("", true)), instance("y", 1, 2, of("low", true))}}, instance("v", 1, 2, of("high", false)), "a: y"},
		{"the host where the fewest have to go", there{
			"a": {instance("x", 1, 2, of("low", true)), instance("y", 1, 2, of("low", true))},
			"b": {instance("z", 1, 4, of("low", true))},
		}, instance("v", 1, 4, of("high", false)), "b: z"},
		{"who was asked is not asked again, nor anybody in his stead", there{
			"a": {instance("x", 1, 4, of("low", true))},
			"b": {instance("z", 1, 4, of("low", true), leaves("b"))},
		}, instance("v", 1, 4, of("high", false)), "b: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := newTestFleet()
			for _, host := range []string{"a", "b"} {
				if vms := tt.there[host]; vms != nil {
					f.ObserveHost(hypervisor(host, 99, 4))
					for _, vmi := range vms {
						f.Observe(placedOn(vmi, host, "2"))
					}
				}
			}
			host, asked := f.yielding(tt.vm, nil)
			got := host + ": "
			for _, key := range asked {
				got += key.Name
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestYieldingIsNeverInVain draws fleets: whoever is asked yields to a higher
// class, and with all of them gone the VM fits.
func TestYieldingIsNeverInVain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, _ := newTestFleet()
		vms := map[string]*kubevirtv1.VirtualMachineInstance{}
		for h := range rapid.IntRange(1, 3).Draw(t, "hosts") {
			host, left := fmt.Sprint("h", h), int64(8)
			f.ObserveHost(hypervisor(host, 99, 8))
			for i := range rapid.IntRange(0, 4).Draw(t, "VMs") {
				size := min(left, int64(rapid.IntRange(1, 3).Draw(t, "GiB")))
				if size == 0 {
					break
				}
				left -= size
				vmi := placedOn(instance(fmt.Sprint(host, "-", i), 1, size, of(rapid.SampledFrom([]string{"low", "", "high"}).Draw(t, "class"), rapid.Bool().Draw(t, "yields"))), host, "2")
				vms[vmi.Name] = vmi
				f.Observe(vmi)
			}
		}
		vmi := instance("v", 1, int64(rapid.IntRange(1, 8).Draw(t, "GiB")), of(rapid.SampledFrom([]string{"low", "", "high"}).Draw(t, "class"), false))
		if host, _ := f.Place(Request{VM: vmi}); host != "" {
			t.Skip("it fits")
		}
		host, asked := f.yielding(vmi, nil)
		for _, key := range asked {
			other := vms[key.Name]
			if !yields(other) || kubevirt.RestartPriorityOf(other) >= kubevirt.RestartPriorityOf(vmi) || other.Status.NodeName != host {
				t.Fatalf("%s on %s is asked to leave %s for one of class %s", key.Name, other.Status.NodeName, host, kubevirt.RestartPriorityOf(vmi))
			}
			f.Forget(other.UID)
		}
		if got, why := f.Place(Request{VM: vmi}); host != "" && got != host {
			t.Fatalf("%d have left %s in vain: %s", len(asked), host, why)
		}
	})
}
