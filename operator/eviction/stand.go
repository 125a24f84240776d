// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// AnnotationPriority, on a VMI, is a number: VMs with a higher one are asked to
// leave first. Without it Kubernetes' two own priority classes have their
// values, and everything else 0.
const AnnotationPriority = "kvm.cloud.sap/eviction-priority"

// Reasons of an Eviction's instances.
const (
	ReasonUnmanaged     = "Unmanaged"        // A domain that is no VM of ours.
	ReasonTerminating   = "Terminating"      // It is being deleted.
	ReasonArriving      = "Arriving"         // It leaves once it has arrived.
	ReasonStarting      = "Starting"         // It can move once it runs.
	ReasonNotStarted    = "NotStarted"       // It cannot start here.
	ReasonStopping      = "Stopping"         // It can move once it has stopped.
	ReasonStrategy      = "EvictionStrategy" // Its owner does not want it moved.
	ReasonFailed        = "MigrationFailed"  // The last attempt failed.
	ReasonWithdrawn     = "Withdrawn"        // Somebody deleted its migration.
	ReasonNoHost        = "NoHost"           // No host has room.
	ReasonRefused       = "Refused"          // The API refused its migration.
	ReasonPaused        = "Paused"           // The host is to keep it for now.
	ReasonGone          = "Gone"             // It left without us.
	messageUnmanaged    = "unmanaged VM, cannot move: move it with what started it, or shut it down"
	messageAgentConfirm = "waits for the host's agent to confirm that it is empty"
)

// stuckAfter is how long a migration may look for a host before another VM has
// its turn. Room often comes within seconds, when a VM before it has moved.
const stuckAfter = 30 * time.Second

// standing is how one VM stands.
type standing struct {
	entry   kvmv1.EvictionInstance
	vmi     *kubevirtv1.VirtualMachineInstance          // nil: a domain, or it has left.
	active  *kubevirtv1.VirtualMachineInstanceMigration // On its way out.
	ready   bool                                        // May be asked now.
	due     time.Time                                   // When it may be asked; zero: that depends on an event.
	stuck   time.Time                                   // Since when its own migration has found no host.
	memory  int64                                       // MiB.
	running bool
}

// failedBefore does not change when a VM is asked, so that its place does not.
func (s *standing) failedBefore() bool {
	if s.entry.State == kvmv1.EvictionInstanceFailed {
		return s.entry.Attempts > 0
	}
	return s.entry.Attempts > 1
}

// stands says how each VM stands, in the order in which they are asked: those
// that have not failed before those that have, then by priority; running before
// stopped, which lose nothing if the host fails; small before large, so that
// most VMs are safe soonest and what may never converge comes last. After them
// come the domains and the VMs that have left.
func stands(seen observation) []standing {
	var all []standing
	before := map[string]kvmv1.EvictionInstance{}
	for _, entry := range seen.eviction.Status.Instances {
		before[entry.ID] = entry
	}
	here := map[string]bool{}
	for _, vmi := range seen.vms {
		if id := idOf(vmi); !here[id] { // Twice one UUID is another's mistake.
			here[id] = true
			all = append(all, standOf(seen, vmi, before[id]))
		}
	}
	slices.SortStableFunc(all, func(a, b standing) int {
		return cmp.Or(
			compare(a.failedBefore(), b.failedBefore()),
			-cmp.Compare(priority(a.vmi), priority(b.vmi)),
			-compare(a.running, b.running),
			cmp.Compare(a.memory, b.memory),
			cmp.Compare(a.entry.Namespace, b.entry.Namespace),
			cmp.Compare(a.entry.Name, b.entry.Name),
		)
	})
	for _, d := range seen.domains {
		if !d.lingering {
			here[d.id] = true
			all = append(all, standing{entry: kvmv1.EvictionInstance{
				ID: d.id, Name: d.name, State: kvmv1.EvictionInstanceBlocked,
				Reason: ReasonUnmanaged, Message: messageUnmanaged,
			}})
		}
	}
	return append(all, left(seen, before, here)...)
}

