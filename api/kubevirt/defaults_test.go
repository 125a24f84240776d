// SPDX-License-Identifier: Apache-2.0

package kubevirt

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

func TestDefaults(t *testing.T) {
	for _, test := range []struct {
		name string
		vmi  string
		want string
	}{
		{"fills an empty spec", `{metadata: {name: a, namespace: vms}, spec: {}}`, `
metadata: {name: a, namespace: vms}
spec:
  terminationGracePeriodSeconds: 30
  domain:
    machine: {type: q35}
    cpu: {sockets: 1, cores: 1, threads: 1}
    firmware: {uuid: d0a52dcc-86d4-5c29-bd10-8b4e299c229c}`},
		{"leaves alone what is said", everything, everything},
		{"takes CPUs and memory from the requests", `{metadata: {name: a, namespace: vms}, spec: {domain: {resources: {requests: {cpu: 1500m, memory: 2Gi}}}}}`, `
metadata: {name: a, namespace: vms}
spec:
  terminationGracePeriodSeconds: 30
  domain:
    machine: {type: q35}
    cpu: {sockets: 2, cores: 1, threads: 1}
    memory: {guest: 2Gi}
    resources: {requests: {cpu: 1500m, memory: 2Gi}}
    firmware: {uuid: d0a52dcc-86d4-5c29-bd10-8b4e299c229c}`},
		{"completes a topology that is half said", `{metadata: {name: a, namespace: vms}, spec: {domain: {cpu: {cores: 4}, resources: {limits: {cpu: "8"}}}}}`, `
metadata: {name: a, namespace: vms}
spec:
  terminationGracePeriodSeconds: 30
  domain:
    machine: {type: q35}
    cpu: {sockets: 1, cores: 4, threads: 1}
    resources: {limits: {cpu: "8"}}
    firmware: {uuid: d0a52dcc-86d4-5c29-bd10-8b4e299c229c}`},
		{"binds an interface that does not say how", `{metadata: {name: a, namespace: vms}, spec: {domain: {devices: {interfaces: [{name: a}, {name: b, masquerade: {}}]}}}}`, `
metadata: {name: a, namespace: vms}
spec:
  terminationGracePeriodSeconds: 30
  domain:
    machine: {type: q35}
    cpu: {sockets: 1, cores: 1, threads: 1}
    firmware: {uuid: d0a52dcc-86d4-5c29-bd10-8b4e299c229c}
    devices: {interfaces: [{name: a, bridge: {}}, {name: b, masquerade: {}}]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			vmi, want := parse(t, test.vmi), parse(t, test.want)
			refusedBefore := len(Unsupported(vmi))
			for _, time := range []string{"once", "twice"} {
				Defaults(vmi)
				got, _ := yaml.Marshal(vmi)
				if wanted, _ := yaml.Marshal(want); string(got) != string(wanted) {
					t.Errorf("%s, got:\n%s\nwant:\n%s", time, got, wanted)
				}
			}
			if refused := Unsupported(vmi); len(refused) != refusedBefore {
				t.Errorf("the defaults are refused: %v", refused)
			}
		})
	}
}

func TestReading(t *testing.T) {
	for _, test := range []struct {
		name   string
		vmi    string
		vcpus  int64
		memory string
		uuid   string
		power  PowerState
	}{
		{"an empty one has a CPU and no memory", `{metadata: {name: a, namespace: vms}}`, 1, "0", "d0a52dcc-86d4-5c29-bd10-8b4e299c229c", PowerRunning},
		{"another namespace is another machine", `{metadata: {name: a, namespace: other}}`, 1, "0", "8eb635e2-96d6-5b32-a914-071e4fd592af", PowerRunning},
		{"another object of that name is the same machine", `{metadata: {name: a, namespace: vms, uid: u}}`, 1, "0", "d0a52dcc-86d4-5c29-bd10-8b4e299c229c", PowerRunning},
		{"what the spec says wins", everything, 4, "4Gi", "1b4e28ba-2fa1-41d2-883f-0016d3cca427", PowerPaused},
		{"limits win over requests for CPUs, and requests over limits for memory", `{metadata: {name: a, namespace: vms}, spec: {domain: {resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2100m, memory: 2Gi}}}}}`,
			3, "1Gi", "d0a52dcc-86d4-5c29-bd10-8b4e299c229c", PowerRunning},
		{"limits are better than nothing", `{metadata: {name: a, namespace: vms}, spec: {domain: {resources: {limits: {memory: 2Gi}}}}}`,
			1, "2Gi", "d0a52dcc-86d4-5c29-bd10-8b4e299c229c", PowerRunning},
		{"the annotation wins over the start strategy", `{metadata: {name: a, namespace: vms, annotations: {kvm.cloud.sap/power-state: Stopped}}, spec: {startStrategy: Paused}}`,
			1, "0", "d0a52dcc-86d4-5c29-bd10-8b4e299c229c", PowerStopped},
	} {
		t.Run(test.name, func(t *testing.T) {
			vmi := parse(t, test.vmi)
			memory := GuestMemory(vmi)
			if VCPUs(vmi) != test.vcpus || memory.String() != test.memory || DomainUUID(vmi) != test.uuid || WantedPowerState(vmi) != test.power {
				t.Errorf("got %d CPUs, %s, %s, %s; want %d, %s, %s, %s",
					VCPUs(vmi), memory.String(), DomainUUID(vmi), WantedPowerState(vmi), test.vcpus, test.memory, test.uuid, test.power)
			}
			memory.Add(resource.MustParse("1Gi"))
			if again := GuestMemory(vmi); again.String() != test.memory {
				t.Error("the caller's quantity is the object's own")
			}
		})
	}
}
