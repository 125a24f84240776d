// SPDX-License-Identifier: Apache-2.0

package live

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/adit-hv/adit/kubesim"
)

// api answers each request with a status, and watches with bytes that never end.
func api(t *testing.T, status int) (string, *transport, *gate) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		for r.URL.Query().Get("watch") != "" && r.Context().Err() == nil {
			_, _ = w.Write([]byte("x"))
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
	}))
	t.Cleanup(server.Close)
	g := newGate()
	return server.URL, &transport{gate: g, next: http.DefaultTransport, client: "nova/a", counts: &counts{each: map[kubesim.Count]uint64{}}}, g
}

func get(t *testing.T, tr *transport, url string) (*http.Response, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr.RoundTrip(request)
}

func TestACallWithoutTheRightToItIsRemembered(t *testing.T) {
	g := NewWithT(t)
	url, tr, _ := api(t, http.StatusForbidden)
	for range 2 {
		_, err := get(t, tr, url+"/api/v1/namespaces/kvm/secrets/bmc")
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(tr.counts.refused).To(Equal([]string{"nova/a may not get secrets"}))
	g.Expect(tr.counts.each).To(Equal(map[kubesim.Count]uint64{{Client: "nova/a", Verb: "get", Resource: "secrets"}: 2}))
}

func TestWhoIsCutOffReachesNothingAndLosesItsWatches(t *testing.T) {
	g := NewWithT(t)
	url, tr, gate := api(t, http.StatusOK)
	watch, err := get(t, tr, url+"/api/v1/nodes?watch=true")
	g.Expect(err).NotTo(HaveOccurred())
	defer watch.Body.Close()
	_, err = watch.Body.Read(make([]byte, 1))
	g.Expect(err).NotTo(HaveOccurred())

	gate.set(func() { gate.cut = true; gate.connects++ })
	_, err = io.ReadAll(watch.Body)
	g.Expect(err).To(HaveOccurred())
	_, err = get(t, tr, url+"/api/v1/nodes")
	g.Expect(err).To(MatchError(errCut))

	gate.set(func() { gate.cut = false; gate.connects++ })
	_, err = watch.Body.Read(make([]byte, 1))
	g.Expect(err).To(HaveOccurred(), "what broke stays broken")
	_, err = get(t, tr, url+"/api/v1/nodes")
	g.Expect(err).NotTo(HaveOccurred())
}

func TestWhoStandsStillWaitsAndWhoIsKilledIsGone(t *testing.T) {
	g := NewWithT(t)
	url, tr, gate := api(t, http.StatusOK)
	gate.set(func() { gate.paused = true })
	done := make(chan error, 1)
	go func() {
		_, err := get(t, tr, url+"/api/v1/nodes")
		done <- err
	}()
	g.Consistently(done, "50ms").ShouldNot(Receive())
	gate.set(func() { gate.paused = false })
	g.Eventually(done).Should(Receive(BeNil()))

	gate.set(func() { gate.paused = true })
	go func() {
		_, err := get(t, tr, url+"/api/v1/nodes")
		done <- err
	}()
	g.Consistently(done, "50ms").ShouldNot(Receive())
	gate.set(func() { gate.dead = true })
	g.Eventually(done).Should(Receive(MatchError(errDead)))
}
