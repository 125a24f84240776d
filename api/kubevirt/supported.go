// SPDX-License-Identifier: Apache-2.0

package kubevirt

import (
	"fmt"
	"net"
	"reflect"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// supported lists every field of a VMI's spec that Adit acts on. A field that is
// set and not listed is refused, so that one KubeVirt adds tomorrow is refused
// and not ignored. A row for a struct or a list allows its presence; what is in
// it needs rows of its own, except with below().
var supported = map[string]rule{
	"spec.architecture":                  oneOf("amd64"),
	"spec.priorityClassName":             anything(),
	"spec.nodeSelector":                  below(),
	"spec.affinity":                      below(),
	"spec.tolerations":                   below(),
	"spec.schedulerName":                 oneOf(SchedulerName),
	"spec.evictionStrategy":              oneOf("None", "LiveMigrate", "LiveMigrateIfPossible", "External"),
	"spec.startStrategy":                 oneOf("Paused"),
	"spec.terminationGracePeriodSeconds": checked(notNegative),

	"spec.domain.cpu.cores":                        anything(),
	"spec.domain.cpu.sockets":                      anything(),
	"spec.domain.cpu.threads":                      anything(),
	"spec.domain.cpu.model":                        anything(),
	"spec.domain.cpu.features[].name":              anything(),
	"spec.domain.cpu.features[].policy":            oneOf("force", "require", "optional", "disable", "forbid"),
	"spec.domain.cpu.dedicatedCpuPlacement":        anything(),
	"spec.domain.cpu.numa.guestMappingPassthrough": anything(),

	"spec.domain.memory.guest":              anything(),
	"spec.domain.memory.hugepages.pageSize": anything(),

	"spec.domain.resources.requests[cpu]":    anything(),
	"spec.domain.resources.requests[memory]": anything(),
	"spec.domain.resources.limits[cpu]":      anything(),
	"spec.domain.resources.limits[memory]":   anything(),

	"spec.domain.machine.type":             checked(machineQ35),
	"spec.domain.features.acpi.enabled":    checked(notSwitchedOff),
	"spec.domain.firmware.uuid":            checked(wellFormedUUID),
	"spec.domain.firmware.serial":          anything(),
	"spec.domain.firmware.bootloader.bios": anything(),
	"spec.domain.firmware.bootloader.efi":  anything(), // And see secureBoot.

	"spec.domain.devices.autoattachGraphicsDevice": anything(),
	"spec.domain.devices.autoattachSerialConsole":  anything(),
	"spec.domain.devices.autoattachMemBalloon":     anything(),
	"spec.domain.devices.autoattachInputDevice":    anything(),
	"spec.domain.devices.rng":                      anything(),
	"spec.domain.devices.watchdog.name":            anything(),
	"spec.domain.devices.watchdog.i6300esb.action": oneOf("poweroff", "reset", "shutdown"),

	"spec.domain.devices.disks[].name":      anything(),
	"spec.domain.devices.disks[].disk.bus":  oneOf("virtio", "sata", "scsi"),
	"spec.domain.devices.disks[].serial":    anything(),
	"spec.domain.devices.disks[].bootOrder": anything(),
	"spec.domain.devices.disks[].cache":     oneOf("none", "writethrough", "writeback"),

	"spec.domain.devices.interfaces[].name":       anything(),
	"spec.domain.devices.interfaces[].model":      oneOf("virtio"),
	"spec.domain.devices.interfaces[].bridge":     anything(),
	"spec.domain.devices.interfaces[].macAddress": checked(wellFormedMAC),

	"spec.volumes[].name":                            anything(),
	"spec.volumes[].persistentVolumeClaim.claimName": anything(),
	"spec.volumes[].dataVolume.name":                 anything(),

	"spec.networks[].name":               anything(),
	"spec.networks[].pod":                anything(),
	"spec.networks[].multus.networkName": anything(),
}

// mends says what to do instead, for the fields people bring from KubeVirt. All
// others are to be removed.
var mends = map[string]string{
	"spec.accessCredentials":         "put the credentials into the image",
	"spec.livenessProbe":             "use domain.devices.watchdog",
	"spec.topologySpreadConstraints": "use affinity.podAntiAffinity",

	"spec.domain.cpu.maxSockets":                     "set sockets to what the VM needs; CPUs cannot be added while it runs",
	"spec.domain.firmware.bootloader.efi.persistent": "remove it; EFI variables are not kept when a VM moves",
	"spec.domain.memory.maxGuest":                    "set guest to what the VM needs; memory cannot be added while it runs",

	"spec.domain.firmware.bootloader.efi.secureBoot":    "set it to false; Secure Boot is not supported",
	"spec.domain.firmware.kernelBoot":                   "boot from a disk",
	"spec.domain.devices.autoattachPodInterface":        "list the interface and its network; a VMI that lists none has none",
	"spec.domain.devices.autoattachVSOCK":               "use a network interface",
	"spec.domain.devices.disks[].cdrom":                 "use disk; removable media are not supported",
	"spec.domain.devices.disks[].lun":                   "use disk",
	"spec.domain.devices.interfaces[].masquerade":       "use bridge",
	"spec.domain.devices.interfaces[].sriov":            "use bridge; host devices cannot be moved live",
	"spec.domain.devices.interfaces[].slirp":            "use bridge",
	"spec.domain.devices.interfaces[].passt":            "use bridge",
	"spec.domain.devices.interfaces[].macvtap":          "use bridge",
	"spec.domain.devices.interfaces[].binding":          "use bridge",
	"spec.domain.devices.interfaces[].ports":            "use a NetworkPolicy; with bridge all ports are reachable",
	"spec.domain.devices.interfaces[].bootOrder":        "give a disk the bootOrder",
	"spec.domain.devices.watchdog.diag288":              "use i6300esb",
	"spec.volumes[].containerDisk":                      "import the image into a PersistentVolumeClaim and use persistentVolumeClaim",
	"spec.volumes[].emptyDisk":                          "use a persistentVolumeClaim",
	"spec.volumes[].ephemeral":                          "use a persistentVolumeClaim",
	"spec.volumes[].hostDisk":                           "use a persistentVolumeClaim; what is on one host cannot follow the VM",
	"spec.volumes[].cloudInitNoCloud":                   "put the configuration into the image",
	"spec.volumes[].cloudInitConfigDrive":               "put the configuration into the image",
	"spec.volumes[].persistentVolumeClaim.hotpluggable": "remove it; volumes cannot be added while the VM runs",
	"spec.volumes[].dataVolume.hotpluggable":            "remove it; volumes cannot be added while the VM runs",
	"spec.networks[].multus.default":                    "list the interface first",
}

// Unsupported names each field of a VMI's spec that is set and that Adit does
// not support, in the order of the fields, and what to do about it. Nil means
// that all of the spec will be honoured.
//
// A flag that is not listed may be set to false: that asks for nothing.
func Unsupported(vmi *kubevirtv1.VirtualMachineInstance) field.ErrorList {
	errs := judge(reflect.ValueOf(&vmi.Spec).Elem(), &place{name: "spec"}, rows)
	return append(errs, secureBoot(vmi)...)
}

// secureBoot refuses silence: where an EFI says nothing, KubeVirt means Secure
// Boot, and to start without it would weaken the VM unasked.
func secureBoot(vmi *kubevirtv1.VirtualMachineInstance) field.ErrorList {
	firmware := vmi.Spec.Domain.Firmware
	if firmware == nil || firmware.Bootloader == nil || firmware.Bootloader.EFI == nil || firmware.Bootloader.EFI.SecureBoot != nil {
		return nil
	}
	path := field.NewPath("spec", "domain", "firmware", "bootloader", "efi", "secureBoot")
	return field.ErrorList{field.Required(path, "it is true when absent, and Secure Boot is not supported: set it to false")}
}

// rule says what a listed field may hold.
type rule struct {
	below  bool
	values []string
	check  func(v reflect.Value) (mend string)
}

// anything allows every value.
func anything() rule { return rule{} }

// below allows every value and everything beneath.
func below() rule { return rule{below: true} }

// oneOf allows these values.
func oneOf(values ...string) rule { return rule{values: values} }

// checked allows the values to which check says nothing; what it says is how to
// mend the others.
func checked(check func(reflect.Value) string) rule { return rule{check: check} }

func notNegative(v reflect.Value) string {
	if v.Int() < 0 {
		return "must be 0 or more seconds"
	}
	return ""
}

func machineQ35(v reflect.Value) string {
	if machine := v.String(); machine == MachineQ35 || strings.HasPrefix(machine, "pc-q35-") {
		return ""
	}
	return fmt.Sprintf("must be %s or one of its versions, as pc-q35-9.2", MachineQ35)
}

func notSwitchedOff(v reflect.Value) string {
	if v.Bool() {
		return ""
	}
	return "must be true or absent: without ACPI a VM cannot be shut down"
}

func wellFormedUUID(v reflect.Value) string {
	// Parse also reads braces and the urn: form; libvirt does not.
	if _, err := uuid.Parse(v.String()); err != nil || len(v.String()) != 36 {
		return "must be a UUID, as 1b4e28ba-2fa1-41d2-883f-0016d3cca427"
	}
	return ""
}

func wellFormedMAC(v reflect.Value) string {
	mac, err := net.ParseMAC(v.String())
	switch {
	case err != nil || len(mac) != 6:
		return "must be a MAC address, as 02:00:00:12:34:56"
	case mac[0]&1 == 1:
		return "must be the address of one interface: clear the lowest bit of the first byte"
	}
	return ""
}
