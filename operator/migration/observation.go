// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/operator/compute"
)

// Priorities, and how long a waiting one waits before it asks again: KubeVirt's.
// One that says nothing is a person's.
const (
	criticalPriority    = 100
	userPriority        = 50
	maintenancePriority = 20
)

func priorityOf(m *kubevirtv1.VirtualMachineInstanceMigration) int {
	if m.Spec.Priority == nil {
		return userPriority
	}
	switch *m.Spec.Priority {
	case kubevirtv1.PrioritySystemCritical:
		return criticalPriority
	case kubevirtv1.PrioritySystemMaintenance:
		return maintenancePriority
	}
	return userPriority
}

func retryOf(priority int) time.Duration {
	switch {
	case priority >= criticalPriority:
		return time.Second
	case priority >= userPriority:
		return 3 * time.Second
	}
	return 5 * time.Second
}

// observation is all that one decision depends on.
type observation struct {
	now        time.Time
	key        types.NamespacedName
	behind     bool // A later version of something was seen or written before, or the fleet is not filled yet.
	vmi        *kubevirtv1.VirtualMachineInstance
	migrations []kubevirtv1.VirtualMachineInstanceMigration // Oldest first.

	// Of the VMI's present or last migration:
	targetTakes                bool // Its target is ready and not in maintenance.
	targetLists                bool // Its target's last report names the domain,
	targetActive, sourceActive bool // as active.
	targetFenced, sourceFenced bool // They are proven to run the VM, which is protected, no more.
	answeredSince, failedSince time.Time

	hostFenced bool // The host it is placed on runs nothing any more.

	// What was reserved for the one that may go next:
	slot bool
	host string
	why  compute.Refusal
}

// canceled says that the migration the VMI is on is no longer wanted.
func (seen *observation) canceled() bool {
	m := seen.owner()
	return m == nil || m.DeletionTimestamp != nil
}

func (seen *observation) isOwner(m *kubevirtv1.VirtualMachineInstanceMigration) bool {
	state := seen.vmi.Status.MigrationState
	return state != nil && state.MigrationUID == m.UID
}

// owner is the migration the VMI names, nil if that is gone.
func (seen *observation) owner() *kubevirtv1.VirtualMachineInstanceMigration {
	for i := range seen.migrations {
		if seen.isOwner(&seen.migrations[i]) {
			return &seen.migrations[i]
		}
	}
	return nil
}

// handedOffAt is when the VMI was handed off, as far as that is written.
func (seen *observation) handedOffAt() time.Time {
	if m := seen.owner(); m != nil {
		if at := phaseSince(m, kubevirtv1.MigrationPreparingTarget); !at.IsZero() {
			return at
		}
	}
	return seen.now
}

// candidate is the migration that may be handed off next, -1 if none may.
func (seen *observation) candidate(o Options) int {
	if seen.vmi == nil || seen.unready() != "" {
		return -1
	}
	for i := range seen.migrations {
		m := &seen.migrations[i]
		if isOver(m) || isHandedOff(m) || m.DeletionTimestamp != nil || seen.isOwner(m) {
			continue
		}
		if seen.refuses(i) != "" {
			continue
		}
		return i
	}
	return -1
}

// unready is what a VMI that may be migrated still has to do first, "" if
// nothing.
func (seen *observation) unready() string {
	vmi, state := seen.vmi, seen.vmi.Status.MigrationState
	switch {
	case isLive(vmi):
		return "its last migration has not ended"
	case !vmi.IsRunning() && !isStopped(vmi):
		return fmt.Sprintf("it is %s", orNew(vmi.Status.Phase))
	case vmi.IsRunning() && kubevirt.WantedPowerState(vmi) == kubevirt.PowerStopped:
		return "it is shutting down"
	case vmi.Status.NodeName == "":
		return "it is on no host"
	case seen.hostFenced || vmi.Annotations[kubevirt.AnnotationEvacuatedFrom] != "":
		return "its host is dead, and the HA service has it placed anew"
	case state == nil || !state.Failed:
		return ""
	case hasCopyLabel(vmi):
		return fmt.Sprintf("%s may still have a copy of it", state.TargetNode)
	}
	return ""
}

func orNew(phase kubevirtv1.VirtualMachineInstancePhase) string {
	if phase == "" {
		return "not placed"
	}
	return string(phase)
}

// excluded are hosts that must not be the next target: the last one, as long as
// it reports a copy.
func (seen *observation) excluded() []string {
	if state := seen.vmi.Status.MigrationState; state != nil && state.Failed && seen.targetLists {
		return []string{state.TargetNode}
	}
	return nil
}

