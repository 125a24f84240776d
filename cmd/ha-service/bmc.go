// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hardware/redfish"
)

// annotationIdentity is where the node agent records which machine a Hypervisor
// is (agents/node, identity.go).
const annotationIdentity = "kvm.cloud.sap/identity"

// The keys of a Secret that leads to a management controller.
const (
	keyAddress   = "address"
	keyUsername  = corev1.BasicAuthUsernameKey
	keyPassword  = corev1.BasicAuthPasswordKey
	keyAuthority = "ca.crt"
	keyInsecure  = "insecureSkipVerify"
	keySession   = "session"
)

// controllers finds the hosts' management controllers. What it found it keeps, so
// that a controller is entered once and an API that does not answer keeps nobody
// from being fenced. Secrets are read anew after a while.
type controllers struct {
	hypervisors client.Reader
	secrets     client.Reader // past the cache: nobody watches Secrets here
	namespace   string
	timeout     time.Duration
	fresh       time.Duration // a Secret is not read again before

	mu    sync.Mutex
	known map[string]known // by host
}

// known is what a Client was made from.
type known struct {
	secret  string
	machine hardware.Controller
	version string // of the Secret
	power   *redfish.Client
	read    time.Time // the Secret, last
}

// fresh is how long a Secret that was read counts: the service asks for a host's
// controller whenever it looks at the host.
const fresh = 30 * time.Second

func newControllers(hypervisors, secrets client.Reader, f *flags) *controllers {
	return &controllers{hypervisors: hypervisors, secrets: secrets, namespace: f.namespace, timeout: f.bmcTimeout, fresh: fresh, known: map[string]known{}}
}

// Power returns the way to a host's management controller. An error says, for
// people, why there is none.
func (c *controllers) Power(host string) (hardware.Power, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	power, err := c.find(ctx, host)
	if err != nil {
		return nil, err // and not a Power that is nil
	}
	return power, nil
}

func (c *controllers) find(ctx context.Context, host string) (*redfish.Client, error) {
	var h kvmv1.Hypervisor
	if err := c.hypervisors.Get(ctx, client.ObjectKey{Name: host}, &h); err != nil {
		return nil, fmt.Errorf("its Hypervisor cannot be read: %w", err)
	}
	now := known{secret: h.Annotations[kvmv1.AnnotationBMC]}
	if now.secret == "" {
		return nil, fmt.Errorf("it has no management controller that is known: annotate its Hypervisor with %s, the name of a Secret", kvmv1.AnnotationBMC)
	}
	var recorded struct{ ProductUUID, Serial string }
	_ = json.Unmarshal([]byte(h.Annotations[annotationIdentity]), &recorded) // what says nothing is refused below
	now.machine = hardware.Controller{SystemUUID: recorded.ProductUUID, Serial: recorded.Serial}

	c.mu.Lock()
	before := c.known[host]
	c.mu.Unlock()
	same := before.power != nil && before.secret == now.secret && before.machine == now.machine
	if same && time.Since(before.read) < c.fresh {
		return before.power, nil
	}
	now.read = time.Now()
	var secret corev1.Secret
	err := c.secrets.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: now.secret}, &secret)
	if err != nil && same && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return before.power, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the Secret %s/%s, which leads to its management controller: %w", c.namespace, now.secret, err)
	}
	now.version = string(secret.UID) + " " + secret.ResourceVersion
	if same && before.version == now.version {
		now.power = before.power
	} else if now.power, err = c.open(&secret, now.machine); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[host] = now
	if before.power != nil && before.power != now.power {
		go leave(before.power)
	}
	return now.power, nil
}

func (c *controllers) open(secret *corev1.Secret, machine hardware.Controller) (*redfish.Client, error) {
	o, err := options(secret)
	if err != nil {
		return nil, fmt.Errorf("the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	o.Machine, o.Timeout = machine, c.timeout
	power, err := redfish.New(o)
	if err != nil {
		return nil, fmt.Errorf("the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return power, nil
}

// leave logs out of a controller, if it can.
func leave(power *redfish.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = power.Close(ctx) // it forgets us by itself, later
}

// options reads a Secret.
func options(secret *corev1.Secret) (redfish.Options, error) {
	text := func(key string) string { return strings.TrimSpace(string(secret.Data[key])) }
	o := redfish.Options{
		URL: text(keyAddress), User: text(keyUsername), Password: string(secret.Data[keyPassword]),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	var missing []string
	for _, key := range []string{keyAddress, keyUsername, keyPassword} {
		if text(key) == "" {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return o, fmt.Errorf("without %s", strings.Join(missing, " and "))
	}
	var err1, err2 error
	o.Session, err1 = yes(secret, keySession)
	o.TLS.InsecureSkipVerify, err2 = yes(secret, keyInsecure)
	if authority := secret.Data[keyAuthority]; len(authority) > 0 {
		o.TLS.RootCAs = x509.NewCertPool()
		if !o.TLS.RootCAs.AppendCertsFromPEM(authority) {
			return o, fmt.Errorf("%s holds no certificate in PEM", keyAuthority)
		}
	}
	return o, errors.Join(err1, err2)
}

// yes reads a key that is "true", "false" or missing.
func yes(secret *corev1.Secret, key string) (bool, error) {
	switch s := strings.TrimSpace(string(secret.Data[key])); s {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, fmt.Errorf("%s is %q; it is true or false", key, s)
	}
}
