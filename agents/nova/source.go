// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"fmt"
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

const (
	// poll is how often a running job is read between events, soon after a
	// change and later: rounds of a busy guest take seconds to minutes.
	pollSoon = 2 * time.Second
	poll     = 5 * time.Second

	// startTries bounds how often a job that cannot be started is tried.
	startTries = 5
)

// sourceOf is a VM of this host on its way to another.
//
//	stopped VM                       cold move: undefine, then say so
//	no domain                        not begun: absent; else its target speaks
//	domain stopped, moved away       its target speaks
//	domain stopped otherwise         failed; its end once the target has nothing
//	phase not written yet            power: say Running first
//	post-copy broken                 recover by and by, never resume; Failed at the limit
//	abort asked, VM stopped, deleted not begun: failed; running: abort; post-copy: cannot
//	target not ready                 wait, obey power state
//	job runs                         start time, deadlines
//	job ended or lost                runs here: failed; else its target speaks
//	no job yet                       migrate
func sourceOf(o observation) plan {
	st, d := o.vmi.Status.MigrationState, o.domain
	switch {
	case o.vmi.Status.Phase != kubevirtv1.Running && (d == nil || !d.Active()):
		return coldSource(o)
	case d == nil && st.TargetNodeAddress == "":
		return absent(o)
	case d == nil:
		return vanished(o)
	case !d.Active() && switching(d.Detail):
		return o.wait("moved away: its target speaks", poll)
	case !d.Active() || d.State == hardware.StateCrashed:
		return fellOver(o)
	case d.State == hardware.StatePaused && d.Detail == hardware.DetailPostCopyFailed:
		return broken(o)
	}
	if o.vmi.Status.Phase != kubevirtv1.Running {
		return power(o, kubevirt.WantedPowerState(o.vmi)) // or its target takes it for stopped
	}
	o.memory.brokenAt, o.memory.recoveries, o.memory.nextRecovery = time.Time{}, 0, time.Time{}
	o.memory.stoppedAt = time.Time{}

	job := o.job
	if job != nil && job.ID != "" && job.ID != string(st.MigrationUID) {
		job = nil // of another migration
	}
	if job != nil && job.ID == "" && !job.Running() && st.StartTimestamp == nil && o.memory.tries == 0 {
		job = nil // an old one whose end libvirt still keeps
	}
	if why := stopWish(o); why != "" {
		return abort(o, job, why)
	}
	switch {
	case job != nil && job.Running():
		return underWay(o, *job)
	case st.TargetNodeAddress == "":
		return power(o, kubevirt.WantedPowerState(o.vmi))
	case job == nil && st.StartTimestamp == nil:
		return set(o)
	}
	return jobOver(o, job)
}

// stopWish says why the migration is not to go on.
func stopWish(o observation) string {
	switch {
	case o.vmi.Status.MigrationState.AbortRequested:
		return "cancelled on request"
	case o.vmi.DeletionTimestamp != nil:
		return "the VM is deleted"
	case kubevirt.WantedPowerState(o.vmi) == kubevirt.PowerStopped:
		return "the VM is to be stopped"
	}
	return ""
}

// abort ends a migration, if it still can be.
func abort(o observation, job *hardware.Job, why string) plan {
	st := o.vmi.Status.MigrationState
	switch {
	case job == nil && st.StartTimestamp == nil:
		vmi := o.vmi.DeepCopy()
		fail(vmi, why)
		p := o.write("abort: not begun", vmi)
		p.news = "Migration cancelled"
		return p
	case job == nil || !job.Running():
		if o.memory.cancelled == "" {
			o.memory.cancelled = why
		}
		return jobOver(o, job)
	case job.PostCopy:
		p := underWay(o, *job)
		if st.AbortRequested {
			vmi := p.vmi
			if vmi == nil {
				vmi = o.vmi.DeepCopy()
			}
			vmi.Status.MigrationState.AbortStatus = kubevirtv1.MigrationAbortFailed
			p.vmi = vmi
		}
		return p
	case o.memory.cancelled != "":
		return o.wait("abort: under way", pollSoon)
	}
	p := o.do("abort", doAbort)
	p.memory.cancelled = why
	p.blame = blameTry
	p.lookAgain = pollSoon
	p.vmi = o.vmi.DeepCopy()
	if st.AbortRequested {
		p.vmi.Status.MigrationState.AbortStatus = kubevirtv1.MigrationAbortInProgress
	}
	p.news = "Cancelled migration"
	return p
}

