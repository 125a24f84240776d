// SPDX-License-Identifier: Apache-2.0

// Package node is the node agent: it says on the API what one host is and does.
//
// It reads its own Hypervisor and the host, through the hardware seam. It alone
// writes what ARCHITECTURE.md gives to agents/node: most of a Hypervisor's
// status, the Migration records of the host's jobs, and the host's Lease. The
// only things it ever changes on a host are the operating system's version and,
// when the spec allows it, the reboot that goes with it. It must never know
// VirtualMachineInstances, other hosts' agents, or which runtime is under it.
package node

import (
	"errors"
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/wiring"
)

// Options say which host an agent speaks for, and how often. Durations that are
// zero take the default named beside them.
type Options struct {
	// Host is the Node's name, and so the Hypervisor's and the Lease's.
	Host string

	// Namespace holds the Lease and the Migration records; "kvm" when empty.
	Namespace string

	// MetalName is the host's name as people say it, the origin or destination
	// of a Migration. Empty takes the Hypervisor's label
	// kubernetes.metal.cloud.sap/name, or else Host.
	MetalName string

	Hardware hardware.Host
	Clock    clock.PassiveClock

	// Resync is the longest time after which everything is read again; 5 min.
	// The host's name spreads a fleet's resyncs over a tenth of it.
	Resync time.Duration

	// Look is the time between two looks at the systemd units, for which there
	// are no events; 1 min.
	Look time.Duration

	// Coalesce gathers instances that went into one write; 15 s. Those that came
	// are seen at the next look.
	Coalesce time.Duration

	// ProgressEvery is the time between two writes of a running migration's
	// record; 30 s.
	ProgressEvery time.Duration

	// KeepRecords is how long finished records of earlier migrations stay; 7
	// days. A VM's latest record stays thirteen times as long.
	KeepRecords time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Host == "" || o.Hardware == nil || o.Clock == nil {
		return o, errors.New("node agent: Host, Hardware and Clock are needed")
	}
	if o.Namespace == "" {
		o.Namespace = "kvm"
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&o.Resync, 5 * time.Minute},
		{&o.Look, time.Minute},
		{&o.Coalesce, 15 * time.Second},
		{&o.ProgressEvery, 30 * time.Second},
		{&o.KeepRecords, 7 * 24 * time.Hour},
	} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	return o, nil
}

// Setup adds the agent's two controllers, "hypervisor" and "migration", and its
// Heartbeat to mgr. The manager's scheme must know kvm/v1, kvm/v1alpha1 and
// coordination.k8s.io/v1.
func Setup(mgr manager.Manager, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	for _, add := range []func(manager.Manager, Options) error{addHypervisor, addMigration} {
		if err := add(mgr, o); err != nil {
			return err
		}
	}
	return mgr.Add(newHeartbeat(mgr.GetClient(), mgr.GetAPIReader(), o, wiring.Wait(mgr, heartbeatEvery)))
}

// ByObject narrows a manager's cache to what the agent of a host reads: its own
// Hypervisor. Records and leases are read past the cache.
func ByObject(host string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&kvmv1.Hypervisor{}: {Field: fields.OneTermEqualSelector("metadata.name", host)},
	}
}

func addHypervisor(mgr manager.Manager, o Options) error {
	r := newHypervisorReconciler(mgr.GetClient(), mgr.GetAPIReader(), o)
	own := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == o.Host })
	// Our own status is no news; the spec and the annotation people remove are.
	news := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	return builder.ControllerManagedBy(mgr).
		Named("hypervisor").
		For(&kvmv1.Hypervisor{}, builder.WithPredicates(own, news)).
		WatchesRawSource(r.feed.source()).
		WithOptions(options(mgr)).
		Complete(r)
}

func addMigration(mgr manager.Manager, o Options) error {
	r := newMigrationReconciler(mgr.GetClient(), mgr.GetAPIReader(), o)
	return builder.ControllerManagedBy(mgr).
		Named("migration").
		WatchesRawSource(r.feed.source()).
		WithOptions(options(mgr)).
		Complete(r)
}

// options gives each controller one worker, since it works for one host, and
// no leader: every host's agent works for itself.
func options(mgr manager.Manager) controller.Options {
	o := wiring.Options(mgr, 1)
	o.NeedLeaderElection = ptr.To(false)
	o.SkipNameValidation = ptr.To(true) // a lab runs many hosts' agents in one program
	return o
}

// spread returns a fixed part of d by a host's name, so that a fleet whose
// agents start together does not go on in step.
func spread(host string, d time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(host))
	return d / 1000 * time.Duration(h.Sum32()%1000)
}