// refuses is why a migration will never be: what KubeVirt refuses at creation,
// in its words. "" if it may be.
func (seen *observation) refuses(i int) string {
	m, vmi := &seen.migrations[i], seen.vmi
	if refusal := unsupported(m); refusal != "" {
		return refusal
	}
	if isLive(vmi) && !seen.canceled() {
		return inFlight(vmi.Status.MigrationState.MigrationUID, vmi.Name)
	}
	for j := range i {
		before := &seen.migrations[j]
		if !isOver(before) && before.DeletionTimestamp == nil && !isHandedOff(before) && !seen.isOwner(before) && unsupported(before) == "" {
			return inFlight(before.UID, vmi.Name)
		}
	}
	return unfit(vmi)
}

func unsupported(m *kubevirtv1.VirtualMachineInstanceMigration) string {
	if m.Spec.SendTo != nil || m.Spec.Receive != nil {
		return "Cannot migrate VMI: spec.sendTo and spec.receive are not supported: remove them"
	}
	return ""
}

// unfit is why a VMI cannot be migrated at all, "" if it can.
func unfit(vmi *kubevirtv1.VirtualMachineInstance) string {
	if vmi.IsFinal() {
		return "Cannot migrate VMI in finalized state."
	}
	if vmi.DeletionTimestamp != nil {
		return "Cannot migrate VMI that is being deleted."
	}
	if isStopped(vmi) {
		return ""
	}
	for _, c := range vmi.Status.Conditions {
		if c.Type == kubevirtv1.VirtualMachineInstanceIsMigratable {
			if c.Status == corev1.ConditionFalse {
				return notMigratable(c.Reason, c.Message)
			}
			return ""
		}
	}
	if able, reason, message := kubevirt.Migratable(vmi); !able {
		return notMigratable(reason, message)
	}
	return ""
}

func inFlight(uid types.UID, vmi string) string {
	return fmt.Sprintf("in-flight migration detected. Active migration job (%s) is currently already in progress for VMI %s.", uid, vmi)
}

func notMigratable(reason, message string) string {
	return fmt.Sprintf("Cannot migrate VMI, Reason: %s, Message: %s", reason, message)
}

func (seen *observation) turn(i int) turn {
	m := &seen.migrations[i]
	return turn{
		vm: seen.vmi.UID, key: seen.key, uid: m.UID, priority: priorityOf(m),
		created: m.CreationTimestamp.Time, source: seen.vmi.Status.NodeName,
	}
}

// priority is the highest of those that are not over.
func (seen *observation) priority() int {
	highest := maintenancePriority
	for i := range seen.migrations {
		if !isOver(&seen.migrations[i]) {
			highest = max(highest, priorityOf(&seen.migrations[i]))
		}
	}
	return highest
}

// surplus are the finished migrations beyond the newest so many.
func (seen *observation) surplus(keep int) (indices []int) {
	for i := len(seen.migrations) - 1; i >= 0; i-- {
		m := &seen.migrations[i]
		if !isOver(m) || m.DeletionTimestamp != nil {
			continue
		}
		if keep--; keep < 0 {
			indices = append(indices, i)
		}
	}
	return indices
}

// isStopped says whether a VM is down because it was told to be: it moves cold.
func isStopped(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return vmi.Status.Phase == kubevirtv1.Scheduled && vmi.Status.NodeName != "" &&
		kubevirt.WantedPowerState(vmi) == kubevirt.PowerStopped
}

func isOver(m *kubevirtv1.VirtualMachineInstanceMigration) bool {
	return m.Status.Phase == kubevirtv1.MigrationSucceeded || m.Status.Phase == kubevirtv1.MigrationFailed
}

func isHandedOff(m *kubevirtv1.VirtualMachineInstanceMigration) bool {
	switch m.Status.Phase {
	case kubevirtv1.MigrationPreparingTarget, kubevirtv1.MigrationTargetReady, kubevirtv1.MigrationRunning:
		return true
	}
	return false
}

// hasTargetName says whether a VMI names a target besides the host it is on.
func hasTargetName(vmi *kubevirtv1.VirtualMachineInstance) bool {
	target := vmi.Labels[kubevirt.LabelMigrationTargetNodeName]
	return target != "" && target != vmi.Status.NodeName
}

// hasCopyLabel says whether a VMI concerns a host besides the one it is on.
func hasCopyLabel(vmi *kubevirtv1.VirtualMachineInstance) bool {
	for label := range vmi.Labels {
		if host, ours := strings.CutPrefix(label, kubevirt.LabelHostPrefix); ours && host != vmi.Status.NodeName {
			return true
		}
	}
	return false
}

func phaseSince(m *kubevirtv1.VirtualMachineInstanceMigration, phase kubevirtv1.VirtualMachineInstanceMigrationPhase) time.Time {
	for _, t := range m.Status.PhaseTransitionTimestamps {
		if t.Phase == phase {
			return t.PhaseTransitionTimestamp.Time
		}
	}
	return time.Time{}
}
