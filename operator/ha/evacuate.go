// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/internal/equal"
	"github.com/adit-hv/adit/operator/compute"
)

const (
	// indexNode finds the VMs placed on a host, indexUnderWay those that were asked
	// for or are about to start.
	indexNode     = "ha.node"
	indexUnderWay = "ha.underWay"

	// evacuateAgain is how soon VMs that are on their way are looked at again.
	evacuateAgain = time.Second

	// progressEvery is how often progress is written: a line for each VM would be
	// a write of the whole list for each.
	progressEvery = 5 * time.Second
)

// evacuator has the protected VMs of fenced hosts started elsewhere: it marks
// them for placement, in order and not too many at a time, and keeps account of
// what becomes of each. All of it follows from the objects, but for the marks
// that the cache does not show yet; so a new leader goes on from them alone.
type evacuator struct {
	client client.Client
	live   client.Reader // the API itself
	clock  clock.PassiveClock

	perFleet int // VMs asked for and not running, in all

	mu    sync.Mutex           // never held across a request
	count int                  // of VMs under way, as the cache last showed them
	marks map[types.UID]string // VMs marked beside these, and the version of that, "" while it is written
	wrote map[string]time.Time // when an Evacuation's progress was last written
}

func newEvacuator(c client.Client, live client.Reader, clock clock.PassiveClock, perFleet int) *evacuator {
	return &evacuator{
		client: c, live: live, clock: clock, perFleet: perFleet,
		marks: map[types.UID]string{}, wrote: map[string]time.Time{},
	}
}

// indexVictims adds the indexes that an evacuator reads by.
func indexVictims(ctx context.Context, indexer client.FieldIndexer) error {
	of := func(o client.Object) []string {
		if vmi := o.(*kubevirtv1.VirtualMachineInstance); vmi.Status.NodeName != "" {
			return []string{vmi.Status.NodeName}
		}
		return nil
	}
	if err := indexer.IndexField(ctx, &kubevirtv1.VirtualMachineInstance{}, indexNode, of); err != nil {
		return fmt.Errorf("index VMs by host: %w", err)
	}
	underWay := func(o client.Object) []string {
		if vmi := o.(*kubevirtv1.VirtualMachineInstance); !vmi.IsFinal() && (isAsked(vmi) || compute.Starting(vmi)) {
			return []string{"true"}
		}
		return nil
	}
	if err := indexer.IndexField(ctx, &kubevirtv1.VirtualMachineInstance{}, indexUnderWay, underWay); err != nil {
		return fmt.Errorf("index VMs under way: %w", err)
	}
	return nil
}

// evacuate takes the next step with a fenced host's VMs and writes what it finds
// into the Evacuation, which it brings up to date in place: the list of VMs with
// phase Evacuating before any VM is marked, then their states. done says that no
// VM waits for its turn, for another host's word or for its start; those that no
// host takes are placement's to do. It may be called again later, as long as the
// host is out of service, and takes up VMs that were found on it since.
func (e *evacuator) evacuate(ctx context.Context, hypervisor *kvmv1.Hypervisor, evacuation *kvmv1alpha1.Evacuation) (done bool, again time.Duration, err error) {
	if evacuation.Status.Proof == nil || evacuation.Spec.Hypervisor != hypervisor.Name {
		return false, 0, fmt.Errorf("evacuate %s by Evacuation %s: there is no proof in it that the host runs nothing", hypervisor.Name, evacuation.Name)
	}
	vmis, err := e.observeVictims(ctx, evacuation)
	if err != nil {
		return false, 0, err
	}
	e.shown(evacuation, vmis)
	all := victimsOf(evacuation, vmis, e.clock.Now())
	listed := evacuation.Status.Phase == kvmv1alpha1.EvacuationFenced || len(all) > len(evacuation.Status.VMs)
	if listed {
		// The list stands before the first VM is touched.
		return false, evacuateAgain / 10, e.writeProgress(ctx, evacuation, all)
	}
	if err := e.markNext(ctx, evacuation, all); err != nil {
		return false, 0, err
	}
	done = true
	for _, v := range all {
		done = done && !v.open
	}
	if done {
		if done, err = e.nobodyElse(ctx, evacuation); err != nil {
			return false, 0, err
		}
	}
	if done || e.due(evacuation.Name) {
		if err := e.writeProgress(ctx, evacuation, all); err != nil {
			return false, 0, err
		}
	}
	if done {
		return true, 0, nil
	}
	return false, evacuateAgain, nil
}

