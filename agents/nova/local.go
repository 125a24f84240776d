// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

const (
	// resend is how often the guest is asked again to shut down: ACPI events
	// get lost in guests that are still booting. KubeVirt's value.
	resend = 5 * time.Second

	// between is the least time between two lists that both lack a domain
	// before it counts as lost.
	between = 5 * time.Second

	// arrivalGrace is how long a VM that has just moved here is not missed.
	// KubeVirt's source waits as long for its target.
	arrivalGrace = 60 * time.Second

	// refusedRetry is how often a refused start is tried again: volumes get
	// made, locks of a dead host run out.
	refusedRetry = 30 * time.Second

	// A guest paused by an I/O error goes on where its write failed: QEMU keeps
	// the request, and "resume" sends it again (libvirt's error_policy stop).
	// While the storage is still broken the guest is paused anew at its next
	// write; so it has to run for a while before anybody is told.
	ioRetry  = 30 * time.Second
	ioProven = 6 * time.Second
)

// local is a VM of this host that is not moving.
//
//	Running    no domain      absent: lost after two lists and a look
//	Running    active         power: stop, suspend, resume, report
//	Running    inactive       over: Succeeded, Failed, or stopped on request
//	Scheduled  active         power: adopt, or stop
//	Scheduled  not active     start, or stopped on request
//	other                     not placed yet
func local(o observation) plan {
	want := kubevirt.WantedPowerState(o.vmi)
	active := o.domain != nil && o.domain.Active()
	switch o.vmi.Status.Phase {
	case kubevirtv1.Running:
		switch {
		case o.domain == nil:
			return absent(o)
		case active:
			return power(o, want)
		default:
			return over(o, want)
		}
	case kubevirtv1.Scheduled:
		switch {
		case active:
			return power(o, want)
		case want == kubevirt.PowerStopped:
			o.memory.shutdownAt, o.memory.plugged = time.Time{}, false
			vmi := o.vmi.DeepCopy()
			stopped(vmi, o.now)
			return o.write("stopped", vmi)
		default:
			return start(o, want)
		}
	}
	return o.rest("not placed")
}

// start boots the VM, if nothing speaks against it.
func start(o observation, want kubevirt.PowerState) plan {
	token := runToken(o.vmi)
	switch {
	case want != kubevirt.PowerRunning && want != kubevirt.PowerPaused:
		return o.refuse(ReasonUnknownPowerState, fmt.Sprintf("annotation %s: %q is none of Running, Paused, Stopped", kubevirt.AnnotationPowerState, want))
	case token == 0:
		return o.refuse(ReasonNoRunToken, "annotation "+kubevirt.AnnotationRunToken+" has no number above 0; it comes with the placement")
	case o.domain != nil && o.domain.Spec.Owner.Generation > token:
		return o.refuse(ReasonStaleRunToken, fmt.Sprintf("the VM ran here under run token %d and may not start under the older %d", o.domain.Spec.Owner.Generation, token))
	case mayRunElsewhere(o):
		return o.refuse(ReasonMayRunElsewhere, "the VM may run on host "+o.vmi.Status.MigrationState.TargetNode+", to which it was moving: that host has to speak first")
	case heldFull(o.vmi, token):
		return o.rest("host full: to be placed anew")
	}
	if bad := kubevirt.Unsupported(o.vmi); len(bad) > 0 {
		return o.refuse(ReasonUnsupported, bad.ToAggregate().Error())
	}
	spec, err := Translate(o.vmi)
	if err != nil {
		return o.refuse(ReasonInvalidSpec, err.Error())
	}

	vmi := o.vmi.DeepCopy()
	state := hardware.StateRunning
	if want == kubevirt.PowerPaused {
		state = hardware.StatePaused
	}
	describe(vmi, state, hardware.DetailUser, "", o.now)
	m := o.memory
	m.stoppedAt, m.shutdownAt, m.askedAt, m.plugged = time.Time{}, time.Time{}, time.Time{}, false
	m.absentAt = time.Time{}
	return plan{
		why:     "start",
		confirm: true,
		steps: []step{
			{verb: doClaim},
			{verb: doDefine, spec: spec},
			{verb: doStart, paused: want == kubevirt.PowerPaused},
		},
		claimKiB: spec.MemoryKiB,
		vmi:      vmi,
		blame:    blameVM,
		memory:   m,
		news:     "Started VM",
	}
}

