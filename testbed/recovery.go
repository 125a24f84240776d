// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/reports"
)

// fall is one time that a host failed, as far as it has come. Times are the
// run's; 0 is not yet.
type fall struct {
	host, evacuation string

	lost     time.Duration // it went down or hung, or was heard for the last time
	detected time.Duration // said to be unreachable, held or more
	decided  time.Duration // its Evacuation was made
	proven   time.Duration
}

// rescue is one VM's way back from a fall.
type rescue struct {
	of              *fall
	vm              *vm
	priority        string
	placed, started time.Duration
}

// hostFell notes that a host went down or hung.
func (x *watch) hostFell(host string) { x.down[host] = x.w.now() }

// lostAt is when a host that is silent now was lost.
func (x *watch) lostAt(host string) time.Duration {
	heard := x.w.ha.lines[host].heard
	if down := x.down[host]; down >= heard {
		return down
	}
	return heard
}

// aliveness follows what is said of a host.
func (x *watch) aliveness(old, hv *kvmv1.Hypervisor) {
	c := meta.FindStatusCondition(hv.Status.Conditions, kvmv1.ConditionHostAlive)
	if c == nil {
		return
	}
	was := ""
	if old != nil {
		was = reasonOf(old.Status.Conditions, kvmv1.ConditionHostAlive)
	}
	if was == c.Reason {
		return
	}
	kind := "decision"
	if c.Reason == kvmv1.ReasonHeld {
		kind = "brake"
	}
	if was != "" || c.Reason != kvmv1.ReasonOnline { // that a host comes is no news
		x.mark(kind, c.Reason+": "+c.Message, hv.Name)
	}
	switch c.Reason {
	case kvmv1.ReasonOnline:
		delete(x.falls, hv.Name)
	case kvmv1.ReasonUnreachable, kvmv1.ReasonHeld, kvmv1.ReasonFencing:
		x.fallOf(hv.Name)
	}
}

// fallOf is the host's present fall, from now on if there is none.
func (x *watch) fallOf(host string) *fall {
	f := x.falls[host]
	if f == nil {
		f = &fall{host: host, lost: x.lostAt(host), detected: x.w.now()}
		x.falls[host] = f
	}
	return f
}

// follow notes how far an Evacuation has come.
func (x *watch) follow(old, e *kvmv1alpha1.Evacuation) {
	f := x.falls[e.Spec.Hypervisor]
	if old == nil {
		if f == nil || f.evacuation != "" {
			delete(x.falls, e.Spec.Hypervisor)
			f = x.fallOf(e.Spec.Hypervisor)
		}
		f.evacuation, f.decided = e.Name, x.w.now()
	}
	if f == nil || f.evacuation != e.Name {
		return
	}
	if e.Status.Proof != nil && f.proven == 0 {
		f.proven = x.w.now()
		x.mark("decision", "Proof: "+string(e.Status.Proof.Kind)+": "+e.Status.Proof.Message, f.host)
	}
}

// moved follows a VM from its mark to its new host.
func (x *watch) moved(old, vmi *kubevirtv1.VirtualMachineInstance) {
	v := x.w.vms[vmi.Name]
	if v == nil || old == nil {
		return
	}
	if host, evacuation := kubevirt.EvacuatedFrom(vmi); host != "" && old.Annotations[kubevirt.AnnotationEvacuatedFrom] != vmi.Annotations[kubevirt.AnnotationEvacuatedFrom] {
		if f := x.falls[host]; f != nil && f.evacuation == evacuation {
			x.rescues[v.uuid] = &rescue{of: f, vm: v, priority: kubevirt.RestartPriorityOf(vmi).String()}
		}
	}
	if r := x.rescues[v.uuid]; r != nil && vmi.Status.NodeName != "" && vmi.Status.NodeName != r.of.host {
		r.placed = x.w.now()
	}
}

// runs notes that a VM runs, maybe again.
func (x *watch) runs(s hwsim.Segment) {
	r := x.rescues[s.VM]
	if r == nil || r.placed == 0 {
		return
	}
	r.started = x.w.now()
	delete(x.rescues, s.VM)
	x.rescued = append(x.rescued, r)
	r.vm.evacuated++
	r.vm.recovery = r.started - r.of.lost
}

// recoveriesOf are the ways back of all VMs, for the report.
func (x *watch) recoveriesOf() []reports.Recovery {
	var out []reports.Recovery
	for _, r := range x.rescued {
		f := r.of
		out = append(out, reports.Recovery{
			VM: r.vm.name, Priority: r.priority, Host: f.host, Evacuation: f.evacuation, Lost: f.lost.Seconds(),
			Detect: (f.detected - f.lost).Seconds(), Decide: (f.decided - f.detected).Seconds(), Fence: (f.proven - f.decided).Seconds(),
			Place: (r.placed - f.proven).Seconds(), Start: (r.started - r.placed).Seconds(),
		})
	}
	return out
}
