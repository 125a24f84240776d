// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/equal"
)

// act carries out a plan. The object goes last: it claims only what has been
// done. It returns when to look again.
func (r *Reconciler) act(ctx context.Context, seen observation, p plan) (time.Duration, error) {
	log := ctrl.LoggerFrom(ctx)
	log.V(1).Info("Decided", "why", p.why)
	if p.confirm && !seen.live {
		return 0, fmt.Errorf("decide on VM %s: %q asks for what was read already", seen.key, p.why)
	}
	if p.claimKiB > 0 && len(p.steps) == 0 {
		_ = r.host.claim(seen.uuid, p.claimKiB, 0) // promised before a restart: no capacity, no refusal
	}
	for _, s := range p.steps {
		err := r.do(ctx, seen, p, s)
		switch {
		case err == nil:
		case errors.Is(err, errNoPermit):
			return permitPoll, nil // as if nothing had been tried
		case hardware.ConsequenceOf(err) != hardware.Refused:
			if s.verb == doMigrate || s.verb == doShutdown || s.verb == doRecover {
				r.host.remember(seen.uuid, p.memory) // a try counts, whatever came of it
			}
			return 0, err
		case p.blame == blameTry:
			log.V(1).Info("Tried in vain", "verb", s.verb, "err", err)
		case p.blame == blameNobody:
			return 0, err
		default:
			return r.refused(ctx, seen, p, s, err)
		}
	}
	if p.release {
		r.host.release(seen.uuid)
	}
	if err := r.write(ctx, seen, p.vmi); err != nil {
		return 0, err
	}
	if p.news != "" {
		log.Info(p.news, "VirtualMachineInstance", klog.KRef(seen.key.Namespace, seen.key.Name), "why", p.why)
	}
	if p.forget {
		r.host.forget(seen.uuid)
	} else if seen.uuid != "" {
		r.host.remember(seen.uuid, p.memory)
	}
	return p.lookAgain, nil
}

// do takes one step.
func (r *Reconciler) do(ctx context.Context, seen observation, p plan, s step) error {
	hw := r.o.Hardware
	switch s.verb {
	case doClaim:
		return r.host.claim(seen.uuid, p.claimKiB, seen.capacityKiB)
	case doDefine:
		return hw.Define(ctx, s.spec)
	case doUndefine:
		return hw.Undefine(ctx, seen.uuid)
	case doStart:
		return r.start(ctx, seen, hardware.StartOptions{Paused: s.paused})
	case doShutdown:
		return hw.Shutdown(ctx, seen.uuid)
	case doDestroy:
		return hw.Destroy(ctx, seen.uuid)
	case doSuspend:
		return hw.Suspend(ctx, seen.uuid)
	case doResume:
		return hw.Resume(ctx, seen.uuid)
	case doMigrate:
		return hw.Migrate(ctx, seen.uuid, s.migrate)
	case doAbort:
		return hw.AbortJob(ctx, seen.uuid)
	case doPostCopy:
		return hw.StartPostCopy(ctx, seen.uuid)
	case doRecover:
		return hw.RecoverPostCopy(ctx, seen.uuid)
	case doList:
		return r.host.list(ctx, r.o.Clock.Now)
	case doCount:
		return r.countRestart(ctx, seen.uuid)
	}
	return fmt.Errorf("no such step: %q", s.verb)
}

// refused writes why the hypervisor said no, where its reader looks.
func (r *Reconciler) refused(ctx context.Context, seen observation, p plan, s step, err error) (time.Duration, error) {
	vmi := seen.vmi.DeepCopy()
	again := refusedRetry
	switch {
	case hardware.ReasonOf(err) == hardware.ReasonJobRunning || hardware.ReasonOf(err) == hardware.ReasonInvalidState:
		return retry, nil // somebody else is at it; look again
	case p.blame == blameMigration:
		r.host.release(seen.uuid)
		fail(vmi, message(err))
	default:
		r.host.release(seen.uuid)
		reason, text := reasonOf(err), message(err)
		if reason == ReasonHostFull {
			text = placementMark(runToken(vmi)) + text
			if !hasRun(vmi) {
				again = 0 // the operator places it anew
			}
		}
		if reason == ReasonVolumeInUse {
			again = lockRetry
		}
		setCondition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized, no, reason, text, seen.now)
		if s.verb == doStart && vmi.Status.Phase == kubevirtv1.Running {
			setCondition(vmi, kubevirtv1.VirtualMachineInstanceReady, no, reason, text, seen.now) // it was to start again
		}
	}
	if err := r.write(ctx, seen, vmi); err != nil {
		return 0, err
	}
	ctrl.LoggerFrom(ctx).V(1).Info("Refused", "verb", s.verb, "err", err)
	return again, nil
}

// reasonOf is a refusal in the API's words.
func reasonOf(err error) string {
	switch hardware.ReasonOf(err) {
	case hardware.ReasonNoMemory:
		return ReasonHostFull
	case hardware.ReasonNoStorage:
		return ReasonVolumeNotFound
	case hardware.ReasonStorageLocked:
		return ReasonVolumeInUse
	case hardware.ReasonIncompatible:
		return ReasonHostIncompatible
	case hardware.ReasonInvalidSpec:
		return ReasonInvalidSpec
	case hardware.ReasonUnsupported:
		return ReasonUnsupported
	}
	return ReasonRefused
}

// message is a refusal for people: the reason and the hypervisor's own words.
func message(err error) string {
	var e *hardware.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	text := e.Attempt + ": " + string(e.Reason)
	if e.Reason == "" {
		text = e.Attempt + ": refused"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// write patches the object, if it changes, unless somebody changed it since it
// was read. VMIs have no status subresource: labels and status go together.
func (r *Reconciler) write(ctx context.Context, seen observation, vmi *kubevirtv1.VirtualMachineInstance) error {
	if vmi == nil || equal.Values(vmi, seen.vmi) {
		return nil
	}
	vmi = vmi.DeepCopy() // the answer is read into it, and it may share parts with the cache's
	base := client.MergeFromWithOptions(seen.vmi, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, vmi, base); err != nil {
		if apierrors.IsNotFound(err) {
			return nil // deleted meanwhile: its own event follows
		}
		return fmt.Errorf("write VM %s: %w", seen.key, err)
	}
	r.written.note(vmi)
	return nil
}
