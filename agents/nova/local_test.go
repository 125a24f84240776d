// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"testing"
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

const (
	scheduled = kubevirtv1.Scheduled
	up        = kubevirtv1.Running
)

// settled is a Running VM whose status says all there is to say.
func settled(change ...func(*kubevirtv1.VirtualMachineInstance)) *kubevirtv1.VirtualMachineInstance {
	v := vmi(up)
	describe(v, hardware.StateRunning, hardware.DetailBooted, "", now.Add(-time.Hour))
	for _, c := range change {
		c(v)
	}
	return v
}

// letGoOf is a VM whose label a host has taken off.
func letGoOf(host string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) { delete(v.Labels, kubevirt.HostLabel(host)) }
}

func ago(d time.Duration) time.Time { return now.Add(-d) }

// stalledVM is a settled VM that was said to be paused by an I/O error.
func stalledVM(change ...func(*kubevirtv1.VirtualMachineInstance)) *kubevirtv1.VirtualMachineInstance {
	v := settled(change...)
	describe(v, hardware.StatePaused, hardware.DetailIOError, "", ago(time.Hour))
	return v
}

func TestStart(t *testing.T) {
	walk(t, []row{
		{name: "a placed VM is claimed, defined and started, and one patch says so",
			o: seen(vmi(scheduled), nil), want: "claim define start phase=Running Ready=True LiveMigratable=True"},
		{name: "the API is asked past the cache before a start",
			o: seen(vmi(scheduled), nil, cached), want: "ask the API"},
		{name: "a VM that is to start paused starts paused",
			o: seen(vmi(scheduled, power_("Paused")), nil), want: "claim define start phase=Running Paused=True/PausedByUser Ready=False/GuestNotRunning LiveMigratable=True"},
		{name: "defined, and then we died: define again and start",
			o: seen(vmi(scheduled), domain(hardware.StateShutOff, "")), want: "claim define start phase=Running Ready=True LiveMigratable=True"},
		{name: "started, and then we died: only the patch is left",
			o: seen(vmi(scheduled), running()), want: "phase=Running Ready=True LiveMigratable=True"},
		{name: "a higher token starts a defined domain",
			o: seen(vmi(scheduled, token("4")), domain(hardware.StateShutOff, "")), want: "claim define start phase=Running Ready=True LiveMigratable=True"},
		{name: "a lower token does not",
			o: seen(vmi(scheduled, token("2")), domain(hardware.StateShutOff, "")), want: "Synchronized=False/StaleRunToken"},
		{name: "no token, no start",
			o: seen(vmi(scheduled, token("")), nil), want: "Synchronized=False/NoRunToken"},
		{name: "a VM placed elsewhere is not started",
			o: seen(vmi(scheduled, placed("b")), nil), want: "forget"},
		{name: "a VM whose placement was taken back is not started",
			o: seen(vmi(scheduled, placed("")), nil), want: "forget"},
		{name: "a VM not placed yet is left alone",
			o: seen(vmi(kubevirtv1.Pending), nil), want: ""},
		{name: "a VM that may have moved away is not started",
			o:    seen(vmi(scheduled, moving(started(time.Minute), func(st *kubevirtv1.VirtualMachineInstanceMigrationState) { st.SourceNode = "c" })), nil),
			want: "Synchronized=False/MayRunElsewhere"},
		{name: "an unknown power state is refused, not guessed",
			o: seen(vmi(scheduled, power_("Hibernated")), nil), want: "Synchronized=False/UnknownPowerState"},
		{name: "a VM without memory is refused",
			o: seen(vmi(scheduled, func(v *kubevirtv1.VirtualMachineInstance) { v.Spec.Domain.Memory = nil }), nil), want: "Synchronized=False/InvalidSpec"},
		{name: "what is not supported is refused by its name",
			o: seen(vmi(scheduled, func(v *kubevirtv1.VirtualMachineInstance) {
				v.Spec.Domain.Devices.HostDevices = []kubevirtv1.HostDevice{{Name: "x", DeviceName: "y"}}
			}), nil), want: "Synchronized=False/Unsupported"},
		{name: "a host that was full for this placement waits for the next one",
			o: seen(vmi(scheduled, said(ReasonHostFull, placementMark(3)+"no room")), nil), want: ""},
		{name: "and takes the next one",
			o:    seen(vmi(scheduled, token("4"), said(ReasonHostFull, placementMark(3)+"no room")), nil),
			want: "claim define start phase=Running Synchronized=True Ready=True LiveMigratable=True"},
		{name: "a foreign domain in the way is named and not touched",
			o: seen(vmi(scheduled), domain(hardware.StateRunning, "", foreignDomain)), want: "Synchronized=False/DomainNotOurs"},
		{name: "so is another VM's with the same UUID",
			o: seen(vmi(scheduled), domain(hardware.StateRunning, "", func(d *hardware.Domain) { d.Spec.Owner.Name = "other" })), want: "Synchronized=False/DomainNotOurs"},
		{name: "the domain of an earlier VM of that name goes first",
			o:    seen(vmi(scheduled), domain(hardware.StateShutOff, "", anothers("uid-0")), remembering(memory{missingAt: ago(time.Minute)})),
			want: "undefine"},
	})
}