// observeVictims reads the VMs of a host and those that its Evacuation lists.
func (e *evacuator) observeVictims(ctx context.Context, evacuation *kvmv1alpha1.Evacuation) (map[types.UID]*kubevirtv1.VirtualMachineInstance, error) {
	var there kubevirtv1.VirtualMachineInstanceList
	err := e.client.List(ctx, &there, client.MatchingFields{indexNode: evacuation.Spec.Hypervisor}, client.UnsafeDisableDeepCopy) // only read below
	if err != nil {
		return nil, fmt.Errorf("list VMs of %s: %w", evacuation.Spec.Hypervisor, err)
	}
	vmis := map[types.UID]*kubevirtv1.VirtualMachineInstance{}
	for i := range there.Items {
		vmis[there.Items[i].UID] = &there.Items[i]
	}
	for _, listed := range evacuation.Status.VMs {
		if vmis[types.UID(listed.UID)] != nil || listed.State == kvmv1alpha1.VMRunning || listed.State == kvmv1alpha1.VMEnded {
			continue
		}
		var vmi kubevirtv1.VirtualMachineInstance
		key := client.ObjectKey{Namespace: listed.Namespace, Name: listed.Name}
		switch err := e.client.Get(ctx, key, &vmi, client.UnsafeDisableDeepCopy); {
		case err == nil:
			vmis[vmi.UID] = &vmi // under its own UID: another of that name is another VM
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("read VM %s: %w", key, err)
		}
	}
	return vmis, nil
}

// markNext asks placement for the next VMs.
func (e *evacuator) markNext(ctx context.Context, evacuation *kvmv1alpha1.Evacuation, all []victim) error {
	highest, free, err := e.room(ctx)
	if err != nil {
		return err
	}
	for _, vmi := range nextVMs(all, highest, free) {
		if !e.reserve(vmi) {
			continue // marked, and the cache does not show it yet; or there is no room after all
		}
		if err := e.mark(ctx, evacuation, vmi); err != nil {
			return err
		}
	}
	return nil
}

// room is how many more VMs may be under way in the fleet, and the highest class
// of those that placement has not answered for.
func (e *evacuator) room(ctx context.Context) (highest kubevirt.RestartPriority, free int, err error) {
	var underWay kubevirtv1.VirtualMachineInstanceList
	err = e.client.List(ctx, &underWay, client.MatchingFields{indexUnderWay: "true"}, client.UnsafeDisableDeepCopy) // only read below
	if err != nil {
		return 0, 0, fmt.Errorf("list VMs under way: %w", err)
	}
	now := e.clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count = 0
	for i := range underWay.Items {
		vmi := &underWay.Items[i]
		if at, is := e.marks[vmi.UID]; is && !older(vmi, at) {
			delete(e.marks, vmi.UID)
		}
		if _, is := e.marks[vmi.UID]; !is && isUnderWay(vmi, now) {
			e.count++
		}
		if isAsked(vmi) && otherHost(vmi) == "" {
			highest = max(highest, kubevirt.RestartPriorityOf(vmi))
		}
	}
	return highest, e.perFleet - e.count - len(e.marks), nil
}

// reserve counts a VM that is about to be marked, since several workers mark at
// once. It is false where there is no room after all, or where the VM was marked
// and the cache does not show it yet.
func (e *evacuator) reserve(vmi *kubevirtv1.VirtualMachineInstance) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, is := e.marks[vmi.UID]; is || e.count+len(e.marks) >= e.perFleet {
		return false
	}
	e.marks[vmi.UID] = ""
	return true
}

// shown drops the marks of an Evacuation's VMs that the cache shows, or whose VM
// is gone.
func (e *evacuator) shown(evacuation *kvmv1alpha1.Evacuation, vmis map[types.UID]*kubevirtv1.VirtualMachineInstance) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, listed := range evacuation.Status.VMs {
		uid := types.UID(listed.UID)
		if at, is := e.marks[uid]; is && at != "" && (vmis[uid] == nil || !older(vmis[uid], at)) {
			delete(e.marks, uid)
		}
	}
}

