// SPDX-License-Identifier: Apache-2.0

package hwsim_test

import (
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
	lab.Volume = func() string { return volume("shared") }
	lab.LocalVolume = func() string { return volume("local", names...) }
	lab.Run = func(fn func()) {
		done := false
		s.Go(func(*sim.Task) {
			defer func() { done = true }()
			fn()
		})
		s.RunWhile(func() bool { return !done })
	}
	lab.Pass = func(d time.Duration) { s.Current().Sleep(d) }
	lab.Behave = func(uuid string, b conformance.Behaviour) error {
		f.SetGuest(uuid, hwsim.Guest{
			Agent: !b.NoAgent, IgnoresShutdown: b.Deaf,
			DirtyBytesPerSecond: b.BytesPerSecond, WorkingSetBytes: b.WorkingSet, UsedMemoryBytes: 200 << 20,
		})
		return nil
	}
	lab.Break = func(text string) (func(), error) {
		fault, err := hwsim.ParseFault(text)
		must(err) // a fault the simulator cannot do is a failure, not a skip
		must(f.Inject(fault))
		return func() { f.Heal(fault) }, nil
	}
	return lab
}
