// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hardware/redfish"
)

// controller is a Redfish service of our own, with vices. Its network is in
// memory, so that it can run in a bubble of virtual time.
type controller struct {
	server *httptest.Server
	net    *network

	mu       sync.Mutex
	systems  []*machine
	pageSize int                // of the collection; 0 is all at once
	tokens   map[string]bool    // of sessions
	vices    map[string]bool    // by name
	answers  map[string]int     // "METHOD path" or "METHOD": status, instead of work
	header   map[string]string  // of such an answer
	seen     []string           // "METHOD path" of each request
	orders   []string           // "system ResetType"
	slow     time.Duration      // until an order is done
	after    map[string]float64 // seconds until an answer is sent, by method
}

// machine is one of its systems.
type machine struct {
	id, uuid, serial string
	state            hardware.PowerState
	allow            []string
	info             bool   // what it allows is said elsewhere
	target           string // of the action, when it is a strange one
}

func newController(systems ...*machine) *controller {
	c := &controller{systems: systems, net: &network{bufconn.Listen(1 << 16), -1}, tokens: map[string]bool{}, vices: map[string]bool{}, answers: map[string]int{}, header: map[string]string{}, after: map[string]float64{}, slow: 3 * time.Second}
	c.server = httptest.NewUnstartedServer(c)
	c.server.Listener.Close()
	c.server.Listener = c.net
	c.server.Config.ErrorLog = nil
	c.server.StartTLS()
	c.server.URL = "https://example.com" // whom its certificate is for
	return c
}

// a machine that is well.
func well(id string) *machine {
	return &machine{id: id, uuid: "4C4C4544-0033-4710-8032-00000000000" + id, serial: "SN" + id, state: hardware.PowerOn, allow: []string{"On", "ForceOff", "GracefulShutdown"}}
}

func (c *controller) options(m *machine) redfish.Options {
	return redfish.Options{
		URL: c.server.URL, User: "ha", Password: "secret", Dial: c.net.dial,
		TLS:     &tls.Config{RootCAs: c.server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs},
		Machine: hardware.Controller{SystemUUID: m.uuid, Serial: m.serial},
	}
}

func (c *controller) close() { c.server.Close() }

// with does something under the lock.
func (c *controller) with(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *controller) has(vice string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.vices[vice]
}

