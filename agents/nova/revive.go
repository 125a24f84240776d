// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

const (
	// A protected VM whose QEMU died is started again here after 10, 20 and 40 s,
	// and then elsewhere. A crash longer after the last restart than restartWindow
	// is the first again.
	restartFirst  = 10 * time.Second
	restartsMost  = 3
	restartWindow = 10 * time.Minute

	// goingDown is how long a host that ended a domain itself is taken for one
	// that goes down: systemd gives each unit 90 s.
	goingDown = 2 * time.Minute

	// panicKeep is the policy that leaves a panicked guest to be looked into.
	panicKeep = "keep"
)

// revive is a protected VM whose domain has stopped on a host with high
// availability. It is false where the VM ends as any other.
//
//	moved away, target has not said        as any other
//	no permit                              nothing is concluded
//	HA agent stopped it                    start
//	panicked, on-panic keep                kept as it is
//	panicked, died, switched off; fail     as any other
//	panicked, died, switched off; restart  after 10, 20, 40 s; then given up
//	guest powered off                      as any other
//	host ended it, going down              wait; then start
//	nobody knows why, while it was moving  given up: it may have run elsewhere
//	nobody knows why, as after a boot      start
func revive(o observation, want kubevirt.PowerState) (p plan, is bool) {
	m := &o.memory
	d := o.domain
	st := o.vmi.Status.MigrationState
	if !o.guarded() || switching(d.Detail) && (st == nil || !st.Failed) {
		return plan{}, false
	}
	if m.stoppedAt.IsZero() {
		m.stoppedAt, m.stoppedBy = o.now, d.Detail
	}
	if o.panicked {
		m.stoppedBy = hardware.DetailPanicked
	}
	detail := cmp.Or(d.Detail, m.stoppedBy)
	panicked := m.stoppedBy == hardware.DetailPanicked || detail == hardware.DetailPanicked
	died := panicked || d.State == hardware.StateCrashed || detail == hardware.DetailCrashed || detail == hardware.DetailFailed
	policy := o.vmi.Annotations[kubevirt.AnnotationOnCrash]
	if panicked {
		policy = o.vmi.Annotations[kubevirt.AnnotationOnPanic]
	}
	switch {
	case panicked && policy == panicKeep && d.State == hardware.StateCrashed:
		return kept(o), true
	case !o.permitted():
		return noPermit(o), true
	case o.stoppedHA:
		return start(o, want), true
	case (died || detail == hardware.DetailDestroyed) && policy == "fail":
		return plan{}, false
	case died || detail == hardware.DetailDestroyed:
		return startAgain(o, want), true
	case detail == hardware.DetailShutdown && !o.endedByHost:
		return plan{}, false
	case o.endedByHost && o.now.Sub(m.stoppedAt) < goingDown:
		return o.wait("the host ended it: may be going down", goingDown-o.now.Sub(m.stoppedAt)), true
	case mayHaveRunElsewhere(o) && (detail == hardware.DetailNone || switching(detail)):
		return giveUp(o, ReasonDomainLost, "the VM was moving when it ended, and its target has lost it"), true
	}
	return start(o, want), true
}

// mayHaveRunElsewhere says that a VM's migration from here had begun and failed.
// Its target has nothing, or it would have said so; but the VM may have run there
// under this run token, and starts anywhere only under the next one.
func mayHaveRunElsewhere(o observation) bool {
	st := o.vmi.Status.MigrationState
	return st != nil && st.Failed && st.SourceNode == o.host && st.StartTimestamp != nil
}

// kept leaves a guest that panicked for somebody to look into.
func kept(o observation) plan {
	vmi := o.vmi.DeepCopy()
	message := "the guest panicked and is kept to be looked into: stop the VM to be rid of it"
	setCondition(vmi, kubevirtv1.VirtualMachineInstancePaused, yes, ReasonPanicked, message, o.now)
	setCondition(vmi, kubevirtv1.VirtualMachineInstanceReady, no, ReasonPanicked, message, o.now)
	return o.write("panicked: kept", vmi)
}

// startAgain starts a VM whose QEMU died, by and by, and gives it up in the end.
func startAgain(o observation, want kubevirt.PowerState) plan {
	reason, what := ReasonCrashed, "its QEMU ended"
	switch o.memory.stoppedBy {
	case hardware.DetailPanicked:
		reason, what = ReasonPanicked, "the guest panicked"
	case hardware.DetailDestroyed:
		reason, what = ReasonDestroyed, "the domain was switched off"
	}
	if o.restarts >= restartsMost {
		return giveUp(o, ReasonRestartsExhausted, fmt.Sprintf("%s, and %d restarts did not help", what, o.restarts))
	}
	left := restartFirst<<o.restarts - o.now.Sub(o.memory.stoppedAt)
	if left > 0 {
		vmi := o.vmi.DeepCopy()
		setCondition(vmi, kubevirtv1.VirtualMachineInstanceReady, no, reason,
			fmt.Sprintf("%s: it is started again here in %s, for the %d. time of %d", what, restartFirst<<o.restarts, o.restarts+1, restartsMost), o.now)
		p := o.write("died: waits", vmi)
		p.lookAgain = left
		return p
	}
	p := start(o, want)
	if len(p.steps) > 0 {
		if o.domain.State == hardware.StateCrashed { // kept by libvirt
			p.steps = append([]step{{verb: doDestroy}}, p.steps...)
		}
		p.steps = append(p.steps, step{verb: doCount}) // one that was refused is none
		p.news = "Started VM again"
	}
	return p
}

