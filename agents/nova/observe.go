// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
)

// observation is all that one decision depends on, read once.
type observation struct {
	now     time.Time
	host    string
	address string
	holdOff time.Duration

	key    types.NamespacedName
	uuid   string
	vmi    *kubevirtv1.VirtualMachineInstance // nil: none in the cache, or with live, none at all
	live   bool                               // vmi was read past the cache
	domain *hardware.Domain                   // nil: none
	job    *hardware.Job                      // of a migration from or to here; nil: none

	listed   bool      // a complete list was read since the start
	listedAt time.Time // the newest one
	downAt   time.Time // since when the hypervisor is silent; zero: it answers

	endedByHost bool // it was the host that ended the domain's last run
	panicked    bool // its guest had panicked

	// Of a protected VM on a host with high availability, read while it is off:
	needPermit bool
	permitLeft time.Duration // 0: there is no permit. Read before the VM, where that is live,
	permitEnds time.Duration // and when that ends, by the host's steady clock
	stoppedHA  bool          // the HA agent ended its last run
	restarts   int           // made of late, after crashes

	capacityKiB uint64 // 0: not known
	memory      memory
}

// memory is what is known of a domain from earlier looks. Losing it at a
// restart makes the agent more patient, never less.
type memory struct {
	stoppedAt  time.Time       // the domain was first seen stopped unasked
	stoppedBy  hardware.Detail // and why: a new libvirtd does not know any more
	shutdownAt time.Time       // the guest was first asked to shut down
	askedAt    time.Time       // and last
	plugged    bool            // and then switched off
	absentAt   time.Time       // the time of the first list without the domain
	missingAt  time.Time       // the API first said that there is no such VM
	held       bool            // it was logged that the domain belongs elsewhere
	ioTried    time.Time       // a guest paused by an I/O error was last seen so, or resumed
	waitsSince time.Time       // it is off and waits for a permit

	agent hardware.Detail // connected, disconnected, or not known

	// Of a migration out of here.
	migration    types.UID
	progress     progress
	cancelled    string // why the job was told to stop
	tries        int    // of starting it
	brokenAt     time.Time
	recoveries   int
	nextRecovery time.Time
}

// observe reads what the cache, the hypervisor and our memory say.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (observation, error) {
	seen := observation{
		now: r.o.Clock.Now(), host: r.o.Host, address: r.o.Address, holdOff: r.o.HoldOff,
		needPermit: r.o.NeedPermit,
		key:        key,
	}
	seen.listed, seen.listedAt, seen.downAt = r.host.status()

	var vmi kubevirtv1.VirtualMachineInstance
	switch err := r.client.Get(ctx, key, &vmi, client.UnsafeDisableDeepCopy); { // plans change copies
	case err == nil:
		seen.vmi = r.written.newer(&vmi)
		seen.uuid = kubevirt.DomainUUID(seen.vmi)
	case apierrors.IsNotFound(err):
		r.written.forget(key)
	default:
		return seen, fmt.Errorf("read VM %s: %w", key, err)
	}
	// A domain of an earlier VM of that name goes first: the name is taken.
	if strays := r.host.strays(key, seen.uuid); len(strays) > 0 {
		seen.uuid = strays[0]
	}
	if seen.uuid == "" {
		r.host.forgetVM(key)
		return seen, nil
	}
	seen.memory = r.host.recall(seen.uuid)
	end := r.host.endOf(seen.uuid)
	seen.endedByHost, seen.panicked = end == hardware.DetailHost, end == hardware.DetailPanicked
	if !seen.listed || !seen.downAt.IsZero() {
		return seen, nil // asking again for each VM would pile up time-outs
	}

	if err := r.look(ctx, &seen); err != nil {
		return seen, err
	}
	if seen.vmi == nil || seen.earlier() {
		return r.confirm(ctx, seen)
	}
	return seen, r.lookDeeper(ctx, &seen)
}

// look reads the domain.
func (r *Reconciler) look(ctx context.Context, seen *observation) error {
	domain, err := r.o.Hardware.Domain(ctx, seen.uuid)
	switch {
	case err == nil:
		seen.domain = &domain
		if !seen.named() {
			return nil // another's: learnt by the list, or its own request
		}
	case hardware.ReasonOf(err) != hardware.ReasonNoDomain:
		return fmt.Errorf("look at VM %s: %w", seen.key, err)
	}
	r.host.saw(seen.uuid, seen.key, seen.domain)
	return nil
}