// fail writes that the VM stays where it is.
func fail(vmi *kubevirtv1.VirtualMachineInstance, why string) {
	st := vmi.Status.MigrationState
	st.Failed, st.FailureReason = true, why
	if st.AbortRequested && st.AbortStatus != kubevirtv1.MigrationAbortFailed {
		st.AbortStatus = kubevirtv1.MigrationAbortSucceeded
	}
}

// set starts the job.
func set(o observation) plan {
	if o.domain.State == hardware.StateShuttingDown || (o.domain.State == hardware.StatePaused && switching(o.domain.Detail)) {
		return o.wait("migrate: not now", pollSoon)
	}
	if stalled(o.domain) {
		return power(o, kubevirt.WantedPowerState(o.vmi)) // the hypervisor would refuse
	}
	vmi := o.vmi.DeepCopy()
	if o.memory.tries >= startTries {
		fail(vmi, "host "+o.host+" cannot start it: the hypervisor or its target does not answer")
		return o.write("migrate: gives up", vmi)
	}
	st := vmi.Status.MigrationState
	started := seconds(o.now)
	st.StartTimestamp, st.Mode = &started, kubevirtv1.MigrationPreCopy
	p := plan{
		why:       "migrate",
		confirm:   true,
		steps:     []step{{verb: doMigrate, migrate: migrateOptions(o.vmi)}},
		vmi:       vmi,
		blame:     blameMigration,
		memory:    o.memory,
		lookAgain: pollSoon,
		news:      "Migration started",
	}
	p.memory.tries++
	return p
}

func migrateOptions(vmi *kubevirtv1.VirtualMachineInstance) hardware.MigrateOptions {
	st := vmi.Status.MigrationState
	m := hardware.MigrateOptions{ID: string(st.MigrationUID), Target: st.TargetNode, TLS: true}
	if st.TargetNodeAddress != st.TargetNode {
		m.Address = st.TargetNodeAddress
	}
	if c := configuration(vmi); c != nil {
		if c.BandwidthPerMigration != nil && c.BandwidthPerMigration.Sign() > 0 {
			m.BytesPerSecond = uint64(c.BandwidthPerMigration.Value())
		}
		m.AutoConverge = c.AllowAutoConverge != nil && *c.AllowAutoConverge
		m.PostCopy = c.AllowPostCopy != nil && *c.AllowPostCopy
		m.TLS = c.DisableTLS == nil || !*c.DisableTLS
	}
	return m
}

// underWay keeps the deadlines of a running job.
func underWay(o observation, job hardware.Job) plan {
	vmi := o.vmi.DeepCopy()
	st := vmi.Status.MigrationState
	if st.StartTimestamp == nil { // we died after starting it
		started := seconds(o.now.Add(-job.Elapsed))
		st.StartTimestamp, st.Mode = &started, kubevirtv1.MigrationPreCopy
	}
	if job.PostCopy {
		st.Mode = kubevirtv1.MigrationPostCopy
	}
	m := &o.memory
	m.progress = m.progress.see(job, o.now)
	elapsed := max(job.Elapsed, o.now.Sub(st.StartTimestamp.Time)-time.Second) // its stamp has whole seconds
	limits := limitsOf(vmi)

	p := plan{why: "under way", vmi: vmi, blame: blameTry}
	verdict, why := judge(job, m.progress, limits, st.Mode, elapsed, o.now)
	switch {
	case verdict == cancel && m.cancelled == "":
		p.why, p.steps, p.news = "deadline: cancel", []step{{verb: doAbort}}, "Cancelled migration"
		m.cancelled = why
	case verdict == toPostCopy:
		p.why, p.steps, p.news = "deadline: post-copy", []step{{verb: doPostCopy}}, "Switching migration to post-copy" // the job will show it
	case verdict == pauseGuest:
		// The object first: whoever finds the guest paused must know by whom.
		p.why, p.news = "deadline: pause", "Pausing guest for its migration"
		st.Mode = kubevirtv1.MigrationPaused
	case st.Mode == kubevirtv1.MigrationPaused && o.domain.State == hardware.StateRunning:
		p.why, p.steps = "deadline: pause", []step{{verb: doSuspend}}
	case st.Mode == kubevirtv1.MigrationPreCopy && kubevirt.WantedPowerState(o.vmi) == kubevirt.PowerPaused && o.domain.State == hardware.StateRunning:
		p.why, p.steps = "pause", []step{{verb: doSuspend}}
	case st.Mode == kubevirtv1.MigrationPreCopy && kubevirt.WantedPowerState(o.vmi) == kubevirt.PowerRunning &&
		o.domain.State == hardware.StatePaused && o.domain.Detail == hardware.DetailUser:
		p.why, p.steps = "resume", []step{{verb: doResume}}
	case st.Mode == kubevirtv1.MigrationPreCopy && kubevirt.WantedPowerState(o.vmi) == kubevirt.PowerRunning && stalled(o.domain):
		again := retryIO(o)
		p.why, p.steps, m.ioTried = again.why, again.steps, again.memory.ioTried
	}
	p.memory = *m
	p.lookAgain = poll
	if left := limits.left(m.progress, st.Mode, elapsed, o.now); left > 0 {
		p.lookAgain = min(poll, max(left, time.Second))
	}
	return p
}

