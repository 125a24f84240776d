// SPDX-License-Identifier: Apache-2.0

package kubevirt

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// everything is a VMI that uses all we support.
const everything = `
spec:
  architecture: amd64
  priorityClassName: gold
  nodeSelector: {zone: a}
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector: {matchLabels: {app: db}}
  tolerations: [{operator: Exists}]
  schedulerName: adit
  evictionStrategy: LiveMigrateIfPossible
  startStrategy: Paused
  terminationGracePeriodSeconds: 0
  domain:
    cpu:
      sockets: 2
      cores: 2
      threads: 1
      model: host-passthrough
      features: [{name: vmx, policy: disable}]
      dedicatedCpuPlacement: true
      numa: {guestMappingPassthrough: {}}
    memory: {guest: 4Gi, hugepages: {pageSize: 2Mi}}
    resources:
      requests: {cpu: "4", memory: 4Gi}
      limits: {cpu: "4", memory: 4Gi}
    machine: {type: pc-q35-9.2}
    features: {acpi: {enabled: true}}
    firmware:
      uuid: 1b4e28ba-2fa1-41d2-883f-0016d3cca427
      serial: abc
      bootloader: {efi: {secureBoot: false}}
    devices:
      autoattachPodInterface: false
      autoattachGraphicsDevice: false
      autoattachSerialConsole: true
      autoattachMemBalloon: true
      autoattachInputDevice: true
      rng: {}
      watchdog: {name: dog, i6300esb: {action: reset}}
      disks:
      - {name: root, disk: {bus: virtio}, serial: r, bootOrder: 1, cache: none}
      - {name: data, disk: {bus: scsi}}
      interfaces:
      - {name: a, bridge: {}, model: virtio, macAddress: "02:00:00:00:00:01"}
  volumes:
  - {name: root, persistentVolumeClaim: {claimName: root}}
  - {name: data, dataVolume: {name: data}}
  networks:
  - {name: a, pod: {}}
  - {name: b, multus: {networkName: b}}
`

func parse(t *testing.T, text string) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := yaml.UnmarshalStrict([]byte(text), vmi); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return vmi
}

