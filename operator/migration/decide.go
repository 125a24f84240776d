// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

const (
	// newsWait is how long a wait lasts before it is written down: most are
	// over by then, and each line of news is a write.
	newsWait = time.Second
	// readyNewsWait is the same for a target that has answered and a source that
	// has not started: a slow source is worth knowing of.
	readyNewsWait = 2 * time.Second
	// vmiWait is how long a migration may be seen before its VMI: they come by
	// different watches.
	vmiWait = 5 * time.Second
	// targetCheck is how often a target that has not answered is looked at.
	targetCheck = 10 * time.Second

	// copyRest is how long a target that is out of service is given to let go of
	// a VM after a failed migration, copyMost one in service. A target takes its
	// host label off the VMI when nothing of the VM is left there, and until then
	// there is no new target (kubevirt/kubevirt#5482).
	copyRest = 10 * time.Second
	copyMost = time.Minute

	// reasonMayRunElsewhere is nova's.
	reasonMayRunElsewhere = "MayRunElsewhere"

	// messageInterval is how long a message that says why no host fits stands
	// before another replaces it.
	messageInterval = 30 * time.Second
)

// decide is the table in the package comment. It is pure.
func decide(seen observation, o Options) *plan {
	p := &plan{priority: userPriority, candidate: -1}
	if len(seen.migrations) > 0 {
		p.priority = seen.priority()
	}
	p.remove = seen.surplus(o.KeepFinished)
	if seen.vmi == nil {
		withoutVMI(seen, p)
		return p
	}
	decideVMI(seen, o, p)
	first := seen.candidate(o)
	for i := range seen.migrations {
		m := &seen.migrations[i]
		switch {
		case isOver(m):
		case seen.isOwner(m):
			follow(seen, o, p, i)
		case m.DeletionTimestamp != nil:
			p.fail(i, "Migration canceled")
		case isHandedOff(m):
			lost(seen, p, i)
		default:
			decideNew(seen, o, p, i, first)
		}
	}
	return p
}

// lost ends a migration that was handed off and that the VMI does not name. A
// new replica may see it before the VMI, so not at once.
func lost(seen observation, p *plan, i int) {
	age := seen.now.Sub(phaseSince(&seen.migrations[i], kubevirtv1.MigrationPreparingTarget))
	if age < vmiWait {
		p.lookAgain(vmiWait - age)
		return
	}
	p.fail(i, "Migration failed because the VMI no longer names it: another one took over")
}

// withoutVMI ends the migrations of a VMI that is not there.
func withoutVMI(seen observation, p *plan) {
	for i := range seen.migrations {
		m := &seen.migrations[i]
		switch age := seen.now.Sub(m.CreationTimestamp.Time); {
		case isOver(m):
		case age < vmiWait && !isHandedOff(m):
			p.lookAgain(vmiWait - age)
		default:
			p.fail(i, "Migration failed because vmi does not exist.")
		}
	}
}

// decideVMI decides on what is handed off: whether it goes on.
func decideVMI(seen observation, o Options, p *plan) {
	m := seen.vmi.Status.MigrationState
	switch {
	case m == nil || m.MigrationUID == "":
		return
	case m.Completed:
		return
	case m.Failed:
		letGo(seen, p)
		return
	case seen.vmi.IsFinal():
		p.withdraw("Migration failed because vmi shutdown during migration.")
		return
	case seen.targetFenced:
		p.vmi, p.reason = withdrawnAll, fmt.Sprintf("Migration failed because target %s died", m.TargetNode)
		return
	case seen.sourceFenced && m.TargetNodeAddress == "":
		p.vmi, p.reason = withdrawnAll, fmt.Sprintf("Migration failed because source %s died before it began", m.SourceNode)
		return
	case seen.sourceFenced:
		// The guest may run at the target, which takes the VM then, or its label
		// off it. It is asked by this.
		p.withdraw(fmt.Sprintf("Migration failed because source %s died", m.SourceNode))
		return
	}

	started := m.StartTimestamp != nil
	switch reason := seen.endedBy(o); {
	case reason == "":
		if !started {
			p.lookAgain(targetCheck)
		}
	case !started && (m.TargetNodeAddress == "" || seen.now.Sub(seen.handedOffAt()) >= 2*o.PendingTimeout):
		p.withdraw(reason)
	case !m.AbortRequested:
		// The source may be at it: it stops the job, and says so.
		p.vmi, p.reason = abort, reason
	case !started:
		p.lookAgain(targetCheck)
	}
}

// letGo waits until the target of a failed migration has let go of the VM, and
// in the end does it in its stead.
func letGo(seen observation, p *plan) {
	m := seen.vmi.Status.MigrationState
	rested, most := seen.now.Sub(seen.failedSince), copyMost
	if !seen.targetTakes {
		most = copyRest
	}
	switch {
	case !hasCopyLabel(seen.vmi):
		if hasTargetName(seen.vmi) {
			p.vmi, p.reason = clear, m.FailureReason
		}
	case seen.targetFenced, seen.sourceFenced && m.TargetNodeAddress == "":
		p.vmi, p.reason = clearAll, m.FailureReason
	case seen.sourceFenced, mayRunElsewhere(seen.vmi):
		p.lookAgain(targetCheck) // What the source reported is old. Nobody but the target can say.
	case rested < most:
		p.lookAgain(most - rested)
	case m.StartTimestamp != nil && seen.vmi.IsRunning() && !seen.sourceActive:
		// The VM does not run at its source, which ends it once the target says
		// that it has nothing. Nobody else may say that.
		p.lookAgain(targetCheck)
	case seen.targetActive && !seen.sourceActive:
		// The source said it failed, and the guest is seen at the target only
		// (bugs.launchpad.net/nova/+bug/1414065): the target must not lose sight
		// of it. Its agent or the next report tells.
		p.lookAgain(targetCheck)
	default:
		p.vmi, p.reason = clearAll, m.FailureReason
	}
}

