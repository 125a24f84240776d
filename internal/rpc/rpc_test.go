// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/internal/rpc"
	"github.com/adit-hv/adit/internal/rpc/rpctest"
)

// service answers as leader or not, after a while, and counts.
type service struct {
	follows atomic.Bool
	slow    atomic.Int64 // a Duration
	asked   atomic.Int64
	panics  bool

	mu        sync.Mutex
	now, most int // at once
}

func (s *service) Report(ctx context.Context, report *hav1.ReportRequest) (*hav1.ReportResponse, error) {
	s.asked.Add(1)
	s.count(1)
	defer s.count(-1)
	if s.panics {
		panic("a bug in the service")
	}
	select {
	case <-time.After(time.Duration(s.slow.Load())):
	case <-ctx.Done():
	}
	return &hav1.ReportResponse{Leader: !s.follows.Load(), Seq: report.Seq}, ctx.Err()
}

func (s *service) count(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += by
	s.most = max(s.most, s.now)
}

func authority(t testing.TB) *rpctest.Authority {
	t.Helper()
	a, err := rpctest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func write(t testing.TB, a *rpctest.Authority, dir string, leaf rpctest.Leaf) rpc.Files {
	t.Helper()
	files, err := a.Write(dir, leaf)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// serve starts a server and returns its address and what ends it. It ends with
// the test in any case.
func serve(t testing.TB, o rpc.ServerOptions) (string, func()) {
	t.Helper()
	o.Log = logr.Discard()
	if o.Address == "" && o.Socket == "" {
		o.Address = "127.0.0.1:0"
	}
	server, err := rpc.Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	t.Cleanup(end)
	return server.Address(), end
}

func client(t testing.TB, o rpc.ClientOptions) *rpc.Client {
	t.Helper()
	o.Log = logr.Discard()
	c, err := rpc.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func report(c *rpc.Client, host string) error {
	answer, err := c.Report(context.Background(), &hav1.ReportRequest{Host: host, Seq: 7})
	if err == nil && answer.Seq != 7 {
		err = fmt.Errorf("answer to report %d", answer.Seq)
	}
	return err
}

func TestAThousandHostsAreAnswered(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN: short")
	}
	const hosts = 1000
	a, s := authority(t), &service{}
	address, _ := serve(t, rpc.ServerOptions{Service: s, Longest: 5 * time.Minute, Files: write(t, a, t.TempDir(), rpctest.Leaf{CommonName: "service"})})
	dir := t.TempDir()
	var clients [hosts]*rpc.Client
	for i := range clients {
		files := write(t, a, dir, rpctest.Leaf{CommonName: host(i)})
		files.Reload = time.Hour // the next host's are written over them
		clients[i] = client(t, rpc.ClientOptions{Addresses: []string{address}, Files: files, Timeout: 5 * time.Minute})
	}
	for range 2 { // once with handshakes, once without
		var all sync.WaitGroup
		for i, c := range clients {
			all.Go(func() {
				if err := report(c, host(i)); err != nil {
					t.Errorf("%s: %v", host(i), err)
				}
			})
		}
		all.Wait()
	}
	// A report may have been asked twice: its handshake may have taken longer
	// than its share of the time.
	if n := s.asked.Load(); n < 2*hosts {
		t.Errorf("%d reports arrived of %d", n, 2*hosts)
	}
	if s.most > 32 {
		t.Errorf("%d were handled at once; 32 is the bound", s.most)
	}
}

func host(i int) string { return fmt.Sprintf("node%04d", i) }