// left are the VMs that were here and are not any more, by id.
func left(seen observation, before map[string]kvmv1.EvictionInstance, here map[string]bool) []standing {
	gone := map[string]standing{}
	for id, entry := range before { // Sorted below.
		if here[id] {
			continue
		}
		if m := stillMoving(seen, entry); m != nil {
			gone[id] = standing{entry: entry, active: m, memory: memoryOf(m)}
			continue
		}
		if entry.State != kvmv1.EvictionInstanceMoved {
			entry.State, entry.Reason, entry.Message = kvmv1.EvictionInstanceMoved, ReasonGone, ""
		}
		entry.NextAttempt = nil
		gone[id] = standing{entry: entry}
	}
	for _, m := range seen.own {
		id := m.Annotations[annotationID]
		if id == "" || here[id] || m.Status.Phase != kubevirtv1.MigrationSucceeded {
			continue
		}
		s := gone[id]
		s.entry.ID, s.entry.Namespace, s.entry.Name = id, m.Namespace, m.Spec.VMIName
		s.entry.State, s.entry.Reason, s.entry.Message = kvmv1.EvictionInstanceMoved, "", ""
		s.entry.Attempts = max(s.entry.Attempts, attemptOf(m))
		s.memory = memoryOf(m)
		if host := destination(m, nil); host != "" {
			s.entry.Destination = host
		}
		gone[id] = s
	}
	var all []standing
	for _, s := range gone {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b standing) int { return cmp.Compare(a.entry.ID, b.entry.ID) })
	return all
}

// stillMoving is the migration by which a VM leaves that is no longer here: it
// has left when the migration says so, which is when both hosts are clean.
func stillMoving(seen observation, entry kvmv1.EvictionInstance) *kubevirtv1.VirtualMachineInstanceMigration {
	m := seen.active[types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}]
	if entry.State != kvmv1.EvictionInstanceMoving || m == nil || waits(m) {
		return nil
	}
	if state := m.Status.MigrationState; isOwn(seen, m) || state != nil && state.SourceNode == seen.eviction.Spec.Hypervisor {
		return m
	}
	return nil
}

// standOf is one VM's. Whoever is on his way goes on, whatever else is true;
// then comes what forbids a move, then what came of the last attempt.
func standOf(seen observation, vmi *kubevirtv1.VirtualMachineInstance, before kvmv1.EvictionInstance) standing {
	host := seen.eviction.Spec.Hypervisor
	s := standing{
		entry:   kvmv1.EvictionInstance{ID: idOf(vmi), Name: vmi.Name, Namespace: vmi.Namespace},
		vmi:     vmi,
		memory:  memoryMiB(vmi),
		running: vmi.Status.Phase == kubevirtv1.Running,
	}
	s.entry.Attempts = max(before.Attempts, lastAttempt(seen.own, vmi.UID))
	set := func(state kvmv1.EvictionInstanceState, reason, message string) standing {
		s.entry.State, s.entry.Reason, s.entry.Message = state, reason, cut(message)
		return s
	}
	const moving, waiting, blocked = kvmv1.EvictionInstanceMoving, kvmv1.EvictionInstanceWaiting, kvmv1.EvictionInstanceBlocked

	m := seen.active[types.NamespacedName{Namespace: vmi.Namespace, Name: vmi.Name}]
	elsewhere := vmi.Status.NodeName != host
	switch {
	case elsewhere && vmi.Labels[kubevirt.LabelMigrationTargetNodeName] == host:
		return set(waiting, ReasonArriving, "")
	case m != nil:
		return onTheWay(seen, s, m, before)
	case elsewhere && !vmi.IsMarkedForDeletion():
		s = set(moving, "", "")
		s.entry.Destination = vmi.Status.NodeName
		return s
	case vmi.IsMarkedForDeletion():
		return set(waiting, ReasonTerminating, "it is being deleted")
	}
	if state, reason, message := inTheWay(vmi); reason != "" {
		return set(state, reason, message)
	}
	return afterAttempts(seen, s, before)
}

// onTheWay is the standing of a VM with a migration that has not ended.
func onTheWay(seen observation, s standing, m *kubevirtv1.VirtualMachineInstanceMigration, before kvmv1.EvictionInstance) standing {
	own := isOwn(seen, m)
	s.active = m
	s.entry.State = kvmv1.EvictionInstanceMoving
	if own && !m.DeletionTimestamp.IsZero() && before.State != kvmv1.EvictionInstanceMoving && before.ID != "" {
		// We withdrew it, and said why. It goes when it has been cleared away.
		s.entry.State, s.entry.Reason, s.entry.Message = before.State, before.Reason, before.Message
		s.entry.NextAttempt = before.NextAttempt
		return s
	}
	s.entry.Destination = destination(m, s.vmi)
	if before.State == kvmv1.EvictionInstanceFailed || before.State == kvmv1.EvictionInstanceMoving && before.Reason == "" {
		s.entry.Message = before.Message // Why it failed before is still news.
	}
	if own && m.DeletionTimestamp.IsZero() && m.Status.Phase == kubevirtv1.MigrationScheduling {
		s.stuck = since(m, kubevirtv1.MigrationScheduling)
		if !seen.now.Before(s.stuck.Add(stuckAfter)) {
			s.entry.Reason, s.entry.Message = ReasonNoHost, cut(noHost(m))
			if before.Reason == ReasonNoHost {
				s.entry.Message = before.Message // The counts of hosts in it change all the time.
			}
		}
	}
	return s
}

