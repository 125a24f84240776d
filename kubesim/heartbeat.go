// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/adit-hv/adit/sim"
)

// heartbeat is one lease a process renews.
type heartbeat struct {
	l               *life
	lease           types.NamespacedName
	holder          string
	every, duration time.Duration
	beat            *beat
	turn            int // grows with each start and stop
}

func (l *life) startHeartbeat(of Heartbeater) {
	h := &heartbeat{l: l}
	h.lease, h.holder, h.every, h.duration = of.Heartbeat()
	l.beats = append(l.beats, h)
	h.start()
}

// start takes the lease by a write, then lets it beat. With EagerLeases each
// beat is a write.
func (h *heartbeat) start() {
	if h.l.p.partitioned || h.l.paused || h.l.c.silences(h.l.p) {
		return // comes again when that is over
	}
	h.turn++
	turn := h.turn
	h.l.task(func(*sim.Task) {
		for h.turn == turn {
			err := h.renew()
			if h.turn != turn {
				return
			}
			if err == nil && !h.l.c.o.EagerLeases {
				h.let()
				return
			}
			h.l.sleep(h.every)
		}
	})
}

func (h *heartbeat) stop() {
	h.turn++
	if h.beat != nil {
		ahead := h.beat.ahead() // what its clock does later moves no lease
		h.beat.until, h.beat.ahead = h.l.c.s.Elapsed(), func() time.Duration { return ahead }
		h.beat = nil
	}
}

// let has the lease beat by itself from the write that was just made.
func (h *heartbeat) let() {
	k, err := h.l.c.kindOf(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	if err != nil {
		return
	}
	st := k.objects[h.lease]
	if st == nil {
		return
	}
	h.beat = &beat{first: h.l.c.s.Elapsed(), every: h.every, until: -1, ahead: h.ahead, lost: func() {
		h.stop()
		h.l.after(h.every, h.start)
	}}
	st.beat = h.beat
}

// ahead is how far the process's clock is ahead of the simulation's.
func (h *heartbeat) ahead() time.Duration { return h.l.p.Clock().Now().Sub(h.l.c.s.Now()) }

func (h *heartbeat) renew() error {
	api := h.l.m.live
	lease := &coordinationv1.Lease{}
	err := api.Get(h.l.ctx, h.lease, lease)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	now := metav1.NewMicroTime(h.l.p.Clock().Now())
	seconds := int32(h.duration / time.Second)
	if holder(lease) != h.holder {
		lease.Spec.AcquireTime = &now
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &h.holder, &seconds, &now
	if err != nil {
		lease.Name, lease.Namespace = h.lease.Name, h.lease.Namespace
		return api.Create(h.l.ctx, lease)
	}
	return api.Update(h.l.ctx, lease)
}
