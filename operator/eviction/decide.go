// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// lazyWrite is how old a migration is before its destination alone is worth a
// write. Until then it is written with the next news, which for most comes first.
const lazyWrite = time.Minute

// plan is what to do and when to look again. The zero plan changes nothing.
type plan struct {
	hold     bool                 // Add the finalizer, before anything is asked.
	full     kvmv1.EvictionStatus // What there is to say, written or not.
	release  bool                 // Remove it, after everything is withdrawn.
	withdraw []*kubevirtv1.VirtualMachineInstanceMigration
	ask      []asked
	status   *kvmv1.EvictionStatus // nil: as it is.

	lookAgain time.Duration // 0: only when something changes.
}

// asked is a VM that is asked to leave.
type asked struct {
	vmi     *kubevirtv1.VirtualMachineInstance
	attempt int32
}

// decide is the policy. It is pure.
//
//	being deleted          withdraw what has not begun, let go; what runs ends by itself
//	ended                  nothing, for ever
//	no such hypervisor     Evicting=False Failed
//	dry run                Evicting=False Succeeded, with a verdict for each VM
//	host in service, or ha Preflight=False, ask nobody, withdraw what has not begun
//	host dead, and empty   Evicting=False Succeeded: its VMs were started elsewhere
//	host list empty        Evicting=False Succeeded
//	a slot free            ask the next VM that is ready
//	none free, but held by a VM that finds no host: withdraw that one, it asks again later
//	nobody ready           look again when the first back-off is over
func decide(seen observation, fallback int) plan {
	e := seen.eviction
	switch {
	case !e.DeletionTimestamp.IsZero():
		return cancel(seen)
	case ended(e):
		return plan{}
	case seen.hypervisor == nil:
		return finish(seen, e.Status.DeepCopy(), kvmv1.ReasonFailed,
			fmt.Sprintf("failed to get hypervisor %s: there is none of that name", e.Spec.Hypervisor))
	case e.Spec.DryRun:
		return dryRun(seen)
	}

	all := stands(seen)
	p := plan{hold: !controllerutil.ContainsFinalizer(e, Finalizer)}
	refusal := notYet(seen.hypervisor)
	if refusal == "" {
		limit := fallback
		if e.Spec.Parallel != nil {
			limit = int(*e.Spec.Parallel)
		}
		p.choose(seen, all, limit)
	} else {
		p.pause(seen, all, refusal)
	}
	p.withdrawStrays(seen)
	s := report(seen, all, refusal)
	left := lastArrival(seen).Add(letGo).Sub(seen.now)
	if len(s.OutstandingInstances) == 0 && len(seen.domains) == 0 && refusal == "" && left <= 0 {
		done := finish(seen, &s, kvmv1.ReasonSucceeded, "eviction completed successfully")
		done.hold, done.withdraw = p.hold, p.withdraw
		return done
	}
	if isDead(seen.hypervisor) && !anyPlaced(seen) {
		done := finish(seen, &s, kvmv1.ReasonSucceeded, "host "+seen.hypervisor.Name+" died, and the HA service had its VMs started elsewhere")
		done.hold, done.withdraw = p.hold, p.withdraw
		return done
	}
	p.full = s
	p.status = worthWriting(seen, s, all)
	p.lookAgain = wake(seen, all, s)
	if len(s.OutstandingInstances) == 0 && left > 0 && (p.lookAgain == 0 || left < p.lookAgain) {
		p.lookAgain = left
	}
	if left := progressEvery - seen.now.Sub(seen.wroteAt); left > 0 && p.status != nil && onlyProgress(p.status, &seen.eviction.Status) {
		p.status = nil
		if p.lookAgain == 0 || left < p.lookAgain {
			p.lookAgain = left
		}
	}
	return p
}

// isDead says that the HA service has a host in hand that is proven to run nothing.
// What the host last reported is old then.
func isDead(h *kvmv1.Hypervisor) bool {
	return h.Spec.Maintenance == kvmv1.MaintenanceHA && meta.IsStatusConditionFalse(h.Status.Conditions, kvmv1.ConditionHostAlive)
}

// anyPlaced says whether a VM is the host's still.
func anyPlaced(seen observation) bool {
	return slices.ContainsFunc(seen.vms, func(v *kubevirtv1.VirtualMachineInstance) bool {
		return v.Status.NodeName == seen.hypervisor.Name && !v.IsFinal()
	})
}

// notYet says why a host's VMs may not be asked to leave now.
func notYet(h *kvmv1.Hypervisor) string {
	switch {
	case h.Spec.Maintenance == kvmv1.MaintenanceHA:
		return "hypervisor is in the hands of the HA service"
	case meta.IsStatusConditionTrue(h.Status.Conditions, kvmv1.ConditionHypervisorDisabled):
		return ""
	}
	return "hypervisor not disabled"
}

// choose fills the free slots, and makes slots of those that lead nowhere. What
// it decides is what all says afterwards.
func (p *plan) choose(seen observation, all []standing, limit int) {
	held := 0
	var ready, stuck []*standing
	for i := range all {
		s := &all[i]
		switch {
		case s.active != nil:
			held++
			if !s.stuck.IsZero() && !seen.now.Before(s.stuck.Add(stuckAfter)) && !begun(s.active, s.vmi) {
				stuck = append(stuck, s)
			}
		case s.ready && s.vmi != nil:
			ready = append(ready, s)
		}
	}
	for _, s := range ready[:min(len(ready), max(0, limit-held))] {
		s.entry.Attempts++
		p.ask = append(p.ask, asked{s.vmi, s.entry.Attempts})
		if s.entry.State != kvmv1.EvictionInstanceFailed {
			s.entry.Message = ""
		}
		s.entry.State, s.entry.Reason, s.entry.NextAttempt = kvmv1.EvictionInstanceMoving, "", nil
		s.ready = false
	}
	waiting := len(ready) - len(p.ask)
	for _, s := range stuck[:min(len(stuck), waiting)] {
		p.withdraw = append(p.withdraw, s.active)
		s.due = ceil(seen.now.Add(backOff(s.entry.Attempts)))
		s.entry.State, s.entry.Reason = kvmv1.EvictionInstanceFailed, ReasonNoHost
		s.entry.NextAttempt = &metav1.Time{Time: s.due}
		s.entry.Destination = ""
	}
}