// lookDeeper reads what some decisions need beside the domain.
func (r *Reconciler) lookDeeper(ctx context.Context, seen *observation) error {
	if seen.vmi == nil {
		return nil
	}
	moves := seen.source() || (seen.here() && seen.memory.tries > 0)
	if seen.domain != nil && !seen.here() {
		moves = seen.domain.Active() && !seen.domain.Incoming // it may still feed its target, or be fed
	}
	if seen.domain != nil && moves {
		switch job, err := r.o.Hardware.Job(ctx, seen.uuid); {
		case err == nil:
			seen.job = &job
		case hardware.ReasonOf(err) != hardware.ReasonNoJob && hardware.ReasonOf(err) != hardware.ReasonNoDomain:
			return fmt.Errorf("look at the migration of VM %s: %w", seen.key, err)
		}
	}
	if seen.domain != nil && seen.domain.State == hardware.StateRunning && seen.domain.Spec.GuestAgent &&
		seen.memory.agent == "" && seen.here() {
		switch _, err := r.o.Hardware.GuestInfo(ctx, seen.uuid); {
		case err == nil:
			seen.memory.agent = hardware.DetailConnected
		case hardware.ReasonOf(err) == hardware.ReasonNoAgent:
			seen.memory.agent = hardware.DetailDisconnected
		}
	}
	if !seen.live && seen.guarded() && (seen.domain == nil || !seen.domain.Active()) {
		r.observePermit(ctx, seen)
	}
	if seen.domain == nil || !seen.domain.Active() {
		kib, err := r.capacity(ctx)
		if err != nil {
			return err
		}
		seen.capacityKiB = kib
	}
	return nil
}

// capacity is the memory the host's Hypervisor has for VMs; 0: not known yet.
func (r *Reconciler) capacity(ctx context.Context) (kib uint64, err error) {
	var hypervisor kvmv1.Hypervisor
	if err := r.client.Get(ctx, client.ObjectKey{Name: r.o.Host}, &hypervisor, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return 0, nil
		}
		return 0, fmt.Errorf("read Hypervisor %s: %w", r.o.Host, err)
	}
	bytes, said := hypervisor.Status.EffectiveCapacity[kvmv1.ResourceMemory]
	if !said || bytes.Sign() <= 0 {
		return 0, nil
	}
	return uint64(bytes.Value()) / 1024, nil
}

// confirm reads the VM past the cache, whose copy may be from before it moved,
// was placed anew or was deleted.
func (r *Reconciler) confirm(ctx context.Context, seen observation) (observation, error) {
	if r.o.NeedPermit {
		// Before the VM: as long as this permit lasts nobody takes the VM from the
		// host, so what is read now still holds when it is started.
		r.observePermit(ctx, &seen)
	}
	var vmi kubevirtv1.VirtualMachineInstance
	seen.vmi, seen.live = nil, true
	switch err := r.live.Get(ctx, seen.key, &vmi); {
	case err == nil:
		seen.vmi = &vmi
	case !apierrors.IsNotFound(err):
		return seen, fmt.Errorf("read VM %s past the cache: %w", seen.key, err)
	}
	return seen, r.lookDeeper(ctx, &seen)
}

// here says that the VM is this host's.
func (o observation) here() bool { return o.vmi != nil && o.vmi.Status.NodeName == o.host }

// named says that the domain was made for a VM of this name. One without our
// metadata was not, and one of another VM, which may ask for the same UUID, is
// that VM's own.
func (o observation) named() bool {
	d := o.domain
	return d != nil && !d.Foreign && d.Spec.Owner != nil &&
		d.Spec.Owner.Namespace == o.key.Namespace && d.Spec.Owner.Name == o.key.Name
}

// earlier says that the domain was made for an earlier VM of this name.
func (o observation) earlier() bool {
	return o.named() && (o.vmi == nil || o.domain.Spec.Owner.UID != string(o.vmi.UID))
}

// source says that a migration out of here is under way.
func (o observation) source() bool {
	st := migrating(o.vmi)
	return st != nil && o.here() && st.SourceNode == o.host && st.TargetNode != o.host
}

// target says that a migration to here is under way.
func (o observation) target() bool {
	st := migrating(o.vmi)
	return st != nil && !o.here() && st.TargetNode == o.host
}

// split says that a post-copy is under way between here and the other host: the
// guest's memory is whole on neither. A domain's own state hides that once the
// guest stands still for another reason.
func (o observation) split() bool {
	return o.job != nil && o.job.Running() && o.job.PostCopy && o.domain.Detail != hardware.DetailMigrated
}

// migrating returns the state of a migration that has not ended.
func migrating(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.VirtualMachineInstanceMigrationState {
	if vmi == nil {
		return nil
	}
	st := vmi.Status.MigrationState
	if st == nil || st.MigrationUID == "" || st.Completed || st.Failed {
		return nil
	}
	return st
}
