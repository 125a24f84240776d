// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A host's Lease is renewed as a kubelet renews its Node's: every 10 s, with
// 40 s until it counts as stale (kubelet nodeLeaseDurationSeconds, a quarter of
// it between renewals).
const (
	heartbeatEvery    = 10 * time.Second
	heartbeatDuration = 40 * time.Second
)

// Heartbeat keeps the host's Lease fresh as long as the agent runs. A manager
// that keeps leases itself recognises the method Heartbeat and never calls
// Start.
type Heartbeat struct {
	client client.Client
	reader client.Reader
	clock  clock.PassiveClock
	key    types.NamespacedName
	holder string
	every  time.Duration // by the wall clock

	lease *coordinationv1.Lease // as last written; nil: read it first
}

func newHeartbeat(c client.Client, r client.Reader, o Options, every time.Duration) *Heartbeat {
	return &Heartbeat{
		every:  every,
		client: c,
		reader: r,
		clock:  o.Clock,
		key:    types.NamespacedName{Namespace: o.Namespace, Name: o.Host},
		holder: o.Host,
	}
}

// Heartbeat returns the Lease, who holds it, how often it is renewed and how
// long a renewal lasts.
func (h *Heartbeat) Heartbeat() (lease types.NamespacedName, holder string, every, duration time.Duration) {
	return h.key, h.holder, heartbeatEvery, heartbeatDuration
}

// NeedLeaderElection returns false: each host's agent beats for itself.
func (h *Heartbeat) NeedLeaderElection() bool { return false }

// Start renews the Lease until ctx is done.
func (h *Heartbeat) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("heartbeat")
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := h.renew(ctx); err != nil {
			h.lease = nil
			log.Error(err, "Missed a heartbeat", "Lease", h.key)
		}
	}, h.every, 0.04, true) // 4 %, as the kubelet's
	return nil
}

func (h *Heartbeat) renew(ctx context.Context) error {
	now := metav1.NewMicroTime(h.clock.Now())
	if h.lease == nil {
		var lease coordinationv1.Lease
		err := h.reader.Get(ctx, h.key, &lease)
		if apierrors.IsNotFound(err) {
			return h.create(ctx, now)
		}
		if err != nil {
			return fmt.Errorf("read lease %s: %w", h.key, err)
		}
		h.lease = &lease
	}
	lease := h.lease.DeepCopy()
	if ptr.Deref(lease.Spec.HolderIdentity, "") != h.holder {
		lease.Spec.AcquireTime = &now
	}
	lease.Spec.HolderIdentity = &h.holder
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(heartbeatDuration / time.Second))
	lease.Spec.RenewTime = &now
	if err := h.client.Update(ctx, lease); err != nil {
		return fmt.Errorf("renew lease %s: %w", h.key, err)
	}
	h.lease = lease
	return nil
}

func (h *Heartbeat) create(ctx context.Context, now metav1.MicroTime) error {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.key.Namespace, Name: h.key.Name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       &h.holder,
			LeaseDurationSeconds: ptr.To(int32(heartbeatDuration / time.Second)),
			AcquireTime:          &now,
			RenewTime:            &now,
		},
	}
	if err := h.client.Create(ctx, lease); err != nil {
		return fmt.Errorf("create lease %s: %w", h.key, err)
	}
	h.lease = lease
	return nil
}