// pause withdraws what has not begun on a host that is to keep its VMs for now.
func (p *plan) pause(seen observation, all []standing, why string) {
	for i := range all {
		s := &all[i]
		if s.active == nil || !isOwn(seen, s.active) || !s.active.DeletionTimestamp.IsZero() || begun(s.active, s.vmi) {
			continue
		}
		p.withdraw = append(p.withdraw, s.active)
		s.entry.State, s.entry.Reason, s.entry.Message = kvmv1.EvictionInstanceWaiting, ReasonPaused, why
		s.entry.Destination = ""
	}
}

// withdrawStrays withdraws what was asked of VMs that left in another way before
// their turn: it would move them once more.
func (p *plan) withdrawStrays(seen observation) {
	for _, m := range seen.own {
		if waits(m) && m.DeletionTimestamp.IsZero() && vmOf(seen, m) == nil {
			p.withdraw = append(p.withdraw, m)
		}
	}
}

// cancel lets running moves end, withdraws the others, and goes.
func cancel(seen observation) plan {
	p := plan{release: controllerutil.ContainsFinalizer(seen.eviction, Finalizer)}
	for _, m := range seen.own {
		if m.DeletionTimestamp.IsZero() && !begun(m, vmOf(seen, m)) {
			p.withdraw = append(p.withdraw, m)
		}
	}
	return p
}

func vmOf(seen observation, m *kubevirtv1.VirtualMachineInstanceMigration) *kubevirtv1.VirtualMachineInstance {
	for _, vmi := range seen.vms {
		if vmi.Namespace == m.Namespace && vmi.Name == m.Spec.VMIName {
			return vmi
		}
	}
	return nil
}

// dryRun only answers, and ends.
func dryRun(seen observation) plan {
	all := stands(seen)
	would := 0
	for i := range all {
		s := &all[i]
		verdict, asked := seen.verdicts[s.entry.ID]
		cannot := func(reason, message string) {
			s.entry.State, s.entry.Reason, s.entry.Message = kvmv1.EvictionInstanceCannotMove, reason, cut(message)
		}
		s.entry.NextAttempt = nil
		switch {
		case s.vmi == nil || s.entry.State == kvmv1.EvictionInstanceBlocked:
			cannot(s.entry.Reason, s.entry.Message)
		case asked && verdict.Destination == "":
			cannot(verdict.Reason, verdict.Message)
		default:
			s.entry.State = kvmv1.EvictionInstanceWouldMove
			if verdict.Destination != "" {
				s.entry.Destination = verdict.Destination
			}
			would++
		}
	}
	s := report(seen, all, "")
	s.Conditions = nil
	message := fmt.Sprintf("dry run: %d of %d VMs would move", would, len(all))
	if names := inNeed(all); names != "" {
		message += "; cannot: " + names
	}
	return finish(seen, &s, kvmv1.ReasonSucceeded, message)
}

// finish is the end of an Eviction.
// letGo is how long a host has to let go of its half of a VM that runs at its
// target: libvirt takes a quarter of a second. A VM that came and went between
// two reports of the host stands in none, so the reports alone do not say it.
const letGo = 5 * time.Second

// lastArrival is when the last of our migrations ended.
func lastArrival(seen observation) (last time.Time) {
	for _, m := range seen.own {
		for _, t := range m.Status.PhaseTransitionTimestamps {
			if m.IsFinal() && t.PhaseTransitionTimestamp.After(last) {
				last = t.PhaseTransitionTimestamp.Time
			}
		}
	}
	return last
}

func finish(seen observation, s *kvmv1.EvictionStatus, reason, message string) plan {
	if !seen.eviction.Spec.DryRun && reason == kvmv1.ReasonSucceeded {
		s.OutstandingInstances, s.OutstandingRAMMb, s.Running, s.Failed = nil, 0, 0, 0
	}
	s.ETA = nil
	s.FinishedAt = &metav1.Time{Time: seen.now.Truncate(time.Second)}
	set(s, seen, metav1.Condition{
		Type: kvmv1.ConditionEvicting, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	})
	return plan{status: s}
}

// ended says that an Eviction is over. It is not taken up again: whoever wants
// the host emptied once more makes another.
func ended(e *kvmv1.Eviction) bool {
	return meta.IsStatusConditionFalse(e.Status.Conditions, kvmv1.ConditionEvicting)
}

// inNeed names the VMs that stay where they are until somebody helps, or that
// have failed before: three of them.
func inNeed(all []standing) string {
	const most = 3
	var names []string
	more := 0
	for _, s := range all {
		switch s.entry.State {
		case kvmv1.EvictionInstanceBlocked, kvmv1.EvictionInstanceFailed, kvmv1.EvictionInstanceCannotMove:
		case kvmv1.EvictionInstanceMoving:
			if s.entry.Message == "" {
				continue
			}
		default:
			continue
		}
		if len(names) == most {
			more++
			continue
		}
		name := s.entry.Name
		if s.entry.Namespace != "" {
			name = s.entry.Namespace + "/" + name
		}
		names = append(names, fmt.Sprintf("%s (%s)", name, s.entry.Message))
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
