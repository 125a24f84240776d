// SPDX-License-Identifier: Apache-2.0

// Package rpctest makes certificates for tests and measurements: an authority,
// and what it signs, written as the files that package rpc reads. It must never
// be used where a certificate protects something.
package rpctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/adit-hv/adit/internal/rpc"
)

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

// Leaf is what a certificate says.
type Leaf struct {
	CommonName string
	DNSNames   []string
	// NotAfter is when it ends; zero is in an hour.
	NotAfter time.Time
}

// NewAuthority returns an authority that lasts an hour.
func NewAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &Authority{certificate: certificate, key: key, serial: 1}, err
}

// Write signs a certificate and writes it, its key and the authority into dir,
// over what is there. It serves 127.0.0.1 too.
func (a *Authority) Write(dir string, leaf Leaf) (rpc.Files, error) {
	files := rpc.Files{
		Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), Authority: filepath.Join(dir, "ca.crt"),
	}
	if leaf.NotAfter.IsZero() {
		leaf.NotAfter = time.Now().Add(time.Hour)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return files, err
	}
	a.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: leaf.CommonName}, DNSNames: leaf.DNSNames,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-2 * time.Hour), NotAfter: leaf.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return files, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return files, err
	}
	for _, f := range []struct {
		name, kind string
		der        []byte
	}{{files.Key, "PRIVATE KEY", keyDER}, {files.Certificate, "CERTIFICATE", der}, {files.Authority, "CERTIFICATE", a.certificate.Raw}} {
		data := pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})
		if err := os.WriteFile(f.name, data, 0o600); err != nil {
			return files, fmt.Errorf("write a certificate: %w", err)
		}
	}
	return files, nil
}