func TestPower(t *testing.T) {
	stopAsked := memory{shutdownAt: ago(10 * time.Second), askedAt: ago(5 * time.Second)}
	walk(t, []row{
		{name: "a running VM that is wanted running is left in peace", o: seen(settled(), running()), want: ""},
		{name: "one found running after a restart of the agent is adopted without a touch", o: seen(settled(), running(), cached), want: ""},
		{name: "stop asks the guest first", o: seen(settled(power_("Stopped")), running()), want: "shutdown", again: 5 * time.Second},
		{name: "and not twice within five seconds", o: seen(settled(power_("Stopped")), running(), remembering(memory{shutdownAt: ago(2 * time.Second), askedAt: ago(2 * time.Second)})), want: "", again: 3 * time.Second},
		{name: "and again after them", o: seen(settled(power_("Stopped")), running(), remembering(stopAsked)), want: "shutdown"},
		{name: "and pulls the plug when the grace is over", o: seen(settled(power_("Stopped")), running(), remembering(memory{shutdownAt: ago(30 * time.Second), askedAt: ago(time.Second)})), want: "destroy"},
		{name: "a grace of zero pulls it at once", o: seen(settled(power_("Stopped"), func(v *kubevirtv1.VirtualMachineInstance) {
			v.Spec.TerminationGracePeriodSeconds = new(int64(0))
		}), running()), want: "destroy"},
		{name: "a stopped VM stays defined and goes back to Scheduled", o: seen(settled(power_("Stopped")), domain(hardware.StateShutOff, hardware.DetailShutdown)), want: "phase=Scheduled Ready=False/Stopped"},
		{name: "one switched off after its grace as well", o: seen(settled(power_("Stopped")), domain(hardware.StateShutOff, hardware.DetailDestroyed)), want: "phase=Scheduled Ready=False/Stopped"},
		{name: "a VM that was never started is Stopped, too", o: seen(vmi(scheduled, power_("Stopped")), nil), want: "Ready=False/Stopped"},
		{name: "stopped and wanted again: the stop ends before the start", o: seen(settled(), domain(hardware.StateShutOff, hardware.DetailShutdown), remembering(stopAsked)), want: "phase=Scheduled Ready=False/Stopped"},
		{name: "pause suspends", o: seen(settled(power_("Paused")), running()), want: "suspend Ready=False/GuestNotRunning Paused=True/PausedByUser"},
		{name: "running resumes", o: seen(settled(), domain(hardware.StatePaused, hardware.DetailUser)), want: "resume"},
		{name: "a guest paused by its disk is not resumed at once", o: seen(settled(), domain(hardware.StatePaused, hardware.DetailIOError)), want: "Ready=False/GuestNotRunning Paused=True/PausedIOError"},
		{name: "and told so, and looked at half a minute later", o: seen(settled(), domain(hardware.StatePaused, hardware.DetailIOError)), want: "Ready=False/GuestNotRunning Paused=True/PausedIOError", again: 30 * time.Second},
		{name: "then it may try its write again", o: seen(stalledVM(), domain(hardware.StatePaused, hardware.DetailIOError), remembering(memory{ioTried: ago(30 * time.Second)})), want: "resume", again: 6 * time.Second},
		{name: "not if it is to be paused", o: seen(stalledVM(power_("Paused")), domain(hardware.StatePaused, hardware.DetailIOError), remembering(memory{ioTried: ago(30 * time.Second)})), want: ""},
		{name: "and is not said to run before it has for a while", o: seen(stalledVM(), running(), remembering(memory{ioTried: ago(2 * time.Second)})), want: "", again: 4 * time.Second},
		{name: "when it has, it is", o: seen(stalledVM(), running(), remembering(memory{ioTried: ago(6 * time.Second)})), want: "Ready=True -Paused"},
		{name: "nor one paused by its watchdog", o: seen(settled(), domain(hardware.StatePaused, hardware.DetailWatchdog)), want: "Ready=False/GuestNotRunning Paused=True/PausedWatchdog"},
		{name: "nor half a VM after a broken post-copy", o: seen(settled(), domain(hardware.StatePaused, hardware.DetailPostCopyFailed)), want: "Ready=False/GuestNotRunning Paused=True/PausedPostCopyFailed"},
		{name: "nor one that a migration holds", o: seen(settled(moving(failedSt)), domain(hardware.StatePaused, hardware.DetailMigrating)), want: ""},
		{name: "a disk that works again clears the pause", o: seen(settled(func(v *kubevirtv1.VirtualMachineInstance) {
			describe(v, hardware.StatePaused, hardware.DetailIOError, "", ago(time.Hour))
		}), running()), want: "Ready=True -Paused"},
		{name: "a connected agent is said", o: seen(settled(), running(), remembering(memory{agent: hardware.DetailConnected})), want: "AgentConnected=True"},
		{name: "a lost one is unsaid", o: seen(settled(func(v *kubevirtv1.VirtualMachineInstance) {
			setCondition(v, kubevirtv1.VirtualMachineInstanceAgentConnected, yes, "", "", ago(time.Hour))
		}), running(), remembering(memory{agent: hardware.DetailDisconnected})), want: "-AgentConnected"},
		{name: "what stood in the way stands there no more", o: seen(settled(said(ReasonVolumeNotFound, "x")), running()), want: "Synchronized=True"},
	})
}

