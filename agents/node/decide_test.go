// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
)

// machine is a host with answers; an error in place of one says so. Only what
// the agent reads is there: calling anything else panics.
type machine struct {
	hardware.Host
	boot         hardware.Boot
	identity     hardware.Identity
	system       hardware.System
	capabilities hardware.Capabilities
	domains      []hardware.Domain
	units        map[string]hardware.Unit

	domainsErr, capabilitiesErr, aliveErr error
	calls                                 []string
}

func (m *machine) called(name string) { m.calls = append(m.calls, name) }

func (m *machine) Boot(context.Context) (hardware.Boot, error) { return m.boot, nil }
func (m *machine) Identity(context.Context) (hardware.Identity, error) {
	m.called("Identity")
	return m.identity, nil
}
func (m *machine) System(context.Context) (hardware.System, error) {
	m.called("System")
	return m.system, nil
}
func (m *machine) Capabilities(context.Context) (hardware.Capabilities, error) {
	m.called("Capabilities")
	return m.capabilities, m.capabilitiesErr
}
func (m *machine) Domains(context.Context) ([]hardware.Domain, error) {
	m.called("Domains")
	return m.domains, m.domainsErr
}
func (m *machine) Domain(context.Context, string) (hardware.Domain, error) {
	m.called("Domain")
	if m.aliveErr != nil {
		return hardware.Domain{}, m.aliveErr
	}
	return hardware.Domain{}, hardware.Fail(hardware.Refused, hardware.ReasonNoDomain, "look up", "domain", "not found")
}
func (m *machine) Units(_ context.Context, names ...string) ([]hardware.Unit, error) {
	units := make([]hardware.Unit, len(names))
	for i, name := range names {
		u, ok := m.units[name]
		if !ok {
			u = hardware.Unit{Name: name, Load: "not-found", Active: "inactive", Sub: "dead"}
		}
		units[i] = u
	}
	return units, nil
}

var runningUnit = hardware.Unit{Load: "loaded", Active: "active", Sub: "running"}

func newMachine(vms int) *machine {
	m := &machine{
		boot:     hardware.Boot{ID: "b1", Uptime: time.Hour},
		identity: hardware.Identity{Hostname: "node001", MachineID: "m-1", ProductUUID: "u-1", Serial: "S-1"},
		system: hardware.System{
			HardwareVendor: "Dell Inc.", HardwareModel: "PowerEdge R860", FirmwareVendor: "Dell Inc.", FirmwareVersion: "2.1",
			OSRelease: map[string]string{
				"PRETTY_NAME": "Garden Linux 1933.0", "GARDENLINUX_VERSION": "1933.0", "VERSION_ID": "1933",
				"GARDENLINUX_FEATURES": "server,metal,,khost", "GARDENLINUX_COMMIT_ID_LONG": strings.Repeat("a", 40), "VARIANT_ID": "metal",
			},
			KernelName: "Linux", KernelRelease: "6.12.38-amd64", KernelVersion: "#1 SMP", KernelCommandLine: "quiet\n",
		},
		capabilities: hardware.Capabilities{
			LibvirtVersion: 11_003_000, HypervisorVersion: 9_002_000, CPU: hardware.CPU{Arch: "x86_64"}, Cells: twoCells(),
			Arch: "x86_64", HypervisorType: "kvm", Devices: []string{"video/vga", "disk"}, CPUModes: []string{"mode/host-model"}, Features: []string{"sev"},
		},
		units: map[string]hardware.Unit{unitLibvirtd: runningUnit, unitVswitchd: runningUnit},
	}
	for i := range vms {
		m.domains = append(m.domains, hardware.Domain{
			UUID: fmt.Sprintf("12e479eb-0000-4000-8000-%012d", i), State: hardware.StateRunning,
			Spec: hardware.DomainSpec{Name: fmt.Sprintf("instance-%08x", i), VCPUs: 1, MemoryKiB: gib},
		})
	}
	return m
}

// agent is an observer and a Hypervisor, without an API between them.
type agent struct {
	m   *machine
	o   observer
	hv  kvmv1.Hypervisor
	now time.Time
}