// refuse says what the user has to change.
func (o observation) refuse(reason, message string) plan {
	vmi := o.vmi.DeepCopy()
	setCondition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized, no, reason, message, o.now)
	return o.write("refused", vmi)
}

// heldFull says that this placement was refused for want of room. The operator
// places the VM anew, and the agent must not start it meanwhile, though room
// may have come. A VM that has run here before is not placed anew: its host
// tries again.
func heldFull(vmi *kubevirtv1.VirtualMachineInstance, token int64) bool {
	if hasRun(vmi) {
		return false
	}
	c := condition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized)
	return c != nil && c.Status == no && c.Reason == ReasonHostFull && strings.HasPrefix(c.Message, placementMark(token))
}

// hasRun says that the VM was started at least once.
func hasRun(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return slices.ContainsFunc(vmi.Status.PhaseTransitionTimestamps, func(t kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp) bool {
		return t.Phase == kubevirtv1.Running
	})
}

// mayRunElsewhere says of a VM that does not run here that a migration began and
// that its target has not said how that ended. It says that it has nothing by
// taking its label off a migration that failed.
func mayRunElsewhere(o observation) bool {
	st := o.vmi.Status.MigrationState
	if st == nil || st.StartTimestamp == nil || st.Completed || st.TargetNode == "" || st.TargetNode == o.host {
		return false
	}
	_, known := o.vmi.Labels[kubevirt.HostLabel(st.TargetNode)]
	return !st.Failed || known
}

// targetSpeaks waits for the word of the host to which the VM was moving. While
// that is silent nobody knows.
func targetSpeaks(o observation) plan {
	vmi := o.vmi.DeepCopy()
	message := "the VM does not run on host " + o.host + "; host " + o.vmi.Status.MigrationState.TargetNode + ", to which it was moving, has to speak first"
	for _, c := range []kubevirtv1.VirtualMachineInstanceConditionType{kubevirtv1.VirtualMachineInstanceReady, kubevirtv1.VirtualMachineInstanceSynchronized} {
		setCondition(vmi, c, unknown, ReasonMayRunElsewhere, message, o.now)
	}
	p := o.write("its target speaks", vmi)
	p.lookAgain = refusedRetry
	return p
}

// power makes an active domain as it is wanted and reports it.
func power(o observation, want kubevirt.PowerState) plan {
	if want == kubevirt.PowerStopped {
		return stop(o, "stop")
	}
	m := &o.memory
	m.stoppedAt, m.stoppedBy, m.absentAt = time.Time{}, "", time.Time{}
	switch {
	case m.askedAt.IsZero():
	case o.domain.State == hardware.StatePaused:
		m.askedAt = o.now // it hears that it was asked once it goes on
	case o.now.Sub(m.askedAt) > grace(o.vmi):
		m.shutdownAt, m.askedAt = time.Time{}, time.Time{} // it did not listen
	}

	state, detail := o.domain.State, o.domain.Detail
	p := o.rest("as wanted")
	switch {
	case state == hardware.StateShuttingDown:
		return o.wait("the guest powers off", retry)
	case state == hardware.StatePaused && detail == hardware.DetailStartingUp:
		return o.wait("starting", retry)
	case state == hardware.StatePaused && switching(detail):
		return o.wait("a switch-over ends", retry)
	case want == kubevirt.PowerRunning && stalled(o.domain):
		p = retryIO(o)
	case want == kubevirt.PowerRunning && !m.ioTried.IsZero() && o.now.Sub(m.ioTried) < ioProven:
		return o.wait("resumed after an I/O error: for good?", ioProven-o.now.Sub(m.ioTried))
	case want == kubevirt.PowerPaused && (state == hardware.StateRunning || state == hardware.StateBlocked):
		p = o.do("pause", doSuspend)
		state, detail, p.news = hardware.StatePaused, hardware.DetailUser, "Paused VM"
	case want == kubevirt.PowerRunning && state == hardware.StatePaused && (detail == hardware.DetailUser || detail == hardware.DetailNone):
		p = o.do("resume", doResume)
		state, detail, p.news = hardware.StateRunning, hardware.DetailUnpaused, "Resumed VM"
	}
	if !stalled(o.domain) {
		p.memory.ioTried = time.Time{}
	}
	vmi := o.vmi.DeepCopy()
	describe(vmi, state, detail, m.agent, o.now)
	p.vmi, p.blame = vmi, blameVM
	return p
}

