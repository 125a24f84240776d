// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/hardware"
)

// mostInstances bounds what one host may tell: ten times the largest hosts.
const mostInstances = 5000

// Service is what the agents report to: the leader's memory of all hosts. A
// report costs no request of the API and little else.
type Service struct {
	limits Limits
	steady func() time.Duration

	mu     sync.Mutex
	leads  bool
	until  time.Duration // until when this replica surely leads
	hosts  map[string]*hostMemory
	policy map[string]policy
	watch  map[string][]string // by witness: whom it watches
	known  map[string]bool     // hosts there are
	wake   func(host string)
}

// policy is what the answers to a host's reports say; the host's reconcile sets
// it.
type policy struct {
	boot    string // whose lease is on record; only it is granted
	grant   bool
	off     bool
	refused string
}

// hostMemory is what is known of one host from its own reports.
type hostMemory struct {
	boot       string
	epoch, seq uint64
	pastBoots  map[string]bool

	first, last time.Duration // accepted reports of this boot, by our clock
	granted     time.Duration // the last grant; 0: none by us
	synced      bool          // instances are complete
	instances   map[string]*hav1.Instance
	events      uint64

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

func newService(o Options) *Service {
	return &Service{
		limits: o.Limits, steady: o.Steady.Elapsed,
		hosts: map[string]*hostMemory{}, policy: map[string]policy{},
		watch: map[string][]string{}, wake: func(string) {},
	}
}

// Report takes in an agent's report. A replica that does not lead says so and
// keeps nothing.
func (s *Service) Report(_ context.Context, r *hav1.ReportRequest) (*hav1.ReportResponse, error) {
	if r.GetHost() == "" || r.GetBoot() == "" {
		return nil, status.Error(codes.InvalidArgument, "report: host and boot must be given")
	}
	if len(r.GetInstances()) > mostInstances {
		return nil, status.Errorf(codes.InvalidArgument, "report of %s: %d instances; more than %d are refused", r.GetHost(), len(r.GetInstances()), mostInstances)
	}
	now := s.steady()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leads {
		return &hav1.ReportResponse{Seq: r.GetSeq()}, nil
	}
	h := s.hosts[r.GetHost()]
	if h == nil {
		h = &hostMemory{pastBoots: map[string]bool{}, sightings: map[string]sighting{}}
		s.hosts[r.GetHost()] = h
	}
	out := &hav1.ReportResponse{Leader: true, Seq: r.GetSeq(), Watch: s.watch[r.GetHost()]}
	if !h.newer(r) {
		out.Events = h.events
		return out, nil // said before, or by an earlier life
	}
	news := h.take(r, now, s.limits)
	out.Resync = !h.synced
	out.Events = h.events
	s.takeWitnesses(r, now)
	p := s.policy[r.GetHost()]
	out.Refused, out.Off = p.refused, p.off
	switch {
	case p.boot != h.boot:
		out.Refused = "this boot is not on record yet"
		news = true
	case p.grant && now < s.until:
		h.granted = max(now, 1)
		out.Granted, out.Refused = true, ""
	case p.grant:
		out.Refused = "the leader is not sure that it leads: the API does not answer it"
	}
	if news {
		s.wake(r.GetHost())
	}
	return out, nil
}

// newer says whether a report is later than all that was taken of its host.
func (h *hostMemory) newer(r *hav1.ReportRequest) bool {
	switch {
	case r.GetBoot() != h.boot:
		return !h.pastBoots[r.GetBoot()]
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
			h.pastBoots[h.boot] = true
		}
		h.boot, h.epoch, h.seq, h.events = r.GetBoot(), 0, 0, 0
		h.first, h.granted, h.strandedSince, h.soundSince, h.pausedAt = max(now, 1), 0, 0, 0, 0
		h.synced, h.instances, h.memoryFailed = false, nil, ""
		news = true
	}
	news = news || now-h.last >= 3*l.Interval || len(r.GetEvents()) > 0
	switch {
	case r.GetFull():
		h.instances = make(map[string]*hav1.Instance, len(r.GetInstances()))
		h.synced = true
	case r.GetEpoch() != h.epoch || r.GetBase() == 0 || r.GetBase() > h.seq:
		h.synced = false // What it builds on never came.
	}
	if h.synced {
		for _, i := range r.GetInstances() {
			if was := h.instances[i.GetUuid()]; was == nil || was.GetState() != i.GetState() {
				news = true
			}
			h.instances[i.GetUuid()] = i
		}
		for _, uuid := range r.GetGone() {
			delete(h.instances, uuid)
			news = true
		}
	}
	h.epoch, h.seq, h.last = r.GetEpoch(), r.GetSeq(), max(now, 1)
	for _, e := range r.GetEvents() {
		if e.GetSeq() > h.events {
			h.events = e.GetSeq()
			if e.GetKind() == string(hardware.EventMemoryFailure) && h.memoryFailed == "" {
				if h.memoryFailed = e.GetUuid(); h.memoryFailed == "" {
					h.memoryFailed = "host"
				}
			}
		}
	}
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

// takeWitnesses keeps what a host says of others.
func (s *Service) takeWitnesses(r *hav1.ReportRequest, now time.Duration) {
	for _, w := range r.GetWitnesses() {
		h := s.hosts[w.GetHost()]
		if h == nil {
			if !s.known[w.GetHost()] {
				continue
			}
			h = &hostMemory{pastBoots: map[string]bool{}, sightings: map[string]sighting{}}
			s.hosts[w.GetHost()] = h
		}
		next := sighting{
			at: max(now, 1), management: w.GetManagement(), migration: w.GetMigration(), storage: w.GetStorage(),
			boot: w.GetBoot(), count: w.GetCount(), lapsed: w.GetLapsed(), still: w.GetStill().AsDuration(),
		}
		if was, told := h.sightings[r.GetHost()]; next.lapsed {
			next.lapsedAt = next.at
			if told && was.lapsed && was.boot == next.boot {
				next.lapsedAt = was.lapsedAt
			}
		}
		h.sightings[r.GetHost()] = next
	}
}

// setPolicy says how a host's reports are answered.
func (s *Service) setPolicy(host string, p policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy[host] = p
}

// refuse stops a host's grants before anything is decided that rests on it.
func (s *Service) refuse(host, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.policy[host]
	p.grant, p.off, p.refused = false, false, why
	s.policy[host] = p
}

// lead says until when this replica surely leads.
func (s *Service) lead(until time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads, s.until = true, until
}

// forget drops a host that is no more.
func (s *Service) forget(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hosts, host)
	delete(s.policy, host)
}

// snapshot is a host's memory as it is now. What it points to is not changed
// later, but replaced.
func (s *Service) snapshot(host string) (hostMemory, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[host]
	if h == nil {
		return hostMemory{}, false
	}
	c := *h
	c.sightings, c.instances, c.pastBoots = maps.Clone(h.sightings), maps.Clone(h.instances), nil
	return c, true
}

// silences is how long each of the hosts has been silent, for those that this
// leader has heard.
func (s *Service) silences(now time.Duration) map[string]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]time.Duration, len(s.hosts))
	for name, h := range s.hosts {
		if h.last != 0 {
			out[name] = now - h.last
		}
	}
	return out
}

// onNews says whom to wake when a report is news.
func (s *Service) onNews(wake func(host string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake = wake
}