// giveUp undefines a domain that is off and says that the VM is to be placed
// elsewhere. From this write on the host starts it no more under this token.
func giveUp(o observation, reason, why string) plan {
	vmi := o.vmi.DeepCopy()
	setPhase(vmi, kubevirtv1.Scheduled, o.now)
	setCondition(vmi, kubevirtv1.VirtualMachineInstanceReady, no, reason, why, o.now)
	setCondition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized, no, reason, placementMark(runToken(o.vmi))+why, o.now)
	dropCondition(vmi, kubevirtv1.VirtualMachineInstancePaused)
	dropCondition(vmi, kubevirtv1.VirtualMachineInstanceAgentConnected)
	o.memory.stoppedAt, o.memory.stoppedBy, o.memory.shutdownAt, o.memory.askedAt, o.memory.ioTried = time.Time{}, "", time.Time{}, time.Time{}, time.Time{}
	p := o.write("given up", vmi)
	p.confirm = true
	if o.domain != nil {
		if o.domain.State == hardware.StateCrashed {
			p.steps = append(p.steps, step{verb: doDestroy})
		}
		p.steps = append(p.steps, step{verb: doUndefine})
	}
	p.release, p.news = true, "Gave up VM: "+reason
	return p
}

// leaves says that a VM that is asked to leave does so: one that lost its disks
// only as long as it has not got them back.
func leaves(o observation, why string) bool {
	d := o.domain
	switch {
	case o.vmi.Status.Phase != kubevirtv1.Running && o.vmi.Status.Phase != kubevirtv1.Scheduled, givenUp(o.vmi, runToken(o.vmi)):
		return false
	case d == nil && o.vmi.Status.Phase == kubevirtv1.Running:
		return false // nobody knows yet where it is
	case why == kubevirt.LeaveStorageLost && d != nil && d.Active():
		return stalled(d)
	}
	return true
}

// leave stops a VM that is asked to leave, and gives it up once it is off.
func leave(o observation, why string) plan {
	d := o.domain
	switch {
	case mayRunElsewhere(o):
		return targetSpeaks(o)
	case d != nil && d.Active() && why == kubevirt.LeaveStorageLost:
		p := o.do("leave: its disks are lost here", doDestroy)
		p.lookAgain, p.news = time.Second, "Switched off VM whose disks are lost"
		return p
	case d != nil && d.Active():
		return stop(o, "leave")
	}
	if why == kubevirt.LeaveStorageLost {
		return giveUp(o, why, "host "+o.host+" has lost the VM's disks")
	}
	return giveUp(o, why, "it made room for a VM of a higher class")
}

// restarts are those made of a VM here, and when the last one was by the host's
// steady clock. They are a note on the host, and so outlive the agent.
type restarts struct {
	Count int           `json:"count"`
	Last  time.Duration `json:"last"`
}

func restartsNote(uuid string) string { return "nova-restarts-" + uuid }

// restartsOf returns how many restarts of a VM were made of late.
func (r *Reconciler) restartsOf(ctx context.Context, uuid string) (int, error) {
	made, now, err := r.loadRestarts(ctx, uuid)
	if err != nil || now-made.Last >= restartWindow {
		return 0, err
	}
	return made.Count, nil
}

// countRestart notes one more.
func (r *Reconciler) countRestart(ctx context.Context, uuid string) error {
	made, now, err := r.loadRestarts(ctx, uuid)
	if err != nil {
		return err
	}
	if now-made.Last >= restartWindow {
		made.Count = 0
	}
	data, err := json.Marshal(restarts{Count: made.Count + 1, Last: now})
	if err != nil {
		return fmt.Errorf("note %s: %w", restartsNote(uuid), err)
	}
	return r.o.Hardware.SaveNote(ctx, restartsNote(uuid), data)
}

func (r *Reconciler) loadRestarts(ctx context.Context, uuid string) (made restarts, now time.Duration, err error) {
	boot, err := r.o.Hardware.Boot(ctx)
	if err != nil {
		return made, 0, fmt.Errorf("read the boot of %s: %w", r.o.Host, err)
	}
	note, err := r.o.Hardware.LoadNote(ctx, restartsNote(uuid))
	if err != nil || len(note) == 0 {
		return made, boot.Uptime, err
	}
	if err := json.Unmarshal(note, &made); err != nil {
		return made, 0, fmt.Errorf("note %s: %w", restartsNote(uuid), err)
	}
	return made, boot.Uptime, nil
}
