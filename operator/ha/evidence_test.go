// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"testing"
	"time"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

var limits = Limits{}.withDefaults()

const seconds = time.Second

// heardFor is a host that was heard and has been silent for so long.
func heardFor(silence time.Duration, changes ...func(*evidence)) evidence {
	e := evidence{now: 1000 * seconds, ledFor: 500 * seconds, limits: limits, heard: true, silence: silence, pulse: pulseStill}
	for _, change := range changes {
		change(&e)
	}
	return e
}

func sees(s sighting) func(*evidence) {
	return func(e *evidence) {
		s.at = e.now - time.Second
		e.sightings = append(e.sightings, s)
	}
}

func TestJudge(t *testing.T) {
	pulsed := func(p pulse) func(*evidence) { return func(e *evidence) { e.pulse = p } }
	unheard := func(led time.Duration) func(*evidence) {
		return func(e *evidence) { e.heard, e.ledFor = false, led }
	}
	strandedFor := func(d time.Duration, others bool) func(*evidence) {
		return func(e *evidence) { e.stranded, e.othersWrite = d, others }
	}
	for _, tt := range []struct {
		name     string
		e        evidence
		want     string
		stranded bool
	}{
		{"one that reports", heardFor(4 * seconds), kvmv1.ReasonOnline, false},
		{"two reports missed are nothing", heardFor(14 * seconds), kvmv1.ReasonOnline, false},
		{"three are a doubt", heardFor(15 * seconds), kvmv1.ReasonSuspect, false},
		{"five, and nobody sees it", heardFor(25 * seconds), kvmv1.ReasonUnreachable, false},
		{"its heartbeat moves", heardFor(90*seconds, sees(sighting{storage: true, still: 3 * seconds})), kvmv1.ReasonIsolated, false},
		{"its heartbeat stands still", heardFor(90*seconds, sees(sighting{storage: true, still: 60 * seconds})), kvmv1.ReasonUnreachable, false},
		{"a heartbeat that says it has lapsed is no sign of VMs", heardFor(90*seconds, sees(sighting{storage: true, lapsed: true})), kvmv1.ReasonUnreachable, false},
		{"a witness that cannot read says nothing", heardFor(90*seconds, sees(sighting{management: true, migration: true})), kvmv1.ReasonUnreachable, false},
		{"one witness out of two is enough", heardFor(90*seconds, sees(sighting{}), sees(sighting{storage: true, still: seconds})), kvmv1.ReasonIsolated, false},
		{"a witness that fell silent itself does not count", heardFor(90*seconds, func(e *evidence) {
			e.sightings = []sighting{{at: e.now - 20*seconds, storage: true, still: seconds}}
		}), kvmv1.ReasonUnreachable, false},
		{"its node agent renews its Lease", heardFor(90*seconds, pulsed(pulseMoves)), kvmv1.ReasonIsolated, false},
		{"whether it does is not known yet", heardFor(26*seconds, pulsed(pulseUnknown)), kvmv1.ReasonSuspect, false},
		{"there is no Lease", heardFor(26*seconds, pulsed(pulseNone)), kvmv1.ReasonUnreachable, false},
		{"a new leader has heard nobody yet", heardFor(0, unheard(59*seconds)), "", false},
		{"a leader that would have heard it", heardFor(0, unheard(60*seconds)), kvmv1.ReasonUnreachable, false},
		{"storage away for itself alone", heardFor(seconds, strandedFor(31*seconds, true)), kvmv1.ReasonOnline, true},
		{"storage away for all", heardFor(seconds, strandedFor(31*seconds, false)), kvmv1.ReasonOnline, false},
		{"storage away for a moment", heardFor(seconds, strandedFor(29*seconds, true)), kvmv1.ReasonOnline, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if v := judge(tt.e); v.state != tt.want || v.stranded != tt.stranded {
				t.Errorf("%q (stranded %v), want %q (%v)", v.state, v.stranded, tt.want, tt.stranded)
			}
		})
	}
}

func TestPulse(t *testing.T) {
	at := func(s int) time.Duration { return time.Duration(s) * seconds }
	look := func(d doubt, s int, renewal string) doubt { return d.watchPulse(renewal, renewal != "", at(s)) }
	first := look(doubt{}, 100, "a")
	for _, tt := range []struct {
		name string
		d    doubt
		now  int
		want pulse
	}{
		{"never looked at", doubt{}, 100, pulseUnknown},
		{"seen once", first, 101, pulseUnknown},
		{"not watched for long", look(first, 105, "a"), 112, pulseUnknown},
		{"watched for longer than renewals are apart", look(first, 110, "a"), 113, pulseStill},
		{"it moved", look(first, 105, "b"), 110, pulseMoves},
		{"it moved once and then stood still", look(look(first, 105, "b"), 130, "b"), 131, pulseStill},
		{"the API does not answer", look(first, 140, ""), 140, pulseUnknown},
		{"no Lease", look(doubt{}, 100, "none"), 100, pulseNone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.d.says(at(tt.now)); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
