// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/credentials"
)

// Files are PEM files that say who we are and whom we believe. They may be
// rotated under a running process.
type Files struct {
	Certificate string // with its chain
	Key         string
	Authority   string // the CA of the other side

	// Reload is how long what was read counts before a handshake reads the files
	// again. Zero is 5 s.
	Reload time.Duration
}

// identity holds what the files said last. Files that do not fit together, as
// in the middle of a rotation, are passed over: the last good ones count.
type identity struct {
	files Files
	log   logr.Logger

	mu          sync.Mutex
	looked      time.Time
	content     [3][]byte
	certificate tls.Certificate
	authority   *x509.CertPool
}

// newIdentity reads the files, which have to be good at the beginning.
func newIdentity(files Files, log logr.Logger) (*identity, error) {
	if files.Reload == 0 {
		files.Reload = 5 * time.Second
	}
	id := &identity{files: files, log: log}
	return id, id.read()
}

// config is today's configuration for one handshake.
func (id *identity) config() *tls.Config {
	id.mu.Lock()
	defer id.mu.Unlock()
	if time.Since(id.looked) >= id.files.Reload {
		if err := id.read(); err != nil {
			id.log.Error(err, "Kept the certificates read before")
		}
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{id.certificate},
		RootCAs:      id.authority,
		ClientCAs:    id.authority,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		// A resumed session would not look at the certificates again.
		SessionTicketsDisabled: true,
	}
}

func (id *identity) read() error {
	id.looked = time.Now()
	var content [3][]byte
	for i, name := range []string{id.files.Certificate, id.files.Key, id.files.Authority} {
		var err error
		if content[i], err = os.ReadFile(name); err != nil {
			return err
		}
	}
	if id.authority != nil && slices.EqualFunc(content[:], id.content[:], bytes.Equal) {
		return nil
	}
	certificate, err := tls.X509KeyPair(content[0], content[1])
	if err != nil {
		return fmt.Errorf("%s with %s: %w", id.files.Certificate, id.files.Key, err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(content[2]) {
		return fmt.Errorf("%s holds no certificate in PEM", id.files.Authority)
	}
	id.content, id.certificate, id.authority = content, certificate, authority
	return nil
}

// handshakes are gRPC's TLS credentials, made anew for each handshake.
type handshakes struct{ *identity }

func (h handshakes) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := h.config()
	// In TLS 1.3 a server's refusal may get lost in the noise of the connection's
	// end. This, the commonest one, is said here.
	if ends := config.Certificates[0].Leaf.NotAfter; time.Now().After(ends) {
		return nil, nil, fmt.Errorf("the certificate in %s expired at %s", h.files.Certificate, ends.Format(time.RFC3339))
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

func (h handshakes) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	tlsConn, info, err := credentials.NewTLS(h.config()).ServerHandshake(conn)
	if err != nil {
		h.log.V(1).Info("Refused a connection", "from", conn.RemoteAddr().String(), "why", err.Error())
	}
	return tlsConn, info, err
}

func (h handshakes) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (h handshakes) Clone() credentials.TransportCredentials { return h }

func (h handshakes) OverrideServerName(string) error {
	return errors.New("the server's name is its authority")
}

// names says whether a certificate names a host: a DNS name of it does, and
// where it has none, its common name. There are no wildcards.
func names(certificate *x509.Certificate, host string) bool {
	if len(certificate.DNSNames) > 0 {
		return slices.Contains(certificate.DNSNames, host)
	}
	return host != "" && certificate.Subject.CommonName == host
}
