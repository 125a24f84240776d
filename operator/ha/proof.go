// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
)

// runLease is the annotation that holds what a new leader has to know of a host
// that it may never hear.
type runLease struct {
	Boot     string `json:"boot"`
	Term     string `json:"term"`
	Stop     string `json:"stop"`
	Watchdog string `json:"watchdog,omitempty"` // empty: not armed
	Pools    bool   `json:"pools,omitempty"`    // heartbeats renew it, too
}

// leaseOf is the record of what a host reports. on says that high availability is
// on there: otherwise it disarms its watchdog as soon as it hears of it.
func leaseOf(h hostMemory, on bool) runLease {
	l := runLease{Boot: h.boot, Term: h.lease.GetTerm().AsDuration().String(), Stop: h.lease.GetStop().AsDuration().String(), Pools: len(h.storage) > 0}
	if h.watchdog.GetPresent() && h.watchdog.GetArmed() && on && !h.lease.GetOff() {
		l.Watchdog = h.watchdog.GetTimeout().AsDuration().String()
	}
	return l
}

func (l runLease) text() string {
	b, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings
	}
	return string(b)
}

// terms are a lease's times.
type terms struct {
	term, stop, watchdog time.Duration
	pools                bool
}

// parseRunLease reads the annotation; armed is false without one, or where it
// cannot be understood: nothing follows from it then.
func parseRunLease(text string) (l runLease, t terms, armed bool) {
	if json.Unmarshal([]byte(text), &l) != nil {
		return runLease{}, terms{}, false
	}
	var errs [3]error
	t.term, errs[0] = time.ParseDuration(l.Term)
	t.stop, errs[1] = time.ParseDuration(l.Stop)
	t.watchdog, errs[2] = time.ParseDuration(l.Watchdog)
	t.pools = l.Pools
	armed = errs == [3]error{} && t.term > 0 && t.stop > 0 && t.watchdog > 0
	return l, t, armed
}

// safe is how long after the latest renewal no protected VM runs any more
// (docs/ha.md, The run lease).
func (t terms) safe(margin time.Duration) time.Duration {
	all := t.term + t.stop + t.watchdog
	return all + margin + all/50
}

// expiry is what the end of a lease is judged by.
type expiry struct {
	evidence
	terms   terms
	armed   bool
	boot    string
	granted time.Duration // by this leader, latest; 0: never
	ledAt   time.Duration // from then on nobody but this leader grants
}

// expired says whether the lease has surely run out, and if not, what is missing.
func (x expiry) expired() (proof, missing string) {
	if !x.armed {
		return "", "no watchdog was armed on it, so that the end of its run lease proves nothing"
	}
	safe := x.terms.safe(x.limits.Margin)
	if left := max(x.granted, x.ledAt) + safe - x.now; left > 0 {
		return "", "its run lease may last a little longer"
	}
	if !x.terms.pools {
		return fmt.Sprintf("the run lease of boot %s has run out and its watchdog was armed (%s)", x.boot, safe), ""
	}
	seen := false
	count, writes := x.latest()
	for _, s := range x.sightings {
		if !x.fresh(s) || !s.storage {
			continue
		}
		seen = true
		switch {
		case s.boot == x.boot && s.count < count: // Another has seen it move on.
		case s.boot != x.boot && s.boot != "":
			// An earlier or a later boot's: what the present one wrote is not there.
			if s.still >= safe && !writes {
				return fmt.Sprintf("no heartbeat of boot %s is in the storage, and its watchdog was armed (%s)", x.boot, safe), ""
			}
		case s.lapsed && x.now-s.lapsedAt >= safe-x.terms.term:
			return fmt.Sprintf("the host itself wrote that its run lease of boot %s has lapsed, and its watchdog was armed", x.boot), ""
		case s.still >= safe:
			return fmt.Sprintf("the heartbeat of boot %s has stood still for longer than its run lease and its watchdog last (%s)", x.boot, safe), ""
		}
	}
	if !seen {
		return "", "no neighbour can read its heartbeat in the storage"
	}
	return "", "its heartbeat in the storage has not stood still for long enough"
}

// latest is the heartbeat of the judged boot as it was last seen by anybody, and
// whether it was. What a witness reads may be behind what another one does.
func (x expiry) latest() (count uint64, writes bool) {
	for _, s := range x.sightings {
		if s.boot == x.boot && s.storage {
			count, writes = max(count, s.count), true
		}
	}
	return count, writes
}

// stopped says whether the host itself has shown, in a report after since, that it
// stopped what is protected.
func stopped(h hostMemory, since time.Duration) bool {
	return h.last > since && h.synced && h.lease.GetLapsed() && h.lease.GetStopped() && !protects(h)
}

// idle says whether the host itself has shown, in a report after since, that it has
// not been allowed to run anything protected in this boot, or that it stopped it.
func idle(h hostMemory, since time.Duration) bool {
	return h.last > since && !h.lease.GetValid() && !h.lease.GetOff() && (!h.lease.GetLapsed() || h.lease.GetStopped()) && !protects(h)
}

// protects says whether something protected is active, as far as the host has told.
func protects(h hostMemory) bool {
	for _, i := range h.instances { // In any order: one is enough.
		if i.GetProtected() && active(i) {
			return true
		}
	}
	return false
}

// livedSince says whether a host showed after a moment that it lives, by its own
// word or by a heartbeat that moved. A witness sees that up to an interval later.
func (h *hostMemory) livedSince(at, interval time.Duration) bool {
	if h.last > at {
		return true
	}
	for _, s := range h.sightings { // In any order: one is enough.
		if s.storage && s.boot == h.boot && s.at-s.still-interval > at {
			return true
		}
	}
	return false
}

// active says whether a domain has a QEMU.
func active(i *hav1.Instance) bool {
	switch i.GetState() {
	case "shut off", "crashed", "":
		return false
	}
	return true
}

// confirmation is a person's word.
type confirmation struct {
	who, why string
	until    time.Time
}

// confirmed reads the annotation; problem says what is wrong with it.
func confirmed(h *kvmv1.Hypervisor, now time.Time) (c *confirmation, problem string) {
	text, said := h.Annotations[v1alpha1.AnnotationConfirmFenced]
	if !said {
		return nil, ""
	}
	const form = `write "WHO until TIME: REASON" with TIME as in 2026-01-02T15:04:05Z`
	who, rest, ok := strings.Cut(text, " until ")
	at, why, ok2 := strings.Cut(rest, ": ")
	if !ok || !ok2 || strings.TrimSpace(who) == "" || strings.TrimSpace(why) == "" {
		return nil, "annotation " + v1alpha1.AnnotationConfirmFenced + " cannot be read; " + form
	}
	until, err := time.Parse(time.RFC3339, at)
	switch {
	case err != nil:
		return nil, "annotation " + v1alpha1.AnnotationConfirmFenced + " has no time; " + form
	case !now.Before(until):
		return nil, "the confirmation of " + who + " counts no more since " + at
	}
	return &confirmation{who: strings.TrimSpace(who), why: strings.TrimSpace(why), until: until}, ""
}
