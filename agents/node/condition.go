// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// ConditionIdentityConfirmed tells whether the machine an agent runs on is the
// one its Hypervisor was registered for. Unless it is True, nothing else that
// the agent writes has been renewed.
const ConditionIdentityConfirmed = "IdentityConfirmed"

// Reasons that the node agent adds to those of CobaltCore.
const (
	reasonNotInstalled = "NotInstalled" // of a unit
	reasonUnderWay     = "UnderWay"     // of a unit that starts or stops

	reasonConfirmed  = "Confirmed"      // of ConditionIdentityConfirmed, as the rest
	reasonUnreadable = "Unreadable"     // no field of it can be read
	reasonMismatch   = "Mismatch"       // this is another machine
	reasonReimaged   = "Reimaged"       // the same machine without its VMs
	reasonRegistered = "RegisteredElse" // the machine belongs to another Hypervisor
)

// unitCondition turns a judgement into the condition named as the unit. It
// returns false when the condition of before should stay.
func unitCondition(name string, j judgement) (metav1.Condition, bool) {
	c := metav1.Condition{Type: name, Message: fmt.Sprintf("%s: %s, %s", j.unit.Name, j.unit.Active, j.unit.Load)}
	if j.unit.Active == "" {
		c.Message = fmt.Sprintf("%s: inactive, %s", j.unit.Name, j.unit.Load)
	}
	if j.why != "" {
		c.Message += "; " + j.why
	}
	switch j.verdict {
	case healthy:
		c.Status, c.Reason = metav1.ConditionTrue, kvmv1.ReasonRunning
	case waiting:
		c.Status, c.Reason = metav1.ConditionUnknown, reasonUnderWay
	case stopped:
		c.Status, c.Reason = metav1.ConditionFalse, kvmv1.ReasonStopped
	case failed:
		c.Status, c.Reason = metav1.ConditionFalse, kvmv1.ReasonFailed
	case absent:
		c.Status, c.Reason = metav1.ConditionFalse, reasonNotInstalled
	default:
		return c, false
	}
	return c, true
}

// condition returns the condition of a type, or the zero condition.
func condition(all []metav1.Condition, conditionType string) metav1.Condition {
	if c := meta.FindStatusCondition(all, conditionType); c != nil {
		return *c
	}
	return metav1.Condition{}
}
