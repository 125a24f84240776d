// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"fmt"
	"slices"
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

// orphanPatience is how long the API must have said that there is no such VM
// before its domain is stopped: a restored or lagging API server may not know
// it yet.
const orphanPatience = 30 * time.Second

// remnantPatience is how long the paused copy that a finished migration left at
// its source may take to go away by itself.
const remnantPatience = 60 * time.Second

// deletion is a VM of this host that is to go.
func deletion(o observation) plan {
	switch {
	case o.domain != nil && o.domain.Active() && o.domain.State != hardware.StateCrashed && !(o.domain.State == hardware.StatePaused && o.domain.Detail == hardware.DetailPostCopyFailed):
		return stop(o, "deleted: stop")
	case o.domain != nil && (o.domain.Active() || o.domain.State == hardware.StateCrashed):
		p := o.do("deleted: nothing to save", doDestroy)
		p.lookAgain = retry
		return p
	case mayRunElsewhere(o):
		return targetSpeaks(o)
	}
	vmi := o.vmi.DeepCopy()
	if vmi.Status.Phase == kubevirtv1.Running {
		if o.memory.plugged {
			ended(vmi, kubevirtv1.Failed, ReasonDestroyed, "deleted; the guest did not shut down in time and was switched off", o.now)
		} else {
			ended(vmi, kubevirtv1.Succeeded, ReasonGuestPoweredOff, "deleted; the guest was shut down", o.now)
		}
	}
	return o.letGo("deleted", vmi)
}

// final is a VM that has ended: its domain goes, its object stays until it is
// deleted.
func final(o observation) plan {
	if o.domain != nil && (o.domain.Active() || o.domain.State == hardware.StateCrashed) {
		if !o.live {
			p := o.rest("ended: the domain lives")
			p.confirm = true
			return p
		}
		p := o.do("ended: destroy", doDestroy)
		p.lookAgain = retry
		return p
	}
	if o.domain != nil || (o.here() && o.vmi.DeletionTimestamp != nil) {
		return o.letGo("ended", o.vmi.DeepCopy())
	}
	return o.rest("ended")
}

// letGo undefines the domain and, when the VM is deleted, drops the finalizer.
func (o observation) letGo(why string, vmi *kubevirtv1.VirtualMachineInstance) plan {
	p := o.rest(why)
	if o.domain != nil {
		p.steps = []step{{verb: doUndefine}}
	}
	if vmi.DeletionTimestamp != nil && o.here() {
		vmi.Finalizers = slices.DeleteFunc(vmi.Finalizers, func(f string) bool {
			return f == kubevirt.Finalizer || f == kubevirtv1.DeprecatedVirtualMachineInstanceFinalizer
		})
		p.vmi, p.news = vmi, "Removed VM"
	}
	p.release = true
	return p
}

// orphan is a domain of ours whose VM is gone: there is none of that name, or
// another one. The API is asked twice, half a minute apart.
func orphan(o observation) plan {
	m := &o.memory
	switch {
	case !o.live:
		p := o.rest("orphan: ask")
		p.confirm = true
		return p
	case m.missingAt.IsZero():
		m.missingAt = o.now
		p := o.wait("orphan: once", orphanPatience)
		p.news = "Domain has no VM"
		return p
	case o.now.Sub(m.missingAt) < orphanPatience:
		return o.wait("orphan: waits", orphanPatience-o.now.Sub(m.missingAt))
	}
	switch {
	case o.domain.State == hardware.StateCrashed || o.domain.Incoming:
		return o.do("orphan: destroy", doDestroy, doUndefine)
	case o.domain.Active():
		o.vmi = nil // the grace is the default's, not the next VM's
		return stop(o, "orphan: stop")
	}
	p := o.do("orphan: undefine", doUndefine)
	p.news = "Removed domain without VM"
	return p
}

// elsewhere is a domain of ours, if there is one, of a VM of another host, or of
// none.
//
//	none                                      forget it
//	incoming, no migration to here            destroy
//	inactive, left by a migration             undefine
//	inactive, placed anew                     undefine
//	active, old copy under an older token     destroy
//	active, of a migration to here            it runs here: switch
//	half of it, after a post-copy failed      destroy
//	in post-copy still                        wait
//	paused, its migration is done for long    destroy
//	otherwise                                 hold, and say so once
func elsewhere(o observation) plan {
	if o.domain == nil {
		p := o.rest("elsewhere")
		p.forget = true
		return dropLabel(o, p)
	}
	if !o.live {
		p := o.rest("elsewhere: ask")
		p.confirm = true
		return p
	}
	st := o.vmi.Status.MigrationState
	if st == nil {
		st = &kubevirtv1.VirtualMachineInstanceMigrationState{}
	}
	d := o.domain
	cameHere, wentAway := st.TargetNode == o.host, st.SourceNode == o.host && st.Completed
	older := d.Spec.Owner.Generation < runToken(o.vmi)
	switch {
	case d.Incoming:
		p := o.do("left by a migration: half made", doDestroy, doUndefine)
		p.release, p.lookAgain, p.news = true, retry, "Removed what a migration left"
		return p
	case !d.Active() && (cameHere || wentAway || older || o.vmi.Status.NodeName == ""):
		p := o.do("left behind: undefine", doUndefine)
		p.release, p.lookAgain, p.news = true, retry, "Removed what the VM left"
		return p
	case d.Active() && o.split():
		return o.wait("in post-copy: the memory is whole on neither side", retry)
	case d.Active() && older && o.vmi.Status.NodeName != "" && o.vmi.Status.Phase == kubevirtv1.Running && migrating(o.vmi) == nil:
		p := o.do("old copy: destroy", doDestroy, doUndefine)
		p.lookAgain, p.news = retry, "Destroyed an old copy of the VM"
		return p
	case d.Active() && cameHere && !st.Completed && runs(*d):
		return arrive(o, "runs here whatever was said")
	case d.Active() && cameHere && st.Failed && d.State == hardware.StatePaused && d.Detail == hardware.DetailPostCopyFailed:
		// Its source has spoken: it has nothing to go on with either.
		p := o.do("half of a VM: destroy", doDestroy, doUndefine)
		p.release, p.lookAgain, p.news = true, retry, "Removed half of a VM lost in post-copy"
		return p
	case wentAway && d.State == hardware.StatePaused && st.EndTimestamp != nil:
		if left := remnantPatience - o.now.Sub(st.EndTimestamp.Time); left > 0 {
			return o.wait("moved away: the paused copy goes", min(left, retry))
		}
		p := o.do("moved away: destroy the paused copy", doDestroy, doUndefine)
		p.lookAgain, p.news = retry, "Removed what the VM left"
		return p
	}
	p := o.wait("not ours to touch", refusedRetry)
	if !o.memory.held {
		p.memory.held = true
		p.news = fmt.Sprintf("Domain runs here, VM is of host %q: left alone", o.vmi.Status.NodeName)
		if !d.Active() {
			p.news = fmt.Sprintf("Domain is defined here, VM is of host %q: left alone", o.vmi.Status.NodeName)
		}
	}
	return p
}
