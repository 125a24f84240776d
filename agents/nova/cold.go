// SPDX-License-Identifier: Apache-2.0

package nova

// coldSource gives up a VM that does not run.
func coldSource(o observation) plan {
	st := o.vmi.Status.MigrationState
	switch {
	case st.StartTimestamp != nil:
		return o.wait("cold: its target speaks", poll)
	case st.AbortRequested:
		vmi := o.vmi.DeepCopy()
		fail(vmi, "cancelled on request")
		return o.write("cold: cancelled", vmi)
	case o.vmi.DeletionTimestamp != nil:
		vmi := o.vmi.DeepCopy()
		fail(vmi, "the VM is deleted")
		return o.write("cold: deleted", vmi)
	case st.TargetNodeAddress == "":
		return o.wait("cold: its target prepares", poll)
	case !o.live:
		p := o.rest("cold: ask")
		p.confirm = true
		return p
	}
	vmi := o.vmi.DeepCopy()
	started := seconds(o.now)
	vmi.Status.MigrationState.StartTimestamp = &started
	p := o.write("cold: handed over", vmi)
	if o.domain != nil {
		p.steps = []step{{verb: doUndefine}}
	}
	p.news = "Stopped VM leaves"
	return p
}

// coldTarget takes over the definition of a VM that does not run.
func coldTarget(o observation) plan {
	if o.vmi.DeletionTimestamp != nil {
		return arrive(o, "cold: takes over the deletion")
	}
	spec, err := Translate(o.vmi)
	if err != nil {
		return o.refuse(ReasonInvalidSpec, err.Error())
	}
	p := arrive(o, "cold: takes over")
	p.confirm, p.blame = true, blameVM
	p.steps = []step{{verb: doDefine, spec: spec}}
	return p
}
