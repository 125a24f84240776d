// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"time"

	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hardware"
)

const (
	// LabelHost is on a Migration record and names the host whose agent made
	// it and cleans it up; LabelVM the VM's UUID.
	LabelHost = "kvm.cloud.sap/host"
	LabelVM   = "kvm.cloud.sap/vm"

	// AnnotationJob is the id of the job that a record is about.
	AnnotationJob = "kvm.cloud.sap/job"
)

const (
	// shortJob is how long a job must run before it is worth a write of its
	// own: most migrations are over in less, and are written once, complete.
	shortJob = 5 * time.Second

	// sourceFirst is how long the destination leaves the end to the source,
	// which has the better numbers.
	sourceFirst = time.Minute

	// destinationFirst is how long a source that has lost a job, and does not
	// have the VM any more, leaves the end to the destination.
	destinationFirst = 5 * time.Minute

	// oldJob is the age at which an ended job that nobody wrote down is
	// history: libvirt keeps the last job of a domain for its life.
	oldJob = 10 * time.Minute

	// Two starts closer than this are one migration's, when no id says more:
	// the API keeps seconds, and the hosts' clocks differ.
	sameStart     = 2 * time.Second
	sameStartFar  = 10 * time.Second
	unavailableIn = 10 * time.Second // libvirtd's restart
)

type recordView struct {
	now      time.Time
	host     string // this host
	self     string // its metal name
	peer     string // the other's
	every    time.Duration
	job      *hardware.Job    // running or ended; nil: none
	domain   *hardware.Domain // nil: not here
	record   *v1alpha1.Migration
	written  time.Time // when this process wrote last
	sawEndAt time.Time // when this process saw the job ended or gone
}

// recordPlan is the next step of a record. The zero plan leaves it alone.
type recordPlan struct {
	write     bool
	archive   bool // the record in place is an earlier migration's
	status    v1alpha1.MigrationStatus
	job       string        // its id
	lookAgain time.Duration // 0: at the next event
	done      bool          // nothing to remember
}

// decideRecord says what to write of a VM's job. The source writes; the
// destination only what the source has left unfinished.
//
//	source, runs, young              wait
//	source, runs                     write now and then
//	source, ended                    write the end
//	source, no job, VM still here    failed: the job vanished with libvirt
//	source, no job, VM gone          leave it to the destination, then failed
//	destination, runs                wait for the end
//	destination, ended               write it when the source has not
//	destination, no job, VM is here  completed when the source has not said so
//	end is written                   never again: no job means nothing
func decideRecord(v recordView) recordPlan {
	switch {
	case v.job == nil:
		return v.noJob()
	case v.job.Operation == hardware.OperationMigrationOut && v.job.Running():
		return v.running()
	case v.job.Operation == hardware.OperationMigrationOut:
		return v.endedHere(0)
	case v.job.Operation == hardware.OperationMigrationIn && !v.job.Running():
		return v.endedHere(sourceFirst)
	}
	return recordPlan{done: v.job.Operation != hardware.OperationMigrationIn}
}

func finished(r *v1alpha1.Migration) bool {
	switch r.Status.Type {
	case v1alpha1.TypeCompleted, v1alpha1.TypeFailed, v1alpha1.TypeCancelled, v1alpha1.TypeSuccess:
		return true
	}
	return false
}

// started is the job's start, as libvirt says or as its age tells.
func (v recordView) started() time.Time {
	if !v.job.StartedAt.IsZero() {
		return v.job.StartedAt
	}
	at := v.now
	if !v.job.Running() && !v.sawEndAt.IsZero() {
		at = v.sawEndAt
	}
	return at.Add(-v.job.Elapsed)
}