func newAgent(m *machine) *agent {
	a := &agent{m: m, now: noon, o: observer{host: m, resync: 5 * time.Minute}}
	a.hv.Name = "node001"
	a.hv.Annotations = map[string]string{AnnotationIdentity: identityOf(m.identity).text()}
	return a
}

// reboot begins a new life of the agent, as each boot does.
func (a *agent) reboot() { a.o = observer{host: a.m, resync: a.o.resync} }

// look reconciles once and reports whether it would have written.
func (a *agent) look() (wrote bool) {
	seen := observation{seenHost: a.o.look(context.Background(), a.now), hv: &a.hv, recorded: parseIdentity(a.hv.Annotations[AnnotationIdentity])}
	p := decide(seen)
	wrote = !equality.Semantic.DeepEqual(a.hv.Status, p.status)
	a.hv.Status = p.status
	return wrote
}

func (a *agent) condition(conditionType string) metav1.Condition {
	return condition(a.hv.Status.Conditions, conditionType)
}

func TestTheFirstLookReportsEverything(t *testing.T) {
	a := newAgent(newMachine(2))
	a.m.domains[0].State = hardware.StateShutOff
	a.m.domains = append(a.m.domains, hardware.Domain{UUID: "f", Foreign: true, State: hardware.StatePaused, Spec: hardware.DomainSpec{Name: "scratch-box", VCPUs: 2, MemoryKiB: 4 * gib}})
	if !a.look() {
		t.Fatal("wrote nothing")
	}
	want := `{"libVirtVersion":"11.3.0","hypervisorVersion":"9.2.0",` +
		`"operatingSystem":{"version":"1933.0","variantID":"metal","prettyVersion":"Garden Linux 1933.0","kernelName":"Linux","kernelRelease":"6.12.38-amd64","kernelVersion":"#1 SMP","kernelCommandLine":"quiet","hardwareVendor":"Dell Inc.","hardwareModel":"PowerEdge R860","hardwareSerial":"S-1","firmwareVersion":"2.1","firmwareVendor":"Dell Inc.","gardenLinuxCommitID":"` + strings.Repeat("a", 40) + `","gardenLinuxFeatures":["server","metal","khost"]},` +
		`"instances":[{"id":"12e479eb-0000-4000-8000-000000000001","name":"instance-00000001","active":true},{"id":"f","name":"scratch-box","active":true},{"id":"12e479eb-0000-4000-8000-000000000000","name":"instance-00000000","active":false}],` +
		`"capabilities":{"cpuArch":"x86_64","memory":"512Gi","cpus":"8"},` +
		`"domainCapabilities":{"arch":"x86_64","hypervisorType":"kvm","supportedDevices":["disk","video/vga"],"supportedCpuModes":["mode/host-model"],"supportedFeatures":["sev"]},` +
		`"allocation":{"cpu":"4","memory":"6Gi"},"capacity":{"cpu":"8","memory":"512Gi"},"effectiveCapacity":{"cpu":"8","memory":"512Gi"},` +
		`"cells":[{"cellID":0,"allocation":{"cpu":"2","memory":"3Gi"},"capacity":{"cpu":"4","memory":"256Gi"},"effectiveCapacity":{"cpu":"4","memory":"256Gi"}},{"cellID":1,"allocation":{"cpu":"2","memory":"3Gi"},"capacity":{"cpu":"4","memory":"256Gi"},"effectiveCapacity":{"cpu":"4","memory":"256Gi"}}],` +
		`"numInstances":3`
	if got := asJSON(t, a.hv.Status); !strings.HasPrefix(got, want) {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	for _, c := range []string{"libvirtd.service", "openvswitch-switch.service", "LibVirtConnection", "IdentityConfirmed"} {
		if a.condition(c).Status != metav1.ConditionTrue {
			t.Errorf("%s is %+v", c, a.condition(c))
		}
	}
}

func TestAQuietHostIsReadLittleAndWrittenNever(t *testing.T) {
	a := newAgent(newMachine(3))
	a.look()
	for range 60 {
		a.m.calls = nil
		a.now = a.now.Add(time.Minute)
		resync := a.now.Sub(a.o.readAt) >= a.o.resync
		slices.Reverse(a.m.domains) // libvirt's order is nobody's promise
		if a.look() {
			t.Fatalf("wrote at %s: %s", a.now, asJSON(t, a.hv.Status))
		}
		if want := []string{"Domain"}; !resync && !slices.Equal(a.m.calls, want) {
			t.Fatalf("called %v, want %v", a.m.calls, want)
		}
	}
	for _, c := range a.hv.Status.Conditions {
		if !c.LastTransitionTime.Time.Equal(noon) {
			t.Errorf("%s went over at %s", c.Type, c.LastTransitionTime)
		}
	}
}

func TestWithoutLibvirtTheLastReportStays(t *testing.T) {
	unavailable := hardware.Fail(hardware.Unavailable, "", "list", "domains", "connection refused")
	for name, c := range map[string]struct {
		breakIt func(*machine)
		reason  string
		says    string
	}{
		"the service is stopped": {
			func(m *machine) {
				m.units[unitLibvirtd] = hardware.Unit{Load: "loaded", Active: "inactive", Sub: "dead"}
			},
			"LibVirtServiceNotRunning", "libvirtd service is not running",
		},
		"no sign of life": {
			func(m *machine) { m.aliveErr, m.domainsErr = unavailable, unavailable },
			"ConnectFailed", "unable to connect to libvirtd: list domains: unavailable: connection refused",
		},
		"it hangs": {
			func(m *machine) {
				m.aliveErr = hardware.Fail(hardware.Unknown, "", "look up", "domain", "no answer in 30s")
			},
			"ConnectFailed", "no answer in 30s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(newMachine(3))
			a.look()
			before := a.hv.Status.DeepCopy()
			c.breakIt(a.m)
			a.m.domains = nil
			a.now = a.now.Add(time.Minute)
			a.look()
			got := a.condition("LibVirtConnection")
			if got.Status != metav1.ConditionFalse || got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
				t.Errorf("%+v", got)
			}
			after := a.hv.Status.DeepCopy()
			before.Conditions, after.Conditions = nil, nil
			if !equality.Semantic.DeepEqual(before, after) {
				t.Errorf("the report changed:\n%s\n%s", asJSON(t, before), asJSON(t, after))
			}
		})
	}
}

