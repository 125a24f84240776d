// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"crypto/tls"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/adit-hv/adit/internal/rpc"
	"github.com/adit-hv/adit/internal/rpc/rpctest"
)

func TestWhoMayReportForWhichHost(t *testing.T) {
	ours, theirs := authority(t), authority(t)
	past := time.Now().Add(-time.Minute)
	const serviceName = "ha.adit.svc"
	for _, test := range []struct {
		name           string
		server, client rpctest.Leaf
		by, to         *rpctest.Authority // who signed the client's, the server's
		host           string
		code           codes.Code
		says           string
	}{
		{name: "a certificate's DNS name", client: rpctest.Leaf{DNSNames: []string{"other", "node1"}}, host: "node1"},
		{name: "a certificate's common name, where it has no DNS name", client: rpctest.Leaf{CommonName: "node1"}, host: "node1"},
		{name: "not the common name beside DNS names", client: rpctest.Leaf{CommonName: "node1", DNSNames: []string{"node2"}}, host: "node1", code: codes.PermissionDenied, says: `may not report for host "node1"`},
		{name: "no other host", client: rpctest.Leaf{CommonName: "node2"}, host: "node1", code: codes.PermissionDenied, says: `"node2"`},
		{name: "no wildcard", client: rpctest.Leaf{DNSNames: []string{"*"}}, host: "node1", code: codes.PermissionDenied},
		{name: "not nobody", client: rpctest.Leaf{CommonName: ""}, host: "", code: codes.InvalidArgument},
		{name: "no certificate of a strange authority", client: rpctest.Leaf{CommonName: "node1"}, by: theirs, host: "node1", code: codes.Unavailable},
		{name: "no certificate of the past", client: rpctest.Leaf{CommonName: "node1", NotAfter: past}, host: "node1", code: codes.Unavailable, says: "expired"},
		{name: "to no service of a strange authority", client: rpctest.Leaf{CommonName: "node1"}, to: theirs, host: "node1", code: codes.Unavailable, says: "unknown authority"},
		{name: "to no service of the past", server: rpctest.Leaf{DNSNames: []string{serviceName}, NotAfter: past}, client: rpctest.Leaf{CommonName: "node1"}, host: "node1", code: codes.Unavailable, says: "expired"},
		{name: "to no host that plays the service", server: rpctest.Leaf{DNSNames: []string{"node2"}}, client: rpctest.Leaf{CommonName: "node1"}, host: "node1", code: codes.Unavailable, says: "not " + serviceName},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // A refusal takes all of the time that a report has.
			if len(test.server.DNSNames) == 0 {
				test.server.DNSNames = []string{serviceName}
			}
			by, to := ours, ours
			if test.by != nil {
				by = test.by
			}
			if test.to != nil {
				to = test.to
			}
			// Each side believes in ours, whoever signed its own.
			believed := write(t, ours, t.TempDir(), rpctest.Leaf{}).Authority
			serverFiles, clientFiles := write(t, to, t.TempDir(), test.server), write(t, by, t.TempDir(), test.client)
			serverFiles.Authority, clientFiles.Authority = believed, believed
			s := &service{}
			address, _ := serve(t, rpc.ServerOptions{Service: s, Files: serverFiles})
			c := client(t, rpc.ClientOptions{Addresses: []string{address}, ServerName: serviceName, Files: clientFiles, Timeout: 3 * time.Second})
			err := report(c, test.host)
			if got := codeOf(err); got != test.code {
				t.Errorf("%s: %v", got, err)
			}
			if err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v does not say %q", err, test.says)
			}
			if asked := s.asked.Load(); asked != 0 && test.code != codes.OK {
				t.Errorf("the report reached the service %d times", asked)
			}
		})
	}
}

// codeOf finds a status also among what a round joined.
func codeOf(err error) codes.Code {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) == 1 {
		return codeOf(joined.Unwrap()[0])
	}
	if wrapped, ok := err.(interface{ Unwrap() error }); ok && status.Code(err) == codes.Unknown {
		return codeOf(wrapped.Unwrap())
	}
	return status.Code(err)
}

