// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
)

func TestIdentity(t *testing.T) {
	registered := identity{MachineID: "m-1", ProductUUID: "u-1", Serial: "S-100"}
	had := []kvmv1.Instance{{ID: "a", Name: "vm-a"}, {ID: "b", Name: "vm-b"}}
	has := []hardware.Domain{{UUID: "a"}, {UUID: "b"}}
	for name, c := range map[string]struct {
		view     identityView
		status   metav1.ConditionStatus
		reason   string
		write    bool
		register bool
		says     string
	}{
		"the first report registers": {
			identityView{host: "kvm-7", hostname: "kvm-7", now: registered},
			metav1.ConditionTrue, "Confirmed", true, true, "",
		},
		"nothing changed": {
			identityView{host: "kvm-7", now: registered, recorded: registered},
			metav1.ConditionTrue, "Confirmed", true, false, "",
		},
		"nothing can be read": {
			identityView{host: "kvm-7", recorded: registered},
			metav1.ConditionUnknown, "Unreadable", true, false, "neither machine-id",
		},
		"the serial can no longer be read": {
			identityView{host: "kvm-7", now: identity{MachineID: "m-1"}, recorded: registered},
			metav1.ConditionTrue, "Confirmed", true, false, "",
		},
		"a field can be read for the first time": {
			identityView{host: "kvm-7", now: registered, recorded: identity{MachineID: "m-1"}},
			metav1.ConditionTrue, "Confirmed", true, true, "",
		},
		"the board was swapped and took the UUID along": {
			identityView{host: "kvm-7", now: identity{MachineID: "m-1", ProductUUID: "u-1", Serial: "S-101"}, recorded: registered},
			metav1.ConditionTrue, "Confirmed", true, true, "",
		},
		"the disks were moved into another chassis": {
			identityView{host: "kvm-7", now: identity{MachineID: "m-1", ProductUUID: "u-2", Serial: "S-200"}, recorded: registered, instances: had, domains: has, domainsKnown: true},
			metav1.ConditionFalse, "Mismatch", false, false, "product UUID, serial changed",
		},
		"another machine": {
			identityView{host: "kvm-7", now: identity{MachineID: "m-9", ProductUUID: "u-2", Serial: "S-200"}, recorded: registered},
			metav1.ConditionFalse, "Mismatch", false, false, "machine-id, product UUID, serial changed",
		},
		"another system on half of the hardware": {
			identityView{host: "kvm-7", now: identity{MachineID: "m-9", ProductUUID: "u-1", Serial: "S-200"}, recorded: registered},
			metav1.ConditionFalse, "Mismatch", false, false, "machine-id, serial changed",
		},
		"re-imaged, the VMs lost": {
			identityView{host: "kvm-7", now: identity{MachineID: "m-9", ProductUUID: "u-1", Serial: "S-100"}, recorded: registered, instances: had, domainsKnown: true},
			metav1.ConditionFalse, "Reimaged", false, false, "2 VMs are gone: vm-a, vm-b",
		},
		"re-imaged, libvirt does not answer": {
			identityView{host: "kvm-7", now: identity{MachineID: "m-9", Serial: "S-100"}, recorded: registered, instances: had},
			metav1.ConditionFalse, "Reimaged", false, false, "not known until libvirt answers",
		},
		"re-imaged, with no VM to lose": {
			identityView{host: "kvm-7", now: identity{MachineID: "m-9", Serial: "S-100"}, recorded: registered},
			metav1.ConditionTrue, "Confirmed", true, true, "",
		},
		"re-imaged around its VMs": {
			identityView{host: "kvm-7", now: identity{MachineID: "m-9", Serial: "S-100"}, recorded: registered, instances: had, domains: has, domainsKnown: true},
			metav1.ConditionTrue, "Confirmed", true, true, "",
		},
		"registered under another name": {
			identityView{host: "localhost", now: registered, twins: []twin{{name: "kvm-7", fields: []string{"machine-id", "serial"}, vms: []string{"vm-b", "vm-a"}}}},
			metav1.ConditionFalse, "RegisteredElse", false, false, "machine-id and serial of this machine registered by Hypervisor kvm-7, which holds the VMs vm-a, vm-b",
		},
		"a vendor's UUID on two boards is no twin": {
			identityView{host: "kvm-8", hostname: "kvm-8", now: identity{MachineID: "m-8", ProductUUID: "u-1"}, twins: []twin{{name: "kvm-7", fields: []string{"product UUID"}}}},
			metav1.ConditionTrue, "Confirmed", true, true, "",
		},
		"the host name is late": {
			identityView{host: "kvm-7", hostname: "localhost", now: registered, recorded: registered},
			metav1.ConditionTrue, "Confirmed", true, false, `calls itself "localhost"`,
		},
		"the host name has a domain": {
			identityView{host: "kvm-7", hostname: "kvm-7.example", now: registered, recorded: registered},
			metav1.ConditionTrue, "Confirmed", true, false, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := decideIdentity(c.view)
			if got.condition.Status != c.status || got.condition.Reason != c.reason || got.write != c.write || got.register != c.register {
				t.Errorf("%s/%s write %t register %t, want %s/%s %t %t: %s", got.condition.Status, got.condition.Reason,
					got.write, got.register, c.status, c.reason, c.write, c.register, got.condition.Message)
			}
			if !strings.Contains(got.condition.Message, c.says) || c.says == "" && got.condition.Message != "" {
				t.Errorf("says %q, want %q", got.condition.Message, c.says)
			}
		})
	}
}

