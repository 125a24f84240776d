// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/equal"
	"github.com/adit-hv/adit/internal/wiring"
)

// hypervisorReconciler keeps the status of one Hypervisor true.
type hypervisorReconciler struct {
	client client.Client
	reader client.Reader // past the cache, after a conflict
	o      Options
	feed   *feed

	host      observer
	claims    claims
	asked     map[string]time.Time // OS version: when this process asked for it
	heard     map[string]bool      // unit states that have been logged as unknown
	lastWrite lastWrite

	recorded     identity // as read from recordedText
	recordedText string
	upToDate     upToDate
}

func newHypervisorReconciler(c client.Client, reader client.Reader, o Options) *hypervisorReconciler {
	r := &hypervisorReconciler{
		client: c,
		reader: reader,
		o:      o,
		host:   observer{host: o.Hardware, resync: o.Resync - spread(o.Host, o.Resync/10)},
		claims: claims{client: c, reader: reader, namespace: o.Namespace, host: o.Host},
		asked:  map[string]time.Time{},
		heard:  map[string]bool{},
	}
	r.feed = &feed{events: o.Hardware, take: r.take, retry: r.request()}
	return r
}

func (r *hypervisorReconciler) request() wiring.Request {
	return wiring.Request{NamespacedName: types.NamespacedName{Name: r.o.Host}}
}

// take notes an event of the host. Changes of instances come in bursts and are
// gathered; the connection's coming and going is news at once.
func (r *hypervisorReconciler) take(e hardware.Event, q queue) {
	request := r.request()
	switch e.Kind {
	case hardware.EventGap, hardware.EventConnectionLost:
		r.host.notes.daemonChanged()
		q.Add(request)
	case hardware.EventDefined, hardware.EventStarted:
		// What has come can wait for the next look: whoever sent it knows.
		r.host.notes.domainsChanged()
	case hardware.EventUndefined, hardware.EventStopped, hardware.EventCrashed:
		r.host.notes.domainsChanged()
		q.AddAfter(request, r.o.Coalesce)
	}
}

// conflictTries is how often one reconcile decides anew after a conflict: the
// operator's controllers write the same status, and rarely twice in a second.
const conflictTries = 4

// Reconcile looks at the host once, and then reads the Hypervisor, decides and
// writes, again as long as somebody else was faster.
func (r *hypervisorReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var hv kvmv1.Hypervisor // the cache's own: only read, until register makes a copy
	if err := r.client.Get(ctx, client.ObjectKey{Name: r.o.Host}, &hv, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the operator makes it; its creation wakes us
	}
	r.lastWrite.refresh(&hv)
	if err := r.feed.subscribe(); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("No events yet", "reason", err.Error())
	}
	host := r.host.look(ctx, r.o.Clock.Now())
	for try := 1; ; try++ {
		seen, err := r.observe(ctx, &hv, host)
		if err != nil {
			return ctrl.Result{}, err
		}
		p := decide(seen)
		switch err := r.act(ctx, seen, &p); {
		case err == nil:
			return ctrl.Result{RequeueAfter: r.lookAgain(p)}, nil
		case !apierrors.IsConflict(err):
			return ctrl.Result{}, err
		case try == conflictTries:
			// Nothing is wrong, so nothing is logged; step aside for a moment.
			return ctrl.Result{RequeueAfter: spread(r.o.Host, 2*time.Second)}, nil
		}
		hv = kvmv1.Hypervisor{} // what it held may be the cache's
		if err := r.reader.Get(ctx, client.ObjectKey{Name: r.o.Host}, &hv); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
}

// observation is all that one decision depends on.
type observation struct {
	seenHost
	hv       *kvmv1.Hypervisor
	recorded identity
	twins    []twin
	update   hardware.Unit // of spec.version; Load "" when not read
	asked    time.Time
}

func (r *hypervisorReconciler) observe(ctx context.Context, hv *kvmv1.Hypervisor, host seenHost) (observation, error) {
	seen := observation{seenHost: host, hv: hv}
	now := identityOf(host.facts.identity)
	if text := hv.Annotations[AnnotationIdentity]; text != r.recordedText {
		r.recorded, r.recordedText = parseIdentity(text), text
	}
	seen.recorded = r.recorded
	if now.adds(seen.recorded) {
		twins, err := r.claims.twins(ctx, now)
		if err != nil {
			return seen, fmt.Errorf("look for another Hypervisor of this machine: %w", err)
		}
		seen.twins = twins
	}
	if version := hv.Spec.Version; version != "" {
		seen.asked = r.asked[version]
		if units, err := r.o.Hardware.Units(ctx, hardware.UpdateUnit(version)); err == nil {
			seen.update = units[0]
		}
	}
	return seen, nil
}