func TestEnd(t *testing.T) {
	off := func(d hardware.Detail) *hardware.Domain { return domain(hardware.StateShutOff, d) }
	late := remembering(memory{stoppedAt: ago(15 * time.Second)})
	walk(t, []row{
		{name: "a stop may be half of a reset", o: seen(settled(), off(hardware.DetailDestroyed)), want: "", again: 15 * time.Second},
		{name: "a guest whose host ended it has not", o: seen(settled(), off(hardware.DetailShutdown), late, func(o *observation) { o.endedByHost = true }), want: "phase=Failed reason=Destroyed Ready=False/Destroyed"},
		{name: "what a new libvirtd has forgotten is remembered", o: seen(settled(), off(""), remembering(memory{stoppedAt: ago(15 * time.Second), stoppedBy: hardware.DetailShutdown})), want: "phase=Succeeded reason=GuestPoweredOff Ready=False/GuestPoweredOff"},
		{name: "a guest that powered off has succeeded", o: seen(settled(), off(hardware.DetailShutdown), late), want: "phase=Succeeded reason=GuestPoweredOff Ready=False/GuestPoweredOff"},
		{name: "one that was switched off has failed", o: seen(settled(), off(hardware.DetailDestroyed), late), want: "phase=Failed reason=Destroyed Ready=False/Destroyed"},
		{name: "a domain off for no known reason has failed", o: seen(settled(), off(""), late), want: "phase=Failed reason=Crashed Ready=False/Crashed"},
		{name: "a QEMU that died has failed at once", o: seen(settled(), off(hardware.DetailFailed)), want: "phase=Failed reason=Crashed Ready=False/Crashed"},
		{name: "a guest that panicked has failed at once", o: seen(settled(), off(hardware.DetailPanicked)), want: "phase=Failed reason=Panicked Ready=False/Panicked"},
		{name: "a crash that is preserved has failed", o: seen(settled(), domain(hardware.StateCrashed, hardware.DetailPanicked)), want: "phase=Failed reason=Panicked Ready=False/Panicked"},
		{name: "a domain that moved away has not ended", o: seen(settled(), off(hardware.DetailMigrated), late), want: ""},

		{name: "an ended VM is undefined and kept", o: seen(vmi(kubevirtv1.Succeeded), off(hardware.DetailShutdown)), want: "undefine"},
		{name: "a preserved crash is destroyed", o: seen(vmi(kubevirtv1.Failed), domain(hardware.StateCrashed, "")), want: "destroy"},
		{name: "an ended VM has nothing more to say", o: seen(vmi(kubevirtv1.Failed), nil), want: ""},
		{name: "an ended VM that is deleted loses the finalizer", o: seen(vmi(kubevirtv1.Failed, deleted), nil), want: "-finalizer"},

		{name: "a deleted VM is asked to shut down", o: seen(settled(deleted), running()), want: "shutdown"},
		{name: "and switched off after its grace", o: seen(settled(deleted), running(), remembering(memory{shutdownAt: ago(time.Minute), askedAt: ago(time.Second)})), want: "destroy"},
		{name: "and undefined when it is off, and let go", o: seen(settled(deleted), off(hardware.DetailShutdown)), want: "undefine phase=Succeeded reason=GuestPoweredOff Ready=False/GuestPoweredOff -finalizer"},
		{name: "a deleted VM that had to be switched off has failed", o: seen(settled(deleted), off(hardware.DetailDestroyed), remembering(memory{plugged: true})), want: "undefine phase=Failed reason=Destroyed Ready=False/Destroyed -finalizer"},
		{name: "a deleted VM without a domain is let go", o: seen(vmi(scheduled, deleted), nil), want: "-finalizer"},
		{name: "a deleted VM that may run elsewhere is not", o: seen(settled(deleted, moving(started(time.Minute), failedSt)), nil), want: "Ready=Unknown/MayRunElsewhere Synchronized=Unknown/MayRunElsewhere"},
		{name: "nor is what is off here an end of it", o: seen(settled(moving(started(time.Minute), failedSt)), off(hardware.DetailShutdown), late), want: "Ready=Unknown/MayRunElsewhere Synchronized=Unknown/MayRunElsewhere"},
		{name: "not even if it is to stop", o: seen(settled(power_("Stopped"), moving(started(time.Minute), failedSt)), off(""), late), want: "Ready=Unknown/MayRunElsewhere Synchronized=Unknown/MayRunElsewhere"},
		{name: "it is once its target has let go", o: seen(settled(moving(started(time.Minute), failedSt), letGoOf("b")), off(hardware.DetailFailed), late), want: "phase=Failed reason=Crashed Ready=False/Crashed"},
		{name: "a deleted VM that is moving is not let go before the migration is over", o: seen(settled(deleted, moving(started(time.Minute))), running(), withJob(hardware.Job{ID: "m1", Type: hardware.JobUnbounded})), want: "abort"},
	})
}