// OP-01: one host through a rename, a late name, a move of its disks and a
// re-image. Each step is an agent's start; the Hypervisor is the one named as
// the host calls itself, as the kubelet would have it.
func TestIdentityTimeline(t *testing.T) {
	doc, err := os.ReadFile("testdata/OP-01_identity_timeline.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var timeline struct{ Steps []struct{ At, Do string } }
	if err := yaml.Unmarshal(doc, &timeline); err != nil {
		t.Fatal(err)
	}
	domains := []hardware.Domain{{UUID: "a", Spec: hardware.DomainSpec{Name: "vm-a"}}, {UUID: "b", Spec: hardware.DomainSpec{Name: "vm-b"}}}
	instances := []kvmv1.Instance{{ID: "a", Name: "vm-a"}, {ID: "b", Name: "vm-b"}}
	steps := []struct {
		at, host string
		now      identity
		domains  []hardware.Domain
		want     string
	}{
		{"0s", "kvm-7", identity{MachineID: "m-1", Serial: "S-100"}, domains, "Confirmed"},
		{"60s", "kvm-7.example", identity{MachineID: "m-1", Serial: "S-100"}, domains, "RegisteredElse"},
		{"120s", "localhost", identity{MachineID: "m-1", Serial: "S-100"}, domains, "RegisteredElse"},
		{"180s", "kvm-19", identity{MachineID: "m-1", Serial: "S-200"}, domains, "RegisteredElse"},
		{"240s", "kvm-7", identity{MachineID: "m-9", Serial: "S-100"}, nil, "Reimaged"},
	}
	if len(timeline.Steps) != len(steps) {
		t.Fatalf("%d steps in the input, want %d", len(timeline.Steps), len(steps))
	}
	var recorded identity // of kvm-7
	for i, s := range steps {
		if s.at != timeline.Steps[i].At {
			t.Fatalf("step %d is at %s, want %s", i, timeline.Steps[i].At, s.at)
		}
		v := identityView{host: s.host, hostname: s.host, now: s.now, domains: s.domains, domainsKnown: true}
		if s.host == "kvm-7" {
			v.recorded, v.instances = recorded, instances
		} else {
			v.twins = twinsOf("kvm-7", recorded, s.now, "vm-a", "vm-b")
		}
		got := decideIdentity(v)
		if got.condition.Reason != s.want {
			t.Errorf("%s: %s, want %s: %s", s.at, got.condition.Reason, s.want, got.condition.Message)
		}
		if s.want != "Confirmed" {
			if got.write || got.register {
				t.Errorf("%s: writes under a name it does not hold", s.at)
			}
			for _, vm := range []string{"vm-a", "vm-b"} {
				if !strings.Contains(got.condition.Message, vm) {
					t.Errorf("%s: does not name %s: %s", s.at, vm, got.condition.Message)
				}
			}
		}
		if got.register {
			recorded = s.now
		}
	}
}

func twinsOf(name string, recorded, now identity, vms ...string) []twin {
	t := twin{name: name, vms: vms}
	for _, f := range now.fields() {
		for _, g := range recorded.fields() {
			if f == g {
				t.fields = append(t.fields, f.name)
			}
		}
	}
	if t.fields == nil {
		return nil
	}
	return []twin{t}
}

func TestAMessageNamesAFewOfManyVMs(t *testing.T) {
	var names []string
	for range 500 {
		names = append(names, "vm")
	}
	if got := someNames(names); !strings.HasSuffix(got, " and 480 more") {
		t.Error(got)
	}
}
