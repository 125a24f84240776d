// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

const hypervisors = "hypervisors.kvm.cloud.sap"

func TestHypervisorDefaults(t *testing.T) {
	server := serve(t, hypervisors)
	for _, test := range []struct {
		name, given, status, want string
	}{
		{"of an empty spec", `{spec: {}}`, ``, `
spec:
  reboot: false
  evacuateOnReboot: true
  lifecycleEnabled: true
  skipTests: false
  customTraits: []
  aggregates: []
  allowedProjects: []
  highAvailability: true
  createCertManagerCertificate: false
  installCertificate: true`},
		{"do not touch what is said, and replace null", `{spec: {evacuateOnReboot: false, lifecycleEnabled: false, highAvailability: false, installCertificate: false, customTraits: null, aggregates: [a]}}`, ``, `
spec:
  reboot: false
  evacuateOnReboot: false
  lifecycleEnabled: false
  skipTests: false
  customTraits: []
  aggregates: [a]
  allowedProjects: []
  highAvailability: false
  createCertManagerCertificate: false
  installCertificate: false`},
		{"are not made up where there is no spec", `{}`, ``, `{}`},
		{"of an empty status", `{}`, `{}`, `
status: {libVirtVersion: unknown, hypervisorVersion: unknown, numInstances: 0}`},
		{"of what is in the status", `{}`, `{updateStatus: {}, capabilities: {}, domainCapabilities: {}}`, `
status:
  libVirtVersion: unknown
  hypervisorVersion: unknown
  numInstances: 0
  updateStatus: {inProgress: false, installed: unknown, retry: 3}
  capabilities: {cpuArch: unknown}
  domainCapabilities: {arch: unknown, hypervisorType: unknown, supportedDevices: [], supportedCpuModes: [], supportedFeatures: []}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := server.create(server.object(t, test.given))
			if err != nil {
				t.Fatal(err)
			}
			if test.status != "" {
				change := server.object(t, "{status: "+test.status+"}")
				if got, err = server.updateStatus(got, change); err != nil {
					t.Fatal(err)
				}
			}
			if want := server.object(t, test.want); !reflect.DeepEqual(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", asYAML(got), asYAML(want))
			}
		})
	}
}

func TestHypervisorDefaultsAreThoseOfGo(t *testing.T) {
	server := serve(t, hypervisors)
	fromSchema, err := server.create(server.object(t, `{spec: {}}`))
	if err != nil {
		t.Fatal(err)
	}
	fromGo := plain(t, kvmv1.DefaultHypervisorSpec())
	if !reflect.DeepEqual(fromSchema["spec"], any(fromGo)) {
		t.Errorf("schema:\n%s\nGo:\n%s", asYAML(fromSchema["spec"]), asYAML(fromGo))
	}
}

func TestHypervisorRules(t *testing.T) {
	const (
		immutable = `spec: Invalid value: spec is immutable when maintenance is 'termination'; can only change maintenance to 'ha'`
		reason    = `spec: Invalid value: maintenanceReason must be non-empty when maintenance is 'manual'`
		group     = `spec.groups[0]: Invalid value: exactly one group type must be set`
		ratios    = `spec.overcommit: Invalid value: overcommit ratios must be >= 1.0`
	)
	server := serve(t, hypervisors)
	for _, test := range []struct {
		name     string
		old, new string // Old is empty for a create.
		want     string // What the refusal contains; empty accepts.
	}{
		{"a host may be created in termination", ``, `{maintenance: termination}`, ``},
		{"a host may go into termination", `{}`, `{maintenance: termination}`, ``},
		{"a host in termination may be written as it is", `{maintenance: termination, version: "1"}`, `{maintenance: termination, version: "1"}`, ``},
		{"a host in termination may go over to ha", `{maintenance: termination}`, `{maintenance: ha}`, ``},
		{"a host that goes over to ha may change besides", `{maintenance: termination}`, `{maintenance: ha, version: "2"}`, ``},
		{"a host in termination may not change", `{maintenance: termination}`, `{maintenance: termination, version: "2"}`, immutable},
		{"a host in termination may not go back to auto", `{maintenance: termination}`, `{maintenance: auto}`, immutable},
		{"a host in termination may not go back to service", `{maintenance: termination}`, `{maintenance: ""}`, immutable},
		{"a host in termination may not lose its maintenance", `{maintenance: termination}`, `{}`, "can only change maintenance to 'ha'"},

		{"manual maintenance has a reason", ``, `{maintenance: manual, maintenanceReason: disk}`, ``},
		{"manual maintenance needs a reason", ``, `{maintenance: manual}`, reason},
		{"an empty reason is none", ``, `{maintenance: manual, maintenanceReason: ""}`, reason},
		{"other maintenance needs no reason", ``, `{maintenance: auto}`, ``},
		{"the reason may stay behind", `{maintenance: manual, maintenanceReason: disk}`, `{maintenanceReason: disk}`, ``},

		{"a group may be a trait", ``, `{groups: [{trait: {name: CUSTOM_A}}]}`, ``},
		{"a group may be an aggregate", ``, `{groups: [{aggregate: {name: a, uuid: 1B4E28BA-2fa1-41d2-883f-0016d3cca427, metadata: {k: v}}}]}`, ``},
		{"groups may be there twice", ``, `{groups: [{trait: {name: CUSTOM_A}}, {trait: {name: CUSTOM_A}}]}`, ``},
		{"a group may not be both", ``, `{groups: [{trait: {name: CUSTOM_A}, aggregate: {name: a, uuid: 1b4e28ba-2fa1-41d2-883f-0016d3cca427}}]}`, group},
		{"a group may not be neither", ``, `{groups: [{}]}`, group},
		{"a trait has a name", ``, `{groups: [{trait: {name: ""}}]}`, `spec.groups[0].trait.name: Invalid value: "": spec.groups[0].trait.name in body should be at least 1 chars long`},
		{"an aggregate has a name", ``, `{groups: [{aggregate: {name: "", uuid: 1b4e28ba-2fa1-41d2-883f-0016d3cca427}}]}`, `spec.groups[0].aggregate.name in body should be at least 1 chars long`},
		{"an aggregate has a UUID", ``, `{groups: [{aggregate: {name: a}}]}`, `spec.groups[0].aggregate.uuid: Required value`},
		{"an aggregate's UUID has the form of one", ``, `{groups: [{aggregate: {name: a, uuid: 1b4e28ba}}]}`, `spec.groups[0].aggregate.uuid in body should match`},

		{"overcommit may be whole and broken", ``, `{overcommit: {cpu: 4, memory: 1.5}}`, ``},
		{"no overcommit is 1", ``, `{overcommit: {cpu: 1.0}}`, ``},
		{"undercommit is refused", ``, `{overcommit: {cpu: 4, memory: 0.9}}`, ratios},

		{"maintenance may be unset by name", ``, `{maintenance: ""}`, ``},
		{"maintenance may be ha", ``, `{maintenance: ha}`, ``},
		{"another maintenance is refused", ``, `{maintenance: later}`, `spec.maintenance: Unsupported value: "later": supported values: "", "manual", "auto", "ha", "termination"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var err error
			if test.old == "" {
				_, err = server.create(server.object(t, "{spec: "+test.new+"}"))
			} else {
				old, failed := server.create(server.object(t, "{spec: "+test.old+"}"))
				if failed != nil {
					t.Fatal(failed)
				}
				_, err = server.update(old, server.object(t, "{spec: "+test.new+"}"))
			}
			answered(t, err, test.want)
		})
	}
}

