// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

// now is the instant of all observations.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// vmi is a VM of host a with 2 GiB, run token 3 and that phase.
func vmi(phase kubevirtv1.VirtualMachineInstancePhase, change ...func(*kubevirtv1.VirtualMachineInstance)) *kubevirtv1.VirtualMachineInstance {
	memory := resource.MustParse("2Gi")
	v := &kubevirtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "vms", Name: "web", UID: "uid-1", ResourceVersion: "7",
			Labels:      map[string]string{kubevirt.HostLabel("a"): "", kubevirt.LabelNodeName: "a"},
			Annotations: map[string]string{kubevirt.AnnotationRunToken: "3"},
			Finalizers:  []string{kubevirt.Finalizer},
		},
	}
	v.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: &memory}
	v.Status.NodeName = "a"
	v.Status.Phase = phase
	for _, c := range change {
		c(v)
	}
	return v
}

func power_(state string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) { v.Annotations[kubevirt.AnnotationPowerState] = state }
}

func placed(host string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) {
		v.Status.NodeName = host
		if host != "a" {
			delete(v.Labels, kubevirt.HostLabel("a"))
		}
	}
}

func token(n string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) { v.Annotations[kubevirt.AnnotationRunToken] = n }
}

func deleted(v *kubevirtv1.VirtualMachineInstance) {
	t := metav1.NewTime(now)
	v.DeletionTimestamp = &t
}

// moving is a migration a → b, prepared.
func moving(change ...func(*kubevirtv1.VirtualMachineInstanceMigrationState)) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) {
		st := &kubevirtv1.VirtualMachineInstanceMigrationState{MigrationUID: "m1", SourceNode: "a", TargetNode: "b", TargetNodeAddress: "b"}
		for _, c := range change {
			c(st)
		}
		v.Status.MigrationState = st
		v.Labels[kubevirt.HostLabel("b")] = ""
		v.Labels[kubevirt.LabelMigrationTargetNodeName] = "b"
	}
}

func unprepared(st *kubevirtv1.VirtualMachineInstanceMigrationState) { st.TargetNodeAddress = "" }
func aborting(st *kubevirtv1.VirtualMachineInstanceMigrationState)   { st.AbortRequested = true }
func failedSt(st *kubevirtv1.VirtualMachineInstanceMigrationState)   { st.Failed = true }
func started(ago time.Duration) func(*kubevirtv1.VirtualMachineInstanceMigrationState) {
	return func(st *kubevirtv1.VirtualMachineInstanceMigrationState) {
		t := metav1.NewTime(now.Add(-ago))
		st.StartTimestamp, st.Mode = &t, kubevirtv1.MigrationPreCopy
	}
}
func done(ago time.Duration) func(*kubevirtv1.VirtualMachineInstanceMigrationState) {
	return func(st *kubevirtv1.VirtualMachineInstanceMigrationState) {
		started(ago + time.Minute)(st)
		t := metav1.NewTime(now.Add(-ago))
		st.Completed, st.EndTimestamp = true, &t
	}
}

func said(reason, message string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) {
		setCondition(v, kubevirtv1.VirtualMachineInstanceSynchronized, no, reason, message, now.Add(-time.Hour))
	}
}

// domain is one of the VM's, under run token 3.
func domain(state hardware.State, detail hardware.Detail, change ...func(*hardware.Domain)) *hardware.Domain {
	d := &hardware.Domain{State: state, Detail: detail, Persistent: true, Spec: hardware.DomainSpec{
		MemoryKiB: 2 << 20, GuestAgent: true,
		Owner: &hardware.Owner{Namespace: "vms", Name: "web", UID: "uid-1", Generation: 3},
	}}
	for _, c := range change {
		c(d)
	}
	return d
}

func running() *hardware.Domain { return domain(hardware.StateRunning, hardware.DetailBooted) }
func incoming(d *hardware.Domain) {
	d.Incoming, d.Persistent = true, false
}
func anothers(uid string) func(*hardware.Domain) {
	return func(d *hardware.Domain) { d.Spec.Owner.UID = uid }
}
func foreignDomain(d *hardware.Domain) { d.Foreign, d.Spec.Owner = true, nil }

