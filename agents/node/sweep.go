// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hardware"
)

// latestKept is how many times longer than the others a VM's latest record
// stays: three months for a week.
const latestKept = 13

// sweep finds what events did not tell: jobs that run or have ended while
// nobody listened, records whose job is gone, records past their time.
func (r *migrationReconciler) sweep(ctx context.Context) (ctrl.Result, error) {
	if err := r.feed.subscribe(); err != nil {
		return ctrl.Result{RequeueAfter: unavailableIn}, nil // libvirt is away
	}
	again := sweepEvery - spread(r.o.Host, sweepEvery/10)
	domains, err := r.o.Hardware.Domains(ctx)
	if err != nil {
		return ctrl.Result{RequeueAfter: unavailableIn}, nil // LibVirtConnection tells
	}
	for _, d := range domains {
		if !d.Active() {
			continue
		}
		if job, err := r.o.Hardware.Job(ctx, d.UUID); err == nil && migrates(job) && (job.Running() || r.recent(job)) {
			r.feed.add(r.request(d.UUID))
		}
	}

	var list v1alpha1.MigrationList
	if err := r.reader.List(ctx, &list, client.InNamespace(r.o.Namespace), client.MatchingLabels{LabelHost: r.o.Host}); err != nil {
		return ctrl.Result{}, fmt.Errorf("list records of %s: %w", r.o.Host, err)
	}
	now := r.o.Clock.Now()
	for _, m := range list.Items {
		switch {
		case !finished(&m) && m.Name == m.Labels[LabelVM]:
			r.feed.add(r.request(m.Name))
		case expired(m, now, r.o.KeepRecords):
			if err := client.IgnoreNotFound(r.client.Delete(ctx, &m, client.Preconditions{UID: &m.UID})); err != nil {
				return ctrl.Result{}, fmt.Errorf("delete record %s: %w", m.Name, err)
			}
		}
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

func (r *migrationReconciler) recent(j hardware.Job) bool {
	return r.o.Clock.Now().Sub(j.StartedAt.Add(j.Elapsed)) < oldJob
}

func expired(m v1alpha1.Migration, now time.Time, keep time.Duration) bool {
	if m.Name == m.Labels[LabelVM] {
		keep *= latestKept
	}
	return now.Sub(startOf(m)) > keep
}
