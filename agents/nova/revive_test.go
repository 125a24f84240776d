// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"testing"
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

// guarded is a protected VM on a host with high availability that has a permit.
func guarded(o *observation) {
	o.needPermit, o.permitLeft = true, 15*time.Second
	if o.vmi != nil {
		o.vmi.Labels[kubevirt.LabelProtected] = "true"
	}
}

func unpermitted(o *observation) { guarded(o); o.permitLeft = 0 }
func lapsed(o *observation)      { guarded(o); o.stoppedHA = true }
func restarted(n int) func(*observation) {
	return func(o *observation) { o.restarts = n }
}

func policy(annotation, value string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) { v.Annotations[annotation] = value }
}

func lacksPermit(v *kubevirtv1.VirtualMachineInstance) {
	setCondition(v, kubevirtv1.VirtualMachineInstanceSynchronized, no, ReasonNoRunPermit, "", ago(time.Hour))
	setCondition(v, kubevirtv1.VirtualMachineInstanceReady, no, ReasonNoRunPermit, "", ago(time.Hour))
}

func TestPermit(t *testing.T) {
	off := func(d hardware.Detail) *hardware.Domain { return domain(hardware.StateShutOff, d) }
	long := remembering(memory{waitsSince: ago(time.Minute), stoppedAt: ago(time.Minute)})
	starts := "claim define start phase=Running Ready=True LiveMigratable=True"
	walk(t, []row{
		{name: "a protected VM starts with a permit", o: seen(vmi(scheduled), nil, guarded), want: starts},
		{name: "and waits without one, which is no news at first", o: seen(vmi(scheduled), nil, unpermitted), want: "", again: 2 * time.Second},
		{name: "and is then", o: seen(vmi(scheduled), nil, unpermitted, long), want: "Synchronized=False/NoRunPermit", again: 5 * time.Second},
		{name: "told once", o: seen(settled(lacksPermit), off(""), unpermitted, long), want: "", again: 5 * time.Second},
		{name: "a permit that is nearly over is none", o: seen(vmi(scheduled), nil, guarded, func(o *observation) { o.permitLeft = time.Second }), want: ""},
		{name: "a VM that is not protected needs none", o: seen(vmi(scheduled), nil, func(o *observation) { o.needPermit = true }), want: starts},
		{name: "nor does one on a host without high availability", o: seen(vmi(scheduled, func(v *kubevirtv1.VirtualMachineInstance) { v.Labels[kubevirt.LabelProtected] = "true" }), nil), want: starts},
		{name: "a domain that was made as protected counts as such", o: seen(vmi(scheduled), domain(hardware.StateShutOff, "", func(d *hardware.Domain) { d.Spec.Owner.Protected = true }), func(o *observation) { o.needPermit = true }), want: ""},

		{name: "without a permit a guest that seems to have powered off has not", o: seen(settled(), off(hardware.DetailShutdown), unpermitted, long), want: "Ready=False/NoRunPermit Synchronized=False/NoRunPermit"},
		{name: "nor has a QEMU died", o: seen(settled(), off(hardware.DetailFailed), unpermitted), want: ""},
		{name: "nor is a domain lost", o: seen(settled(), nil, unpermitted, remembering(memory{absentAt: ago(time.Minute)})), want: ""},
		{name: "what a lapse stopped starts again with the next permit", o: seen(settled(), off(hardware.DetailShutdown), lapsed), want: "claim define start"},
		{name: "and says so where it said otherwise", o: seen(settled(lacksPermit), off(hardware.DetailDestroyed), lapsed), want: "claim define start Ready=True Synchronized=True"},
		{name: "a VM that was stopped on request meanwhile stays so", o: seen(settled(power_("Stopped")), off(hardware.DetailDestroyed), unpermitted), want: "phase=Scheduled Ready=False/Stopped"},
		{name: "one that another host has by now is not started", o: seen(settled(placed("b")), off(hardware.DetailDestroyed), lapsed), want: ""},
		{name: "its old domain goes", o: seen(settled(placed("b"), token("4")), off(hardware.DetailDestroyed), lapsed), want: "undefine"},
		{name: "after a boot it starts with the first permit", o: seen(settled(), off(""), guarded), want: "claim define start"},
		{name: "with a permit a guest may power off by itself", o: seen(settled(), off(hardware.DetailShutdown), guarded, remembering(memory{stoppedAt: ago(15 * time.Second)})), want: "phase=Succeeded reason=GuestPoweredOff Ready=False/GuestPoweredOff"},
		{name: "a host that goes down has not ended its VMs", o: seen(settled(), off(hardware.DetailShutdown), guarded, func(o *observation) { o.endedByHost = true }), want: "", again: 2 * time.Minute},
		{name: "and when it stays up they start again", o: seen(settled(), off(hardware.DetailShutdown), guarded, func(o *observation) { o.endedByHost = true }, remembering(memory{stoppedAt: ago(2 * time.Minute)})), want: "claim define start"},

		{name: "no VM is taken in without a permit", o: seen(vmi(up, moving(unprepared)), nil, onB, unpermitted), want: ""},
		{name: "and with one it is", o: seen(vmi(up, moving(unprepared)), nil, onB, guarded), want: "claim address"},
	})
}