// ours reports whether the record is about the job.
func (v recordView) ours() bool {
	if v.record == nil {
		return false
	}
	if id := v.record.Annotations[AnnotationJob]; id != "" && v.job.ID != "" {
		return id == v.job.ID
	}
	origin, destination, tolerance := v.hosts()
	s := v.record.Status
	if s.Started == nil {
		return true // made, and its status never written
	}
	if origin != "" && s.Origin != "" && origin != s.Origin || destination != "" && s.Destination != "" && destination != s.Destination {
		return false
	}
	return s.Started.Sub(v.started()).Abs() <= tolerance
}

func (v recordView) hosts() (origin, destination string, tolerance time.Duration) {
	if v.job.Operation == hardware.OperationMigrationIn {
		return v.peer, v.self, sameStartFar
	}
	return v.self, v.peer, sameStart
}

func (v recordView) running() recordPlan {
	if !v.ours() {
		if age := v.now.Sub(v.started()); age < shortJob {
			return recordPlan{lookAgain: shortJob - max(age, 0)}
		}
		return v.put()
	}
	if finished(v.record) {
		return recordPlan{lookAgain: v.every} // two jobs within a second; the end tells
	}
	if wait := v.every - v.now.Sub(v.written); wait > 0 && !v.written.IsZero() {
		return recordPlan{lookAgain: wait}
	}
	return v.put()
}

func (v recordView) put() recordPlan {
	origin, destination, _ := v.hosts()
	p := recordPlan{
		write:   true,
		archive: v.record != nil && !v.ours(),
		status:  recordStatus(*v.job, origin, destination, v.started()),
		job:     v.job.ID,
	}
	if v.record != nil && !p.archive {
		keepKnown(&p.status, v.record.Status)
	}
	if v.job.Running() {
		p.lookAgain = v.every
	} else {
		p.done = true
	}
	return p
}

// keepKnown keeps what the other side may have known better.
func keepKnown(s *v1alpha1.MigrationStatus, before v1alpha1.MigrationStatus) {
	if s.Origin == "" {
		s.Origin = before.Origin
	}
	if s.Destination == "" {
		s.Destination = before.Destination
	}
	if before.Started != nil {
		s.Started = before.Started
	}
}

func (v recordView) endedHere(patience time.Duration) recordPlan {
	switch {
	case v.ours() && finished(v.record):
		return recordPlan{done: true}
	case v.record != nil && !v.ours() && v.record.Status.Started != nil && v.record.Status.Started.After(v.started()):
		return recordPlan{done: true} // a later migration has begun
	case !v.ours() && v.now.Sub(v.started().Add(v.job.Elapsed)) > oldJob:
		return recordPlan{done: true}
	}
	if waited := v.now.Sub(v.sawEndAt); waited < patience {
		return recordPlan{lookAgain: patience - waited}
	}
	return v.put()
}

func (v recordView) noJob() recordPlan {
	if v.record == nil || finished(v.record) {
		return recordPlan{done: true}
	}
	waited := v.now.Sub(v.sawEndAt)
	here := v.domain != nil && !v.domain.Incoming
	if v.record.Labels[LabelHost] == v.host {
		switch {
		case here:
			return v.close(v1alpha1.TypeFailed, "the job vanished: libvirt or the host has restarted")
		case waited < destinationFirst:
			return recordPlan{lookAgain: destinationFirst - waited}
		}
		return v.close(v1alpha1.TypeFailed, fmt.Sprintf("the end was not seen, and the VM is no longer on %s; look at %s", v.self, v.record.Status.Destination))
	}
	switch {
	case !here || !v.domain.Active() || v.record.Status.Destination != v.self:
		return recordPlan{done: true}
	case waited < sourceFirst:
		return recordPlan{lookAgain: sourceFirst - waited}
	}
	return v.close(v1alpha1.TypeCompleted, "")
}

// close ends a record without a job to tell how.
func (v recordView) close(how, why string) recordPlan {
	s := *v.record.Status.DeepCopy()
	s.Type, s.ErrMsg = how, why
	return recordPlan{write: true, status: s, job: v.record.Annotations[AnnotationJob], done: true}
}
