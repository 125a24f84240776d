// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/adit-hv/adit/sim"
)

// world is a paced scheduler whose owner is the test.
func world(speed float64) *pace {
	p := newPace(speed)
	p.s = sim.New(sim.Options{Seed: 1})
	return p
}

func TestTheWorldFollowsTheWallClockTimesItsSpeed(t *testing.T) {
	g, p := NewWithT(t), world(100)
	var fired []time.Duration
	for _, at := range []time.Duration{time.Second, 10 * time.Second, 20 * time.Second} {
		p.s.At(at, func() { fired = append(fired, p.s.Elapsed()) })
	}
	began := time.Now()
	p.run(t.Context(), 15*time.Second)
	g.Expect(fired).To(Equal([]time.Duration{time.Second, 10 * time.Second}))
	g.Expect(time.Since(began)).To(BeNumerically(">=", 150*time.Millisecond), "it does not run ahead")
	g.Expect(p.s.Elapsed()).To(Equal(15 * time.Second))
}

func TestGoroutinesEnterOneAtATimeAndWaitForTheWorld(t *testing.T) {
	g, p := NewWithT(t), world(100)
	inside, entered := 0, 0
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			done := make(chan struct{})
			p.do(func() {
				inside++
				g.Expect(inside).To(Equal(1))
				entered++
				inside--
				p.s.Go(func(task *sim.Task) {
					task.Sleep(5 * time.Second)
					close(done)
				})
			})
			<-done
		})
	}
	p.run(t.Context(), 20*time.Second)
	all.Wait()
	g.Expect(entered).To(Equal(50))
}

func TestAWorldThatIsOverLetsNobodyIn(t *testing.T) {
	g, p := NewWithT(t), world(1)
	p.close()
	p.do(func() { g.Fail("somebody got in") })
}

func TestTheEndOfItsContextEndsARun(t *testing.T) {
	g, p := NewWithT(t), world(1)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	p.run(ctx, time.Hour)
	g.Expect(p.s.Elapsed()).To(BeNumerically("<", time.Hour))
}

func TestAClockIsReadWithoutTheLockAndFollowsWhatIsDoneToIt(t *testing.T) {
	g, p := NewWithT(t), world(50)
	off := time.Duration(0)
	clock := wallClock{p.follow("a clock", func() time.Duration { return p.s.Elapsed() + off }), sim.Epoch}
	p.s.At(time.Second, func() { off = time.Hour })
	read := make(chan time.Duration, 1)
	p.s.At(2*time.Second, func() {
		go func() { read <- clock.Now().Sub(sim.Epoch) }()
		g.Eventually(read).Should(Receive(BeNumerically("~", time.Hour+2*time.Second, 10*time.Second)), "the lock is held meanwhile")
	})
	p.run(t.Context(), 3*time.Second)
}

func TestRequestsAreNamedAsTheAPIServerNamesThem(t *testing.T) {
	for _, tt := range []struct{ method, path, content, verb, resource string }{
		{"GET", "/api/v1/nodes", "", "list", "nodes"},
		{"GET", "/api/v1/nodes/a", "", "get", "nodes"},
		{"GET", "/api/v1/nodes?watch=true", "", "watch", "nodes"},
		{"POST", "/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstances", "", "create", "virtualmachineinstances"},
		{"PATCH", "/apis/kvm.cloud.sap/v1/hypervisors/a/status", "application/merge-patch+json", "patch", "hypervisors/status"},
		{"PATCH", "/apis/kvm.cloud.sap/v1/hypervisors/a", "application/apply-patch+yaml", "apply", "hypervisors"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/kvm/leases/a", "", "update", "leases"},
		{"GET", "/api/v1/namespaces/vms", "", "get", "namespaces"},
		{"GET", "/version", "", "get", ""},
	} {
		u, err := url.Parse("https://api" + tt.path)
		if err != nil {
			t.Fatal(err)
		}
		verb, resource := requestInfo(&http.Request{Method: tt.method, URL: u, Header: http.Header{"Content-Type": {tt.content}}})
		if verb != tt.verb || resource != tt.resource {
			t.Errorf("%s %s: %s %s, want %s %s", tt.method, tt.path, verb, resource, tt.verb, tt.resource)
		}
	}
}
