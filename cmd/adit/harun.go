// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"
	"time"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/testbed"
)

// readRun plays a scenario up to a moment and reads from its fleet.
func (f *haFlags) readRun(t *testing.T, host string, show func(*kvmv1.Hypervisor, []v1alpha1.Evacuation, time.Time)) error {
	if f.cluster != (clusterFlags{}) {
		return fmt.Errorf("--run reads from the simulator, --kubeconfig and --context from a cluster; leave out one of the two")
	}
	found, err := load([]string{f.run})
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("--run %s names %d scenarios; name one", f.run, len(found))
	}
	s := found[0]
	switch {
	case s.Spec.HA == nil:
		return fmt.Errorf("%s has no high availability; its file has no field ha", s.Name)
	case f.at < 0 || f.at > s.For:
		return fmt.Errorf("--at %v is not within the run, which lasts %v", f.at, s.For)
	case f.at == 0:
		f.at = s.For
	}
	var failed error
	err = s.LookAt(scenarios.Options{Seed: f.seed, T: t}, f.at, func(w *testbed.World) {
		h := w.Hypervisor(host)
		if h == nil {
			failed = fmt.Errorf("%s has no host %s at %v; %s", s.Name, host, f.at, s.Spec.HostsSaid())
			return
		}
		show(h, w.Evacuations(host), w.Scheduler.Now())
	})
	if err != nil {
		return err
	}
	return failed
}
