// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"errors"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// controller-runtime's defaults (pkg/manager: LeaseDuration, RenewDeadline,
// RetryPeriod) and client-go's jitter.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
	retryJitter   = 1.2
)

var errLeaseLost = errors.New("leader election lost")

// elect competes for a lease step by step as client-go's leaderelection does,
// leads, and ends the process when it cannot renew.
func (l *life) elect(name string) {
	key := types.NamespacedName{Namespace: "kube-system", Name: name}
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		key = types.NamespacedName{Namespace: namespace, Name: rest}
	}
	// A restarted process is another candidate: it waits like any.
	e := &candidate{l: l, key: key, identity: l.p.name + "_" + strconv.Itoa(l.p.starts)}
	for !e.try() {
		l.sleep(retryPeriod + time.Duration(l.random.Float64()*retryJitter*float64(retryPeriod)))
	}
	l.p.note("lead", "")
	l.m.lead()
	for renewed := l.c.s.Elapsed(); ; {
		l.sleep(retryPeriod)
		if e.try() {
			renewed = l.c.s.Elapsed()
		} else if l.c.s.Elapsed()-renewed > renewDeadline || e.taken {
			l.exit(errLeaseLost)
			return
		}
	}
}

type candidate struct {
	l        *life
	key      types.NamespacedName
	identity string
	// What was seen of another's lease, and when by our own clock: nobody
	// trusts the other's.
	version string
	seenAt  time.Duration
	taken   bool
}

// try acquires or renews.
func (e *candidate) try() bool {
	api, now := e.l.m.live, metav1.NewMicroTime(e.l.p.Clock().Now())
	lease, seconds := &coordinationv1.Lease{}, int32(leaseDuration/time.Second)
	err := api.Get(e.l.ctx, e.key, lease)
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.key.Namespace, Name: e.key.Name}}
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &e.identity, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now}
		return api.Create(e.l.ctx, lease) == nil
	}
	if err != nil {
		return false
	}
	mine := holder(lease) == e.identity
	if !mine {
		if lease.ResourceVersion != e.version {
			e.version, e.seenAt = lease.ResourceVersion, e.l.c.s.Elapsed()
		}
		e.taken = true
		if holder(lease) != "" && e.l.c.s.Elapsed()-e.seenAt < leaseDuration {
			return false
		}
		transitions := int32(1)
		if lease.Spec.LeaseTransitions != nil {
			transitions += *lease.Spec.LeaseTransitions
		}
		lease.Spec.LeaseTransitions, lease.Spec.AcquireTime = &transitions, &now
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &e.identity, &seconds, &now
	if api.Update(e.l.ctx, lease) != nil {
		return false
	}
	e.taken = false
	return true
}
