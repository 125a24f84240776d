// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/adit-hv/adit/hardware"
)

// TestMemoryIsExact holds KiB, the unit of libvirt, against what users write.
func TestMemoryIsExact(t *testing.T) {
	for _, tt := range []struct {
		written string
		kib     uint64
	}{
		{"1Gi", 1 << 20},
		{"1048576Ki", 1 << 20},
		{"1024Mi", 1 << 20},
		{"1Ti", 1 << 30},
		{"1G", 976563}, // rounded up to the next KiB
		{"1M", 977},    // likewise
		{"4000M", 3906250},
		{"1073741824", 1 << 20},
		{"1000", 1},
		{"1025", 2},
		{"1.5Gi", 1572864},
		{"100m", 1}, // a tenth of a byte
		{"0", 0},
		{"9223372036854775807", 9007199254740991},
	} {
		t.Run(tt.written, func(t *testing.T) {
			v := vmi(scheduled)
			q := resource.MustParse(tt.written)
			v.Spec.Domain.Memory.Guest = &q
			if got := memoryKiB(v); got != tt.kib {
				t.Errorf("%s is %d KiB, want %d", tt.written, got, tt.kib)
			}
		})
	}
}

const whole = `
metadata:
  namespace: vms
  name: web
  uid: uid-1
  annotations: {kvm.cloud.sap/run-token: "3"}
spec:
  domain:
    cpu: {sockets: 2, cores: 2, threads: 1, model: Icelake-Server, features: [{name: vmx, policy: require}, {name: aes}]}
    memory: {guest: 4Gi, hugepages: {pageSize: 2Mi}}
    machine: {type: pc-q35-9.2}
    firmware: {uuid: 1b4e28ba-2fa1-41d2-883f-0016d3cca427, bootloader: {efi: {secureBoot: false}}}
    devices:
      autoattachGraphicsDevice: false
      watchdog: {name: w, i6300esb: {action: poweroff}}
      disks:
      - {name: data, disk: {bus: virtio}, serial: D1}
      - {name: root, disk: {bus: virtio}, bootOrder: 1}
      - {name: more, disk: {}}
      interfaces:
      - {name: default, bridge: {}, macAddress: "02-00-00-12-34-AB"}
  volumes:
  - {name: root, persistentVolumeClaim: {claimName: web-root}}
  - {name: data, dataVolume: {name: web-data}}
  - {name: more, persistentVolumeClaim: {claimName: web-more}}
`

func parseVMI(t *testing.T, text string) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	var v kubevirtv1.VirtualMachineInstance
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return &v
}

func TestTranslate(t *testing.T) {
	got, err := Translate(parseVMI(t, whole))
	if err != nil {
		t.Fatal(err)
	}
	want := hardware.DomainSpec{
		UUID: "1b4e28ba-2fa1-41d2-883f-0016d3cca427", Name: "vms_web",
		Owner:     &hardware.Owner{Namespace: "vms", Name: "web", UID: "uid-1", Generation: 3},
		MemoryKiB: 4 << 20, VCPUs: 4, HugePageKiB: 2048, Machine: "pc-q35-9.2", Firmware: "efi",
		CPU: hardware.CPUSpec{Mode: "custom", Model: "Icelake-Server", Features: []string{"aes", "vmx"}, Sockets: 2, Cores: 2, Threads: 1},
		Disks: []hardware.Disk{ // in the order of booting; named in that of the spec
			{Target: "vdb", Volume: "shared/vms/web-root", Bus: "virtio"},
			{Target: "vda", Volume: "shared/vms/web-data", Bus: "virtio", Serial: "D1"},
			{Target: "sda", Volume: "shared/vms/web-more", Bus: "sata"},
		},
		Interfaces:    got.Interfaces,
		Watchdog:      "poweroff",
		OnCrash:       "destroy",
		GuestAgent:    true,
		SerialConsole: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(got.Interfaces) != 1 || got.Interfaces[0].MAC != "02:00:00:12:34:ab" || got.Interfaces[0].Bridge != "br-int" || got.Interfaces[0].Model != "virtio" {
		t.Errorf("interfaces %+v", got.Interfaces)
	}
}

func TestTranslateIsTheSameEverywhere(t *testing.T) {
	v := parseVMI(t, strings.Replace(whole, `, macAddress: "02-00-00-12-34-AB"`, "", 1))
	a, _ := Translate(v)
	b, _ := Translate(v.DeepCopy())
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	if mac := a.Interfaces[0].MAC; !strings.HasPrefix(mac, "02:") || len(mac) != 17 {
		t.Errorf("MAC %q is not a local one", mac)
	}
}

func TestTranslateRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, from, to, want string
	}{
		{"no memory", "memory: {guest: 4Gi, hugepages: {pageSize: 2Mi}}", "memory: {}", "spec.domain.memory.guest"},
		{"a page size that is none", "pageSize: 2Mi", "pageSize: big", "hugepages.pageSize"},
		{"a disk without a volume", "{name: root, persistentVolumeClaim: {claimName: web-root}}", "{name: rot, persistentVolumeClaim: {claimName: web-root}}", "disks[1].name"},
		{"a feature taken away", "policy: require", "policy: forbid", "features[0].policy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Translate(parseVMI(t, strings.Replace(whole, tt.from, tt.to, 1)))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error that names %s", err, tt.want)
			}
		})
	}
}

func TestMemoryOfRequests(t *testing.T) {
	v := vmi(scheduled)
	v.Spec.Domain.Memory = nil
	v.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1G")}
	if got := memoryKiB(v); got != 976563 {
		t.Errorf("got %d KiB", got)
	}
}

func TestDiskLetters(t *testing.T) {
	for n, want := range map[int]string{0: "a", 25: "z", 26: "aa", 27: "ab", 701: "zz", 702: "aaa"} {
		if got := letter(n); got != want {
			t.Errorf("disk %d is %s, want %s", n, got, want)
		}
	}
}