// older says that a VM's object is from before a version, "" being one to come.
func older(vmi *kubevirtv1.VirtualMachineInstance, than string) bool {
	if than == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(vmi.ResourceVersion, than)
	return err == nil && order < 0
}

// mark asks placement to place a VM anew. Whoever changed it meanwhile comes
// first: it is looked at again.
func (e *evacuator) mark(ctx context.Context, evacuation *kvmv1alpha1.Evacuation, vmi *kubevirtv1.VirtualMachineInstance) error {
	after := vmi.DeepCopy()
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	after.Annotations[kubevirt.AnnotationEvacuatedFrom] = evacuation.Spec.Hypervisor + "/" + evacuation.Name
	err := e.client.Patch(ctx, after, client.MergeFromWithOptions(vmi, client.MergeFromWithOptimisticLock{}))
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil:
		e.marks[vmi.UID] = after.ResourceVersion
		ctrl.LoggerFrom(ctx).Info("Asked to place VM anew", "VirtualMachineInstance", klog.KObj(vmi), "from", evacuation.Spec.Hypervisor, "Evacuation", klog.KObj(evacuation))
		return nil
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		delete(e.marks, vmi.UID)
		return nil
	}
	delete(e.marks, vmi.UID) // if it took effect after all, the cache will show it
	return fmt.Errorf("mark VM %s as evacuated from %s: %w", klog.KObj(vmi), evacuation.Spec.Hypervisor, err)
}

// nobodyElse asks the API itself whether the host has a protected VM that the
// cache has not shown yet: after the end nobody would look for it.
func (e *evacuator) nobodyElse(ctx context.Context, evacuation *kvmv1alpha1.Evacuation) (bool, error) {
	var there kubevirtv1.VirtualMachineInstanceList
	host := evacuation.Spec.Hypervisor
	onHost, err := labels.Parse(kubevirt.HostLabel(host) + "," + kubevirt.LabelProtected + "=true")
	if err != nil {
		return false, fmt.Errorf("select VMs of %s: %w", host, err)
	}
	if err := e.live.List(ctx, &there, client.MatchingLabelsSelector{Selector: onHost}); err != nil {
		return false, fmt.Errorf("list VMs of %s past the cache: %w", host, err)
	}
	known := map[string]bool{}
	for _, listed := range evacuation.Status.VMs {
		known[listed.UID] = listed.State == kvmv1alpha1.VMRunning || listed.State == kvmv1alpha1.VMEnded
	}
	for i := range there.Items {
		if vmi := &there.Items[i]; vmi.Status.NodeName == host && !vmi.IsFinal() && !known[string(vmi.UID)] {
			return false, nil
		}
	}
	return true, nil
}

// due says that progress may be written again.
func (e *evacuator) due(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.clock.Now().Before(e.wrote[name].Add(progressEvery))
}

// writeProgress writes the list, if it changed, and brings evacuation up to date.
func (e *evacuator) writeProgress(ctx context.Context, evacuation *kvmv1alpha1.Evacuation, all []victim) error {
	next := evacuation.DeepCopy()
	if next.Status.Phase == kvmv1alpha1.EvacuationFenced {
		var p plan
		seen := observation{evacuation: evacuation, wall: metav1.NewTime(e.clock.Now())}
		p.step(seen, kvmv1alpha1.EvacuationEvacuating, "Evacuating", fmt.Sprintf("%d protected VMs are to run elsewhere", len(all)))
		next.Status = *p.status
	}
	next.Status.Summary, next.Status.VMs = summaryOf(all), nil
	for _, v := range all {
		next.Status.VMs = append(next.Status.VMs, v.entry)
	}
	if equal.Values(&next.Status, &evacuation.Status) {
		return nil
	}
	base := client.MergeFromWithOptions(evacuation.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := e.client.Status().Patch(ctx, next, base); err != nil {
		return fmt.Errorf("write progress of Evacuation %s: %w", evacuation.Name, err)
	}
	*evacuation = *next
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wrote[evacuation.Name] = e.clock.Now()
	return nil
}