// stalled says that a guest stands still because a disk did not answer.
func stalled(d *hardware.Domain) bool {
	return d.State == hardware.StatePaused && d.Detail == hardware.DetailIOError
}

// retryIO lets a stalled guest try its write again, by and by.
func retryIO(o observation) plan {
	m := &o.memory
	if m.ioTried.IsZero() {
		m.ioTried = o.now
	}
	left := ioRetry - o.now.Sub(m.ioTried)
	if left > 0 {
		return o.wait("stalled: waits", left)
	}
	m.ioTried = o.now
	p := o.do("stalled: try again", doResume)
	p.lookAgain = ioProven
	return p
}

// switching says that a migration, and nobody else, holds the CPUs.
func switching(d hardware.Detail) bool {
	return d == hardware.DetailMigrating || d == hardware.DetailMigrated || d == hardware.DetailPostCopy
}

// grace is how long a guest has to shut down.
func grace(vmi *kubevirtv1.VirtualMachineInstance) time.Duration {
	if s := vmi.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return kubevirt.TerminationGraceSeconds * time.Second
}

// stop asks the guest to power off until its grace period is over, and then
// pulls the plug.
func stop(o observation, why string) plan {
	m := &o.memory
	patience := time.Duration(kubevirt.TerminationGraceSeconds) * time.Second
	if o.vmi != nil {
		patience = grace(o.vmi)
	}
	if m.shutdownAt.IsZero() {
		m.shutdownAt = o.now
	}
	left := patience - o.now.Sub(m.shutdownAt)
	if left <= 0 {
		m.plugged = true
		p := o.do(why+": pull the plug", doDestroy)
		p.lookAgain, p.news = retry, "Switched off VM"
		return p
	}
	if !m.askedAt.IsZero() && o.now.Sub(m.askedAt) < resend {
		return o.wait(why+": waits", min(left, resend-o.now.Sub(m.askedAt)))
	}
	p := o.do(why, doShutdown)
	if m.askedAt.IsZero() {
		p.news = "Asked guest to shut down"
	}
	p.memory.askedAt = o.now
	p.blame = blameTry
	p.lookAgain = min(left, resend)
	return p
}

