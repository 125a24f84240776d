// SPDX-License-Identifier: Apache-2.0

// Package operator lists what runs in the operator: the controllers that make
// Hypervisors of Nodes, take hosts out of service and empty them, place VMs and
// move them. It owns the list and its order, and nothing of what a controller
// decides; the HA service, in the folder ha, is a program of its own. It must never
// know which manager it is set up under.
package operator

import (
	"context"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/operator/compute"
	"github.com/adit-hv/adit/operator/eviction"
	"github.com/adit-hv/adit/operator/hypervisor"
	"github.com/adit-hv/adit/operator/maintenance"
	"github.com/adit-hv/adit/operator/migration"
	"github.com/adit-hv/adit/operator/readiness"
)

// Options configure the operator. Zero values are the controllers' defaults.
type Options struct {
	// Clock is what waits and deadlines are measured with. It is needed.
	Clock clock.PassiveClock

	// Namespace holds the agents' Leases; "kvm" when empty.
	Namespace string

	// TransferLabels are further labels a Hypervisor takes over from its Node.
	TransferLabels []string

	// MinActive is the number, or the percentage, of hosts that stay in service
	// whatever maintenance is asked for; nil is 1.
	MinActive *intstr.IntOrString

	// Parallel is how many VMs of one host are on the move at once in an eviction
	// that does not say; 0 is 2.
	Parallel int

	// RestartsPerTarget is how many VMs that left a dead host may be about to start
	// on one host; 0 is 10.
	RestartsPerTarget int

	// AllowYield lets VMs marked to yield be stopped for those of a higher class
	// that have run before and fit nowhere.
	AllowYield bool

	// Migration are the limits of live migration. Its Clock is taken from here.
	Migration migration.Options
}

// Setup adds all controllers to a manager whose scheme has Nodes and the kinds of
// kvm.cloud.sap and kubevirt.io.
func Setup(mgr manager.Manager, o Options) error {
	if err := hypervisor.Setup(mgr, hypervisor.Options{TransferLabels: o.TransferLabels}); err != nil {
		return err
	}
	if err := readiness.Setup(mgr, readiness.Options{Clock: o.Clock, Namespace: o.Namespace}); err != nil {
		return err
	}
	if err := maintenance.Setup(mgr, maintenance.Options{Clock: o.Clock, MinActive: o.MinActive}); err != nil {
		return err
	}
	fleet, err := compute.Setup(mgr, compute.Options{Clock: o.Clock, PerTarget: o.RestartsPerTarget, AllowYield: o.AllowYield})
	if err != nil {
		return err
	}
	if err := eviction.Setup(mgr, eviction.Options{Clock: o.Clock, Parallel: o.Parallel, Planner: planner{fleet}}); err != nil {
		return err
	}
	o.Migration.Clock = o.Clock
	return migration.Setup(mgr, fleet, o.Migration)
}

// planner lets evictions ask compute what would happen.
type planner struct{ fleet *compute.Fleet }

func (p planner) WhatIf(_ context.Context, vmis []*kubevirtv1.VirtualMachineInstance, from string) []eviction.Verdict {
	var out []eviction.Verdict
	for _, v := range p.fleet.WhatIf(vmis, from) {
		verdict := eviction.Verdict{Destination: v.Host}
		if v.Host == "" {
			verdict.Reason, verdict.Message = "NoHost", v.Why
		}
		out = append(out, verdict)
	}
	return out
}