// mayRunElsewhere says that a VM's host has told that it does not run there, and
// that it may at the target.
func mayRunElsewhere(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return slices.ContainsFunc(vmi.Status.Conditions, func(c kubevirtv1.VirtualMachineInstanceCondition) bool {
		return c.Type == kubevirtv1.VirtualMachineInstanceReady && c.Status == corev1.ConditionUnknown && c.Reason == reasonMayRunElsewhere
	})
}

// endedBy is why a migration under way is to end, "" if it is not.
func (seen *observation) endedBy(o Options) string {
	m := seen.vmi.Status.MigrationState
	started := m.StartTimestamp != nil
	switch {
	case seen.canceled():
		return "Migration canceled"
	case started:
		return "" // The source keeps the deadlines of a running job.
	case seen.vmi.DeletionTimestamp != nil:
		return "Migration failed because the VMI is being deleted"
	case seen.vmi.Status.NodeName != m.SourceNode:
		return fmt.Sprintf("Migration failed because the VM is no longer on %s", m.SourceNode)
	case m.TargetNodeAddress == "" && !seen.targetTakes:
		return fmt.Sprintf("Migration failed because target %s went out of service before it was prepared", m.TargetNode)
	case seen.now.Sub(seen.handedOffAt()) >= o.PendingTimeout && m.TargetNodeAddress == "":
		return fmt.Sprintf("Migration failed because target %s was not prepared within %s", m.TargetNode, o.PendingTimeout)
	case seen.now.Sub(seen.handedOffAt()) >= o.PendingTimeout:
		return fmt.Sprintf("Migration failed because source %s did not start it within %s", m.SourceNode, o.PendingTimeout)
	}
	return ""
}

// follow tells a migration's phase from its VMI.
func follow(seen observation, o Options, p *plan, i int) {
	state := seen.vmi.Status.MigrationState
	m := &seen.migrations[i]
	switch {
	case state.Completed && seen.vmi.Status.NodeName == state.TargetNode && !state.Failed:
		p.phase(i, kubevirtv1.MigrationSucceeded)
	case state.Failed:
		reason := state.FailureReason
		if reason == "" {
			reason = "Source node reported migration failed"
		}
		p.fail(i, reason)
	case p.vmi == withdrawn || p.vmi == withdrawnAll:
		p.fail(i, p.reason)
	case seen.vmi.IsFinal():
		p.fail(i, "Migration failed because vmi shutdown during migration.")
	case state.StartTimestamp != nil:
		p.advance(m, i, kubevirtv1.MigrationRunning)
	case state.TargetNodeAddress == "" || m.Status.Phase != kubevirtv1.MigrationPreparingTarget:
		p.advance(m, i, kubevirtv1.MigrationPreparingTarget)
	default:
		if waits := readyNewsWait - seen.now.Sub(seen.answeredSince); waits > 0 {
			p.lookAgain(waits)
			return
		}
		p.advance(m, i, kubevirtv1.MigrationTargetReady)
	}
}

// decideNew decides on a migration that has not been handed off.
func decideNew(seen observation, o Options, p *plan, i, first int) {
	m := &seen.migrations[i]
	if refusal := seen.refuses(i); refusal != "" {
		p.fail(i, refusal)
		return
	}
	age := seen.now.Sub(m.CreationTimestamp.Time)
	switch {
	case i != first:
		// The VMI is not up yet, or still busy with its last migration's end.
		if age >= o.PendingTimeout {
			p.fail(i, fmt.Sprintf("Migration failed because the VMI was not ready to migrate within %s: %s", o.PendingTimeout, seen.unready()))
			return
		}
		p.wait(m, i, age)
	case !seen.slot:
		p.wait(m, i, age)
	case seen.host != "":
		p.vmi, p.target, p.candidate = handOff, seen.host, i
		p.phase(i, kubevirtv1.MigrationPreparingTarget)
	case seen.why.Busy():
		p.wait(m, i, age)
	default:
		p.noHost(seen, m, i, age, o.UnschedulableTimeout)
	}
}

// wait keeps a migration Pending.
func (p *plan) wait(m *kubevirtv1.VirtualMachineInstanceMigration, i int, age time.Duration) {
	p.lookAgain(retryOf(priorityOf(m)))
	switch {
	case m.Status.Phase != kubevirtv1.MigrationPhaseUnset:
	case age >= newsWait:
		p.phase(i, kubevirtv1.MigrationPending)
	default:
		p.lookAgain(newsWait - age)
	}
}

// noHost keeps a migration in Scheduling, for so long.
func (p *plan) noHost(seen observation, m *kubevirtv1.VirtualMachineInstanceMigration, i int, age, most time.Duration) {
	why := seen.why.String()
	since := phaseSince(m, kubevirtv1.MigrationScheduling)
	p.lookAgain(retryOf(priorityOf(m)))
	switch {
	case m.Status.Phase != kubevirtv1.MigrationScheduling && age < newsWait:
		p.lookAgain(newsWait - age)
	case m.Status.Phase != kubevirtv1.MigrationScheduling:
		p.writes = append(p.writes, write{index: i, phase: kubevirtv1.MigrationScheduling, why: why})
	case seen.now.Sub(since) >= most:
		p.fail(i, "Migration failed because no host takes the VM: "+why)
	default:
		p.lookAgain(most - seen.now.Sub(since))
		if have := unschedulable(m); have == nil || have.Message != why && !seen.now.Before(have.LastProbeTime.Add(messageInterval)) {
			p.writes = append(p.writes, write{index: i, phase: kubevirtv1.MigrationScheduling, why: why})
		}
	}
}
