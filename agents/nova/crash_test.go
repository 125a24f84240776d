// SPDX-License-Identifier: Apache-2.0

package nova_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/kubesim"
)

// TestCrashAnywhere kills an agent at each call it makes, before and after the
// call takes effect, while a VM starts, moves, stops, moves again and is
// deleted: it must end as if nobody had died, and never run twice.
func TestCrashAnywhere(t *testing.T) {
	every := 1
	if testing.Short() {
		every = 7
	}
	for _, host := range []string{"a", "b"} {
		for _, when := range []kubesim.Moment{kubesim.Before, kubesim.After} {
			struck := 0
			for n := 1; n <= 80; n += every {
				w := newWorld(t, "a", "b")
				agent := w.agents[host]
				agent.CrashAt(n, when)
				watch := func() { // a supervisor starts it again
					if !agent.Alive() {
						w.run(5 * time.Second)
						agent.Start()
					}
				}
				pass := func(d time.Duration) {
					for range int(d / (5 * time.Second)) {
						w.run(5 * time.Second)
						watch()
					}
				}
				w.place("web", "a")
				pass(40 * time.Second)
				w.want("started", w.phase("web"), "Running@a")
				w.migrate("web", "a", "b")
				pass(60 * time.Second)
				w.want("moved", w.phase("web"), "Running@b")
				w.change("web", power("Stopped"))
				pass(60 * time.Second)
				w.want("stopped", w.phase("web"), "Scheduled@b")
				w.want("a", w.domains("a"), "")
				w.want("b", w.domains("b"), "vms_web shut off")
				w.migrate("web", "b", "a")
				pass(60 * time.Second)
				w.want("moved cold", w.phase("web"), "Scheduled@a")
				w.want("b after it", w.domains("b"), "")
				w.must(w.user.Delete(t.Context(), w.get("web")))
				pass(60 * time.Second)
				w.want("a after the deletion", w.domains("a"), "")
				if w.exists("web") {
					t.Error("the deleted VM is still there")
				}
				for _, v := range w.fleet.Ledger().Violations() {
					t.Error(v)
				}
				struck += agent.Restarts()
				if t.Failed() {
					t.Fatalf("agent of %s died at its call %d (%d is before, 1 after): %v", host, n, when, w.writes)
				}
				w.cluster.Close()
				if agent.Restarts() == 0 {
					break // it makes no more calls than that
				}
			}
			t.Logf("agent of %s died %d times", host, struck)
		}
	}
}

// slow makes a migration take long enough to be struck.
func slow(w *world, config kubevirtv1.MigrationConfiguration) {
	bandwidth := resource.MustParse("50Mi")
	config.BandwidthPerMigration = &bandwidth
	v := w.place("web", "a")
	w.fleet.SetGuest(kubevirt.DomainUUID(v), hwsim.Guest{UsedMemoryBytes: 900 << 20, DirtyBytesPerSecond: 200 << 20, WorkingSetBytes: 600 << 20})
	w.run(30 * time.Second)
	w.migrate("web", "a", "b")
	w.change("web", func(v *kubevirtv1.VirtualMachineInstance) { v.Status.MigrationState.MigrationConfiguration = &config })
	w.run(8 * time.Second)
	if w.get("web").Status.MigrationState.StartTimestamp == nil {
		w.Fatal("the job does not run")
	}
}

func (w *world) story() string {
	st := w.get("web").Status.MigrationState
	return fmt.Sprintf("%s mode=%s completed=%v failed=%v", w.phase("web"), st.Mode, st.Completed, st.Failed)
}

func TestDeadlines(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config kubevirtv1.MigrationConfiguration
		want   string
		reason string
	}{
		{"cancels", kubevirtv1.MigrationConfiguration{CompletionTimeoutPerGiB: new(int64(60))}, "Running@a mode=PreCopy completed=false failed=true", "1m0s"},
		{"pauses", kubevirtv1.MigrationConfiguration{CompletionTimeoutPerGiB: new(int64(60)), AllowWorkloadDisruption: new(true)}, "Running@b mode=Paused completed=true failed=false", ""},
		{"switches to post-copy", kubevirtv1.MigrationConfiguration{CompletionTimeoutPerGiB: new(int64(60)), AllowPostCopy: new(true)}, "Running@b mode=PostCopy completed=true failed=false", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, "a", "b")
			slow(w, tt.config)
			w.run(4 * time.Minute)
			w.want("story", w.story(), tt.want)
			if got := w.get("web").Status.MigrationState.FailureReason; !strings.Contains(got, tt.reason) {
				t.Errorf("reason %q", got)
			}
			host := strings.TrimPrefix(w.phase("web"), "Running@")
			w.want("it runs", w.domains(host), "vms_web running")
			for _, v := range w.fleet.Ledger().Violations() {
				t.Error(v)
			}
		})
	}
}