// over is a Running VM whose domain has stopped.
//
//	may have moved away   another host speaks
//	asked to              Scheduled, Ready=False Stopped
//	crashed, QEMU gone    Failed at once
//	otherwise             hold-off; then guest powered off: Succeeded, else Failed
func over(o observation, want kubevirt.PowerState) plan {
	m := &o.memory
	if mayRunElsewhere(o) {
		return targetSpeaks(o)
	}
	if want == kubevirt.PowerStopped || !m.shutdownAt.IsZero() {
		m.shutdownAt, m.askedAt, m.plugged, m.stoppedAt, m.stoppedBy = time.Time{}, time.Time{}, false, time.Time{}, ""
		vmi := o.vmi.DeepCopy()
		stopped(vmi, o.now)
		p := o.write("stopped on request", vmi)
		p.news = "Stopped VM"
		return p
	}
	detail := o.domain.Detail
	if switching(detail) {
		return o.wait("moved away: its target speaks", retry)
	}
	sudden := o.domain.State == hardware.StateCrashed || detail == hardware.DetailCrashed ||
		detail == hardware.DetailFailed || detail == hardware.DetailPanicked
	if m.stoppedAt.IsZero() {
		m.stoppedAt, m.stoppedBy = o.now, detail
	}
	if left := o.holdOff - o.now.Sub(m.stoppedAt); left > 0 && !sudden {
		return o.wait("stopped: may be half of a reset", left)
	}
	d := *o.domain
	d.Detail = cmp.Or(d.Detail, m.stoppedBy)
	m.stoppedAt, m.stoppedBy = time.Time{}, ""
	vmi := o.vmi.DeepCopy()
	end(vmi, d, o.endedByHost, o.now)
	p := o.write("over", vmi)
	p.news = "VM ended"
	return p
}

// end writes the end of a domain into its VM: a QEMU that died has Failed, a
// guest that powered off has Succeeded, and one that somebody switched off has
// Failed, as in KubeVirt with ACPI on. A QEMU that a signal ended, as when its
// host goes down, looks like a guest that powered off but for one event.
func end(vmi *kubevirtv1.VirtualMachineInstance, d hardware.Domain, byHost bool, now time.Time) {
	switch {
	case d.Detail == hardware.DetailPanicked:
		ended(vmi, kubevirtv1.Failed, ReasonPanicked, "the guest panicked", now)
	case d.State == hardware.StateCrashed || d.Detail == hardware.DetailCrashed || d.Detail == hardware.DetailFailed:
		ended(vmi, kubevirtv1.Failed, ReasonCrashed, "QEMU ended without a word: see its log on the host", now)
	case d.Detail == hardware.DetailDestroyed:
		ended(vmi, kubevirtv1.Failed, ReasonDestroyed, "the domain was switched off, and not by request of this VM", now)
	case d.Detail == hardware.DetailShutdown && byHost:
		ended(vmi, kubevirtv1.Failed, ReasonDestroyed, "the host ended the domain, and not its guest: the host may be going down", now)
	case d.Detail == hardware.DetailShutdown:
		ended(vmi, kubevirtv1.Succeeded, ReasonGuestPoweredOff, "the guest powered off", now)
	default: // as libvirt shows its domains after the host lost power
		ended(vmi, kubevirtv1.Failed, ReasonCrashed, "the domain is off and the hypervisor does not know why: the host may have lost power", now)
	}
}

// absent is a Running VM without a domain. It is lost when two lists some
// seconds apart and a look in between lack it, and no other host can have it.
func absent(o observation) plan {
	st := o.vmi.Status.MigrationState
	switch {
	case mayRunElsewhere(o):
		return targetSpeaks(o)
	case st != nil && st.Completed && st.TargetNode == o.host && st.EndTimestamp != nil && o.now.Sub(st.EndTimestamp.Time) < arrivalGrace:
		return o.wait("just moved here", between)
	case o.memory.absentAt.IsZero():
		o.memory.absentAt = o.now
		return o.list("absent: once", between)
	case o.listedAt.Sub(o.memory.absentAt) < between:
		return o.list("absent: not listed since", between)
	case !o.live:
		p := o.rest("absent: twice")
		p.confirm = true
		return p
	}
	o.memory.absentAt = time.Time{}
	vmi := o.vmi.DeepCopy()
	ended(vmi, kubevirtv1.Failed, ReasonDomainLost, "the domain is gone from host "+o.host+" and nobody was told", o.now)
	p := o.write("absent: lost", vmi)
	p.news = "VM lost"
	return p
}

// list asks for a list of all domains before the next look.
func (o observation) list(why string, lookAgain time.Duration) plan {
	p := o.wait(why, lookAgain)
	p.steps = []step{{verb: doList}}
	return p
}
