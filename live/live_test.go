// SPDX-License-Identifier: Apache-2.0

package live_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/adit-hv/adit/internal/controlplane"
	"github.com/adit-hv/adit/live"
	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/scenarios"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// played are scenarios of the suite that touch all that differs from simulation:
// placement, migration and eviction, crashes of processes, the hung host whose
// processes stand still, election and fencing. High availability counts in
// seconds, and is played more slowly.
var played = []struct {
	name  string
	speed float64
}{
	{"drain-a-host", 20},
	{"host-loses-power", 10},
	{"operator-replicas", 20},
	{"agents-die-on-a-hung-host", 20},
	{"qemu-dies", 20},
}

func TestScenariosHoldOnARealAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN, for -short: scenarios on a real API server")
	}
	for _, tt := range played {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			found, err := scenarios.Find(tt.name)
			g.Expect(err).NotTo(HaveOccurred())
			s := found[0]
			g.Expect(s.NotLive("cluster")).To(BeEmpty())
			r := play(t, s, tt.speed)
			g.Expect(r.Violations).To(BeEmpty())
			g.Expect(r.Verdict).To(Equal("pass"))
			g.Expect(r.Mode).To(Equal("cluster"))
			g.Expect(r.APIWrites).NotTo(BeZero())
		})
	}
}

func play(t *testing.T, s *scenarios.Scenario, speed float64) reports.Record {
	t.Helper()
	g := NewWithT(t)
	plane, err := controlplane.Start(t.Context(), controlplane.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(plane.Stop()).To(Succeed()) })
	runtime, err := live.New(t.Context(), live.Options{Config: plane.Config(), Speed: speed})
	g.Expect(err).NotTo(HaveOccurred())
	return s.Run(scenarios.Options{Seed: 1, SkipSettle: true, Live: &scenarios.Live{Mode: "cluster", Runtime: runtime}}).Record
}

// TestARunThatFailsSaysSo: a run on a real API server can fail.
func TestARunThatFailsSaysSo(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN, for -short: scenarios on a real API server")
	}
	t.Parallel()
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "wrong.yaml")
	g.Expect(os.WriteFile(file, []byte(`
about: A VM is said to be where it is not.
for: 1m
fleet:
- {name: node, count: 1}
workload:
- {name: vm, count: 1, cpus: 1, memory: 1Gi}
expect:
- {end: 'vm["vm-1"].host == "node001" && vm["vm-1"].running'}
- {end: 'vm["vm-1"].host == "node002"'}
`), 0o600)).To(Succeed())
	s, err := scenarios.Load(file)
	g.Expect(err).NotTo(HaveOccurred())
	r := play(t, s, 10)
	g.Expect(r.Verdict).To(Equal("fail"))
	g.Expect(r.Violations).To(HaveLen(1))
	g.Expect(r.Violations[0].Rule).To(ContainSubstring("node002"))
}

// TestAClusterIsLeftAsItWas plays where a control plane is there already. The VM
// that still runs has a finalizer.
func TestAClusterIsLeftAsItWas(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN, for -short: a world in a cluster of somebody's")
	}
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	plane, err := controlplane.Start(ctx, controlplane.Options{Controllers: true})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(plane.Stop()).To(Succeed()) })
	config := plane.Config()
	g.Expect(live.IsFree(ctx, config)).To(Succeed())

	s, err := scenarios.Parse("short", []byte("about: a short one\nfor: 30s\nfleet: [{name: node, count: 2}]\nworkload: [{name: vm, count: 1, cpus: 1, memory: 1Gi}]\nexpect: [{end: 'vm[\"vm-1\"].running'}]\n"), nil)
	g.Expect(err).NotTo(HaveOccurred())
	runtime, err := live.New(ctx, live.Options{Config: config, Speed: 10})
	g.Expect(err).NotTo(HaveOccurred())
	r := s.Run(scenarios.Options{Seed: 1, SkipSettle: true, Live: &scenarios.Live{Mode: "cluster", Runtime: runtime}}).Record
	g.Expect(r.Violations).To(BeEmpty())

	g.Expect(live.IsFree(ctx, config)).To(MatchError(ContainSubstring("play on one that holds nothing of Adit")))
	g.Expect(live.Clean(ctx, config)).To(Succeed())
	g.Expect(live.IsFree(ctx, config)).To(Succeed())
}
