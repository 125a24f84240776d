// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/internal/rpc"
	"github.com/adit-hv/adit/internal/rpc/rpctest"
)

// fleet is some replicas and a client of them.
type fleet struct {
	files     rpc.Files
	replicas  []*service
	addresses []string
	ends      []func()
}

func replicas(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{files: write(t, authority(t), t.TempDir(), rpctest.Leaf{CommonName: "node1"})}
	for range n {
		s := &service{}
		s.follows.Store(true)
		address, end := serve(t, rpc.ServerOptions{Service: s, Files: f.files})
		f.replicas, f.addresses, f.ends = append(f.replicas, s), append(f.addresses, address), append(f.ends, end)
	}
	return f
}

func (f *fleet) client(t *testing.T, timeout time.Duration) *rpc.Client {
	return client(t, rpc.ClientOptions{Addresses: f.addresses, Files: f.files, Timeout: timeout})
}

func (f *fleet) asked() []int64 {
	var n []int64
	for _, r := range f.replicas {
		n = append(n, r.asked.Swap(0))
	}
	return n
}

func TestTheLeaderIsFoundRememberedAndFollowed(t *testing.T) {
	f := replicas(t, 3)
	c := f.client(t, 2*time.Second)
	for _, leader := range []int{1, 2, 0} {
		for i, r := range f.replicas {
			r.follows.Store(i != leader)
		}
		for range 5 {
			if err := report(c, "node1"); err != nil {
				t.Fatalf("replica %d leads: %v", leader, err)
			}
		}
		for i, n := range f.asked() {
			if i == leader && n != 5 || i != leader && n > 1 {
				t.Errorf("replica %d leads; replica %d was asked %d times", leader, i, n)
			}
		}
	}
}

func TestADeadLeaderIsLeft(t *testing.T) {
	f := replicas(t, 2)
	f.replicas[0].follows.Store(false)
	c := f.client(t, 2*time.Second)
	if err := report(c, "node1"); err != nil {
		t.Fatal(err)
	}
	f.ends[0]()
	f.replicas[1].follows.Store(false)
	if err := report(c, "node1"); err != nil {
		t.Errorf("after the leader's death: %v", err)
	}
}

// The new leader is elected while the client asks: one Report lasts over it.
func TestAReportWaitsForTheElection(t *testing.T) {
	f := replicas(t, 2)
	c := f.client(t, 4*time.Second)
	time.AfterFunc(500*time.Millisecond, func() { f.replicas[1].follows.Store(false) })
	if err := report(c, "node1"); err != nil {
		t.Error(err)
	}
	for i, n := range f.asked() {
		if n > 6 { // rounds begin after 0, 0.1 to 0.3 s, 0.2 to 0.6 s more, and so on
			t.Errorf("replica %d was asked %d times within an election of half a second", i, n)
		}
	}
}

func TestWithoutALeaderItSaysWhatEachAnswered(t *testing.T) {
	f := replicas(t, 2)
	f.ends[0]()
	begun := time.Now()
	err := report(f.client(t, 700*time.Millisecond), "node1")
	if err == nil {
		t.Fatal("nobody led, and there was an answer")
	}
	for _, words := range []string{f.addresses[0], "refused", f.addresses[1], "does not lead"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%v does not say %q", err, words)
		}
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("took %s of 700 ms", took)
	}
}

// A listener whose queue takes connections, and behind which nobody is.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestASilentReplicaTakesNoOthersTurn(t *testing.T) {
	f := replicas(t, 1)
	f.replicas[0].follows.Store(false)
	f.addresses = append(f.addresses, silent(t), silent(t))
	for range 5 { // whichever comes first
		if err := report(f.client(t, 2*time.Second), "node1"); err != nil {
			t.Error(err)
		}
	}
}

// What may have been taken is not sent again: the answer to its double grants
// nothing.
func TestASlowLeaderIsNotAskedTwice(t *testing.T) {
	f := replicas(t, 2)
	f.replicas[0].follows.Store(false)
	c := f.client(t, 2*time.Second)
	if err := report(c, "node1"); err != nil {
		t.Fatal(err)
	}
	f.asked()
	f.replicas[0].slow.Store(int64(1200 * time.Millisecond)) // more than the half that is its share
	err := report(c, "node1")
	if err == nil || !strings.Contains(err.Error(), "may have been taken") {
		t.Errorf("%v", err)
	}
	if n := f.asked()[0]; n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

func TestTheCallersDeadlineHolds(t *testing.T) {
	f := replicas(t, 1)
	f.replicas[0].follows.Store(false)
	f.replicas[0].slow.Store(int64(10 * time.Second))
	for name, c := range map[string]*rpc.Client{
		"slow leader": f.client(t, 3*time.Second),
		"silent":      client(t, rpc.ClientOptions{Addresses: []string{silent(t)}, Files: f.files, Timeout: 3 * time.Second}),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		begun := time.Now()
		_, err := c.Report(ctx, &hav1.ReportRequest{Host: "node1"})
		cancel()
		if took := time.Since(begun); err == nil || took > 600*time.Millisecond {
			t.Errorf("%s: %v after %s of 200 ms", name, err, took)
		}
	}
}

func TestARefusalIsSaidAtOnce(t *testing.T) {
	f := replicas(t, 2)
	begun := time.Now()
	err := report(f.client(t, 5*time.Second), "node2")
	if codeOf(err) != codes.PermissionDenied || time.Since(begun) > 2*time.Second {
		t.Errorf("%v after %s", err, time.Since(begun))
	}
}

// names is a resolver of ours.
type names struct {
	mu    sync.Mutex
	ips   []string
	err   error
	asked int
}

func (n *names) set(err error, ips ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ips, n.err = ips, err
}

func (n *names) LookUp(context.Context, string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	return n.ips, n.err
}

// Two replicas have one name and two addresses, as behind a headless Service.
func TestReplicasComeAndGoBehindAName(t *testing.T) {
	files := write(t, authority(t), t.TempDir(), rpctest.Leaf{CommonName: "node1", DNSNames: []string{"node1", "ha.adit.svc"}})
	old, new := &service{}, &service{}
	address, end := serve(t, rpc.ServerOptions{Service: old, Files: files})
	_, port, _ := net.SplitHostPort(address)
	serve(t, rpc.ServerOptions{Service: new, Files: files, Address: "127.0.0.2:" + port})
	n := &names{}
	c := client(t, rpc.ClientOptions{Addresses: []string{"ha.adit.svc:" + port}, Files: files, LookUp: n.LookUp, LookUpEvery: 1, Timeout: time.Second})

	n.set(errors.New("no such host"))
	if err := report(c, "node1"); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("unresolved: %v", err)
	}
	n.set(nil, "127.0.0.1")
	if err := report(c, "node1"); err != nil {
		t.Errorf("resolved: %v", err)
	}
	asked := n.asked
	if err := report(c, "node1"); err != nil || n.asked != asked {
		t.Errorf("while a leader answers: %v, looked up %d times more", err, n.asked-asked)
	}
	end()
	n.set(nil, "127.0.0.2")
	if err := report(c, "node1"); err != nil {
		t.Errorf("replaced: %v", err)
	}
	n.set(errors.New("resolver gone"))
	new.follows.Store(true)
	time.AfterFunc(300*time.Millisecond, func() { new.follows.Store(false) })
	if err := report(c, "node1"); err != nil {
		t.Errorf("the resolver is gone and the replica is not: %v", err)
	}
}
