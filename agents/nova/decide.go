// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/hardware"
)

// verb is one thing to do with a domain.
type verb string

const (
	doClaim    verb = "claim"
	doDefine   verb = "define"
	doUndefine verb = "undefine"
	doStart    verb = "start"
	doShutdown verb = "shutdown"
	doDestroy  verb = "destroy"
	doSuspend  verb = "suspend"
	doResume   verb = "resume"
	doMigrate  verb = "migrate"
	doAbort    verb = "abort"
	doPostCopy verb = "post-copy"
	doRecover  verb = "recover"
	doList     verb = "list"  // of all domains
	doCount    verb = "count" // a restart
)

// step is a verb with what it needs.
type step struct {
	verb    verb
	spec    hardware.DomainSpec     // of define
	paused  bool                    // of start
	migrate hardware.MigrateOptions // of migrate
}

// blame says where a refusal is written.
type blame string

const (
	blameNobody    blame = ""          // it is an error
	blameVM        blame = "VM"        // condition Synchronized
	blameMigration blame = "migration" // failed and failureReason
	blameTry       blame = "try"       // it was worth a try
)

// plan is what to do, in order: steps, then the VM's object, then what to
// remember. The zero plan changes nothing and waits for events.
type plan struct {
	why       string // the row of the table that applied
	confirm   bool   // only with a VM read past the cache
	steps     []step
	vmi       *kubevirtv1.VirtualMachineInstance // as it shall be; nil: as it is
	blame     blame
	claimKiB  uint64 // memory kept for a domain that is to come; of claim
	release   bool   // nothing is to come
	forget    bool   // neither domain nor VM
	memory    memory
	lookAgain time.Duration // 0: at the next resync
	news      string        // for the log, once done
}

// decide is the agent's policy. It is pure.
//
//	hypervisor silent or not listed yet   say unknown once, conclude nothing
//	domain without our metadata           never touched
//	no such VM, or another of that name   orphan: seen twice, then stop, undefine
//	VM final                              destroy, undefine, drop the finalizer
//	VM of another host, moving here       target
//	VM of another host                    elsewhere: drop what a migration left
//	VM of this host, moving away          source
//	VM of this host, deleted              stop, undefine, drop the finalizer
//	VM of this host                       local: start, stop, pause, report
func decide(o observation) plan {
	switch {
	case o.uuid == "":
		return o.rest("nothing here")
	case !o.listed || !o.downAt.IsZero():
		return silent(o)
	case o.vmi == nil && o.domain == nil:
		p := o.rest("gone")
		p.forget = true
		return p
	case o.vmi == nil && !o.live:
		p := o.rest("not in the cache")
		p.confirm = true
		return p
	case o.domain != nil && !o.named():
		return foreign(o)
	case o.earlier():
		return orphan(o)
	}
	o.memory.missingAt = time.Time{}
	if o.here() && !o.source() && o.job != nil && o.job.Running() && o.job.Operation != hardware.OperationMigrationIn && !o.job.PostCopy && o.memory.cancelled == "" {
		// Its migration was taken back while we were starting it.
		p := o.do("job of no migration: abort", doAbort)
		p.memory.cancelled, p.blame, p.lookAgain = "taken back", blameTry, pollSoon
		return p
	}
	if st := migrating(o.vmi); st == nil && o.job == nil || st != nil && st.MigrationUID != o.memory.migration {
		forgetMigration(&o.memory)
		if st != nil {
			o.memory.migration = st.MigrationUID
		}
	} else if st == nil && !o.job.Running() {
		forgetMigration(&o.memory)
	}
	switch {
	case o.vmi.IsFinal():
		return final(o)
	case o.target():
		return target(o)
	case !o.here():
		return elsewhere(o)
	case o.source():
		return sourceOf(o)
	case o.vmi.DeletionTimestamp != nil:
		return deletion(o)
	default:
		return local(o)
	}
}

// rest is a plan that changes nothing.
func (o observation) rest(why string) plan { return plan{why: why, memory: o.memory} }

// wait is a plan that changes nothing and looks again in d.
func (o observation) wait(why string, d time.Duration) plan {
	return plan{why: why, memory: o.memory, lookAgain: d}
}

// write is a plan that changes only the object.
func (o observation) write(why string, vmi *kubevirtv1.VirtualMachineInstance) plan {
	return plan{why: why, memory: o.memory, vmi: vmi}
}

// do is a plan with steps.
func (o observation) do(why string, verbs ...verb) plan {
	p := plan{why: why, memory: o.memory}
	for _, v := range verbs {
		p.steps = append(p.steps, step{verb: v})
	}
	return p
}

// silent concludes nothing. Users are told once it has lasted.
func silent(o observation) plan {
	since := o.downAt
	if !o.here() || o.vmi.Status.Phase != kubevirtv1.Running || since.IsZero() || o.now.Sub(since) < unavailableAfter {
		return o.rest("hypervisor silent") // woken when it answers, or does not for long
	}
	vmi := o.vmi.DeepCopy()
	setCondition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized, unknown, ReasonHypervisorUnavailable,
		"the hypervisor of host "+o.host+" does not answer; the guest may well be running", o.now)
	return o.write("hypervisor silent", vmi)
}

// foreign leaves alone what others made, and says so where a VM wants its
// place.
func foreign(o observation) plan {
	if !o.here() || o.vmi.IsFinal() {
		return o.rest("foreign domain")
	}
	vmi := o.vmi.DeepCopy()
	setCondition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized, no, ReasonDomainNotOurs,
		"host "+o.host+" has a domain with the UUID "+o.uuid+" that Adit did not make: remove it, or give the VM another firmware UUID", o.now)
	return o.write("foreign domain", vmi)
}