func TestRevive(t *testing.T) {
	off := func(d hardware.Detail) *hardware.Domain { return domain(hardware.StateShutOff, d) }
	died := func(ago_ time.Duration, by hardware.Detail) func(*observation) {
		return remembering(memory{stoppedAt: ago(ago_), stoppedBy: by})
	}
	walk(t, []row{
		{name: "a QEMU that died is told of, and started again after ten seconds", o: seen(settled(), off(hardware.DetailFailed), guarded), want: "Ready=False/Crashed", again: 10 * time.Second},
		{name: "not before", o: seen(settled(), off(hardware.DetailFailed), guarded, died(9*time.Second, hardware.DetailFailed)), want: "Ready=False/Crashed", again: time.Second},
		{name: "but then", o: seen(settled(), off(hardware.DetailFailed), guarded, died(10*time.Second, hardware.DetailFailed)), want: "claim define start count"},
		{name: "the second time after twenty", o: seen(settled(), off(hardware.DetailFailed), guarded, restarted(1), died(10*time.Second, hardware.DetailFailed)), want: "Ready=False/Crashed", again: 10 * time.Second},
		{name: "the third time after forty", o: seen(settled(), off(hardware.DetailFailed), guarded, restarted(2), died(39*time.Second, hardware.DetailFailed)), want: "Ready=False/Crashed", again: time.Second},
		{name: "and then it is given up, to go elsewhere", o: seen(settled(), off(hardware.DetailFailed), guarded, restarted(3)), want: "undefine phase=Scheduled Ready=False/RestartsExhausted Synchronized=False/RestartsExhausted"},
		{name: "a host does not start what it gave up", o: seen(settled(func(v *kubevirtv1.VirtualMachineInstance) { v.Status.Phase = scheduled }, said(ReasonRestartsExhausted, placementMark(3))), nil, guarded), want: ""},
		{name: "nor what its target lost", o: seen(settled(func(v *kubevirtv1.VirtualMachineInstance) { v.Status.Phase = scheduled }, said(ReasonDomainLost, placementMark(3))), nil, guarded), want: ""},
		{name: "but does under the next placement", o: seen(settled(func(v *kubevirtv1.VirtualMachineInstance) { v.Status.Phase = scheduled }, said(ReasonRestartsExhausted, placementMark(3)), token("4")), nil, guarded), want: "claim define start phase=Running Synchronized=True"},
		{name: "who wants it to fail lets it", o: seen(settled(policy(kubevirt.AnnotationOnCrash, "fail")), off(hardware.DetailFailed), guarded), want: "phase=Failed reason=Crashed Ready=False/Crashed"},
		{name: "a domain somebody switched off is started again, too", o: seen(settled(), off(hardware.DetailDestroyed), guarded), want: "Ready=False/Destroyed", again: 10 * time.Second},
		{name: "a guest that panicked is started again", o: seen(settled(), off(hardware.DetailPanicked), guarded, died(10*time.Second, hardware.DetailPanicked)), want: "claim define start count"},
		{name: "also when libvirt calls it a crash and only the event had said panic", o: seen(settled(policy(kubevirt.AnnotationOnPanic, "fail")), off(hardware.DetailCrashed), guarded, func(o *observation) { o.panicked = true }), want: "phase=Failed reason=Panicked Ready=False/Panicked"},
		{name: "its own policy counts, and not that of crashes", o: seen(settled(policy(kubevirt.AnnotationOnCrash, "fail")), off(hardware.DetailCrashed), guarded, func(o *observation) { o.panicked = true }), want: "Ready=False/Panicked", again: 10 * time.Second},
		{name: "or fails", o: seen(settled(policy(kubevirt.AnnotationOnPanic, "fail")), off(hardware.DetailPanicked), guarded), want: "phase=Failed reason=Panicked Ready=False/Panicked"},
		{name: "or is kept", o: seen(settled(policy(kubevirt.AnnotationOnPanic, "keep")), domain(hardware.StateCrashed, hardware.DetailPanicked), guarded), want: "Ready=False/Panicked Paused=True/Panicked"},
		{name: "until it is stopped", o: seen(settled(policy(kubevirt.AnnotationOnPanic, "keep"), power_("Stopped")), domain(hardware.StateCrashed, hardware.DetailPanicked), guarded), want: "destroy"},
		{name: "what moved away has not died", o: seen(settled(), off(hardware.DetailMigrated), guarded), want: ""},
		{name: "and when its target lost it, it is placed anew: it ran there under this token", o: seen(settled(moving(started(time.Hour), failedSt), letGoOf("b")), off(hardware.DetailMigrated), guarded), want: "undefine phase=Scheduled Ready=False/DomainLost Synchronized=False/DomainLost"},
		{name: "the same after a boot", o: seen(settled(moving(started(time.Hour), failedSt), letGoOf("b")), off(hardware.DetailNone), guarded), want: "undefine phase=Scheduled Ready=False/DomainLost Synchronized=False/DomainLost"},
		{name: "and when it left nothing here", o: seen(settled(moving(started(time.Hour), failedSt), letGoOf("b")), nil, guarded, remembering(memory{absentAt: ago(time.Minute)})), want: "phase=Scheduled Ready=False/DomainLost Synchronized=False/DomainLost"},
		{name: "one whose move never began starts here", o: seen(settled(moving(unprepared, failedSt), letGoOf("b")), off(hardware.DetailNone), guarded), want: "claim define start"},
		{name: "one that died here long after starts here", o: seen(settled(moving(started(time.Hour), failedSt), letGoOf("b")), off(hardware.DetailFailed), guarded, died(10*time.Second, hardware.DetailFailed)), want: "claim define start count"},
		{name: "a lost domain starts again, when two lists lack it", o: seen(settled(), nil, guarded, remembering(memory{absentAt: ago(time.Minute)})), want: "claim define start"},
		{name: "half a VM whose other half is gone goes, to start again", o: seen(settled(moving(started(time.Hour), failedSt), letGoOf("b")), domain(hardware.StatePaused, hardware.DetailPostCopyFailed), guarded), want: "destroy"},
		{name: "not while its target may hold the other", o: seen(settled(moving(started(time.Hour), failedSt)), domain(hardware.StatePaused, hardware.DetailPostCopyFailed), guarded), want: "Ready=False/GuestNotRunning Paused=True/PausedPostCopyFailed"},
	})
}

