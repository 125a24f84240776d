// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"fmt"
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/hardware"
)

const (
	// A broken post-copy is recovered when both sides reach each other again.
	// Until then each try is in vain; it is given up after recoveryLimit, and
	// tried no more often than recoveryFirst, doubling up to recoveryMost.
	recoveryFirst = 10 * time.Second
	recoveryMost  = 60 * time.Second
	recoveryLimit = 10 * time.Minute
)

// broken is a post-copy whose link broke: the memory is split over two hosts.
// The source is never resumed; the hypervisor is asked to take the stream up
// again, with patience and an end.
func broken(o observation) plan {
	m := &o.memory
	if m.brokenAt.IsZero() {
		m.brokenAt = o.now
		m.nextRecovery = o.now.Add(recoveryFirst)
	}
	vmi := o.vmi.DeepCopy()
	vmi.Status.MigrationState.Mode = kubevirtv1.MigrationPostCopy
	if o.now.Sub(m.brokenAt) >= recoveryLimit {
		why := fmt.Sprintf("PostCopy: the link broke after the guest had switched; not recovered in %s and %d tries", recoveryLimit, m.recoveries)
		fail(vmi, why)
		if o.guarded() {
			p := o.write("broken: given up, to start it again", vmi)
			p.lookAgain, p.news = time.Second, "Memory of VM lost in post-copy"
			return p
		}
		ended(vmi, kubevirtv1.Failed, ReasonPostCopy, why, o.now)
		p := o.write("broken: given up", vmi)
		p.news = "VM lost in post-copy"
		return p
	}
	tornApart(vmi, o.now)
	p := plan{why: "broken: waits", vmi: vmi, blame: blameTry}
	if !o.now.Before(m.nextRecovery) {
		p.why, p.steps = "broken: recover", []step{{verb: doRecover}}
		m.recoveries++
		m.nextRecovery = o.now.Add(min(recoveryFirst<<min(m.recoveries, 6), recoveryMost))
	}
	p.memory = *m
	p.lookAgain = m.nextRecovery.Sub(o.now)
	return p
}

// tornApart writes that a VM's memory lies on two hosts and nobody runs it. Both
// hosts say it, in the same words: one of them may be dead.
func tornApart(vmi *kubevirtv1.VirtualMachineInstance, now time.Time) {
	_, message := paused(vmi, hardware.StatePaused, hardware.DetailPostCopyFailed)
	setCondition(vmi, kubevirtv1.VirtualMachineInstancePaused, yes, ReasonPausedPostCopyFailed, message, now)
	setCondition(vmi, kubevirtv1.VirtualMachineInstanceReady, no, kubevirtv1.GuestNotRunningReason, message, now)
}