func TestUnknownIsNotDead(t *testing.T) {
	silent := func(d time.Duration) func(*observation) { return func(o *observation) { o.downAt = ago(d) } }
	unlisted := func(o *observation) { o.listed = false }
	listed := func(d time.Duration) func(*observation) { return func(o *observation) { o.listedAt = ago(d) } }
	missed := func(d time.Duration) func(*observation) { return remembering(memory{absentAt: ago(d)}) }
	walk(t, []row{
		{name: "nothing is concluded before the first list", o: seen(settled(), nil, unlisted), want: ""},
		{name: "a restart of libvirtd is no news", o: seen(settled(), nil, silent(5*time.Second)), want: ""},
		{name: "a longer silence is said as unknown, not as failed", o: seen(settled(), nil, silent(10*time.Second)), want: "Synchronized=Unknown/HypervisorUnavailable"},
		{name: "and said once", o: seen(settled(func(v *kubevirtv1.VirtualMachineInstance) {
			v.Status.Conditions = silently(v)
		}), nil, silent(time.Hour)), want: ""},
		{name: "and taken back", o: seen(settled(func(v *kubevirtv1.VirtualMachineInstance) {
			v.Status.Conditions = silently(v)
		}), running()), want: "Synchronized=True"},
		{name: "silence says nothing of a VM that was refused", o: seen(vmi(scheduled, said(ReasonHostFull, placementMark(3))), nil, silent(time.Hour)), want: ""},

		{name: "a domain missed once is looked for in a list", o: seen(settled(), nil), want: "list", again: 5 * time.Second},
		{name: "a second list has to be five seconds younger", o: seen(settled(), nil, missed(8*time.Second), listed(6*time.Second)), want: "list"},
		{name: "the object is read once more before the verdict", o: seen(settled(), nil, missed(10*time.Second), cached), want: "ask the API"},
		{name: "missed twice it is lost", o: seen(settled(), nil, missed(10*time.Second)), want: "phase=Failed reason=DomainLost Ready=False/DomainLost"},
		{name: "one that is back was never away", o: seen(settled(), running(), missed(10*time.Second)), want: ""},
		{name: "one that has just moved here is not missed yet", o: seen(settled(func(v *kubevirtv1.VirtualMachineInstance) {
			moving(done(20*time.Second), func(st *kubevirtv1.VirtualMachineInstanceMigrationState) {
				st.SourceNode, st.TargetNode = "b", "a"
			})(v)
		}), nil, missed(10*time.Second)), want: ""},
		{name: "one that may run at a target is not lost", o: seen(settled(moving(started(time.Minute), failedSt)), nil, missed(10*time.Second)), want: "Ready=Unknown/MayRunElsewhere Synchronized=Unknown/MayRunElsewhere"},
		{name: "it is lost once its target has let go", o: seen(settled(moving(started(time.Minute), failedSt), letGoOf("b")), nil, missed(10*time.Second)), want: "phase=Failed reason=DomainLost Ready=False/DomainLost"},
	})
}

