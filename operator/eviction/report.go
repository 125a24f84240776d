// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/internal/equal"
)

// rank puts those that need a person first.
var rank = map[kvmv1.EvictionInstanceState]int{
	kvmv1.EvictionInstanceCannotMove: 0,
	kvmv1.EvictionInstanceBlocked:    1,
	kvmv1.EvictionInstanceFailed:     2,
	kvmv1.EvictionInstanceMoving:     3,
	kvmv1.EvictionInstanceWaiting:    4,
	kvmv1.EvictionInstanceWouldMove:  5,
	kvmv1.EvictionInstanceMoved:      6,
}

// report is the status that says how all stand.
func report(seen observation, all []standing, refusal string) kvmv1.EvictionStatus {
	was := &seen.eviction.Status
	s := *was // only its conditions are changed in place
	s.Conditions = slices.Clone(was.Conditions)
	s.HypervisorServiceID = seen.hypervisor.Status.HypervisorID
	s.OutstandingInstances, s.OutstandingRAMMb = nil, 0
	s.Total, s.Moved, s.Failed, s.Running = int32(len(all)), 0, 0, 0
	s.Instances = nil
	var moving, rest []kvmv1.EvictionInstance
	for _, one := range all {
		s.Instances = append(s.Instances, one.entry)
		switch one.entry.State {
		case kvmv1.EvictionInstanceMoved:
			s.Moved++
			continue
		case kvmv1.EvictionInstanceMoving:
			s.Running++
			moving = append(moving, one.entry)
		case kvmv1.EvictionInstanceFailed:
			s.Failed++
			rest = append(rest, one.entry)
		default:
			rest = append(rest, one.entry)
		}
		s.OutstandingRAMMb += one.memory
	}
	// Those on the move have no order but their names', lest they change places
	// on the way; the last of the outstanding is the next.
	slices.SortFunc(moving, func(a, b kvmv1.EvictionInstance) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	for _, entry := range append(moving, rest...) {
		s.OutstandingInstances = append(s.OutstandingInstances, entry.ID)
	}
	slices.Reverse(s.OutstandingInstances)
	slices.SortStableFunc(s.Instances, func(a, b kvmv1.EvictionInstance) int {
		return cmp.Or(cmp.Compare(rank[a.State], rank[b.State]),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	if len(was.Instances) == kvmv1.MaxEvictionInstances && s.Moved < was.Moved {
		// Some that left are on no list any more.
		s.Total += was.Moved - s.Moved
		s.Moved = was.Moved
	}
	if len(s.Instances) > kvmv1.MaxEvictionInstances {
		s.Instances = s.Instances[:kvmv1.MaxEvictionInstances]
	}
	if s.StartedAt == nil && (s.Running > 0 || s.Moved > 0) {
		s.StartedAt = &metav1.Time{Time: seen.now.Truncate(time.Second)}
	}
	conditions(&s, seen, all, refusal)
	return s
}

// conditions are CobaltCore's, with its texts; what is said beyond them stands
// after a colon.
func conditions(s *kvmv1.EvictionStatus, seen observation, all []standing, refusal string) {
	preflight := metav1.Condition{
		Type: kvmv1.ConditionPreflightChecksSucceeded, Status: metav1.ConditionTrue, Reason: kvmv1.ReasonSucceeded,
		Message: "Preflight checks passed, hypervisor is disabled and ready for eviction",
	}
	if refusal != "" {
		preflight.Status, preflight.Reason, preflight.Message = metav1.ConditionFalse, kvmv1.ReasonFailed, refusal
	}
	set(s, seen, preflight)
	running := "Running"
	if names := inNeed(all); names != "" {
		running += ": not moved yet: " + names
	} else if len(s.OutstandingInstances) == 0 && len(seen.domains) > 0 {
		running += ": " + messageAgentConfirm
	}
	set(s, seen, metav1.Condition{
		Type: kvmv1.ConditionEvicting, Status: metav1.ConditionTrue, Reason: kvmv1.ReasonRunning, Message: running,
	})
	if c := news(seen, all); c != nil {
		set(s, seen, *c)
	}
}

func set(s *kvmv1.EvictionStatus, seen observation, c metav1.Condition) {
	c.LastTransitionTime = metav1.NewTime(seen.now)
	meta.SetStatusCondition(&s.Conditions, c)
}

// news is what has become of the VM that changed: of several one that failed,
// else the last. Its status is always False on the wire.
func news(seen observation, all []standing) *metav1.Condition {
	before := map[string]kvmv1.EvictionInstance{}
	for _, entry := range seen.eviction.Status.Instances {
		before[entry.ID] = entry
	}
	var good, bad string
	for _, s := range all {
		entry, was := s.entry, before[s.entry.ID]
		if entry.State == was.State && entry.Reason == was.Reason {
			continue
		}
		switch {
		case entry.State == kvmv1.EvictionInstanceMoved && entry.Reason == ReasonGone:
			good = fmt.Sprintf("Instance %s is gone", entry.ID)
		case entry.State == kvmv1.EvictionInstanceMoved:
			good = fmt.Sprintf("Migration of instance %s finished", entry.ID)
		case entry.State == kvmv1.EvictionInstanceFailed:
			bad = fmt.Sprintf("Migration of instance %s failed: %s", entry.ID, entry.Message)
		case entry.State == kvmv1.EvictionInstanceBlocked && s.vmi != nil && !s.running:
			bad = fmt.Sprintf("failed to evict stopped server %s due to %s", entry.ID, entry.Message)
		case entry.State == kvmv1.EvictionInstanceBlocked:
			bad = fmt.Sprintf("failed to evict VM %s due to %s", entry.ID, entry.Message)
		case entry.Reason == ReasonTerminating:
			bad = fmt.Sprintf("Live migration of terminating instance %s skipped", entry.ID)
		}
	}
	c := &metav1.Condition{Type: kvmv1.ConditionMigratingInstance, Status: metav1.ConditionFalse}
	switch {
	case bad != "":
		c.Reason, c.Message = kvmv1.ReasonFailed, bad
	case good != "":
		c.Reason, c.Message = kvmv1.ReasonSucceeded, good
	default:
		return nil
	}
	return c
}

// worthWriting returns the status if somebody waits for what changed. The end's
// time and destinations alone are written when there is other news, and a
// destination when its migration has run for a while.
func worthWriting(seen observation, s kvmv1.EvictionStatus, all []standing) *kvmv1.EvictionStatus {
	quiet := func(s *kvmv1.EvictionStatus) *kvmv1.EvictionStatus {
		q := *s
		q.ETA = nil
		q.Instances = slices.Clone(s.Instances)
		for i := range q.Instances {
			q.Instances[i].Destination = ""
		}
		return &q
	}
	if !equal.Values(quiet(&s), quiet(&seen.eviction.Status)) {
		s.ETA = eta(seen, &s, all)
		return &s
	}
	for _, at := range untold(seen, all) {
		if !seen.now.Before(at) {
			return &s
		}
	}
	return nil
}

// progressEvery is the least time between two writes that say only that VMs
// have left and others are on their way: a person does not read faster.
const progressEvery = 10 * time.Second

// onlyProgress says that nothing else has changed.
func onlyProgress(a, b *kvmv1.EvictionStatus) bool {
	settled := func(s *kvmv1.EvictionStatus) *kvmv1.EvictionStatus {
		copied := *s
		s = &copied
		s.Instances, s.Conditions = slices.Clone(s.Instances), slices.Clone(s.Conditions)
		s.Moved, s.Running, s.OutstandingInstances, s.OutstandingRAMMb, s.ETA = 0, 0, nil, 0, nil
		for i := range s.Instances {
			entry := &s.Instances[i]
			switch entry.State {
			case kvmv1.EvictionInstanceWaiting, kvmv1.EvictionInstanceMoving, kvmv1.EvictionInstanceMoved:
				*entry = kvmv1.EvictionInstance{ID: entry.ID}
			}
		}
		slices.SortFunc(s.Instances, func(a, b kvmv1.EvictionInstance) int { return cmp.Compare(a.ID, b.ID) })
		if c := meta.FindStatusCondition(s.Conditions, kvmv1.ConditionMigratingInstance); c != nil && c.Reason == kvmv1.ReasonSucceeded {
			meta.RemoveStatusCondition(&s.Conditions, c.Type)
		}
		return s
	}
	x, y := settled(a), settled(b)
	return len(b.Instances) > 0 && (a.StartedAt == nil) == (b.StartedAt == nil) && equal.Values(x, y)
}

// untold are the moments at which destinations that our status does not say
// become worth a write.
func untold(seen observation, all []standing) []time.Time {
	said := map[string]string{}
	for _, entry := range seen.eviction.Status.Instances {
		said[entry.ID] = entry.Destination
	}
	var moments []time.Time
	for _, s := range all {
		old, listed := said[s.entry.ID]
		if s.active != nil && listed && s.entry.Destination != old {
			moments = append(moments, s.active.CreationTimestamp.Add(lazyWrite))
		}
	}
	return moments
}

// eta is when the host should be empty if it goes on as so far, by memory. There
// is none before the first VM has left, nor while one cannot leave.
func eta(seen observation, s *kvmv1.EvictionStatus, all []standing) *metav1.Time {
	var moved, rest int64
	for _, one := range all {
		size := max(one.memory, 1) // Even a VM of unknown size takes time.
		switch one.entry.State {
		case kvmv1.EvictionInstanceBlocked:
			return nil
		case kvmv1.EvictionInstanceMoved:
			if one.entry.Reason != ReasonGone {
				moved += size
			}
		default:
			rest += size
		}
	}
	if moved == 0 || rest == 0 || s.StartedAt == nil {
		return nil
	}
	spent := seen.now.Sub(s.StartedAt.Time)
	left := time.Duration(float64(spent) * float64(rest) / float64(moved))
	return &metav1.Time{Time: seen.now.Add(left).Truncate(time.Second)}
}

// wake is how long nothing can happen without an event.
func wake(seen observation, all []standing, s kvmv1.EvictionStatus) time.Duration {
	moments := untold(seen, all)
	waiting := false
	for _, one := range all {
		waiting = waiting || one.ready
		if !one.due.IsZero() {
			moments = append(moments, one.due)
		}
	}
	for _, one := range all {
		// A VM that finds no host is news once, and a free slot if others wait.
		if !one.stuck.IsZero() && one.entry.State == kvmv1.EvictionInstanceMoving && (one.entry.Reason == "" || waiting) {
			moments = append(moments, one.stuck.Add(stuckAfter))
		}
	}
	next := time.Duration(0)
	for _, at := range moments {
		if wait := at.Sub(seen.now); wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	return next
}
