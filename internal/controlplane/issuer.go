// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// validity is that of all certificates: no control plane of ours lives as long.
const validity = 30 * 24 * time.Hour

// issuer signs the certificates of one control plane.
type issuer struct {
	key  crypto.Signer
	cert *x509.Certificate
}

// newIssuer makes an authority and writes what the API server needs: ca.crt,
// apiserver.crt and .key, and sa.key for the tokens of service accounts.
func newIssuer(folder string) (*issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "adit-controlplane"}, key)
	if err != nil {
		return nil, err
	}
	i := &issuer{key, ca}
	serving, servingKey, err := i.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, err
	}
	tokens, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	tokensPEM, err := keyutil.MarshalPrivateKeyToPEM(tokens)
	if err != nil {
		return nil, err
	}
	for name, text := range map[string][]byte{"ca.crt": i.caPEM(), "apiserver.crt": serving, "apiserver.key": servingKey, "sa.key": tokensPEM} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	return i, nil
}

func (i *issuer) caPEM() []byte {
	pem, _ := cert.EncodeCertificates(i.cert) // It fails for no certificate that was parsed.
	return pem
}

// client returns the certificate of a user: the API server takes the common
// name for the user's and the organizations for the groups.
func (i *issuer) client(user string, groups []string) (certPEM, keyPEM []byte, err error) {
	return i.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (i *issuer) issue(template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, nil, err
	}
	template.NotBefore, template.NotAfter = i.cert.NotBefore, time.Now().Add(validity)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, i.cert, key.Public(), i.key)
	if err != nil {
		return nil, nil, err
	}
	issued, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, nil, err
	}
	certPEM, err = cert.EncodeCertificates(issued)
	return certPEM, keyPEM, err
}