// jobOver is a job that has ended, or is not known any more: libvirt forgets
// it when its daemon dies, and cancels. Only what the host shows counts.
func jobOver(o observation, job *hardware.Job) plan {
	d := o.domain
	if d.State == hardware.StatePaused && switching(d.Detail) {
		return o.wait("switch-over: its target speaks", pollSoon)
	}
	if job != nil && job.Type == hardware.JobCompleted {
		return o.wait("done: its target speaks", pollSoon)
	}
	vmi := o.vmi.DeepCopy()
	why := o.memory.cancelled
	switch {
	case why != "":
	case job != nil && job.Type == hardware.JobCancelled && pastDeadline(o, job):
		why = fmt.Sprintf("not done within its %s: cancelled in round %d", limitsOf(vmi).completion, job.MemoryIteration)
	case job != nil && job.Error != "":
		why = job.Error
	case job != nil && job.Type == hardware.JobCancelled:
		why = "cancelled on host " + o.host
	default:
		why = "the job is gone: the hypervisor of host " + o.host + " or its link broke"
	}
	fail(vmi, why)
	o.memory.cancelled, o.memory.progress = "", progress{}
	p := o.write("failed: the VM runs here", vmi)
	p.lookAgain = time.Second // power state, conditions
	p.news = "Migration failed"
	return p
}

func pastDeadline(o observation, job *hardware.Job) bool {
	return job.Elapsed >= limitsOf(o.vmi).completion
}

// fellOver is a VM whose QEMU ended at the source. If its job had begun, the
// guest may have gone on at the target in that very moment, and what is left
// here looks the same after a reboot. So the migration has failed and no more:
// the target then takes the VM, or its label off it, and only then it is over.
func fellOver(o observation) plan {
	m := &o.memory
	if m.stoppedAt.IsZero() {
		m.stoppedAt = o.now
	}
	began := o.vmi.Status.MigrationState.StartTimestamp != nil
	switch left := o.holdOff - o.now.Sub(m.stoppedAt); {
	case left > 0 && began:
		return o.wait("down here: its target may speak", left)
	case !o.live:
		p := o.rest("down here: ask")
		p.confirm = true
		return p
	}
	vmi := o.vmi.DeepCopy()
	fail(vmi, "the guest ended at host "+o.host+" while it was moving")
	if began {
		targetHasToSpeak(vmi, o)
		p := o.write("down here: failed", vmi)
		p.lookAgain = time.Second
		return p
	}
	if o.guarded() {
		p := o.write("down before it moved: failed", vmi)
		p.lookAgain = time.Second
		return p
	}
	m.stoppedAt = time.Time{}
	if kubevirt.WantedPowerState(vmi) == kubevirt.PowerStopped || !o.memory.shutdownAt.IsZero() {
		stopped(vmi, o.now)
	} else {
		end(vmi, *o.domain, o.endedByHost, o.now)
	}
	p := o.write("down before it moved", vmi)
	p.memory, p.news = *m, "VM ended while it was to move"
	return p
}

// vanishedPatience is how long a domain that is gone from its source is taken
// for one that has arrived. The operator gives a target as long to prepare.
const vanishedPatience = 15 * time.Minute

// vanished is a VM that left no domain here: it arrived, and its target will say
// so. When that says nothing for very long, the migration has failed, which asks
// the target for its word.
func vanished(o observation) plan {
	m := &o.memory
	if m.absentAt.IsZero() {
		m.absentAt = o.now
	}
	if o.vmi.Status.MigrationState.StartTimestamp == nil || o.now.Sub(m.absentAt) < vanishedPatience {
		return o.wait("moved away: its target speaks", poll)
	}
	m.absentAt = time.Time{}
	vmi := o.vmi.DeepCopy()
	fail(vmi, "the domain is gone from host "+o.host+", and its target does not say that it has it")
	return o.write("moved away: nobody has it", vmi)
}

// forgetMigration drops what was remembered of an earlier migration.
func forgetMigration(m *memory) {
	m.migration, m.progress, m.cancelled, m.tries = "", progress{}, "", 0
	m.brokenAt, m.recoveries, m.nextRecovery = time.Time{}, 0, time.Time{}
}