func TestAStoppedDaemonIsNotAsked(t *testing.T) {
	a := newAgent(newMachine(1))
	a.m.units[unitLibvirtd] = hardware.Unit{Load: "loaded", Active: "failed", Sub: "failed"}
	a.look()
	if slices.Contains(a.m.calls, "Domains") || slices.Contains(a.m.calls, "Capabilities") {
		t.Errorf("called %v", a.m.calls)
	}
}

func TestAPartialReportIsKept(t *testing.T) {
	a := newAgent(newMachine(2))
	a.m.capabilitiesErr = hardware.Fail(hardware.Refused, "", "read", "capabilities", "broken cache")
	a.look()
	if c := a.condition("LibVirtConnection"); c.Reason != "ProcessFailed" || c.Message != "unable to process hypervisor via libvirt: read capabilities: refused: broken cache" {
		t.Errorf("%+v", c)
	}
	if a.hv.Status.NumInstances != 2 || a.hv.Status.OperatingSystem.Version != "1933.0" || a.hv.Status.Capacity != nil {
		t.Errorf("%s", asJSON(t, a.hv.Status))
	}
	a.m.capabilitiesErr = nil
	a.look()
	if c := a.condition("LibVirtConnection"); c.Reason != "Connected" || a.hv.Status.Capacity == nil {
		t.Errorf("did not recover: %s", asJSON(t, a.hv.Status))
	}
}

func TestReloadingChangesNoVerdict(t *testing.T) {
	a := newAgent(newMachine(0))
	a.look()
	a.m.units[unitLibvirtd] = hardware.Unit{Load: "loaded", Active: "reloading", Sub: "reload"}
	if a.look() {
		t.Errorf("%+v", a.condition("libvirtd.service"))
	}
}

func TestANewSystemIsSeenAfterABoot(t *testing.T) {
	a := newAgent(newMachine(0))
	a.look()
	a.m.boot.ID, a.m.system.KernelRelease = "b2", "6.12.50-amd64"
	a.m.system.OSRelease["GARDENLINUX_VERSION"] = "1934.0"
	a.reboot()
	a.look()
	if os := a.hv.Status.OperatingSystem; os.KernelRelease != "6.12.50-amd64" || os.Version != "1934.0" {
		t.Errorf("%+v", os)
	}
}

