// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"time"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
)

// evacuate takes the next step with the VMs of a fenced host.
func (r *Reconciler) evacuate(ctx context.Context, h *kvmv1.Hypervisor, e *v1alpha1.Evacuation) (done bool, again time.Duration, err error) {
	_, _, _ = ctx, h, e
	return false, r.o.Limits.Interval, nil
}
