// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/internal/rpc"
)

// short is a folder whose name fits into a socket's address.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rpc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestASocketIsItsOwnersAlone(t *testing.T) {
	path := filepath.Join(short(t), "ha.sock")
	_, end := serve(t, rpc.ServerOptions{Service: &service{}, Socket: path})
	info, err := os.Stat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	c := client(t, rpc.ClientOptions{Addresses: []string{"unix://" + path}})
	for _, host := range []string{"node1", "node2"} { // whoever may open it speaks for all
		if err := report(c, host); err != nil {
			t.Error(err)
		}
	}
	if _, err := rpc.Listen(rpc.ServerOptions{Service: &service{}, Socket: path}); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a second server on a living socket: %v", err)
	}
	end()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 0 {
		t.Errorf("left in its folder: %v", left)
	}
}

func TestADeadProcessesSocketIsReplacedAndAFileIsNot(t *testing.T) {
	path := filepath.Join(short(t), "ha.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	_, end := serve(t, rpc.ServerOptions{Service: &service{}, Socket: path})
	if err := report(client(t, rpc.ClientOptions{Addresses: []string{"unix://" + path}}), "node1"); err != nil {
		t.Error(err)
	}
	end()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := rpc.Listen(rpc.ServerOptions{Service: &service{}, Socket: path}); err == nil {
		t.Error("a file was taken for a socket")
	}
	if data, _ := os.ReadFile(path); string(data) != "precious" {
		t.Error("a file was overwritten")
	}
}

func TestReportsWaitForTheirTurn(t *testing.T) {
	s, path := &service{}, filepath.Join(short(t), "ha.sock")
	s.slow.Store(int64(50 * time.Millisecond))
	serve(t, rpc.ServerOptions{Service: s, Socket: path, AtOnce: 2})
	var all sync.WaitGroup
	for range 10 {
		c := client(t, rpc.ClientOptions{Addresses: []string{"unix://" + path}})
		all.Go(func() {
			if err := report(c, "node1"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if s.most != 2 {
		t.Errorf("%d were handled at once; 2 is the bound", s.most)
	}
}

func TestABugInTheServiceEndsOneReport(t *testing.T) {
	s, path := &service{panics: true}, filepath.Join(short(t), "ha.sock")
	serve(t, rpc.ServerOptions{Service: s, Socket: path, AtOnce: 1})
	c := client(t, rpc.ClientOptions{Addresses: []string{"unix://" + path}, Timeout: 300 * time.Millisecond})
	if err := report(c, "node1"); codeOf(err) != codes.Internal {
		t.Error(err)
	}
	s.panics = false
	if err := report(c, "node1"); err != nil {
		t.Errorf("the next: %v", err)
	}
}

// A client that is not ours may ask what ours never would.
func TestBoundsHoldAgainstAnyClient(t *testing.T) {
	s, path := &service{}, filepath.Join(short(t), "ha.sock")
	serve(t, rpc.ServerOptions{Service: s, Socket: path, Longest: 2 * time.Second})
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func(timeout time.Duration, r *hav1.ReportRequest) codes.Code {
		ctx := t.Context()
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		_, err := hav1.NewHighAvailabilityClient(conn).Report(ctx, r)
		return codeOf(err)
	}
	for _, test := range []struct {
		name    string
		timeout time.Duration
		report  *hav1.ReportRequest
		code    codes.Code
	}{
		{"what is right", time.Second, &hav1.ReportRequest{Host: "node1"}, codes.OK},
		{"no deadline", 0, &hav1.ReportRequest{Host: "node1"}, codes.InvalidArgument},
		{"a far deadline", time.Minute, &hav1.ReportRequest{Host: "node1"}, codes.InvalidArgument},
		{"too large", time.Second, &hav1.ReportRequest{Host: "node1", Boot: strings.Repeat("b", 2<<20)}, codes.ResourceExhausted},
		{"nobody's", time.Second, &hav1.ReportRequest{}, codes.InvalidArgument},
	} {
		if code := ask(test.timeout, test.report); code != test.code {
			t.Errorf("%s: %s", test.name, code)
		}
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("%d reports reached the service", n)
	}
}
