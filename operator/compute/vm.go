// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
)

// vm is what the ledger keeps of a VMI.
type vm struct {
	key     types.NamespacedName
	uid     types.UID
	hash    uint64
	version string
	created time.Time

	priority int // Above 0: it has run before, and somebody waits for it.
	yields   bool
	leaving  bool // It was asked to leave its host,
	forWhom  *vm  // for this one. Nil: not known, as after a restart.
	shape

	labels     labels.Set
	generation int64
	wantTraits string // The annotation its traits were read from.
	claims     []claim
	groups     []*group // Those it matches.

	waiting  bool
	attempts int
	avoid    map[string]time.Time // Hosts that refused it, and until when.
}

// claim is a VM's hold on a host's room.
type claim struct {
	host     *host
	cell     int8 // -1: it needs none.
	incoming bool // A migration's target.
	starting bool // Placed anew, and not running yet.
	reported bool // The host's last report names it.

	// assumed says that it was placed here and no event has shown it yet; base
	// is the VMI's version at which that was written, and retried that an
	// earlier write of the same may have succeeded.
	assumed, retried bool
	base             string
}

// shape is what a VM needs of a host. It follows from spec and labels.
type shape struct {
	domain            string // UUID.
	memory, cpus      int64
	pinned, dedicated bool // Needs one cell; needs its CPUs alone.
	arch, mode        string
	traits            []string
	projects          [2]string
	nodes             nodeRule
	affinity
}

// shapeOf reads a VMI. The terms of its affinity belong to the fleet.
func (f *Fleet) shapeOf(vmi *kubevirtv1.VirtualMachineInstance) shape {
	memory := kubevirt.GuestMemory(vmi)
	s := shape{
		domain:   kubevirt.DomainUUID(vmi),
		memory:   memory.Value(),
		cpus:     kubevirt.VCPUs(vmi),
		arch:     archOf(vmi.Spec.Architecture),
		traits:   list(vmi.Annotations[kubevirt.AnnotationRequiredTraits]),
		projects: [2]string{vmi.Namespace, vmi.Annotations[AnnotationProject]},
		nodes:    nodeRuleOf(vmi.Spec.NodeSelector, vmi.Spec.Affinity),
	}
	if cpu := vmi.Spec.Domain.CPU; cpu != nil {
		s.dedicated = cpu.DedicatedCPUPlacement
		s.pinned = cpu.DedicatedCPUPlacement || (cpu.NUMA != nil && cpu.NUMA.GuestMappingPassthrough != nil)
		s.mode = modeOf(cpu.Model)
	}
	if m := vmi.Spec.Domain.Memory; m != nil && m.Hugepages != nil {
		s.pinned = true
	}
	s.affinity = f.affinityOf(vmi)
	return s
}

// archOf is libvirt's name of an architecture KubeVirt names as Go does.
func archOf(arch string) string {
	switch arch {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return arch
}

func modeOf(model string) string {
	switch model {
	case "":
		return ""
	case kubevirtv1.CPUModeHostModel, kubevirtv1.CPUModeHostPassthrough:
		return "mode/" + model
	}
	return "mode/custom"
}

func list(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// claimsOf are the hosts a VMI holds room on by what its object says: where it
// is, and where its labels let an agent act on it. A VM that has ended holds
// none; while its host still reports the domain, that counts as foreign.
func claimsOf(vmi *kubevirtv1.VirtualMachineInstance) (hosts []string, target string) {
	if vmi.IsFinal() {
		return nil, ""
	}
	if vmi.Status.NodeName != "" {
		hosts = append(hosts, vmi.Status.NodeName)
	}
	for label := range vmi.Labels {
		if name, ours := strings.CutPrefix(label, kubevirt.LabelHostPrefix); ours && name != vmi.Status.NodeName {
			hosts = append(hosts, name)
		}
	}
	slices.Sort(hosts)
	if m := vmi.Status.MigrationState; m != nil && !m.Completed && !m.Failed && m.TargetNode != vmi.Status.NodeName {
		target = m.TargetNode
	}
	return hosts, target
}

// runToken is the number of a VM's last placement; ok is false where it is no
// number.
func runToken(vmi *kubevirtv1.VirtualMachineInstance) (token int64, ok bool) {
	said, has := vmi.Annotations[kubevirt.AnnotationRunToken]
	if !has {
		return 0, true
	}
	token, err := strconv.ParseInt(said, 10, 64)
	return token, err == nil && token >= 0
}

// shapeChanged says whether a VMI may need something else than before.
func (v *vm) shapeChanged(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return v.generation != vmi.Generation || !maps.Equal(v.labels, vmi.Labels) ||
		v.wantTraits != vmi.Annotations[kubevirt.AnnotationRequiredTraits]
}

// before orders VMs that wait: those that have run, by class and then the
// larger; then the oldest.
func before(a, b *vm) int {
	larger := 0
	if a.priority > 0 {
		larger = cmp.Compare(b.memory, a.memory)
	}
	return cmp.Or(cmp.Compare(b.priority, a.priority), larger, a.created.Compare(b.created), cmp.Compare(a.uid, b.uid))
}

func newVM(vmi *kubevirtv1.VirtualMachineInstance) *vm {
	return &vm{
		key:     types.NamespacedName{Namespace: vmi.Namespace, Name: vmi.Name},
		uid:     vmi.UID,
		hash:    xxhash.Sum64String(string(vmi.UID)),
		created: vmi.CreationTimestamp.Time,
	}
}

func (v *vm) claimOn(h *host) *claim {
	for i := range v.claims {
		if v.claims[i].host == h {
			return &v.claims[i]
		}
	}
	return nil
}
