// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// plan is what to write, what to do to the host, and when to look again.
type plan struct {
	status       kvmv1.HypervisorStatus
	register     bool // record this machine's identity first
	update       updatePlan
	unknownWords []string      // unit states nobody has heard of
	lookAgain    time.Duration // 0: as usual
}

// decide makes the status out of the last one and what was seen. Without a
// confirmed identity it says that and nothing else. It is pure.
func decide(seen observation) plan {
	p := plan{status: seen.hv.Status}
	// Conditions are changed in place; all else is replaced, never changed.
	p.status.Conditions = slices.Clone(seen.hv.Status.Conditions)
	who := decideIdentity(identityView{
		host:         seen.hv.Name,
		hostname:     seen.facts.identity.Hostname,
		now:          identityOf(seen.facts.identity),
		recorded:     seen.recorded,
		twins:        seen.twins,
		instances:    seen.hv.Status.Instances,
		domains:      seen.facts.domains,
		domainsKnown: seen.facts.domainsKnown,
	})
	p.set(who.condition, seen.now)
	if !who.write {
		return p
	}
	p.register = who.register

	p.setUnit(kvmv1.ConditionLibvirtdUnit, seen.libvirt, seen.now)
	p.setUnit(kvmv1.ConditionOpenvswitchUnit, judgeOpenvswitch(seen.units, seen.now), seen.now)
	p.set(connection(seen.seenHost), seen.now)
	report(&p.status, seen.facts, seen.hv.Spec.Overcommit)

	p.update = decideUpdate(updateViewOf(seen))
	p.applyUpdate(seen.now)
	p.lookAgain = p.update.lookAgain
	return p
}

// applyUpdate writes the update's part of the plan into the status.
func (p *plan) applyUpdate(now time.Time) {
	p.status.UpdateStatus = p.update.status
	p.set(p.update.condition, now)
}

// set writes a condition; its transition time moves only with its status.
func (p *plan) set(c metav1.Condition, now time.Time) {
	if c.Type == "" {
		return
	}
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second)) // the API keeps seconds
	meta.SetStatusCondition(&p.status.Conditions, c)
}

func (p *plan) setUnit(name string, j judgement, now time.Time) {
	if c, ok := unitCondition(name, j); ok {
		p.set(c, now)
	}
	if j.unknown {
		p.unknownWords = append(p.unknownWords, fmt.Sprintf("%s: %s, %s/%s", j.unit.Name, j.unit.Load, j.unit.Active, j.unit.Sub))
	}
}

func connection(seen seenHost) metav1.Condition {
	c := metav1.Condition{Type: kvmv1.ConditionLibVirtConnection, Status: metav1.ConditionFalse}
	switch v := seen.libvirt.verdict; {
	case v == stopped || v == failed || v == absent:
		c.Reason, c.Message = kvmv1.ReasonLibVirtServiceNotRunning, "libvirtd service is not running"
	case seen.connectErr != nil:
		c.Reason, c.Message = kvmv1.ReasonConnectFailed, fmt.Sprintf("unable to connect to libvirtd: %v", seen.connectErr)
	case seen.processErr != nil:
		c.Reason, c.Message = kvmv1.ReasonProcessFailed, fmt.Sprintf("unable to process hypervisor via libvirt: %v", seen.processErr)
	default:
		c.Status, c.Reason = metav1.ConditionTrue, kvmv1.ReasonConnected
	}
	return c
}

func updateViewOf(seen observation) updateView {
	v := updateView{
		now:       seen.now,
		wanted:    seen.hv.Spec.Version,
		reboot:    seen.hv.Spec.Reboot,
		keepVMs:   seen.hv.Spec.EvacuateOnReboot,
		boot:      seen.boot,
		activeVMs: activeVMs(seen.facts),
		unit:      seen.update,
		asked:     seen.asked,
		status:    seen.hv.Status.UpdateStatus,
		condition: condition(seen.hv.Status.Conditions, kvmv1.ConditionOperatingSystemUpdate),
	}
	if seen.facts.system != nil {
		v.versions = osVersions(*seen.facts.system)
	}
	return v
}

func activeVMs(f facts) int {
	if !f.domainsKnown {
		return -1
	}
	n := 0
	for _, d := range f.domains {
		if d.Active() {
			n++
		}
	}
	return n
}