// lookAgain spreads the looks of a fleet over a tenth of their period.
func (r *hypervisorReconciler) lookAgain(p plan) time.Duration {
	if p.lookAgain > 0 {
		return min(p.lookAgain, r.o.Look)
	}
	return r.o.Look - spread(r.o.Host, r.o.Look/10)
}

// act does what the plan says, the status last.
func (r *hypervisorReconciler) act(ctx context.Context, seen observation, p *plan) error {
	for _, word := range p.unknownWords {
		if !r.heard[word] {
			r.heard[word] = true
			ctrl.LoggerFrom(ctx).Info("Unknown state of a unit; keeping the last verdict", "state", word)
		}
	}
	if p.register {
		if err := r.register(ctx, seen); err != nil {
			return err
		}
	}
	if p.update.start {
		r.startUpdate(ctx, seen, p)
	}
	if err := r.writeStatus(ctx, seen, *p); err != nil {
		return err
	}
	if p.update.reboot {
		ctrl.LoggerFrom(ctx).Info("Rebooting the host into its new system", "version", seen.hv.Spec.Version)
		if err := r.o.Hardware.RebootHost(ctx); err != nil {
			return fmt.Errorf("reboot %s into %s: %w", r.o.Host, seen.hv.Spec.Version, err)
		}
	}
	return nil
}

// register claims the machine for this Hypervisor and records its identity on
// it. The object in seen becomes the one written, so that the status follows.
func (r *hypervisorReconciler) register(ctx context.Context, seen observation) error {
	now := identityOf(seen.facts.identity).over(seen.recorded)
	if err := r.claims.take(ctx, seen.hv, now, seen.twins); err != nil {
		return err
	}
	before := seen.hv.DeepCopy()
	*seen.hv = *before.DeepCopy() // it was the cache's
	if seen.hv.Annotations == nil {
		seen.hv.Annotations = map[string]string{}
	}
	seen.hv.Annotations[AnnotationIdentity] = now.text()
	if err := r.client.Patch(ctx, seen.hv, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("record identity: %w", err)
	}
	r.lastWrite.note(before, seen.hv.DeepCopy())
	ctrl.LoggerFrom(ctx).Info("Registered this machine")
	return nil
}

func (r *hypervisorReconciler) startUpdate(ctx context.Context, seen observation, p *plan) {
	version := seen.hv.Spec.Version
	err := r.o.Hardware.StartUpdate(ctx, version)
	if err == nil {
		ctrl.LoggerFrom(ctx).Info("Started an operating system update", "version", version)
	} else {
		p.update = updateViewOf(seen).notStarted(p.update, err)
		p.applyUpdate(seen.now)
	}
	r.asked[version] = seen.now
}

// writeStatus patches what changed, if anything did.
func (r *hypervisorReconciler) writeStatus(ctx context.Context, seen observation, p plan) error {
	if r.upToDate.says(seen, p) {
		return nil
	}
	if equal.Values(&seen.hv.Status, &p.status) {
		r.upToDate = upToDate{version: seen.hv.ResourceVersion, told: seen.facts.told}
		return nil
	}
	after := &kvmv1.Hypervisor{TypeMeta: seen.hv.TypeMeta, Spec: *seen.hv.Spec.DeepCopy()}
	seen.hv.ObjectMeta.DeepCopyInto(&after.ObjectMeta)
	p.status.DeepCopyInto(&after.Status) // the answer is read into it
	if err := r.client.Status().Patch(ctx, after, client.MergeFromWithOptions(seen.hv, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	r.lastWrite.note(seen.hv, after)
	return nil
}

// upToDate is the version of the Hypervisor that was found to say all that we were
// told. As long as it and what it was compared with stand, only what time and the
// units change has to be compared.
type upToDate struct {
	version string
	told
}

func (u upToDate) says(seen observation, p plan) bool {
	return u.version != "" && u.version == seen.hv.ResourceVersion && u.told == seen.facts.told &&
		u.os != nil && u.able != nil && u.counted != nil &&
		equal.Values(&seen.hv.Status.Conditions, &p.status.Conditions) &&
		equal.Values(&seen.hv.Status.UpdateStatus, &p.status.UpdateStatus)
}

// lastWrite bridges the time until the cache shows our own last write. Only
// versions we have patched from are replaced: anything else is news. What it
// keeps and gives is only read.
type lastWrite struct {
	from  map[string]bool // resource versions our writes started from
	after *kvmv1.Hypervisor
}

func (w *lastWrite) note(before, after *kvmv1.Hypervisor) {
	if w.after == nil || w.after.ResourceVersion != before.ResourceVersion {
		w.from = map[string]bool{}
	}
	w.from[before.ResourceVersion] = true
	w.after = after
}

func (w *lastWrite) refresh(hv *kvmv1.Hypervisor) {
	if w.after != nil && w.after.UID == hv.UID && w.from[hv.ResourceVersion] {
		*hv = *w.after
	}
}