// answered checks a refusal, or that there was none.
func answered(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("accepted; want %s", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("refused:\n%v\nwant:\n%s", err, want)
	}
}

func TestHypervisorStatusIsChecked(t *testing.T) {
	server := serve(t, hypervisors)
	old, err := server.create(server.object(t, `{spec: {}}`))
	if err != nil {
		t.Fatal(err)
	}
	const condition = `lastTransitionTime: "2026-01-01T00:00:00Z", reason: Ready, message: ""`
	for _, test := range []struct {
		name, status, want string
	}{
		{"a condition may be named as a unit", `{conditions: [{type: libvirtd.service, status: "True", ` + condition + `}]}`, ``},
		{"a condition is there once", `{conditions: [{type: Ready, status: "True", ` + condition + `}, {type: Ready, status: "False", ` + condition + `}]}`, `status.conditions[1]: Duplicate value`},
		{"a condition is true, false or unknown", `{conditions: [{type: Ready, status: Maybe, ` + condition + `}]}`, `status.conditions[0].status: Unsupported value: "Maybe"`},
		{"an instance is whole", `{instances: [{id: a, name: b}]}`, `status.instances[0].active: Required value`},
		{"an aggregate is whole", `{aggregates: [{name: a}]}`, `status.aggregates[0].uuid: Required value`},
		{"a cell has an id", `{cells: [{}]}`, `status.cells[0].cellID: Required value`},
		{"a quantity may be a number or text", `{capacity: {cpu: 64, memory: 1056462864Ki}}`, ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := server.updateStatus(old, server.object(t, "{status: "+test.status+"}"))
			answered(t, err, test.want)
		})
	}
}

func TestHypervisorIsPruned(t *testing.T) {
	server := serve(t, hypervisors)
	got, err := server.create(server.object(t, `{spec: {overcommit: {gpu: 2}, colour: red, groups: [{trait: {name: A, colour: red}}]}, status: {numInstances: 3}, colour: red}`))
	if err != nil {
		t.Fatal(err)
	}
	text := asYAML(got)
	if strings.Contains(text, "colour") {
		t.Errorf("unknown fields are kept:\n%s", text)
	}
	if !strings.Contains(text, "gpu: 2") {
		t.Errorf("a resource of its own name is lost:\n%s", text)
	}
	if strings.Contains(text, "numInstances") {
		t.Errorf("status came in by the main resource:\n%s", text)
	}
}