func TestBrokenPostCopy(t *testing.T) {
	for _, tt := range []struct {
		name string
		cut  time.Duration
		want string
		b    string
	}{
		{"recovers when the network is back", time.Minute, "Running@b mode=PostCopy completed=true failed=false", "vms_web running"},
		{"is given up by name when it stays away", 30 * time.Minute, "Failed@a mode=PostCopy completed=false failed=true", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, "a", "b")
			w.must(w.fleet.Inject(hwsim.Fault{Kind: "net.slow", Link: "migration", On: []string{"a"}, Bandwidth: 30 << 20}))
			slow(w, kubevirtv1.MigrationConfiguration{CompletionTimeoutPerGiB: new(int64(30)), AllowPostCopy: new(true)})
			for range 60 {
				if w.get("web").Status.MigrationState.Mode == kubevirtv1.MigrationPostCopy {
					break
				}
				w.run(time.Second)
			}
			w.must(w.fleet.Inject(hwsim.Fault{Kind: "net.cut", Link: "migration", Between: []string{"a", "b"}, For: tt.cut}))
			w.run(30 * time.Second)
			w.want("meanwhile", w.phase("web"), "Running@a")
			w.run(15 * time.Minute)
			w.want("story", w.story(), tt.want)
			w.want("a", w.domains("a"), "")
			w.want("b", w.domains("b"), tt.b)
			for _, v := range w.fleet.Ledger().Violations() {
				t.Error(v)
			}
		})
	}
}

func TestHostFull(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.must(w.user.Create(t.Context(), &kvmv1.Hypervisor{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: kvmv1.DefaultHypervisorSpec(),
	}))
	var hv kvmv1.Hypervisor
	w.must(w.user.Get(t.Context(), keyOf("a"), &hv))
	hv.Status.EffectiveCapacity = map[kvmv1.ResourceName]resource.Quantity{kvmv1.ResourceMemory: resource.MustParse("2560Mi")}
	w.must(w.user.Status().Update(t.Context(), &hv))
	w.run(5 * time.Second)
	for i := range 3 {
		w.place(fmt.Sprintf("vm-%d", i), "a")
	}
	w.run(time.Minute)
	var full string
	for i := range 3 {
		name := fmt.Sprintf("vm-%d", i)
		if synchronizedOf(w.get(name)) == "False/HostFull" {
			full += name
		} else {
			w.want(name, w.phase(name), "Running@a")
		}
	}
	if strings.Count(full, "vm-") != 1 {
		t.Fatalf("full for %q, want one of three", full)
	}
	// Room comes, but the operator is about to place it anew.
	hv.Status.EffectiveCapacity[kvmv1.ResourceMemory] = resource.MustParse("25600Mi")
	w.must(w.user.Get(t.Context(), keyOf("a"), &hv))
	hv.Status.EffectiveCapacity = map[kvmv1.ResourceName]resource.Quantity{kvmv1.ResourceMemory: resource.MustParse("25600Mi")}
	w.must(w.user.Status().Update(t.Context(), &hv))
	w.run(20 * time.Minute)
	w.want("waits", w.phase(full), "Scheduled@a")
	w.change(full, func(v *kubevirtv1.VirtualMachineInstance) {
		delete(v.Labels, kubevirt.HostLabel("a"))
		v.Labels[kubevirt.HostLabel("b")], v.Status.NodeName = "", "b"
		v.Annotations[kubevirt.AnnotationRunToken] = "2"
	})
	w.run(time.Minute)
	w.want("placed anew", w.phase(full), "Running@b")
	if strings.Contains(w.domains("a"), full) {
		t.Errorf("a still has %s", w.domains("a"))
	}
}
