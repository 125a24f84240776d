// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/sim"
)

func BenchmarkTyped(b *testing.B) { benchmarkWrites(b, Typed) }
func BenchmarkFull(b *testing.B)  { benchmarkWrites(b, Full) }

// benchmarkWrites counts status updates, of an object with conditions, that an
// informer follows.
func benchmarkWrites(b *testing.B, f Fidelity) {
	s := sim.New(sim.Options{Seed: 1})
	c := toyCluster(b, s, Options{Fidelity: f})
	c.Process("operator", ProcessOptions{}, setupToy(s)).Start()
	person := c.Client("person")
	machines := make([]*Machine, 100)
	for i := range machines {
		machines[i] = &Machine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i), Labels: map[string]string{"zone": "a"}}, Spec: MachineSpec{Slots: 4, Extra: map[string]string{"a": "b"}}}
		if err := person.Create(background, machines[i]); err != nil {
			b.Fatal(err)
		}
	}
	s.Run(time.Minute)
	b.ReportAllocs()
	from := cpuTime()
	for i := 0; b.Loop(); i++ {
		m := machines[i%len(machines)]
		now := metav1.NewTime(s.Now())
		m.Status.Seen = &now
		m.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Fine", Message: fmt.Sprint(i), LastTransitionTime: now}}
		if err := person.Status().Update(background, m); err != nil {
			b.Fatal(err)
		}
		if i%100 == 99 {
			s.Run(s.Elapsed() + 10*time.Second)
		}
	}
	b.ReportMetric(float64(b.N)/(cpuTime()-from).Seconds(), "writes/cpu-s")
}

// cpuTime is the process's: machines that test are busy ones.
func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // cannot fail for oneself
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func BenchmarkMergePatch(b *testing.B) {
	s := sim.New(sim.Options{Seed: 1})
	c := toyCluster(b, s, Options{})
	person := c.Client("person")
	m := &Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: MachineSpec{Slots: 4}}
	if err := person.Create(background, m); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		before := m.DeepCopyObject().(*Machine)
		m.Status.Jobs = int32(i)
		if err := person.Status().Patch(background, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

// BenchmarkToy is a whole run: 30 jobs on 5 machines for two minutes.
func BenchmarkToy(b *testing.B) {
	var events uint64
	for i := 0; b.Loop(); i++ {
		s := sim.New(sim.Options{Seed: uint64(i)})
		c := playToy(b, s, Options{}, nil)
		c.Close()
		events += s.Events()
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}
