// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
)

const (
	// mostInstances bounds what one host may tell: ten times the largest hosts.
	mostInstances = 5000
	// mostPastBoots is how many boots of a host are remembered as over. A report
	// is late by minutes at most, and a host that boots takes about one.
	mostPastBoots = 16
)

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
	known  map[string]bool     // hosts that have a Hypervisor; nobody else is remembered
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

func newService(o Options) *Service {
	return &Service{
		limits: o.Limits, steady: o.Steady.Elapsed,
		hosts: map[string]*hostMemory{}, policy: map[string]policy{},
		watch: map[string][]string{}, known: map[string]bool{}, wake: func(string) {},
	}
}

// Report takes in an agent's report. A replica that does not lead says so and
// keeps nothing; nor is anything kept of a host that has no Hypervisor.
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
	out := &hav1.ReportResponse{Leader: true, Seq: r.GetSeq(), Watch: s.watch[r.GetHost()]}
	if !s.known[r.GetHost()] {
		out.Resync, out.Refused = true, "there is no Hypervisor of that name"
		return out, nil
	}
	h := s.memory(r.GetHost())
	if !h.newer(r, now) {
		out.Events = h.handled()
		return out, nil // said before, or by an earlier life
	}
	news := h.take(r, now, s.limits)
	out.Resync = !h.synced
	out.Events = h.handled()
	s.takeWitnesses(r, now)
	news = s.answer(out, h, s.policy[r.GetHost()], now) || news
	if news {
		s.wake(r.GetHost())
	}
	return out, nil
}

// answer says what the host may do from now on. Both a grant and its opposite take
// a leader that is sure to be one.
func (s *Service) answer(out *hav1.ReportResponse, h *hostMemory, p policy, now time.Duration) (news bool) {
	out.Refused = p.refused
	switch {
	case p.boot != h.boot:
		out.Refused = "this boot is not on record yet"
		return true
	case (p.grant || p.off) && now >= s.until:
		out.Refused = "the leader is not sure that it leads: the API does not answer it"
	case p.grant:
		h.granted = max(now, 1)
		out.Granted, out.Refused = true, ""
	case p.off:
		out.Off = true
		h.watchdog = nil // It is about to be disarmed; what it says next counts.
	}
	return false
}

// memory is what is kept of a host that there is.
func (s *Service) memory(host string) *hostMemory {
	h := s.hosts[host]
	if h == nil {
		h = &hostMemory{sightings: map[string]sighting{}}
		s.hosts[host] = h
	}
	return h
}

// takeWitnesses keeps what a host says of others.
func (s *Service) takeWitnesses(r *hav1.ReportRequest, now time.Duration) {
	for _, w := range r.GetWitnesses() {
		if !s.known[w.GetHost()] {
			continue
		}
		h := s.memory(w.GetHost())
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

// sure says whether this replica surely leads.
func (s *Service) sure(now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leads && now < s.until
}

// meet is told of each host that has a Hypervisor.
func (s *Service) meet(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[host] = true
}

// eventsHandled says that what the events of a host's boot call for is on record.
func (s *Service) eventsHandled(host, boot string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.hosts[host]; h != nil && h.boot == boot {
		h.memoryFailed, h.unhandled = "", 0
	}
}

// forget drops a host that is no more.
func (s *Service) forget(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hosts, host)
	delete(s.policy, host)
	delete(s.known, host)
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

// livedSince says whether a host has shown after a moment that it lives.
func (s *Service) livedSince(host string, at time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[host]
	return h != nil && h.livedSince(at, s.limits.Interval)
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
