// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
)

// The agent's own times, as docs/ha.md has them.
var usual = terms{term: 20 * seconds, stop: 10 * seconds, watchdog: 20 * seconds, pools: true}

func TestSafeIsWhatThePageSays(t *testing.T) {
	if got := usual.safe(limits.Margin); got != 54*seconds {
		t.Errorf("%v, want 20+10+20+3 s and 2 %% of 50 s", got)
	}
}

func TestExpired(t *testing.T) {
	// Ours to grant since long; the last grant is 60 s ago.
	x := func(change func(*expiry)) expiry {
		e := expiry{evidence: evidence{now: 1000 * seconds, limits: limits}, terms: usual, armed: true, boot: "b", granted: 940 * seconds, ledAt: 100 * seconds}
		change(&e)
		return e
	}
	seen := func(s sighting) func(*expiry) {
		return func(e *expiry) {
			if s.at == 0 {
				s.at = e.now
			}
			e.sightings = append(e.sightings, s)
		}
	}
	still := seen(sighting{storage: true, boot: "b", still: 54 * seconds})
	both := func(changes ...func(*expiry)) func(*expiry) {
		return func(e *expiry) {
			for _, c := range changes {
				c(e)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		x      expiry
		proven bool
	}{
		{"heartbeat still for long enough", x(still), true},
		{"a second too short", x(seen(sighting{storage: true, boot: "b", still: 53 * seconds})), false},
		{"nobody reads the storage", x(func(*expiry) {}), false},
		{"the only witness cannot", x(seen(sighting{boot: "b", still: 90 * seconds})), false},
		{"its word is old", x(seen(sighting{at: 980 * seconds, storage: true, boot: "b", still: 90 * seconds})), false},
		{"no watchdog was armed", x(both(still, func(e *expiry) { e.armed = false })), false},
		{"granted a moment ago", x(both(still, func(e *expiry) { e.granted = 947 * seconds })), false},
		{"a predecessor may have granted", x(both(still, func(e *expiry) { e.granted, e.ledAt = 0, 950*seconds })), false},
		{"no predecessor can have", x(both(still, func(e *expiry) { e.granted, e.ledAt = 0, 946*seconds })), true},
		{"without storage a grant is all there is", x(func(e *expiry) { e.terms.pools = false }), true},
		{"an earlier boot's heartbeat that stands still", x(seen(sighting{storage: true, boot: "a", still: 54 * seconds})), true},
		{"a later boot's that moves", x(seen(sighting{storage: true, boot: "c", still: seconds})), false},
		{"it wrote itself that it has lapsed", x(seen(sighting{storage: true, boot: "b", lapsed: true, lapsedAt: 966 * seconds, still: seconds})), true},
		{"and has not had the time to stop", x(seen(sighting{storage: true, boot: "b", lapsed: true, lapsedAt: 967 * seconds, still: seconds})), false},
		{"one of two witnesses has seen it long enough, the other has only begun to look", x(both(seen(sighting{storage: true, boot: "b", still: seconds}), still)), true},
		{"the other has seen it move on", x(both(seen(sighting{storage: true, boot: "b", count: 8, still: seconds}), seen(sighting{storage: true, boot: "b", count: 7, still: 90 * seconds}))), false},
		{"the other had, and has fallen silent since", x(both(seen(sighting{at: 900 * seconds, storage: true, boot: "b", count: 8}), seen(sighting{storage: true, boot: "b", count: 7, still: 90 * seconds}))), false},
		{"one reads an earlier boot's, the other this one's", x(both(seen(sighting{storage: true, boot: "b"}), seen(sighting{storage: true, boot: "a", still: 90 * seconds}))), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proof, missing := tt.x.expired()
			if (proof != "") != tt.proven || (missing == "") != tt.proven {
				t.Errorf("proof %q, missing %q", proof, missing)
			}
		})
	}
}

func TestRunLeaseIsReadBackAsItWasReported(t *testing.T) {
	h := hostMemory{boot: "b", lease: &hav1.Lease{Term: durationpb.New(20 * seconds), Stop: durationpb.New(10 * seconds)},
		watchdog: &hav1.Watchdog{Present: true, Armed: true, Timeout: durationpb.New(20 * seconds)}, storage: []*hav1.Storage{{Pool: "shared", Writable: true}}}
	record, times, armed := parseRunLease(leaseOf(h, true).text())
	if record.Boot != "b" || times != usual || !armed {
		t.Errorf("%+v %+v armed %v", record, times, armed)
	}
	if _, _, armed := parseRunLease(leaseOf(h, false).text()); armed {
		t.Error("a host without high availability disarms its watchdog")
	}
	for _, bad := range []string{"", "{", `{"boot":"b"}`, `{"boot":"b","term":"20s","stop":"10s","watchdog":"-1s"}`} {
		if _, _, armed := parseRunLease(bad); armed {
			t.Errorf("%q proves something", bad)
		}
	}
}

func TestConfirmed(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		text    string
		who     string
		problem string
	}{
		{"ann until 2026-01-02T04:00:00Z: I pulled the plug", "ann", ""},
		{"ann until 2026-01-02T03:04:05Z: I pulled the plug", "", "counts no more"},
		{"ann until tomorrow: I pulled the plug", "", "has no time"},
		{"ann until 2026-01-02T04:00:00Z: ", "", "cannot be read"},
		{" until 2026-01-02T04:00:00Z: x", "", "cannot be read"},
		{"true", "", "cannot be read"},
	} {
		h := &kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationConfirmFenced: tt.text}}}
		c, problem := confirmed(h, now)
		if (c != nil) != (tt.who != "") || c != nil && c.who != tt.who || !strings.Contains(problem, tt.problem) || (problem == "") != (tt.problem == "") {
			t.Errorf("%q: %+v, %q", tt.text, c, problem)
		}
	}
	if c, problem := confirmed(&kvmv1.Hypervisor{}, now); c != nil || problem != "" {
		t.Error("nothing said is nothing wrong")
	}
}