// seen is what host a sees, with a list and a live read.
func seen(v *kubevirtv1.VirtualMachineInstance, d *hardware.Domain, change ...func(*observation)) observation {
	o := observation{
		now: now, host: "a", address: "a", holdOff: 15 * time.Second,
		key: types.NamespacedName{Namespace: "vms", Name: "web"}, uuid: "u",
		vmi: v, live: true, domain: d, listed: true, listedAt: now,
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func onB(o *observation)    { o.host, o.address = "b", "b" }
func cached(o *observation) { o.live = false }
func remembering(m memory) func(*observation) {
	return func(o *observation) { o.memory = m }
}
func withJob(j hardware.Job) func(*observation) {
	return func(o *observation) { o.job = &j }
}

// tell prints what a plan would change, in one line.
func tell(o observation, p plan) string {
	var parts []string
	if p.confirm && !o.live {
		parts = append(parts, "ask the API")
	}
	for _, s := range p.steps {
		parts = append(parts, string(s.verb))
	}
	if p.vmi != nil && !equality.Semantic.DeepEqual(p.vmi, o.vmi) {
		before, after := o.vmi.Status, p.vmi.Status
		if before.Phase != after.Phase {
			parts = append(parts, "phase="+string(after.Phase))
		}
		if before.Reason != after.Reason {
			parts = append(parts, "reason="+after.Reason)
		}
		if before.NodeName != after.NodeName {
			parts = append(parts, "node="+after.NodeName)
		}
		for _, c := range after.Conditions {
			if old := condition(o.vmi, c.Type); old == nil || old.Status != c.Status || old.Reason != c.Reason {
				parts = append(parts, fmt.Sprintf("%s=%s", c.Type, strings.TrimSuffix(string(c.Status)+"/"+c.Reason, "/")))
			}
		}
		for _, c := range before.Conditions {
			if condition(p.vmi, c.Type) == nil {
				parts = append(parts, "-"+string(c.Type))
			}
		}
		parts = append(parts, tellMigration(before.MigrationState, after.MigrationState)...)
		for _, l := range slices.Sorted(maps.Keys(o.vmi.Labels)) {
			if _, kept := p.vmi.Labels[l]; !kept {
				parts = append(parts, "-"+l)
			}
		}
		if len(p.vmi.Finalizers) < len(o.vmi.Finalizers) {
			parts = append(parts, "-finalizer")
		}
	}
	if p.forget {
		parts = append(parts, "forget")
	}
	return strings.Join(parts, " ")
}

func tellMigration(before, after *kubevirtv1.VirtualMachineInstanceMigrationState) (parts []string) {
	if before == nil || after == nil {
		return nil
	}
	for _, f := range []struct {
		name string
		is   bool
	}{
		{"address", before.TargetNodeAddress != after.TargetNodeAddress},
		{"started", before.StartTimestamp == nil && after.StartTimestamp != nil},
		{"mode=" + string(after.Mode), before.Mode != after.Mode},
		{"abort=" + string(after.AbortStatus), before.AbortStatus != after.AbortStatus},
		{"failed", !before.Failed && after.Failed},
		{"completed", !before.Completed && after.Completed},
	} {
		if f.is {
			parts = append(parts, f.name)
		}
	}
	return parts
}

type row struct {
	name string
	o    observation
	want string
	// again is when to look again; 0 is not checked.
	again time.Duration
}

func walk(t *testing.T, rows []row) {
	t.Helper()
	names := map[string]bool{}
	for _, r := range rows {
		if names[r.name] {
			t.Fatalf("two rows are named %q", r.name)
		}
		names[r.name] = true
		t.Run(r.name, func(t *testing.T) {
			var before *kubevirtv1.VirtualMachineInstance
			if r.o.vmi != nil {
				before = r.o.vmi.DeepCopy()
			}
			p := decide(r.o)
			if got := tell(r.o, p); got != r.want {
				t.Errorf("%s: %q, want %q", p.why, got, r.want)
			}
			if r.again != 0 && p.lookAgain != r.again {
				t.Errorf("%s: looks again in %s, want %s", p.why, p.lookAgain, r.again)
			}
			if before != nil && !equality.Semantic.DeepEqual(before, r.o.vmi) {
				t.Error("the observation was changed")
			}
			if slices.ContainsFunc(p.steps, func(s step) bool { return s.verb == doStart || s.verb == doMigrate }) && !p.confirm {
				t.Error("starts without a look past the cache")
			}
		})
	}
}
