// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
)

// lab is an API with a host and its Secret, and the host's controller.
type lab struct {
	api  client.WithWatch
	bmc  *httptest.Server
	dead error // of reading Secrets
	c    *controllers
}

const serial = "SN1"

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{bmc: httptest.NewTLSServer(http.HandlerFunc(redfishOfOne))}
	t.Cleanup(l.bmc.Close)
	h := &kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: "node1", Annotations: map[string]string{
		kvmv1.AnnotationBMC: "bmc1", annotationIdentity: `{"machineID":"m","serial":"` + serial + `"}`,
	}}}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.bmc.Certificate().Raw})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kvm", Name: "bmc1"}, Data: map[string][]byte{
		keyAddress: []byte(l.bmc.URL + "\n"), keyUsername: []byte("ha"), keyPassword: []byte("secret"), keyAuthority: ca,
	}}
	get := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, ok := o.(*corev1.Secret); ok && l.dead != nil {
			return l.dead
		}
		return c.Get(ctx, key, o, opts...)
	}
	l.api = fake.NewClientBuilder().WithScheme(scheme()).WithObjects(h, secret).WithInterceptorFuncs(interceptor.Funcs{Get: get}).Build()
	f := defaults()
	l.c = newControllers(l.api, l.api, f)
	l.c.fresh = 0
	return l
}

// redfishOfOne is a controller of one machine that is on.
func redfishOfOne(w http.ResponseWriter, r *http.Request) {
	if user, password, _ := r.BasicAuth(); user != "ha" || password != "secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	link := func(path string) any { return map[string]string{"@odata.id": path} }
	answers := map[string]any{
		"/redfish/v1/":          map[string]any{"Systems": link("/redfish/v1/Systems")},
		"/redfish/v1/Systems":   map[string]any{"Members": []any{link("/redfish/v1/Systems/1")}},
		"/redfish/v1/Systems/1": map[string]any{"SerialNumber": serial, "PowerState": "On"},
	}
	_ = json.NewEncoder(w).Encode(answers[r.URL.Path])
}

// mend changes the Secret.
func (l *lab) mend(t *testing.T, change func(map[string][]byte)) {
	t.Helper()
	var secret corev1.Secret
	if err := l.api.Get(t.Context(), client.ObjectKey{Namespace: "kvm", Name: "bmc1"}, &secret); err != nil {
		t.Fatal(err)
	}
	change(secret.Data)
	if err := l.api.Update(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
}

// annotate changes the host's annotations.
func (l *lab) annotate(t *testing.T, key, value string) {
	t.Helper()
	var h kvmv1.Hypervisor
	if err := l.api.Get(t.Context(), client.ObjectKey{Name: "node1"}, &h); err != nil {
		t.Fatal(err)
	}
	h.Annotations[key] = value
	if err := l.api.Update(t.Context(), &h); err != nil {
		t.Fatal(err)
	}
}

func TestAHostsControllerIsFoundByItsSecret(t *testing.T) {
	l := newLab(t)
	power, err := l.c.Power("node1")
	if err != nil {
		t.Fatal(err)
	}
	who, err := power.Controller(t.Context())
	if err != nil || who.Serial != serial {
		t.Errorf("%+v, %v", who, err)
	}
	if s, err := power.PowerState(t.Context()); s != hardware.PowerOn || err != nil {
		t.Errorf("%s, %v", s, err)
	}
	if again, _ := l.c.Power("node1"); again != power {
		t.Error("it is entered anew each time")
	}
}

func TestAMendedSecretCounts(t *testing.T) {
	l := newLab(t)
	l.mend(t, func(d map[string][]byte) { d[keyPassword] = []byte("wrong") })
	state := func() error {
		power, err := l.c.Power("node1")
		if err == nil {
			_, err = power.PowerState(t.Context())
		}
		return err
	}
	if err := state(); hardware.ConsequenceOf(err) != hardware.Refused {
		t.Errorf("with a wrong password: %v", err)
	}
	l.mend(t, func(d map[string][]byte) { d[keyPassword] = []byte("secret") })
	l.c.fresh = time.Hour
	if err := state(); err == nil {
		t.Error("the Secret is read each time")
	}
	l.c.fresh = 0
	if err := state(); err != nil {
		t.Error(err)
	}
	delete(l.c.known, "node1")
	l.mend(t, func(d map[string][]byte) { delete(d, keyAuthority) })
	if err := state(); hardware.ConsequenceOf(err) != hardware.Unavailable || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("one whom nobody knows: %v", err)
	}
	l.mend(t, func(d map[string][]byte) { d[keyInsecure] = []byte("true") })
	if err := state(); err != nil {
		t.Errorf("one who is believed blindly: %v", err)
	}
}

func TestASilentAPIKeepsNobodyFromBeingFenced(t *testing.T) {
	l := newLab(t)
	before, err := l.c.Power("node1")
	if err != nil {
		t.Fatal(err)
	}
	l.dead = errors.New("no route to host")
	if now, err := l.c.Power("node1"); now != before || err != nil {
		t.Errorf("%v, %v", now, err)
	}
	l.annotate(t, kvmv1.AnnotationBMC, "bmc2")
	if now, err := l.c.Power("node1"); now != nil || err == nil {
		t.Errorf("another Secret is meant, and it is %v, %v", now, err)
	}
}

func TestWhyAHostHasNoController(t *testing.T) {
	for _, test := range []struct {
		name   string
		broken func(t *testing.T, l *lab)
		says   string
	}{
		{"none is named", func(t *testing.T, l *lab) { l.annotate(t, kvmv1.AnnotationBMC, "") }, "annotate its Hypervisor with kvm.cloud.sap/bmc"},
		{"another one's Secret", func(t *testing.T, l *lab) { l.annotate(t, kvmv1.AnnotationBMC, "bmc9") }, "Secret kvm/bmc9"},
		{"no machine on record", func(t *testing.T, l *lab) { l.annotate(t, annotationIdentity, "") }, "neither UUID nor serial number"},
		{"no address, no password", func(t *testing.T, l *lab) {
			l.mend(t, func(d map[string][]byte) { delete(d, keyAddress); delete(d, keyPassword) })
		}, "without address and password"},
		{"an address that is none", func(t *testing.T, l *lab) {
			l.mend(t, func(d map[string][]byte) { d[keyAddress] = []byte("http://bmc1") })
		}, "it has to be https://HOST"},
		{"an authority that is none", func(t *testing.T, l *lab) {
			l.mend(t, func(d map[string][]byte) { d[keyAuthority] = []byte("ca") })
		}, "ca.crt holds no certificate"},
		{"neither yes nor no", func(t *testing.T, l *lab) {
			l.mend(t, func(d map[string][]byte) { d[keySession] = []byte("yes") })
		}, `session is "yes"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t)
			test.broken(t, l)
			power, err := l.c.Power("node1")
			if power != nil || err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v does not say %q", err, test.says)
			}
			if err != nil && strings.Contains(err.Error(), "secret\"") {
				t.Errorf("%v tells the password", err)
			}
		})
	}
	if power, err := newLab(t).c.Power("node2"); power != nil || err == nil {
		t.Errorf("of a host that is not there: %v, %v", power, err)
	}
}