func noHost(m *kubevirtv1.VirtualMachineInstanceMigration) string {
	if why := whyNot(m); why != "" {
		return why
	}
	return "no host has room for it"
}

// inTheWay says what has to change before the VM can be asked to leave.
func inTheWay(vmi *kubevirtv1.VirtualMachineInstance) (kvmv1.EvictionInstanceState, string, string) {
	const waiting, blocked = kvmv1.EvictionInstanceWaiting, kvmv1.EvictionInstanceBlocked
	if strategy := vmi.Spec.EvictionStrategy; strategy != nil {
		switch *strategy {
		case kubevirtv1.EvictionStrategyNone:
			return blocked, ReasonStrategy, "its spec.evictionStrategy is None: set LiveMigrate, or shut it down"
		case kubevirtv1.EvictionStrategyExternal:
			return blocked, ReasonStrategy, "its spec.evictionStrategy is External: its owner has to move it"
		}
	}
	migratable, reason, message := kubevirt.Migratable(vmi)
	stopped := kubevirt.WantedPowerState(vmi) == kubevirt.PowerStopped
	switch {
	case vmi.Status.Phase == kubevirtv1.Running && stopped:
		return waiting, ReasonStopping, "it is shutting down"
	case vmi.Status.Phase == kubevirtv1.Running && !migratable:
		if reason != kubevirtv1.VirtualMachineInstanceReasonDisksNotMigratable {
			message += ", or stop the VM"
		}
		return blocked, reason, message
	case vmi.Status.Phase == kubevirtv1.Running:
		if c := condition(vmi, kubevirtv1.VirtualMachineInstanceIsMigratable); c != nil && c.Status == "False" {
			return blocked, c.Reason, c.Message
		}
		return "", "", ""
	case !migratable && reason == kubevirtv1.VirtualMachineInstanceReasonDisksNotMigratable:
		return blocked, reason, message // Not even stopped.
	case stopped:
		return "", "", ""
	}
	if c := condition(vmi, kubevirtv1.VirtualMachineInstanceSynchronized); c != nil && c.Status == "False" {
		return blocked, ReasonNotStarted, "it cannot start here: " + c.Message
	}
	return waiting, ReasonStarting, "it has not started yet"
}

// afterAttempts is the standing of a VM that may move: it is asked at once, or
// when the back-off after its last failure is over.
func afterAttempts(seen observation, s standing, before kvmv1.EvictionInstance) standing {
	var last *kubevirtv1.VirtualMachineInstanceMigration
	succeeded := int32(0)
	for _, m := range seen.own {
		if m.Annotations[annotationVMUID] != string(s.vmi.UID) {
			continue
		}
		if attemptOf(m) == s.entry.Attempts {
			last = m
		}
		if m.Status.Phase == kubevirtv1.MigrationSucceeded {
			succeeded = max(succeeded, attemptOf(m))
		}
	}
	failures := s.entry.Attempts - succeeded
	switch {
	case failures == 0:
		s.entry.State, s.ready = kvmv1.EvictionInstanceWaiting, true
		if before.State == kvmv1.EvictionInstanceMoving {
			// It has most likely left, and the cache has not heard of it. If it
			// is here, it is asked.
			s.entry.State, s.entry.Destination = kvmv1.EvictionInstanceMoving, before.Destination
		}
		return s
	case last == nil && before.State == kvmv1.EvictionInstanceMoving:
		s.entry.Reason, s.entry.Message = ReasonWithdrawn, "its migration was deleted: delete the Eviction if it is to stay"
		s.due = seen.now.Add(backOff(failures))
	case last == nil || before.State == kvmv1.EvictionInstanceFailed && before.Attempts == s.entry.Attempts:
		s.entry.Reason, s.entry.Message = before.Reason, before.Message
		s.due = seen.now
		if before.NextAttempt != nil {
			s.due = before.NextAttempt.Time
		}
	default:
		why := whyNot(last)
		if why == "" {
			why = "the migration says no reason"
		}
		s.entry.Reason, s.entry.Message = ReasonFailed, cut(why)
		s.due = since(last, kubevirtv1.MigrationFailed).Add(backOff(failures))
	}
	// An API's time has seconds: what is written must be what is read again.
	s.due = ceil(s.due)
	s.entry.State = kvmv1.EvictionInstanceFailed
	s.entry.NextAttempt = &metav1.Time{Time: s.due}
	s.ready = !seen.now.Before(s.due)
	return s
}
