// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/adit-hv/adit/internal/controlplane"
	"github.com/adit-hv/adit/live"
	"github.com/adit-hv/adit/reports"
	"github.com/adit-hv/adit/testbed"
)

// TestAnInterruptLeavesSomebodysClusterAsItWas plays on a cluster that was there,
// and stops in the middle.
func TestAnInterruptLeavesSomebodysClusterAsItWas(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN, for -short: an interrupted run on a real API server")
	}
	g, ctx := NewWithT(t), t.Context()
	plane, err := controlplane.Start(ctx, controlplane.Options{Controllers: true})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(plane.Stop()).To(Succeed()) })

	f := runFlags{mode: modeCluster, speed: 1, output: "text", fidelity: "typed", seeds: 1, jobs: 1, cluster: clusterFlags{kubeconfig: plane.Kubeconfig()}}
	jobs, err := plan(t, f, []string{write(t, "long.yaml", strings.Replace(passing, "2m", "10h", 1))})
	g.Expect(err).NotTo(HaveOccurred())
	interrupts, ended := make(chan os.Signal, 1), make(chan bool, 1)
	go func() {
		_, interrupted := playAll(jobs, f, func(int, reports.Record) {}, interrupts)
		ended <- interrupted
	}()
	g.Eventually(func() error { return live.IsFree(ctx, plane.Config()) }).WithTimeout(time.Minute).ShouldNot(Succeed())
	interrupts <- os.Interrupt
	g.Eventually(ended).WithTimeout(3 * time.Minute).Should(Receive(BeTrue()))
	g.Expect(live.IsFree(ctx, plane.Config())).To(Succeed())
}

func TestTheExamplesOfOrdersAreOrders(t *testing.T) {
	spec, err := upFlags{hosts: 6, vms: 5, zones: 3, speed: 1}.fleet(nil)
	if err != nil {
		t.Fatal(err)
	}
	check := map[string]func(string) error{
		"adit fault ": func(text string) error {
			fault, err := testbed.ParseFault(text)
			if err != nil {
				return err
			}
			return fault.Check(spec)
		},
		"adit do ": func(text string) error {
			action, err := testbed.ParseAction(text)
			if err != nil {
				return err
			}
			return action.Check(spec)
		},
	}
	checked := 0
	for line := range strings.Lines(newFault().Example + "\n" + newDo().Example) {
		for begin, check := range check {
			if text, ours := strings.CutPrefix(strings.TrimSpace(line), begin); ours {
				checked++
				if err := check(text); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
		}
	}
	if checked != 5 {
		t.Errorf("%d examples were checked, and there are 5", checked)
	}
}