// garden is a host as CobaltCore's public documentation prints it.
const garden = `
metadata:
  name: node001-bb234
  labels:
    kubernetes.metal.cloud.sap/name: node001-bb234.metal
    kubernetes.metal.cloud.sap/bb: bb234
    topology.kubernetes.io/zone: zone-a
    worker.garden.sapcloud.io/group: kvm
spec: {lifecycleEnabled: true, highAvailability: true, skipTests: false}
status:
  numInstances: 7
  internalIp: 10.0.0.1
  serviceId: s
  hypervisorId: h
  operatingSystem: {prettyVersion: Garden Linux 1933.0, hardwareModel: PowerEdge R860, kernelRelease: 6.12.38-amd64}
  conditions:
  - {type: Ready, status: "True", reason: Ready, lastTransitionTime: "2026-01-01T00:00:00Z", message: Hypervisor is ready}
  - {type: Tainted, status: "False", reason: NoKubectl, lastTransitionTime: "2026-01-01T00:00:00Z", message: "🟢"}
  - {type: Onboarding, status: "False", reason: Succeeded, lastTransitionTime: "2026-01-01T00:00:00Z", message: Onboarding completed}
`

func TestHypervisorTable(t *testing.T) {
	server := serve(t, hypervisors)
	host := server.object(t, garden)
	created := metav1.NewTime(time.Now().Add(-74 * 24 * time.Hour))
	host["metadata"].(map[string]any)["creationTimestamp"] = created.UTC().Format(time.RFC3339)

	printed(t, server, host, false,
		"NAME | NODE | VERSION | INSTANCES | HARDWARE | KERNEL | AGE",
		"node001-bb234 | node001-bb234.metal | Garden Linux 1933.0 | 7 | PowerEdge R860 | 6.12.38-amd64 | 74d")
	printed(t, server, host, true,
		"NAME | NODE | VERSION | INSTANCES | HARDWARE | KERNEL | ZONE | BUILDING BLOCK | GROUP | READY | STATE | TAINT | LIFECYCLE | HIGH AVAILABILITY | SKIP TESTS | IP | ONBOARDING | SERVICE ID | HYPERVISOR ID | AGE",
		"node001-bb234 | node001-bb234.metal | Garden Linux 1933.0 | 7 | PowerEdge R860 | 6.12.38-amd64 | zone-a | bb234 | kvm | True | Ready | 🟢 | true | true | false | 10.0.0.1 | Succeeded | s | h | 74d")
}

func printed(t *testing.T, server *server, obj map[string]any, wide bool, header, row string) {
	t.Helper()
	gotHeader, gotRow := server.table(t, obj, wide)
	if gotHeader != header || gotRow != row {
		t.Errorf("got:\n%s\n%s\nwant:\n%s\n%s", gotHeader, gotRow, header, row)
	}
}

// TestHypervisorOfGoIsAccepted sends the zero values of the Go type, nil lists
// among them, as a careless client does.
func TestHypervisorOfGoIsAccepted(t *testing.T) {
	server := serve(t, hypervisors)
	host := kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	host.APIVersion, host.Kind = kvmv1.GroupVersion.String(), "Hypervisor"
	stored, err := server.create(plain(t, host))
	if err != nil {
		t.Fatal(err)
	}
	if stored["spec"].(map[string]any)["evacuateOnReboot"] != false {
		t.Error("the zero value sent by Go is replaced by the default; CobaltCore's operator relies on it")
	}
	stored, err = server.updateStatus(stored, plain(t, host))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &host); err != nil {
		t.Fatal(err)
	}
	if host.Status.LibVirtVersion != "unknown" || host.Status.NumInstances != 0 {
		t.Errorf("got %+v", host.Status)
	}
}

// TestHypervisorIsOneThingOnEveryWay: the simulated API and server-side apply
// take the unstructured converter, the wire takes JSON.
func TestHypervisorIsOneThingOnEveryWay(t *testing.T) {
	for name, host := range map[string]*kvmv1.Hypervisor{
		"empty": {},
		"known": {Status: kvmv1.HypervisorStatus{
			OperatingSystem: kvmv1.OperatingSystem{Version: "1933.0"},
			Capabilities:    kvmv1.Capabilities{HostCPUArch: "x86_64", HostMemory: resource.MustParse("1Ti"), HostCPUs: resource.MustParse("64")},
			Cells:           []kvmv1.Cell{{CellID: 1, Capacity: map[kvmv1.ResourceName]resource.Quantity{kvmv1.ResourceCPU: resource.MustParse("32")}}},
		}},
	} {
		converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(host)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := asYAML(converted), asYAML(plain(t, host)); got != want {
			t.Errorf("%s: converted:\n%s\nmarshalled:\n%s", name, got, want)
		}
	}
}
