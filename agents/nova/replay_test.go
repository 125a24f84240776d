// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/hardware"
)

func read(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestCA08 feeds the samples of a migration that never converges. Its remainder
// is a saw-tooth whose low-water mark is twelve minutes old at the end.
func TestCA08_NeverConverging(t *testing.T) {
	var input struct {
		Policy struct {
			CompletionTimeoutS int64 `json:"completion_timeout_s"`
		}
		Samples []struct {
			TimeElapsed     int64  `json:"time_elapsed"`
			DataRemaining   uint64 `json:"data_remaining"`
			MemoryIteration uint64 `json:"memory_iteration"`
			PageSize        uint64 `json:"memory_page_size"`
			DirtyRate       uint64 `json:"memory_dirty_rate"`
		}
	}
	read(t, "CA-08_jobstats_sawtooth_never.json", &input)
	if len(input.Samples) != 180 {
		t.Fatalf("%d samples", len(input.Samples))
	}
	size := resource.MustParse("16Gi")
	v := with(departing(started(0), allow(func(c *kubevirtv1.MigrationConfiguration) {
		c.CompletionTimeoutPerGiB = new(input.Policy.CompletionTimeoutS / 16)
	})), func(v *kubevirtv1.VirtualMachineInstance) { v.Spec.Domain.Memory.Guest = &size })

	var m memory
	var cancels []time.Duration
	o := seen(v, running())
	for _, s := range input.Samples {
		elapsed := time.Duration(s.TimeElapsed) * time.Millisecond
		o.now, o.memory = now.Add(elapsed), m
		o.job = &hardware.Job{ID: "m1", Type: hardware.JobUnbounded, Operation: hardware.OperationMigrationOut, Elapsed: elapsed,
			DataRemaining: s.DataRemaining, MemoryIteration: s.MemoryIteration, MemoryPageSize: s.PageSize, MemoryDirtyRate: s.DirtyRate}
		p := decide(o)
		m = p.memory
		for _, s := range p.steps {
			if s.verb != doAbort {
				t.Fatalf("at %s: %s", elapsed, s.verb)
			}
			cancels = append(cancels, elapsed)
		}
	}
	if want := []time.Duration{800035 * time.Millisecond}; !slices.Equal(cancels, want) {
		t.Fatalf("cancelled at %v, want %v", cancels, want)
	}

	o.job.Type = hardware.JobCancelled
	o.memory = m
	p := decide(o)
	st := p.vmi.Status.MigrationState
	if !st.Failed || p.vmi.Status.Phase != kubevirtv1.Running || p.vmi.Status.NodeName != "a" {
		t.Errorf("failed %v, phase %s, node %s: want a failed migration of a VM that runs on", st.Failed, p.vmi.Status.Phase, p.vmi.Status.NodeName)
	}
	for _, fact := range []string{"13m20s", "43 rounds", "81116006 bytes", "153 MiB/s"} {
		if !strings.Contains(st.FailureReason, fact) {
			t.Errorf("reason %q does not name %s", st.FailureReason, fact)
		}
	}
}

// life plays one VM's events at one host, decision by decision.
type life struct {
	t      *testing.T
	now    time.Time
	vmi    *kubevirtv1.VirtualMachineInstance
	domain hardware.Domain
	memory memory
	host   string
	due    time.Time // of the next look
	writes []string  // at what time, what
	steps  []string
}

// look decides once and does what was decided, as far as the object goes.
func (l *life) look() {
	l.t.Helper()
	d := l.domain
	o := seen(l.vmi, &d, func(o *observation) {
		o.now, o.listedAt, o.memory, o.host, o.address = l.now, l.now, l.memory, l.host, l.host
	})
	if st := migrating(l.vmi); st != nil && st.StartTimestamp != nil {
		o.job = &hardware.Job{ID: string(st.MigrationUID), Type: hardware.JobUnbounded, Operation: hardware.OperationMigrationOut, PostCopy: true,
			Elapsed: l.now.Sub(st.StartTimestamp.Time)}
	}
	p := decide(o)
	for _, s := range p.steps {
		l.steps = append(l.steps, l.at()+" "+string(s.verb))
	}
	if p.vmi != nil && !equality.Semantic.DeepEqual(p.vmi, l.vmi) {
		l.writes = append(l.writes, l.at()+" "+tell(o, plan{vmi: p.vmi}))
		l.vmi = p.vmi
	}
	l.memory = p.memory
	l.due = time.Time{}
	if p.lookAgain > 0 {
		l.due = l.now.Add(p.lookAgain)
	}
}

func (l *life) at() string { return l.now.Sub(now).String() }

// until looks whenever it is due before that time.
func (l *life) until(at time.Duration) {
	for !l.due.IsZero() && !l.due.After(now.Add(at)) {
		l.now = l.due
		l.look()
	}
	l.now = now.Add(at)
}

type libvirtEvent struct {
	TMs    int64 `json:"t_ms"`
	Host   string
	ID     string `json:"id"`
	Event  string
	Detail string
}

// take makes the domain's state of an event, as libvirt has both.
func (l *life) take(e libvirtEvent) {
	details := map[string]hardware.Detail{"DESTROYED": hardware.DetailDestroyed, "SHUTDOWN": hardware.DetailShutdown,
		"BOOTED": hardware.DetailBooted, "UNPAUSED": hardware.DetailUnpaused, "MIGRATED": hardware.DetailMigrating,
		"POSTCOPY": hardware.DetailPostCopy, "POSTCOPY_FAILED": hardware.DetailPostCopyFailed}
	switch e.Event {
	case "STOPPED":
		l.domain.State = hardware.StateShutOff
	case "STARTED", "RESUMED":
		l.domain.State = hardware.StateRunning
	case "SUSPENDED":
		l.domain.State = hardware.StatePaused
	default:
		return
	}
	l.domain.Detail = details[e.Detail]
}

// TestCA20 plays a hard reset by another program, a real stop, and a start that
// is told twice.
func TestCA20_ResetIsNoStop(t *testing.T) {
	var input struct{ Events []libvirtEvent }
	read(t, "CA-20_reset_burst.json", &input)

	l := &life{t: t, now: now, vmi: settled(), domain: *running(), host: "a"}
	for _, e := range input.Events {
		l.until(time.Duration(e.TMs) * time.Millisecond)
		l.take(e)
		l.look()
	}
	l.until(10 * time.Minute)

	want := []string{"1m15s phase=Succeeded reason=GuestPoweredOff Ready=False/GuestPoweredOff"}
	if !slices.Equal(l.writes, want) {
		t.Errorf("writes %q, want %q", l.writes, want)
	}
}

// TestCA20_DoubledStart plays the same start twice at a VM that waits for it.
func TestCA20_DoubledStart(t *testing.T) {
	l := &life{t: t, now: now, vmi: settled(), domain: *running(), host: "a"}
	for range 2 {
		l.take(libvirtEvent{Event: "RESUMED", Detail: "UNPAUSED"})
		l.look()
		l.take(libvirtEvent{Event: "STARTED", Detail: "BOOTED"})
		l.look()
	}
	if len(l.writes)+len(l.steps) != 0 {
		t.Errorf("writes %q and does %q, want nothing", l.writes, l.steps)
	}
}

// TestCA07 plays a post-copy whose link breaks, at both of its ends.
func TestCA07_BrokenPostCopy(t *testing.T) {
	var input struct{ Events []libvirtEvent }
	read(t, "CA-07_postcopy_failed.json", &input)
	start := func() *kubevirtv1.VirtualMachineInstance {
		v := departing(started(0), allow(postCopyAllowed))
		v.Status.MigrationState.StartTimestamp = &metav1.Time{Time: now}
		return v
	}
	play := func(host string) *life {
		l := &life{t: t, now: now, vmi: start(), domain: *running(), host: map[string]string{"src": "a", "dst": "b"}[host]}
		if host == "dst" {
			l.domain = *domain(hardware.StatePaused, hardware.DetailMigrating, incoming)
		}
		for _, e := range input.Events {
			if e.Host != host {
				continue
			}
			l.until(time.Duration(e.TMs) * time.Millisecond)
			l.take(e)
			if e.Event == "RESUMED" {
				l.domain.Incoming = false
			}
			l.look()
		}
		return l
	}
	unpaused := func(l *life) bool {
		return slices.ContainsFunc(l.steps, func(s string) bool {
			return strings.HasSuffix(s, string(doResume)) || strings.HasSuffix(s, string(doStart)) || strings.HasSuffix(s, string(doAbort))
		})
	}

	t.Run("the source shows it as recoverable and asks libvirt for it", func(t *testing.T) {
		l := play("src")
		l.until(75 * time.Second)
		if unpaused(l) {
			t.Errorf("does %q", l.steps)
		}
		if c := condition(l.vmi, kubevirtv1.VirtualMachineInstancePaused); c == nil || c.Reason != ReasonPausedPostCopyFailed || !strings.Contains(c.Message, "recovered") {
			t.Errorf("Paused is %+v", c)
		}
		if n := len(l.steps); n < 2 || n > 4 || !strings.HasSuffix(l.steps[0], "recover") {
			t.Errorf("does %q: want a few tries in the first minute", l.steps)
		}
		if l.vmi.Status.Phase != kubevirtv1.Running || l.vmi.Status.MigrationState.Failed {
			t.Errorf("phase %s, failed %v: nothing is lost yet", l.vmi.Status.Phase, l.vmi.Status.MigrationState.Failed)
		}
	})
	t.Run("recovered, it goes on as if nothing had been", func(t *testing.T) {
		l := play("src")
		l.until(80 * time.Second)
		l.take(libvirtEvent{Event: "SUSPENDED", Detail: "POSTCOPY"})
		l.look()
		if unpaused(l) || l.vmi.Status.MigrationState.Failed || l.memory.recoveries != 0 {
			t.Errorf("does %q, failed %v, %d tries", l.steps, l.vmi.Status.MigrationState.Failed, l.memory.recoveries)
		}
	})
	t.Run("when it stays broken it ends, once, by name", func(t *testing.T) {
		l := play("src")
		l.until(30 * time.Minute)
		st := l.vmi.Status
		if st.Phase != kubevirtv1.Failed || st.Reason != ReasonPostCopy || !strings.HasPrefix(st.MigrationState.FailureReason, "PostCopy") {
			t.Errorf("phase %s reason %q: %q", st.Phase, st.Reason, st.MigrationState.FailureReason)
		}
		if unpaused(l) || len(l.steps) > 15 {
			t.Errorf("does %q", l.steps)
		}
	})
	t.Run("the target neither unpauses nor calls it its own", func(t *testing.T) {
		l := play("dst")
		l.until(30 * time.Minute)
		if len(l.steps) != 0 || len(l.writes) != 1 || !strings.HasSuffix(l.writes[0], "Ready=False/GuestNotRunning Paused=True/PausedPostCopyFailed") {
			t.Errorf("writes %q and does %q, want one line that says what happened", l.writes, l.steps)
		}
	})
	t.Run("and runs it once it is whole", func(t *testing.T) {
		l := play("dst")
		l.until(80 * time.Second)
		l.domain.State, l.domain.Detail = hardware.StateRunning, hardware.DetailMigrated
		l.look()
		if l.vmi.Status.NodeName != "b" || !l.vmi.Status.MigrationState.Completed {
			t.Errorf("node %s", l.vmi.Status.NodeName)
		}
	})
}
