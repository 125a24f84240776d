// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

const (
	// resend is how often the guest is asked again to shut down: ACPI events
	// get lost in guests that are still booting. KubeVirt's value.
	resend = 5 * time.Second

	// A guest paused by an I/O error goes on where its write failed: QEMU keeps
	// the request, and "resume" sends it again (libvirt's error_policy stop).
	// While the storage is still broken the guest is paused anew at its next
	// write; so it has to run for a while before anybody is told.
	ioRetry  = 30 * time.Second
	ioProven = 6 * time.Second
)

// power makes an active domain as it is wanted and reports it.
func power(o observation, want kubevirt.PowerState) plan {
	if want == kubevirt.PowerStopped {
		return stop(o, "stop")
	}
	m := &o.memory
	m.stoppedAt, m.stoppedBy, m.absentAt, m.waitsSince = time.Time{}, "", time.Time{}, time.Time{}
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
	case state == hardware.StatePaused && detail == hardware.DetailPostCopyFailed && o.guarded() && !mayRunElsewhere(o):
		p = o.do("half of a VM: destroy, to start it again", doDestroy) // its target has nothing
		p.lookAgain, p.news = retry, "Removed half of a VM lost in post-copy"
		return p
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
	vmi := described(o.vmi)
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
