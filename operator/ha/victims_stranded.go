// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/api/kubevirt"
)

// strandedAfter is how long a VM has stood still for want of its disks before it
// is asked to leave: paths fail over within half a minute, multipath's default.
const strandedAfter = time.Minute

// reasonPausedIOError is nova's, of the condition Paused.
const reasonPausedIOError = "PausedIOError"

// relieve asks the VMs that stand still on a living host for want of their disks
// to leave it, and takes that back from those that run again. lost says that the
// host's own storage heartbeat fails and that others' do not: where all have lost
// the storage nobody would be better off elsewhere. again is when the next VM is
// due; 0 is never.
func (e *evacuator) relieve(ctx context.Context, host string, lost bool) (again time.Duration, err error) {
	var there kubevirtv1.VirtualMachineInstanceList
	if err := e.client.List(ctx, &there, client.MatchingFields{indexNode: host}, client.UnsafeDisableDeepCopy); err != nil { // only read below
		return 0, fmt.Errorf("list VMs of %s: %w", host, err)
	}
	vmis := make([]*kubevirtv1.VirtualMachineInstance, len(there.Items))
	for i := range there.Items {
		vmis[i] = &there.Items[i]
	}
	slices.SortFunc(vmis, earlier)
	for _, vmi := range vmis {
		verdict, left := strandedVerdict(vmi, host, lost, e.clock.Now())
		if left > 0 && (again == 0 || left < again) {
			again = left
		}
		if verdict == standsStill {
			continue
		}
		if err := e.askToLeave(ctx, vmi, host, verdict == asksToLeave); err != nil {
			return 0, err
		}
	}
	return again, nil
}

// verdict on a VM of a host whose storage may be lost.
type strandedState string

const (
	standsStill strandedState = "as it is"
	asksToLeave strandedState = "leave"
	mayStay     strandedState = "stay"
)

// strandedVerdict is what to do with one VM. It is pure.
//
//	asked, and its disks are back              stay
//	asked, moving, not protected, to wait      as it is
//	stands still for want of its disks, a minute, and others have them  leave
//	not that long yet                          as it is, look again
func strandedVerdict(vmi *kubevirtv1.VirtualMachineInstance, host string, lost bool, now time.Time) (verdict strandedState, left time.Duration) {
	asked := kubevirt.AskedToLeave(vmi, host) == kubevirt.LeaveStorageLost
	c := conditionOf(vmi, kubevirtv1.VirtualMachineInstancePaused)
	stalled := c != nil && c.Status == corev1.ConditionTrue && c.Reason == reasonPausedIOError
	switch {
	case asked && !stalled && vmi.IsRunning() && isReady(vmi):
		return mayStay, 0
	case asked || !stalled || !lost || !vmi.IsRunning() || vmi.DeletionTimestamp != nil,
		!kubevirt.Protected(vmi), otherHost(vmi) != "", isAsked(vmi),
		vmi.Annotations[kubevirt.AnnotationOnIOError] == "wait":
		return standsStill, 0
	}
	if left := strandedAfter - now.Sub(c.LastTransitionTime.Time); left > 0 {
		return standsStill, left
	}
	return asksToLeave, 0
}

func isReady(vmi *kubevirtv1.VirtualMachineInstance) bool {
	c := conditionOf(vmi, kubevirtv1.VirtualMachineInstanceReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func (e *evacuator) askToLeave(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance, host string, leave bool) error {
	after := vmi.DeepCopy()
	if leave {
		after.Annotations[kubevirt.AnnotationLeave] = host + "/" + kubevirt.LeaveStorageLost
	} else {
		delete(after.Annotations, kubevirt.AnnotationLeave)
	}
	err := e.client.Patch(ctx, after, client.MergeFromWithOptions(vmi, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // it is looked at again
	}
	if err != nil {
		return fmt.Errorf("ask VM %s to leave %s: %w", klog.KObj(vmi), host, err)
	}
	ctrl.LoggerFrom(ctx).Info("Asked VM to leave a host without storage", "VirtualMachineInstance", klog.KObj(vmi), "host", host, "leave", leave)
	return nil
}
