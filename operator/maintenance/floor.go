// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// floor is how many hosts serve, beside the one that asks to leave.
type floor struct {
	others int  // That serve.
	least  int  // That have to.
	idle   bool // The one that asks serves nobody, so its leave costs nothing.
}

func (f floor) allows() bool { return f.idle || f.others >= f.least }

func (f floor) message() string {
	return fmt.Sprintf("waits: hosts in service without it: %d, needed: %d: take another host back first", f.others, f.least)
}

// count counts a fleet. A percentage is one of all hosts but the offboarded,
// rounded up.
func count(fleet []kvmv1.Hypervisor, host string, least intstr.IntOrString) (floor, error) {
	f, total := floor{idle: true}, 0
	for i := range fleet {
		h := &fleet[i]
		if !h.DeletionTimestamp.IsZero() || meta.IsStatusConditionTrue(h.Status.Conditions, kvmv1.ConditionOffboarded) {
			continue
		}
		total++
		switch {
		case !serves(h):
		case h.Name == host:
			f.idle = false
		default:
			f.others++
		}
	}
	var err error
	f.least, err = intstr.GetScaledValueFromIntOrPercent(&least, total, true)
	return f, err
}

// serves says that a host takes VMs: nothing took it out of service, the HA
// service hears it or does not speak of it, and if it is not Ready, then only
// because maintenance was asked of it and waits.
func serves(h *kvmv1.Hypervisor) bool {
	if disabled(h) || h.Spec.Maintenance == kvmv1.MaintenanceHA || !h.DeletionTimestamp.IsZero() {
		return false
	}
	if alive := meta.FindStatusCondition(h.Status.Conditions, kvmv1.ConditionHostAlive); alive != nil && alive.Status != metav1.ConditionTrue {
		return false
	}
	ready := meta.FindStatusCondition(h.Status.Conditions, kvmv1.ConditionReady)
	return ready == nil || ready.Status == metav1.ConditionTrue || ready.Reason == kvmv1.ReasonMaintenance
}

// Waits says that maintenance was asked of a host and that the floor forbids it:
// until its turn the host serves as before.
func Waits(h *kvmv1.Hypervisor) bool {
	c := meta.FindStatusCondition(h.Status.Conditions, kvmv1.ConditionHypervisorDisabled)
	return asks(h) && c != nil && c.Status == metav1.ConditionFalse && c.Reason == ReasonWaiting
}

// asks says that maintenance was asked of a host, and is ours to bring about.
func asks(h *kvmv1.Hypervisor) bool {
	switch h.Spec.Maintenance {
	case kvmv1.MaintenanceManual, kvmv1.MaintenanceAuto, kvmv1.MaintenanceTermination:
		return true
	}
	return false
}

func disabled(h *kvmv1.Hypervisor) bool {
	return meta.IsStatusConditionTrue(h.Status.Conditions, kvmv1.ConditionHypervisorDisabled)
}