// ServeHTTP is the service.
func (c *controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // all of it, or the end of the connection is not seen
	r.Body = io.NopCloser(bytes.NewReader(body))
	order := r.Method == http.MethodPost && !strings.Contains(r.URL.Path, "Session")
	var wait float64
	c.with(func() {
		c.seen = append(c.seen, r.Method+" "+r.URL.Path)
		wait = c.after[r.Method]
		if order && c.vices["mute"] {
			c.vices["muted"] = true // this order is taken, and nothing is heard any more
		}
		if order && c.vices["hang"] {
			c.vices["hung"] = true
		}
	})
	if c.has("hung") {
		<-r.Context().Done()
		return
	}
	if wait > 0 {
		select {
		case <-time.After(time.Duration(wait * float64(time.Second))):
		case <-r.Context().Done():
			return
		}
	}
	answer := httptest.NewRecorder()
	c.answer(answer, r, order)
	if c.has("muted") {
		<-r.Context().Done()
		return
	}
	for k, v := range answer.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func (c *controller) answer(w http.ResponseWriter, r *http.Request, order bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path := strings.TrimSuffix(r.URL.Path, "/")
	for _, key := range []string{r.Method + " " + path, r.Method} {
		if status := c.answers[key]; status != 0 {
			for k, v := range c.header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(status)
			fmt.Fprint(w, `{"error": {"code": "Base.1.8.GeneralError", "@Message.ExtendedInfo": [{"Message": "As you were."}]}}`)
			return
		}
	}
	if path == "/redfish/v1" {
		write(w, map[string]any{"Systems": map[string]any{"@odata.id": "/redfish/v1/Systems"}, "Links": map[string]any{"Sessions": map[string]any{"@odata.id": "/redfish/v1/Sessions"}}})
		return
	}
	if path == "/redfish/v1/Sessions" && r.Method == http.MethodPost {
		c.logIn(w, r)
		return
	}
	if !c.authorised(r) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch {
	case c.vices["garbage"]:
		fmt.Fprint(w, "<html>Loading…")
	case r.Method == http.MethodDelete:
		clear(c.tokens)
	case path == "/redfish/v1/Systems":
		c.list(w, r)
	case order:
		c.order(w, r, path)
	default:
		c.read(w, path)
	}
}

func (c *controller) logIn(w http.ResponseWriter, r *http.Request) {
	var login struct{ UserName, Password string }
	if json.NewDecoder(r.Body).Decode(&login) != nil || login.UserName != "ha" || login.Password != "secret" || c.vices["credentials"] {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	token := fmt.Sprintf("token%d", len(c.seen))
	c.tokens[token] = true
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", "/redfish/v1/Sessions/1")
	w.WriteHeader(http.StatusCreated)
}

func (c *controller) authorised(r *http.Request) bool {
	user, password, basic := r.BasicAuth()
	return !c.vices["credentials"] && (basic && user == "ha" && password == "secret" || c.tokens[r.Header.Get("X-Auth-Token")])
}

func (c *controller) list(w http.ResponseWriter, r *http.Request) {
	from, size := 0, len(c.systems)
	if c.pageSize > 0 {
		_, _ = fmt.Sscan(r.URL.Query().Get("$skip"), &from)
		size = min(c.pageSize, len(c.systems)-from)
	}
	var members []map[string]string
	for _, m := range c.systems[from : from+size] {
		members = append(members, map[string]string{"@odata.id": "/redfish/v1/Systems/" + m.id})
	}
	page := map[string]any{"Members": members}
	if from+size < len(c.systems) {
		page["Members@odata.nextLink"] = fmt.Sprintf("/redfish/v1/Systems?$skip=%d", from+size)
	}
	if c.vices["endless"] {
		page["Members@odata.nextLink"] = "/redfish/v1/Systems?$skip=0"
	}
	write(w, page)
}

func (c *controller) find(path string) *machine {
	for _, m := range c.systems {
		if strings.HasPrefix(path+"/", "/redfish/v1/Systems/"+m.id+"/") {
			return m
		}
	}
	return nil
}

func (c *controller) read(w http.ResponseWriter, path string) {
	m := c.find(path)
	if m == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if strings.HasSuffix(path, "/ResetActionInfo") {
		write(w, map[string]any{"Parameters": []any{map[string]any{"Name": "ResetType", "AllowableValues": m.allow}}})
		return
	}
	reset := map[string]any{"target": "/redfish/v1/Systems/" + m.id + "/Actions/ComputerSystem.Reset"}
	if m.target != "" {
		reset["target"] = m.target
	}
	if m.info {
		reset["@Redfish.ActionInfo"] = "/redfish/v1/Systems/" + m.id + "/ResetActionInfo"
	} else if m.allow != nil {
		reset["ResetType@Redfish.AllowableValues"] = m.allow
	}
	s := map[string]any{"UUID": m.uuid, "SerialNumber": m.serial, "PowerState": m.state, "Actions": map[string]any{"#ComputerSystem.Reset": reset}}
	if c.vices["unknown"] {
		s["PowerState"] = []any{"Unknown", "Error", nil}[len(c.seen)%3]
	}
	write(w, s)
}

func (c *controller) order(w http.ResponseWriter, r *http.Request, path string) {
	var body struct{ ResetType string }
	m := c.find(path)
	if m == nil || json.NewDecoder(r.Body).Decode(&body) != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	want, way := hardware.PowerOn, hardware.PowerPoweringOn
	if body.ResetType == "ForceOff" {
		want, way = hardware.PowerOff, hardware.PowerPoweringOff
	}
	switch {
	case c.vices["refuse"], !slices.Contains(m.allow, body.ResetType):
		w.WriteHeader(http.StatusBadRequest)
		return
	case c.vices["conflict"] && m.state == want: // as iDRAC
		w.WriteHeader(http.StatusConflict)
		return
	}
	c.orders = append(c.orders, m.id+" "+body.ResetType)
	if m.state != want {
		m.state = way
		time.AfterFunc(c.slow, func() { c.with(func() { m.state = want }) })
	}
	if c.vices["task"] {
		w.Header().Set("Location", "/redfish/v1/TaskService/Tasks/1")
		w.WriteHeader(http.StatusAccepted)
		write(w, map[string]any{"TaskState": "New"})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func write(w io.Writer, v any) { _ = json.NewEncoder(w).Encode(v) }

// network leads to one listener; after so many more connections (below zero:
// never) it is down.
type network struct {
	*bufconn.Listener
	left int
}

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if n.left == 0 {
		return nil, errors.New("connection refused")
	}
	n.left--
	return n.DialContext(ctx)
}
