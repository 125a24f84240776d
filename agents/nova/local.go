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
	// between is the least time between two lists that both lack a domain
	// before it counts as lost.
	between = 5 * time.Second

	// arrivalGrace is how long a VM that has just moved here is not missed.
	// KubeVirt's source waits as long for its target.
	arrivalGrace = 60 * time.Second

	// refusedRetry is how often a refused start is tried again: volumes get
	// made, locks of a dead host run out.
	refusedRetry = 30 * time.Second
	lockRetry    = 5 * time.Second // of a volume that a dead host's lock holds: its VM waits for nothing else
)

// local is a VM of this host that is not moving.
//
//	Running    no domain      absent: lost after two lists and a look
//	Running    active         power: stop, suspend, resume, report
//	Running    inactive       over: Succeeded, Failed, stopped on request, or revived
//	either     asked to leave stop, undefine, give it up
//	Scheduled  active         power: adopt, or stop
//	Scheduled  not active     start, or stopped on request
//	other                     not placed yet
func local(o observation) plan {
	want := kubevirt.WantedPowerState(o.vmi)
	active := o.domain != nil && o.domain.Active()
	if why := kubevirt.AskedToLeave(o.vmi, o.host); why != "" && leaves(o, why) {
		return leave(o, why)
	}
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
	case givenUp(o.vmi, token):
		return o.rest("given up: to be placed anew")
	case !o.permitted():
		return noPermit(o)
	}
	if !o.live {
		p := o.rest("start")
		p.confirm = true // what follows is worth its price only then
		return p
	}
	if bad := kubevirt.Unsupported(o.vmi); len(bad) > 0 {
		return o.refuse(ReasonUnsupported, bad.ToAggregate().Error())
	}
	spec, err := Translate(o.vmi)
	if err != nil {
		return o.refuse(ReasonInvalidSpec, err.Error())
	}

	vmi := described(o.vmi)
	state := hardware.StateRunning
	if want == kubevirt.PowerPaused {
		state = hardware.StatePaused
	}
	describe(vmi, state, hardware.DetailUser, "", o.now)
	m := o.memory
	m.stoppedAt, m.stoppedBy, m.shutdownAt, m.askedAt, m.plugged = time.Time{}, "", time.Time{}, time.Time{}, false
	m.absentAt, m.waitsSince = time.Time{}, time.Time{}
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

// givenUp says that this placement was refused for want of room, or given up.
// The operator places the VM anew, and the agent must not start it meanwhile,
// though room may have come. A VM that has run here before is not placed anew for
// want of room: its host tries again.
func givenUp(vmi *kubevirtv1.VirtualMachineInstance, token int64) bool {
	c := condition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized)
	if c == nil || c.Status != no || !strings.HasPrefix(c.Message, placementMark(token)) {
		return false
	}
	switch c.Reason {
	case ReasonRestartsExhausted, ReasonDomainLost, kubevirt.LeaveStorageLost, kubevirt.LeaveYielded:
		return true
	}
	return c.Reason == ReasonHostFull && !hasRun(vmi)
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
	targetHasToSpeak(vmi, o)
	p := o.write("its target speaks", vmi)
	p.lookAgain = refusedRetry
	return p
}

// targetHasToSpeak writes that nobody knows whether the VM runs at its target. The
// operator reads it, and does not take the target's label off in its stead.
func targetHasToSpeak(vmi *kubevirtv1.VirtualMachineInstance, o observation) {
	message := "the VM does not run on host " + o.host + "; host " + o.vmi.Status.MigrationState.TargetNode + ", to which it was moving, has to speak first"
	for _, c := range []kubevirtv1.VirtualMachineInstanceConditionType{kubevirtv1.VirtualMachineInstanceReady, kubevirtv1.VirtualMachineInstanceSynchronized} {
		setCondition(vmi, c, unknown, ReasonMayRunElsewhere, message, o.now)
	}
}

// over is a Running VM whose domain has stopped.
//
//	may have moved away   another host speaks
//	asked to              Scheduled, Ready=False Stopped
//	protected             revive
//	crashed, QEMU gone    Failed at once
//	otherwise             hold-off; then guest powered off: Succeeded, else Failed
func over(o observation, want kubevirt.PowerState) plan {
	m := &o.memory
	if mayRunElsewhere(o) {
		return targetSpeaks(o)
	}
	if want == kubevirt.PowerStopped && o.domain.State == hardware.StateCrashed && o.guarded() {
		p := o.do("stop: remove the crash that was kept", doDestroy)
		p.lookAgain = retry
		return p
	}
	if want == kubevirt.PowerStopped || !m.shutdownAt.IsZero() {
		m.shutdownAt, m.askedAt, m.plugged, m.stoppedAt, m.stoppedBy = time.Time{}, time.Time{}, false, time.Time{}, ""
		vmi := o.vmi.DeepCopy()
		stopped(vmi, o.now)
		p := o.write("stopped on request", vmi)
		p.news = "Stopped VM"
		return p
	}
	if p, is := revive(o, want); is {
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
	if o.panicked {
		d.Detail = hardware.DetailPanicked
	}
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
	switch {
	case o.guarded() && mayHaveRunElsewhere(o):
		return giveUp(o, ReasonDomainLost, "the VM left host "+o.host+", and its target has lost it")
	case o.guarded():
		return start(o, kubevirt.WantedPowerState(o.vmi)) // what had it runs nothing any more
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