func TestLeave(t *testing.T) {
	lost := policy(kubevirt.AnnotationLeave, "a/StorageLost")
	yields := policy(kubevirt.AnnotationLeave, "a/Yielded")
	walk(t, []row{
		{name: "a VM whose disks are lost here is switched off", o: seen(stalledVM(lost), domain(hardware.StatePaused, hardware.DetailIOError), guarded), want: "destroy"},
		{name: "and given up once it is off", o: seen(stalledVM(lost), domain(hardware.StateShutOff, hardware.DetailDestroyed), guarded),
			want: "undefine phase=Scheduled Ready=False/StorageLost Synchronized=False/StorageLost -Paused"},
		{name: "one that has its disks back stays", o: seen(settled(lost), running(), guarded), want: ""},
		{name: "one that is asked to leave another host stays", o: seen(settled(policy(kubevirt.AnnotationLeave, "b/StorageLost")), domain(hardware.StatePaused, hardware.DetailIOError), guarded), want: "Ready=False/GuestNotRunning Paused=True/PausedIOError"},
		{name: "one that yields is asked to shut down", o: seen(settled(yields), running(), guarded), want: "shutdown"},
		{name: "switched off when it does not", o: seen(settled(yields), running(), guarded, remembering(memory{shutdownAt: ago(time.Minute), askedAt: ago(time.Second)})), want: "destroy"},
		{name: "and given up, permit or not", o: seen(settled(yields), domain(hardware.StateShutOff, hardware.DetailShutdown), unpermitted), want: "undefine phase=Scheduled Ready=False/Yielded Synchronized=False/Yielded"},
		{name: "once", o: seen(settled(yields, said("Yielded", placementMark(3)), func(v *kubevirtv1.VirtualMachineInstance) { v.Status.Phase = scheduled }), nil, guarded), want: ""},
		{name: "one that may run elsewhere is nobody's to give up", o: seen(settled(yields, moving(started(time.Hour), failedSt)), domain(hardware.StateShutOff, ""), guarded), want: "Ready=Unknown/MayRunElsewhere Synchronized=Unknown/MayRunElsewhere"},
	})
}