func silently(v *kubevirtv1.VirtualMachineInstance) []kubevirtv1.VirtualMachineInstanceCondition {
	o := seen(v, nil, func(o *observation) { o.downAt = ago(time.Hour) })
	return silent(o).vmi.Status.Conditions
}

func TestOrphansAndStrangers(t *testing.T) {
	twice := remembering(memory{missingAt: ago(30 * time.Second)})
	off := domain(hardware.StateShutOff, "")
	walk(t, []row{
		{name: "a domain whose VM is not in the cache is asked about", o: seen(nil, running(), cached), want: "ask the API"},
		{name: "no such VM, once: wait", o: seen(nil, running()), want: "", again: 30 * time.Second},
		{name: "no such VM, twice: stop gently", o: seen(nil, running(), twice), want: "shutdown"},
		{name: "no such VM, and it is off: undefine", o: seen(nil, off, twice), want: "undefine"},
		{name: "an earlier VM of that name: stop gently", o: seen(settled(), domain(hardware.StateRunning, "", anothers("uid-0")), twice), want: "shutdown"},
		{name: "a domain that others made is never touched", o: seen(nil, domain(hardware.StateRunning, "", foreignDomain), twice), want: ""},
		{name: "nor when it is off", o: seen(nil, domain(hardware.StateShutOff, "", foreignDomain), twice), want: ""},
		{name: "neither domain nor VM: forgotten", o: seen(nil, nil), want: "forget"},

		{name: "a VM of another host whose domain runs here is held, whoever is right", o: seen(vmi(up, placed("a.example")), running()), want: ""},
		{name: "and its stopped domain as well", o: seen(vmi(scheduled, placed("a.example")), off), want: ""},
		{name: "an old copy under an older token is destroyed", o: seen(vmi(up, placed("b"), token("4")), running()), want: "destroy undefine"},
		{name: "but not before the new one runs", o: seen(vmi(scheduled, placed("b"), token("4")), running()), want: ""},
		{name: "nor on the cache's word", o: seen(vmi(up, placed("b"), token("4")), running(), cached), want: "ask the API"},
		{name: "a definition under an older token goes", o: seen(vmi(scheduled, placed("b"), token("4")), off), want: "undefine"},
		{name: "a definition of a VM that is placed nowhere goes", o: seen(vmi(kubevirtv1.Pending, placed("")), off), want: "undefine"},
		{name: "a definition that a finished migration left goes", o: seen(vmi(up, placed("b"), moving(done(time.Minute))), off), want: "undefine"},
		{name: "a paused copy that a finished migration left is given time", o: seen(vmi(up, placed("b"), moving(done(10*time.Second))), domain(hardware.StatePaused, hardware.DetailMigrated)), want: ""},
		{name: "but not while its memory still follows the guest", o: seen(vmi(up, placed("b"), moving(done(2*time.Minute))), domain(hardware.StatePaused, hardware.DetailPostCopy), job(time.Minute, inPostCopy)), want: ""},
		{name: "and then goes", o: seen(vmi(up, placed("b"), moving(done(2*time.Minute))), domain(hardware.StatePaused, hardware.DetailMigrated)), want: "destroy undefine"},
		{name: "a second running copy is not ours to destroy", o: seen(vmi(up, placed("b"), moving(done(2*time.Minute))), running()), want: ""},
		{name: "an old copy of an ended VM is destroyed", o: seen(vmi(kubevirtv1.Failed, placed("b")), running()), want: "destroy"},
	})
}

func TestHoldOnRefusalNamesThePlacement(t *testing.T) {
	v := vmi(scheduled, said(ReasonHostFull, placementMark(13)+"no room"), token("1"))
	if givenUp(v, 1) {
		t.Error("token 13's verdict is taken for token 1's")
	}
	if !givenUp(v, 13) {
		t.Error("token 13's verdict is not found")
	}
	_ = kubevirt.Finalizer
}
