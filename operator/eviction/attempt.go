// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// Finalizer keeps a deleted Eviction until its migrations that have not begun
// are withdrawn. There is no owner reference to do it: garbage collection would
// abort those that run, too.
const Finalizer = "kvm.cloud.sap/eviction"

// Annotations of a migration that an Eviction asked for.
const (
	annotationEvictionUID = "kvm.cloud.sap/eviction-uid" // An Eviction may be made again under its name.
	annotationVMUID       = "kvm.cloud.sap/vm-uid"       // So may a VM.
	annotationID          = "kvm.cloud.sap/vm-id"        // The domain's UUID.
	annotationAttempt     = "kvm.cloud.sap/attempt"
	annotationMemoryMiB   = "kvm.cloud.sap/memory-mib"
)

// Back-off between the attempts of one VM: KubeVirt's for migrations that a
// controller asks for.
const (
	backOffFirst = 20 * time.Second
	backOffMost  = 320 * time.Second
)

// backOff is how long to wait after so many failures in a row.
func backOff(failures int32) time.Duration {
	wait := backOffFirst
	for ; failures > 1 && wait < backOffMost; failures-- {
		wait *= 2
	}
	return min(wait, backOffMost)
}

// migrationName is one name for one attempt, so that a create whose answer was
// lost is not done twice.
func migrationName(e *kvmv1.Eviction, vmi *kubevirtv1.VirtualMachineInstance, attempt int32) string {
	sum := sha256.Sum256([]byte(string(e.UID) + "/" + string(vmi.UID)))
	name := vmi.Name
	if len(name) > 40 { // Leaves the whole below 63, the limit of a label.
		name = strings.TrimRight(name[:40], "-.")
	}
	return fmt.Sprintf("evict-%s-%s-%d", name, hex.EncodeToString(sum[:4]), attempt)
}

// labelValue is the Eviction's name as a label's value, which has 63 characters
// at most where a name has 253.
func labelValue(name string) string {
	if len(name) <= 63 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:50], "-.") + "-" + hex.EncodeToString(sum[:4])
}

// newMigration asks a VM to leave.
func newMigration(e *kvmv1.Eviction, vmi *kubevirtv1.VirtualMachineInstance, attempt int32) *kubevirtv1.VirtualMachineInstanceMigration {
	priority := kubevirtv1.PrioritySystemCritical
	return &kubevirtv1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmi.Namespace,
			Name:      migrationName(e, vmi, attempt),
			Labels: map[string]string{
				kubevirt.LabelEviction:            labelValue(e.Name),
				kubevirtv1.MigrationSelectorLabel: vmiNameLabel(vmi.Name),
			},
			Annotations: map[string]string{
				annotationEvictionUID: string(e.UID),
				annotationVMUID:       string(vmi.UID),
				annotationID:          idOf(vmi),
				annotationAttempt:     strconv.Itoa(int(attempt)),
				annotationMemoryMiB:   strconv.FormatInt(memoryMiB(vmi), 10),
			},
		},
		Spec: kubevirtv1.VirtualMachineInstanceMigrationSpec{VMIName: vmi.Name, Priority: &priority},
	}
}

// vmiNameLabel is KubeVirt's label; its webhook cuts the value the same way.
func vmiNameLabel(name string) string {
	if len(name) <= 63 {
		return name
	}
	return strings.TrimRight(name[:63], "-.")
}

func attemptOf(m *kubevirtv1.VirtualMachineInstanceMigration) int32 {
	n, err := strconv.ParseInt(m.Annotations[annotationAttempt], 10, 32)
	if err != nil {
		return 1 // Somebody edited it. It was one attempt at least.
	}
	return int32(n)
}

func memoryOf(m *kubevirtv1.VirtualMachineInstanceMigration) int64 {
	n, _ := strconv.ParseInt(m.Annotations[annotationMemoryMiB], 10, 64)
	return n
}

// lastAttempt is the number of the VM's latest attempt there is an object of.
func lastAttempt(own []*kubevirtv1.VirtualMachineInstanceMigration, vm types.UID) int32 {
	last := int32(0)
	for _, m := range own {
		if m.Annotations[annotationVMUID] == string(vm) {
			last = max(last, attemptOf(m))
		}
	}
	return last
}

// since is when a migration entered a phase; its creation, if that is not known.
func since(m *kubevirtv1.VirtualMachineInstanceMigration, phase kubevirtv1.VirtualMachineInstanceMigrationPhase) time.Time {
	at := m.CreationTimestamp.Time
	for _, t := range m.Status.PhaseTransitionTimestamps {
		if t.Phase == phase {
			at = t.PhaseTransitionTimestamp.Time
		}
	}
	return at
}

// begun says that the VM itself is on its way: to withdraw the migration now
// would abort it.
func begun(m *kubevirtv1.VirtualMachineInstanceMigration, vmi *kubevirtv1.VirtualMachineInstance) bool {
	if m.Status.Phase == kubevirtv1.MigrationRunning || m.IsFinal() {
		return true
	}
	if vmi == nil || vmi.Status.MigrationState == nil {
		return false
	}
	state := vmi.Status.MigrationState
	return state.MigrationUID == m.UID && (state.StartTimestamp != nil || state.Completed)
}

// waits says that a migration has not been handed to the hosts.
func waits(m *kubevirtv1.VirtualMachineInstanceMigration) bool {
	switch m.Status.Phase {
	case kubevirtv1.MigrationPhaseUnset, kubevirtv1.MigrationPending, kubevirtv1.MigrationScheduling:
		return true
	}
	return false
}

// whyNot is what a migration says is in its way.
func whyNot(m *kubevirtv1.VirtualMachineInstanceMigration) string {
	if state := m.Status.MigrationState; state != nil && state.FailureReason != "" {
		return state.FailureReason
	}
	for i := len(m.Status.Conditions) - 1; i >= 0; i-- {
		if message := m.Status.Conditions[i].Message; message != "" {
			return message
		}
	}
	return ""
}
