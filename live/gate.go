// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/adit-hv/adit/kubesim"
)

var (
	errDead = errors.New("the process that asks has been killed")
	errCut  = errors.New("connect: no route to host")
)

// gate is what one life of a process passes on its way to everything outside of
// it. A goroutine cannot be killed or stopped; one that reaches nothing and
// nobody is as good as dead, and one that waits here stands still.
type gate struct {
	mu       sync.Mutex
	moved    *sync.Cond
	dead     bool
	paused   bool
	cut      bool // off from the API
	connects int  // grows whenever connections break
}

func newGate() *gate {
	g := &gate{}
	g.moved = sync.NewCond(&g.mu)
	return g
}

func (g *gate) set(change func()) {
	g.mu.Lock()
	change()
	g.mu.Unlock()
	g.moved.Broadcast()
}

// pass returns when the process may go on, with an error if it never will.
func (g *gate) pass() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.paused && !g.dead {
		g.moved.Wait()
	}
	if g.dead {
		return errDead
	}
	return nil
}

// gone says whether the process was killed.
func (g *gate) gone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dead
}

// connect is pass for what needs the API. Its number is that of the connection.
func (g *gate) connect() (number int, err error) {
	if err := g.pass(); err != nil {
		return 0, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cut {
		return 0, errCut
	}
	return g.connects, nil
}

// holds says whether a connection still stands.
func (g *gate) holds(number int) error {
	if now, err := g.connect(); err != nil {
		return err
	} else if now != number {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// transport sends a process's requests, and counts them.
type transport struct {
	gate   *gate
	next   http.RoundTripper
	counts *counts
	client string
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	number, err := t.gate.connect()
	if err != nil {
		return nil, err
	}
	verb, resource := requestInfo(request)
	t.counts.add(t.client, verb, resource)
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusForbidden {
		t.counts.refuse(t.client + " may not " + verb + " " + resource)
	}
	if err := t.gate.holds(number); err != nil { // It took effect and nobody hears of it.
		response.Body.Close()
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, gate: t.gate, number: number}
	return response, nil
}

// body is an answer on its way: a watch's never ends by itself.
type body struct {
	io.ReadCloser
	gate   *gate
	number int
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if gone := b.gate.holds(b.number); gone != nil {
		return 0, gone
	}
	return n, err
}

// requestInfo names the verb and the resource of a request to an API server, as
// its own metrics do. Other requests have no resource.
func requestInfo(r *http.Request) (verb, resource string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return strings.ToLower(r.Method), ""
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	resource = parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		return "watch", resource
	case r.Method == http.MethodGet && len(parts) == 1:
		return "list", resource
	case r.Method == http.MethodPost:
		return "create", resource
	case r.Method == http.MethodPut:
		return "update", resource
	case r.Method == http.MethodPatch && strings.Contains(r.Header.Get("Content-Type"), "apply-patch"):
		return "apply", resource
	}
	return strings.ToLower(r.Method), resource
}

// counts are the requests of all processes.
type counts struct {
	mu      sync.Mutex
	each    map[kubesim.Count]uint64 // by all but N
	refused []string                 // for want of a right, each once
}

func (c *counts) refuse(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.refused, what) {
		c.refused = append(c.refused, what)
	}
}

func (c *counts) add(client, verb, resource string) {
	if resource == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.each[kubesim.Count{Client: client, Verb: verb, Resource: resource}]++
}