func TestNoOldTLSAndNoStranger(t *testing.T) {
	a := authority(t)
	files := write(t, a, t.TempDir(), rpctest.Leaf{CommonName: "node1"})
	address, _ := serve(t, rpc.ServerOptions{Service: &service{}, Files: files})
	ours, err := tls.LoadX509KeyPair(files.Certificate, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(config *tls.Config) error {
		config.InsecureSkipVerify, config.NextProtos = true, []string{"h2"}
		conn, err := tls.Dial("tcp", address, config)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1)) // TLS 1.3 says here that a certificate was wanted
		return err
	}
	if err := dial(&tls.Config{Certificates: []tls.Certificate{ours}}); err != nil {
		t.Errorf("with a certificate and TLS 1.3: %v", err)
	}
	if err := dial(&tls.Config{Certificates: []tls.Certificate{ours}, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 was good enough")
	}
	if err := dial(&tls.Config{}); err == nil {
		t.Error("nobody was asked for a certificate")
	}
}

func TestFilesMustBeGoodAtTheBeginning(t *testing.T) {
	a := authority(t)
	good := write(t, a, t.TempDir(), rpctest.Leaf{CommonName: "node1"})
	other := write(t, a, t.TempDir(), rpctest.Leaf{CommonName: "node1"})
	for _, bad := range []rpc.Files{
		{},
		{Certificate: good.Certificate, Key: other.Key, Authority: good.Authority},
		{Certificate: good.Certificate, Key: good.Key, Authority: good.Key},
	} {
		if _, err := rpc.NewClient(rpc.ClientOptions{Addresses: []string{"127.0.0.1:1"}, Files: bad}); err == nil {
			t.Errorf("a client took %v", bad)
		}
		if _, err := rpc.Listen(rpc.ServerOptions{Address: "127.0.0.1:0", Files: bad}); err == nil {
			t.Errorf("a server took %v", bad)
		}
	}
}

// The files of both sides are replaced under them, the service's first: each
// side believes both authorities meanwhile, as with any change of a CA.
func TestCertificatesAreRotatedUnderRunningProcesses(t *testing.T) {
	before, after := authority(t), authority(t)
	serverDir, clientDir := t.TempDir(), t.TempDir()
	server := write(t, before, serverDir, rpctest.Leaf{CommonName: "service"})
	files := write(t, before, clientDir, rpctest.Leaf{CommonName: "node1"})
	server.Reload, files.Reload = 1, 1
	s := &service{}
	address, end := serve(t, rpc.ServerOptions{Service: s, Files: server})
	c := client(t, rpc.ClientOptions{Addresses: []string{address}, Files: files, Timeout: 2 * time.Second})
	if err := report(c, "node1"); err != nil {
		t.Fatal(err)
	}
	// reconnect has the next report make a handshake.
	reconnect := func() {
		end()
		_, end = serve(t, rpc.ServerOptions{Service: s, Files: server, Address: address})
	}

	write(t, after, clientDir, rpctest.Leaf{CommonName: "node1"})
	if err := report(c, "node1"); err != nil {
		t.Errorf("a living connection ended with its certificate's file: %v", err)
	}
	reconnect()
	if err := report(c, "node1"); err == nil {
		t.Error("the client still shows, or believes, what is gone")
	}
	write(t, after, serverDir, rpctest.Leaf{CommonName: "service"}) // under the running server
	if err := report(c, "node1"); err != nil {
		t.Errorf("after both sides were rotated: %v", err)
	}

	if err := os.WriteFile(files.Key, []byte("half a ke"), 0o600); err != nil {
		t.Fatal(err)
	}
	reconnect()
	if err := report(c, "node1"); err != nil {
		t.Errorf("in the middle of a rotation: %v", err)
	}
}
