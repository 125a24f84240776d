// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sureFor is for how long after a look that showed it as holder a replica grants
// leases. Another may be holder a moment after the look; it reckons with grants of
// its predecessor for as long, from when it has become holder.
const sureFor = 10 * time.Second

// leadership is what this replica knows of its own.
type leadership struct {
	since  time.Duration // it is holder and knows what was decided; 0: not yet
	holder string        // of the Lease then, and its transitions
}

// grantsFrom is when predecessors have surely stopped to grant leases.
func (l leadership) grantsFrom() time.Duration { return l.since + sureFor }

// look reads the Lease past the cache. Without an election there is nobody else.
func (r *Reconciler) look(ctx context.Context) error {
	began := r.o.Steady.Elapsed()
	if r.o.Election != "" {
		var lease coordinationv1.Lease
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: r.o.Election}, &lease)
		if err != nil {
			return fmt.Errorf("read the leader's Lease: %w", err)
		}
		if err := r.holds(&lease); err != nil {
			return err
		}
	}
	r.Service.lead(began + sureFor)
	return nil
}

func (r *Reconciler) holds(lease *coordinationv1.Lease) error {
	holder, transitions := "", int32(0)
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity
	}
	if lease.Spec.LeaseTransitions != nil {
		transitions = *lease.Spec.LeaseTransitions
	}
	now := fmt.Sprintf("%s %d", holder, transitions)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.o.Identity != "" && holder != r.o.Identity && !strings.HasPrefix(holder, r.o.Identity+"_") || r.lead.holder != "" && r.lead.holder != now {
		return fmt.Errorf("the leader's Lease is held by %s: this replica leads no more", holder)
	}
	r.lead.holder = now
	return nil
}
