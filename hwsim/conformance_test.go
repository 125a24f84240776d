// SPDX-License-Identifier: Apache-2.0

package hwsim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/adit-hv/adit/hardware/conformance"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/sim"
)

var _ = conformance.Suite(conformance.Subject{Name: "hwsim", New: newLab})

var _ = conformance.PowerSuite(conformance.PowerSubject{Name: "hwsim's controllers", New: newPowerLab})

func TestConformance(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "hardware")
}

func newLab() conformance.Lab {
	s := sim.New(sim.Options{Seed: uint64(ginkgo.GinkgoRandomSeed())})
	f := hwsim.New(s, hwsim.Options{})
	must := func(err error) { gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred()) }
	lab := conformance.Lab{}
	names := []string{"node001", "node002", "node003"}
	for _, name := range names {
		h, err := f.AddHost(hwsim.HostSpec{Name: name, Model: "lab"})
		must(err)
		lab.Hosts = append(lab.Hosts, conformance.Host{Name: name, Host: h.Hardware("conformance")})
	}
	must(f.AddPool(hwsim.PoolSpec{Name: "shared", Shared: true}))
	must(f.AddPool(hwsim.PoolSpec{Name: "local"}))
	volumes := 0
	volume := func(pool string, hosts ...string) string {
		volumes++
		name := fmt.Sprintf("%s/volume-%d", pool, volumes)
		must(f.AddVolume(name, 64<<20, hosts...))
		return name
	}
	lab.Pool = "shared"
	lab.Volume = func() string { return volume("shared") }
	lab.LocalVolume = func() string { return volume("local", names...) }
	lab.Run = func(fn func()) { runOnTask(s, fn) }
	lab.Pass = func(d time.Duration) { s.Current().Sleep(d) }
	lab.Behave = func(uuid string, b conformance.Behaviour) error {
		f.SetGuest(uuid, hwsim.Guest{
			Agent: !b.NoAgent, IgnoresShutdown: b.Deaf,
			DirtyBytesPerSecond: b.BytesPerSecond, WorkingSetBytes: b.WorkingSet, UsedMemoryBytes: 200 << 20,
		})
		return nil
	}
	lab.Break = func(text string) (func(), error) { return breakIt(f, text) }
	return lab
}

func newPowerLab() conformance.PowerLab {
	s := sim.New(sim.Options{Seed: uint64(ginkgo.GinkgoRandomSeed())})
	f := hwsim.New(s, hwsim.Options{})
	h, err := f.AddHost(hwsim.HostSpec{Name: "node001", Model: "r640"})
	gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
	lab := conformance.PowerLab{Power: f.Power("node001", "conformance"), Host: "node001"}
	runOnTask(s, func() { lab.Identity, err = h.Hardware("conformance").Identity(context.Background()) })
	gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
	lab.State = func() bool { return h.State() != hwsim.HostOff }
	lab.Run = func(fn func()) { runOnTask(s, fn) }
	lab.Pass = func(d time.Duration) { s.Current().Sleep(d) }
	lab.Elapsed = s.Elapsed
	lab.Break = func(text string) (func(), error) { return breakIt(f, text) }
	return lab
}

func runOnTask(s *sim.Scheduler, fn func()) {
	done := false
	s.Go(func(*sim.Task) {
		defer func() { done = true }()
		fn()
	})
	s.RunWhile(func() bool { return !done })
}

// breakIt lets a fault begin; one the simulator cannot do is a failure and no
// skip.
func breakIt(f *hwsim.Fleet, text string) (heal func(), err error) {
	fault, err := hwsim.ParseFault(text)
	gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
	gomega.ExpectWithOffset(1, f.Inject(fault)).To(gomega.Succeed())
	return func() { f.Heal(fault) }, nil
}
