// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"context"
	"errors"
	"fmt"
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/adit-hv/adit/agents/permit"
	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

const (
	// startMargin is how long a permit must still last for a start to begin: a
	// QEMU is up within a second, on a busy host within three.
	startMargin = 3 * time.Second

	// permitPoll is how often the permit is read while a VM waits for it, after
	// permitPatience permitPollLater. It is a file in memory.
	permitPoll      = 2 * time.Second
	permitPollLater = 5 * time.Second

	// permitPatience is how long a VM waits for a permit before its user is told:
	// a host that has booted has its own with the first report that is answered.
	permitPatience = 30 * time.Second
)

// errNoPermit is that a protected VM was not started, or not left running, since
// the permit had ended.
var errNoPermit = errors.New("the host has no permit to run protected VMs")

// guarded says that the VM is protected and that its host needs a permit for it.
func (o observation) guarded() bool {
	if !o.needPermit {
		return false
	}
	return o.vmi != nil && kubevirt.Protected(o.vmi) || o.named() && o.domain.Spec.Owner.Protected
}

// permitted says that nothing forbids to start the VM here.
func (o observation) permitted() bool { return !o.guarded() || o.permitLeft >= startMargin }

// observePermit reads what there is to know before a protected VM that is off may
// be started, or its end believed. What cannot be read is no permit.
func (r *Reconciler) observePermit(ctx context.Context, seen *observation) {
	seen.permitLeft, seen.permitEnds, seen.stoppedHA, seen.restarts = 0, 0, false, 0
	p, err := r.permit(ctx)
	made := 0
	if err == nil {
		made, err = r.restartsOf(ctx, seen.uuid)
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Permit not read", "err", err)
		return
	}
	seen.permitLeft, seen.permitEnds = p.left, p.now+p.left
	seen.stoppedHA, seen.restarts = p.stopped.Has(seen.uuid), made
}

// permitView is what the HA agent's notes say.
type permitView struct {
	now     time.Duration // by the host's steady clock
	left    time.Duration // that the permit lasts; 0: there is none
	stopped permit.Stopped
}

func (r *Reconciler) permit(ctx context.Context) (v permitView, err error) {
	boot, err := r.o.Hardware.Boot(ctx)
	if err != nil {
		return v, fmt.Errorf("read the boot of %s: %w", r.o.Host, err)
	}
	note, err := r.o.Hardware.LoadNote(ctx, permit.NoteName)
	if err != nil {
		return v, err
	}
	p, err := permit.Decode(note)
	if err != nil {
		return v, err
	}
	if note, err = r.o.Hardware.LoadNote(ctx, permit.StoppedName); err != nil {
		return v, err
	}
	if v.stopped, err = permit.DecodeStopped(note); err != nil {
		return v, err
	}
	if v.now = boot.Uptime; p.Valid(v.now, boot.ID) {
		v.left = p.Until - v.now
	}
	return v, nil
}

// start starts the domain. For a protected VM the permit has to last that was
// valid before the VM was read, since claiming and defining took time: a later one
// may be of a time in which another host was given the VM. It is read again when
// the QEMU is there: a start that came too late is undone at once, and not only
// when the HA agent sees it.
func (r *Reconciler) start(ctx context.Context, seen observation, o hardware.StartOptions) error {
	if !seen.guarded() {
		return r.o.Hardware.Start(ctx, seen.uuid, o)
	}
	if p, err := r.permit(ctx); err != nil || min(p.left, seen.permitEnds-p.now) < startMargin {
		return errNoPermit
	}
	if err := r.o.Hardware.Start(ctx, seen.uuid, o); err != nil {
		return err
	}
	if p, err := r.permit(ctx); err != nil || p.left <= 0 {
		if err := r.o.Hardware.Destroy(ctx, seen.uuid); err != nil {
			return fmt.Errorf("undo the late start of VM %s: %w", seen.key, err)
		}
		return errNoPermit
	}
	return nil
}

// noPermit waits for one. It is no news at first, and told once.
func noPermit(o observation) plan {
	m := &o.memory
	if m.waitsSince.IsZero() {
		m.waitsSince = o.now
	}
	if o.now.Sub(m.waitsSince) < permitPatience {
		return o.wait("no permit", permitPoll)
	}
	vmi := o.vmi.DeepCopy()
	message := "host " + o.host + " may not run protected VMs: it has no run lease, or lost it; it starts the VM when the HA service grants it one"
	setCondition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized, no, ReasonNoRunPermit, message, o.now)
	if vmi.Status.Phase == kubevirtv1.Running {
		setCondition(vmi, kubevirtv1.VirtualMachineInstanceReady, no, ReasonNoRunPermit, message, o.now)
	}
	p := o.write("no permit", vmi)
	p.lookAgain = permitPollLater
	return p
}
