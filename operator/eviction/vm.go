// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
)

func destination(m *kubevirtv1.VirtualMachineInstanceMigration, vmi *kubevirtv1.VirtualMachineInstance) string {
	if state := m.Status.MigrationState; state != nil && state.TargetNode != "" {
		return state.TargetNode
	}
	if vmi != nil && vmi.Status.MigrationState != nil && vmi.Status.MigrationState.MigrationUID == m.UID {
		return vmi.Status.MigrationState.TargetNode
	}
	return ""
}

func priority(vmi *kubevirtv1.VirtualMachineInstance) int64 {
	if n, err := strconv.ParseInt(vmi.Annotations[AnnotationPriority], 10, 64); err == nil {
		return n
	}
	switch vmi.Spec.PriorityClassName { // Values as in Kubernetes.
	case "system-node-critical":
		return 2000001000
	case "system-cluster-critical":
		return 2000000000
	}
	return 0
}

func condition(vmi *kubevirtv1.VirtualMachineInstance, kind kubevirtv1.VirtualMachineInstanceConditionType) *kubevirtv1.VirtualMachineInstanceCondition {
	for i := range vmi.Status.Conditions {
		if vmi.Status.Conditions[i].Type == kind {
			return &vmi.Status.Conditions[i]
		}
	}
	return nil
}

func idOf(vmi *kubevirtv1.VirtualMachineInstance) string {
	return strings.ToLower(kubevirt.DomainUUID(vmi))
}

func memoryMiB(vmi *kubevirtv1.VirtualMachineInstance) int64 {
	memory := kubevirt.GuestMemory(vmi)
	return memory.Value() >> 20
}

// cut keeps a message short enough for 500 of them in one object.
func cut(message string) string {
	const most = 200
	if runes := []rune(message); len(runes) > most {
		return fmt.Sprintf("%s…", string(runes[:most-1]))
	}
	return message
}

func ceil(t time.Time) time.Time {
	if rounded := t.Truncate(time.Second); !rounded.Equal(t) {
		return rounded.Add(time.Second)
	}
	return t
}

// compare orders false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