func TestUnsupported(t *testing.T) {
	for _, test := range []struct {
		name string
		vmi  string
		want []string
	}{
		{"accepts an empty spec", `spec: {}`, nil},
		{"accepts all that is supported, used at once", everything, nil},
		{"accepts BIOS", `spec: {domain: {firmware: {bootloader: {bios: {}}}}}`, nil},
		{"accepts a flag that is off", `spec: {domain: {devices: {autoattachVSOCK: false, blockMultiQueue: false}}}`, nil},
		{"accepts empty lists", `spec: {volumes: [], accessCredentials: [], domain: {devices: {gpus: []}}}`, nil},

		{"refuses a flag that is on", `spec: {domain: {devices: {blockMultiQueue: true}}}`,
			[]string{`spec.domain.devices.blockMultiQueue: Forbidden: not supported: remove it`}},
		{"refuses a struct that is present and empty", `spec: {domain: {devices: {interfaces: [{name: a, masquerade: {}}]}}}`,
			[]string{`spec.domain.devices.interfaces[0].masquerade: Forbidden: not supported: use bridge`}},
		{"names the place in a list", `spec: {domain: {devices: {disks: [{name: a}, {name: b, cdrom: {bus: sata}}]}}}`,
			[]string{`spec.domain.devices.disks[1].cdrom: Forbidden: not supported: use disk; removable media are not supported`}},
		{"names the key of a map", `spec: {domain: {resources: {requests: {cpu: "1", ephemeral-storage: 0, memory: 1Gi}}}}`,
			[]string{`spec.domain.resources.requests[ephemeral-storage]: Forbidden: not supported: remove it`}},
		{"refuses a container disk", `spec: {volumes: [{name: root, containerDisk: {image: x}}]}`,
			[]string{`spec.volumes[0].containerDisk: Forbidden: not supported: import the image into a PersistentVolumeClaim and use persistentVolumeClaim`}},
		{"refuses a field of an inlined struct", `spec: {volumes: [{name: root, persistentVolumeClaim: {claimName: a, readOnly: true}}]}`,
			[]string{`spec.volumes[0].persistentVolumeClaim.readOnly: Forbidden: not supported: remove it`}},
		{"refuses a bus", `spec: {domain: {devices: {disks: [{name: a, disk: {bus: usb}}]}}}`,
			[]string{`spec.domain.devices.disks[0].disk.bus: Unsupported value: "usb": supported values: "virtio", "sata", "scsi"`}},
		{"refuses a network card", `spec: {domain: {devices: {interfaces: [{name: a, bridge: {}, model: e1000}]}}}`,
			[]string{`spec.domain.devices.interfaces[0].model: Unsupported value: "e1000": supported values: "virtio"`}},
		{"refuses another scheduler", `spec: {schedulerName: default-scheduler}`,
			[]string{`spec.schedulerName: Unsupported value: "default-scheduler": supported values: "adit"`}},
		{"refuses another architecture", `spec: {architecture: arm64}`,
			[]string{`spec.architecture: Unsupported value: "arm64": supported values: "amd64"`}},
		{"refuses spread constraints", `spec: {topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]}`,
			[]string{`spec.topologySpreadConstraints: Forbidden: not supported: use affinity.podAntiAffinity`}},
		{"refuses another machine", `spec: {domain: {machine: {type: pc-i440fx-9.2}}}`,
			[]string{`spec.domain.machine.type: Invalid value: "pc-i440fx-9.2": must be q35 or one of its versions, as pc-q35-9.2`}},
		{"refuses a machine without ACPI", `spec: {domain: {features: {acpi: {enabled: false}}}}`,
			[]string{`spec.domain.features.acpi.enabled: Invalid value: false: must be true or absent: without ACPI a VM cannot be shut down`}},
		{"refuses a UUID libvirt would not read", `spec: {domain: {firmware: {uuid: "{1b4e28ba-2fa1-41d2-883f-0016d3cca427}"}}}`,
			[]string{`spec.domain.firmware.uuid: Invalid value: "{1b4e28ba-2fa1-41d2-883f-0016d3cca427}": must be a UUID, as 1b4e28ba-2fa1-41d2-883f-0016d3cca427`}},
		{"refuses what is no MAC address", `spec: {domain: {devices: {interfaces: [{name: a, macAddress: "02:00"}]}}}`,
			[]string{`spec.domain.devices.interfaces[0].macAddress: Invalid value: "02:00": must be a MAC address, as 02:00:00:12:34:56`}},
		{"refuses the address of a group", `spec: {domain: {devices: {interfaces: [{name: a, macAddress: "01:00:5e:00:00:01"}]}}}`,
			[]string{`spec.domain.devices.interfaces[0].macAddress: Invalid value: "01:00:5e:00:00:01": must be the address of one interface: clear the lowest bit of the first byte`}},
		{"refuses a negative grace period", `spec: {terminationGracePeriodSeconds: -1}`,
			[]string{`spec.terminationGracePeriodSeconds: Invalid value: -1: must be 0 or more seconds`}},
		{"refuses Secure Boot", `spec: {domain: {firmware: {bootloader: {efi: {secureBoot: true}}}}}`,
			[]string{`spec.domain.firmware.bootloader.efi.secureBoot: Forbidden: not supported: set it to false; Secure Boot is not supported`}},
		{"refuses Secure Boot asked for by silence", `spec: {domain: {firmware: {bootloader: {efi: {}}}}}`,
			[]string{`spec.domain.firmware.bootloader.efi.secureBoot: Required value: it is true when absent, and Secure Boot is not supported: set it to false`}},
		{"refuses an interface that is to appear by itself", `spec: {domain: {devices: {autoattachPodInterface: true}}}`,
			[]string{`spec.domain.devices.autoattachPodInterface: Forbidden: not supported: list the interface and its network; a VMI that lists none has none`}},
		{"names all at once, in order", `spec: {hostname: a, domain: {cpu: {maxSockets: 4}, clock: {}}, volumes: [{name: a, emptyDisk: {capacity: 1Gi}}]}`,
			[]string{
				`spec.domain.cpu.maxSockets: Forbidden: not supported: set sockets to what the VM needs; CPUs cannot be added while it runs`,
				`spec.domain.clock: Forbidden: not supported: remove it`,
				`spec.volumes[0].emptyDisk: Forbidden: not supported: use a persistentVolumeClaim`,
				`spec.hostname: Forbidden: not supported: remove it`,
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, err := range Unsupported(parse(t, test.vmi)) {
				got = append(got, err.Error())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// isBranch says that the table has rows below this one.
func isBranch(row string) bool {
	for listed := range supported {
		if below, ok := strings.CutPrefix(listed, row); ok && below != "" && strings.ContainsAny(below[:1], ".[") {
			return true
		}
	}
	return false
}

// TestEveryFieldIsListedOrRefused walks KubeVirt's types, not an object: when a
// new release brings a field, the field is found here and must be refused.
func TestEveryFieldIsListedOrRefused(t *testing.T) {
	seen := map[string]bool{}
	refused := 0
	var walk func(t *testing.T, typ reflect.Type, row string, reach func(*kubevirtv1.VirtualMachineInstance) reflect.Value)
	walk = func(t *testing.T, typ reflect.Type, row string, reach func(*kubevirtv1.VirtualMachineInstance) reflect.Value) {
		seen[row] = true
		if rule, listed := supported[row]; !listed && !isBranch(row) {
			vmi := &kubevirtv1.VirtualMachineInstance{}
			if !fill(reach(vmi)) {
				t.Fatalf("%s: the test cannot set a %s", row, typ)
			}
			where := strings.ReplaceAll(row, "[]", "[0]")
			if !slices.ContainsFunc(names(vmi), func(name string) bool { return name == where }) {
				t.Errorf("%s is set, not listed and not refused", where)
			}
			refused++
			return
		} else if rule.below {
			return
		}
		switch {
		case typ == reflect.TypeFor[resource.Quantity]():
		case typ.Kind() == reflect.Pointer:
			walk(t, typ.Elem(), row, func(vmi *kubevirtv1.VirtualMachineInstance) reflect.Value {
				v := reach(vmi)
				v.Set(reflect.New(typ.Elem()))
				return v.Elem()
			})
		case typ.Kind() == reflect.Slice:
			walk(t, typ.Elem(), row+"[]", func(vmi *kubevirtv1.VirtualMachineInstance) reflect.Value {
				v := reach(vmi)
				v.Set(reflect.MakeSlice(typ, 1, 1))
				return v.Index(0)
			})
		case typ.Kind() == reflect.Struct:
			for i := range typ.NumField() {
				child := row
				if name := jsonName(typ.Field(i)); name != "" {
					child += "." + name
				}
				walk(t, typ.Field(i).Type, child, func(vmi *kubevirtv1.VirtualMachineInstance) reflect.Value {
					return reach(vmi).Field(i)
				})
			}
		}
	}
	walk(t, reflect.TypeFor[kubevirtv1.VirtualMachineInstanceSpec](), "spec", func(vmi *kubevirtv1.VirtualMachineInstance) reflect.Value {
		return reflect.ValueOf(&vmi.Spec).Elem()
	})
	t.Logf("%d fields and kinds of field are refused", refused)

	for _, row := range slices.Concat(slices.Collect(maps.Keys(supported)), slices.Collect(maps.Keys(mends))) {
		if above, _, inMap := strings.Cut(row, "[cpu]"); inMap {
			row = above
		} else if above, _, inMap := strings.Cut(row, "[memory]"); inMap {
			row = above
		}
		if !seen[row] {
			t.Errorf("the tables have a row for %s, which KubeVirt does not have", row)
		}
	}
	for row := range mends {
		if _, listed := supported[row]; listed {
			t.Errorf("%s is supported and has a mend", row)
		}
	}
}

func names(vmi *kubevirtv1.VirtualMachineInstance) []string {
	var names []string
	for _, err := range Unsupported(vmi) {
		names = append(names, err.Field)
	}
	return names
}

// fill sets a value to something, whatever it is.
func fill(v reflect.Value) bool {
	if v.Type() == reflect.TypeFor[resource.Quantity]() {
		v.Set(reflect.ValueOf(resource.MustParse("1")))
		return true
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	case reflect.Struct:
		for i := range v.NumField() {
			if fill(v.Field(i)) {
				return true
			}
		}
		return false
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	default:
		return false
	}
	return true
}
