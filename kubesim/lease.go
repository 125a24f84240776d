// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/sim"
)

// namespaceRetry is how often a terminating namespace is looked at again
// (kube-controller-manager's namespace controller backs off around it).
const namespaceRetry = 5 * time.Second

// beat is the renewing of a lease that nobody watches for: instead of being
// written every few seconds it is computed when the lease is read. Four of
// five writes of a fleet are heartbeats.
type beat struct {
	first, every time.Duration
	until        time.Duration        // -1 while it beats
	ahead        func() time.Duration // how far the clock it is renewed by is ahead
	lost         func()               // the lease was deleted or taken
}

// last is the latest renewal at a time.
func (b *beat) last(at time.Duration) time.Duration {
	if b.until >= 0 {
		at = min(at, b.until)
	}
	return b.first + max(0, (at-b.first)/b.every)*b.every
}

// seen is the object as a reader of that time sees it.
func (c *Cluster) seen(st *stored, at time.Duration) client.Object {
	if st.beat == nil {
		return st.obj
	}
	lease := *st.obj.(*coordinationv1.Lease)
	if last := st.beat.last(at); lease.Spec.RenewTime == nil || last > st.beat.first {
		renewed := metav1.NewMicroTime(sim.Epoch.Add(last + st.beat.ahead()).Truncate(time.Microsecond))
		lease.Spec.RenewTime = &renewed
	}
	return &lease
}

// settleBeat stores what a reader sees, before a write builds on it.
func (c *Cluster) settleBeat(k *kind, st *stored) {
	if st.beat == nil {
		return
	}
	st.obj = c.seen(st, c.s.Elapsed())
	if st.beat.until >= 0 {
		st.beat = nil
	}
}

// keptBeat decides whether a lease beats on after a write: it does for the
// same holder.
func keptBeat(old *stored, n client.Object) *beat {
	if old == nil || old.beat == nil {
		return nil
	}
	was, is := old.obj.(*coordinationv1.Lease), n.(*coordinationv1.Lease)
	if holder(was) == holder(is) {
		return old.beat
	}
	return nil
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}