func TestAnEventMakesTheNextLookList(t *testing.T) {
	a := newAgent(newMachine(1))
	a.look()
	a.m.domains = newMachine(2).domains
	if a.look() {
		t.Fatal("listed without a reason")
	}
	a.o.notes.domainsChanged()
	if !a.look() || a.hv.Status.NumInstances != 2 {
		t.Fatalf("%d instances, want 2", a.hv.Status.NumInstances)
	}
}

func TestARatioThatIsRemovedGoes(t *testing.T) {
	a := newAgent(newMachine(0))
	a.hv.Spec.Overcommit = map[kvmv1.ResourceName]float64{kvmv1.ResourceCPU: 2.5}
	a.look()
	if got := asJSON(t, a.hv.Status.EffectiveCapacity); got != `{"cpu":"20","memory":"512Gi"}` {
		t.Error(got)
	}
	a.hv.Spec.Overcommit = nil
	a.look()
	if got := asJSON(t, a.hv.Status.EffectiveCapacity); got != `{"cpu":"8","memory":"512Gi"}` {
		t.Error(got)
	}
}

func TestAnotherMachineWritesNothingButThat(t *testing.T) {
	a := newAgent(newMachine(2))
	a.look()
	before := a.hv.Status.DeepCopy()
	a.m.identity.Serial, a.m.identity.ProductUUID = "S-200", "u-2"
	a.m.domains, a.m.boot.ID, a.m.system.KernelRelease = nil, "b2", "9.9"
	a.reboot()
	a.look()
	if c := a.condition(ConditionIdentityConfirmed); c.Status != metav1.ConditionFalse || c.Reason != "Mismatch" {
		t.Errorf("%+v", c)
	}
	after := a.hv.Status.DeepCopy()
	if len(after.Conditions) != len(before.Conditions) {
		t.Errorf("conditions %+v", after.Conditions)
	}
	before.Conditions, after.Conditions = nil, nil
	if !equality.Semantic.DeepEqual(before, after) {
		t.Errorf("wrote %s", asJSON(t, after))
	}
}

func TestOthersConditionsAreKept(t *testing.T) {
	a := newAgent(newMachine(0))
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.NewTime(noon)}
	a.hv.Status.Conditions = []metav1.Condition{ready}
	a.hv.Status.InternalIP, a.hv.Status.Evicted = "10.0.0.1", true
	a.look()
	if a.condition("Ready") != ready || a.hv.Status.InternalIP != "10.0.0.1" || !a.hv.Status.Evicted {
		t.Errorf("%s", asJSON(t, a.hv.Status))
	}
}

// 500 VMs on a host with eight cells, with managed fields as an API server adds
// them, stay under a quarter of a MiB.
func TestAFullHostIsASmallObject(t *testing.T) {
	a := newAgent(newMachine(500))
	a.m.capabilities.Cells = nil
	for id := range 8 {
		a.m.capabilities.Cells = append(a.m.capabilities.Cells, hostCell(uint64(id), 256*gib, id*2, id*2+1))
	}
	for i := range 300 {
		a.m.capabilities.Devices = append(a.m.capabilities.Devices, fmt.Sprintf("device-%03d/value-of-some-length", i))
	}
	a.look()
	b, err := json.Marshal(a.hv)
	if err != nil {
		t.Fatal(err)
	}
	// An atomic list is one entry of managed fields, a condition five, and a
	// field of a struct about forty bytes; there are fewer than 200 of them.
	const managedFields = 200 * 40
	if size := len(b) + managedFields; size > 256<<10 {
		t.Errorf("%d bytes", size)
	} else {
		t.Logf("%d bytes", size)
	}
}

func TestAUnitThatCannotBeReadKeepsItsCondition(t *testing.T) {
	if _, ok := unitCondition("x.service", judge(hardware.Unit{Name: "x.service"}, noon)); ok {
		t.Error("changed")
	}
	if c, _ := unitCondition("x.service", judge(hardware.Unit{Name: "x.service", Load: "loaded", Active: "failed", Sub: "failed"}, noon)); c.Message != "x.service: failed, loaded" || c.Reason != "Failed" {
		t.Errorf("%+v", c)
	}
}
