// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"slices"
	"time"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/hardware"
)

// hostMemory is what is known of one host from its own reports.
type hostMemory struct {
	boot       string
	epoch, seq uint64
	pastBoots  []string      // the oldest first
	began      time.Duration // the boot, by our clock, or a little earlier

	first, last time.Duration // accepted reports of this boot, by our clock
	granted     time.Duration // the last grant; 0: none by us
	synced      bool          // instances are complete
	instances   map[string]*hav1.Instance
	events      uint64
	unhandled   uint64 // the first event that is taken and not on record yet; 0: none

	virtualisation *hav1.Virtualisation
	watchdog       *hav1.Watchdog
	lease          *hav1.Lease
	storage        []*hav1.Storage
	strandedSince  time.Duration // storage not writable since, by our clock; 0: it is
	pausedAt       time.Duration // protected VMs were last seen paused for I/O errors then, while stranded
	soundSince     time.Duration // virtualisation and storage well since; 0: not
	memoryFailed   string        // the domain whose memory failed, "host" without one

	sightings map[string]sighting // of this host, by witness
}

// sighting is what one witness said last.
type sighting struct {
	at                             time.Duration // when its report came
	management, migration, storage bool
	boot                           string
	count                          uint64
	lapsed                         bool
	lapsedAt                       time.Duration // first said, by our clock
	still                          time.Duration
}

// handled is up to which event nothing has to be said again: what a leader was told
// and has not written down its successor has to be told, too.
func (h *hostMemory) handled() uint64 {
	if h.unhandled != 0 {
		return h.unhandled - 1
	}
	return h.events
}

// newer says whether a report is later than all that was taken of its host. Of two
// boots the later one began later: a report that is late by less than a boot takes
// cannot turn that round.
func (h *hostMemory) newer(r *hav1.ReportRequest, now time.Duration) bool {
	switch {
	case h.boot == "":
		return true
	case r.GetBoot() != h.boot:
		return now-r.GetUptime().AsDuration() >= h.began && !slices.Contains(h.pastBoots, r.GetBoot())
	case r.GetEpoch() != h.epoch:
		return r.GetEpoch() > h.epoch
	}
	return r.GetSeq() > h.seq
}

// take keeps a report that is newer, and says whether it is news for the host's
// reconcile.
func (h *hostMemory) take(r *hav1.ReportRequest, now time.Duration, l Limits) (news bool) {
	if r.GetBoot() != h.boot {
		if h.boot != "" {
			h.pastBoots = append(h.pastBoots, h.boot)
			h.pastBoots = h.pastBoots[max(0, len(h.pastBoots)-mostPastBoots):]
		}
		h.boot, h.epoch, h.seq, h.events, h.unhandled = r.GetBoot(), 0, 0, 0, 0
		h.began = now - r.GetUptime().AsDuration()
		h.first, h.granted, h.strandedSince, h.soundSince, h.pausedAt = max(now, 1), 0, 0, 0, 0
		h.synced, h.instances, h.memoryFailed = false, nil, ""
		news = true
	}
	h.began = min(h.began, now-r.GetUptime().AsDuration())
	news = news || now-h.last >= 3*l.Interval
	switch {
	case r.GetFull():
		h.instances = make(map[string]*hav1.Instance, len(r.GetInstances()))
		h.synced = true
	case r.GetEpoch() != h.epoch || r.GetBase() == 0 || r.GetBase() > h.seq:
		h.synced = false // What it builds on never came.
	}
	if h.synced {
		news = h.takeInstances(r) || news
	}
	h.epoch, h.seq, h.last = r.GetEpoch(), r.GetSeq(), max(now, 1)
	news = h.takeEvents(r) || news
	news = news || h.lease.GetLapsed() != r.GetLease().GetLapsed() || h.lease.GetStopped() != r.GetLease().GetStopped() ||
		h.watchdog.GetArmed() != r.GetWatchdog().GetArmed() || h.virtualisation.GetAnswers() != r.GetVirtualisation().GetAnswers()
	h.virtualisation, h.watchdog, h.lease, h.storage = r.GetVirtualisation(), r.GetWatchdog(), r.GetLease(), r.GetStorage()
	writable := h.writable()
	switch {
	case writable && h.strandedSince != 0:
		h.strandedSince, news = 0, true
	case !writable && h.strandedSince == 0:
		h.strandedSince = max(now-h.storageAge(), 1)
	}
	if h.strandedSince != 0 && h.pausedByIOErrors() {
		h.pausedAt = max(now, 1)
	}
	switch well := writable && h.virtualisation.GetAnswers(); {
	case well && h.soundSince == 0:
		h.soundSince = max(now, 1)
	case !well:
		h.soundSince = 0
	}
	return news
}

// takeInstances keeps what runs there, and says whether that is news.
func (h *hostMemory) takeInstances(r *hav1.ReportRequest) (news bool) {
	for _, i := range r.GetInstances() {
		was := h.instances[i.GetUuid()]
		news = news || was == nil || was.GetState() != i.GetState() || was.GetDetail() != i.GetDetail()
		h.instances[i.GetUuid()] = i
	}
	for _, uuid := range r.GetGone() {
		delete(h.instances, uuid)
		news = true
	}
	if len(h.instances) > mostInstances {
		h.synced, h.instances = false, nil
	}
	return news
}

// takeEvents keeps those that somebody has to do something about.
func (h *hostMemory) takeEvents(r *hav1.ReportRequest) (news bool) {
	for _, e := range r.GetEvents() {
		if e.GetSeq() <= h.events {
			continue
		}
		h.events, news = e.GetSeq(), true
		if e.GetKind() == string(hardware.EventMemoryFailure) && h.memoryFailed == "" {
			h.memoryFailed, h.unhandled = e.GetUuid(), e.GetSeq()
			if h.memoryFailed == "" {
				h.memoryFailed = "host"
			}
		}
	}
	return news
}

// writable says whether the host can write its heartbeat everywhere it should.
func (h *hostMemory) writable() bool {
	return !slices.ContainsFunc(h.storage, func(s *hav1.Storage) bool { return !s.GetWritable() })
}

// storageAge is how long the oldest heartbeat has not been written, as the host
// says.
func (h *hostMemory) storageAge() (age time.Duration) {
	for _, s := range h.storage {
		if !s.GetWritable() {
			age = max(age, s.GetAge().AsDuration())
		}
	}
	return age
}

// pausedFor is how long VMs count as paused for I/O errors after they were last
// seen so: nova lets them try every 30 s, and a guest that tries runs until it
// writes.
const pausedFor = time.Minute

// paused says whether VMs are paused for I/O errors, or were just now.
func (h *hostMemory) paused(now time.Duration) bool {
	return h.pausedAt != 0 && now-h.pausedAt < pausedFor
}

// pausedByIOErrors says whether QEMU has stopped a protected VM for its disks.
func (h *hostMemory) pausedByIOErrors() bool {
	for _, i := range h.instances { // In any order: one is enough.
		if i.GetProtected() && i.GetDetail() == string(hardware.DetailIOError) {
			return true
		}
	}
	return false
}
