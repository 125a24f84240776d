// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

// target is a VM of another host that is moving here.
//
//	in post-copy                                wait; say so when it broke
//	runs here, not incoming                     switch: node, labels, completed
//	stopped here, had run                       switch: the end is told here
//	not prepared, something left here           undefine it
//	not prepared, protected, no permit          wait
//	not prepared                                claim room, give our address; or failed
//	prepared, stopped VM given up by its source define, switch
//	otherwise                                   wait
func target(o observation) plan {
	st, d := o.vmi.Status.MigrationState, o.domain
	cold := o.vmi.Status.Phase != kubevirtv1.Running
	switch {
	case d != nil && d.State == hardware.StatePaused && d.Detail == hardware.DetailPostCopyFailed:
		return half(o)
	case d != nil && o.split():
		return o.wait("in post-copy", poll)
	case d != nil && runs(*d):
		return arrive(o, "runs here")
	case d != nil && !d.Active() && !d.Incoming && st.TargetNodeAddress == "":
		p := o.do("prepare: left from before", doUndefine)
		p.lookAgain = time.Second
		return p
	case d != nil && !d.Active() && !d.Incoming && (cold || hadRun(*d)):
		if cold && st.StartTimestamp == nil {
			p := o.do("cold: too early", doUndefine)
			p.lookAgain = poll
			return p
		}
		return arrive(o, "stopped here")
	case d != nil:
		return o.wait("incoming", poll)
	case st.TargetNodeAddress == "" && !st.AbortRequested && o.vmi.DeletionTimestamp == nil && !o.permitted():
		return o.wait("no permit to take it in", retry)
	case st.TargetNodeAddress == "" && !st.AbortRequested && o.vmi.DeletionTimestamp == nil:
		return prepare(o)
	case cold && st.StartTimestamp != nil:
		return coldTarget(o)
	}
	p := o.rest("prepared")
	p.claimKiB = memoryKiB(o.vmi)
	p.lookAgain = refusedRetry
	return p
}

// runs says that a domain runs here, on its own: not half made, and not yet
// fed from its source.
func runs(d hardware.Domain) bool {
	return d.Active() && !d.Incoming && d.State != hardware.StateCrashed && d.State != hardware.StateShuttingDown &&
		d.Detail != hardware.DetailPostCopy && d.Detail != hardware.DetailPostCopyFailed && d.Detail != hardware.DetailMigrating
}

// hadRun says that an inactive domain was switched over before it ended: what
// comes in half-made leaves nothing behind.
func hadRun(d hardware.Domain) bool {
	switch d.Detail {
	case hardware.DetailShutdown, hardware.DetailDestroyed, hardware.DetailCrashed, hardware.DetailFailed, hardware.DetailPanicked:
		return d.Persistent
	}
	return false
}

// half is a guest that came here and whose memory broke off: nobody runs it. Its
// source says so too, if it lives.
func half(o observation) plan {
	vmi := o.vmi.DeepCopy()
	tornApart(vmi, o.now)
	p := o.write("post-copy broke: its source may recover it", vmi)
	p.lookAgain = refusedRetry
	return p
}

// prepare promises room to the VM and says where it may come.
func prepare(o observation) plan {
	vmi := o.vmi.DeepCopy()
	spec, err := Translate(o.vmi)
	if err != nil {
		fail(vmi, "host "+o.host+" cannot take it: "+err.Error())
		return o.write("prepare: refused", vmi)
	}
	vmi.Status.MigrationState.TargetNodeAddress = o.address
	return plan{
		why:       "prepare",
		confirm:   true,
		steps:     []step{{verb: doClaim}},
		claimKiB:  spec.MemoryKiB,
		vmi:       vmi,
		blame:     blameMigration,
		memory:    o.memory,
		lookAgain: refusedRetry,
		news:      "Ready for VM to come",
	}
}

// arrive is the switch-over: from this write on the VM is this host's.
func arrive(o observation, why string) plan {
	if !o.live {
		p := o.rest(why + ": ask")
		p.confirm = true
		return p
	}
	vmi := o.vmi.DeepCopy()
	st := vmi.Status.MigrationState
	if vmi.Labels == nil {
		vmi.Labels = map[string]string{}
	}
	if st.SourceNode != "" && st.SourceNode != o.host {
		delete(vmi.Labels, kubevirt.HostLabel(st.SourceNode))
	}
	vmi.Labels[kubevirt.HostLabel(o.host)] = ""
	vmi.Labels[kubevirt.LabelNodeName] = o.host
	delete(vmi.Labels, kubevirt.LabelMigrationTargetNodeName)
	vmi.Status.NodeName = o.host
	ended := seconds(o.now)
	st.Completed, st.EndTimestamp = true, &ended
	st.TargetNodeDomainDetected, st.TargetNodeDomainReadyTimestamp = true, &ended

	p := o.write(why+": switch", vmi)
	if d := o.domain; d != nil && d.Active() && !vmi.IsFinal() {
		state, detail := d.State, d.Detail
		if state == hardware.StatePaused && detail == hardware.DetailUser && kubevirt.WantedPowerState(vmi) == kubevirt.PowerRunning {
			// Paused for its migration: each moment counts.
			p.steps, p.blame = []step{{verb: doResume}}, blameTry
			state, detail = hardware.StateRunning, hardware.DetailUnpaused
		}
		describe(vmi, state, detail, o.memory.agent, o.now)
	}
	p.lookAgain = time.Second // power state, agent
	p.news = "VM arrived"
	return p
}

// dropLabel takes the VM out of this host's sight once a migration to here has
// failed and nothing of it is left.
func dropLabel(o observation, p plan) plan {
	st := o.vmi.Status.MigrationState
	if _, labelled := o.vmi.Labels[kubevirt.HostLabel(o.host)]; !labelled || st == nil || !st.Failed || st.TargetNode != o.host {
		return p
	}
	p.vmi = o.vmi.DeepCopy()
	delete(p.vmi.Labels, kubevirt.HostLabel(o.host))
	p.why = "elsewhere: let go"
	return p
}
