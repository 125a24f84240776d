// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"

	"github.com/adit-hv/adit/hardware"
)

// maxAnswer is how much of an answer is read: a system's is some 20 KiB.
const maxAnswer = 1 << 20

// answer is what a controller sent.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// errNotNow marks an order that was refused because of what it asks, which may
// mean that it is done already.
var errNotNow = errors.New("refused as it stands")

// failed is an error that lacks what was tried; Client.fail adds it.
func failed(consequence hardware.Consequence, format string, args ...any) *hardware.Error {
	return hardware.Fail(consequence, hardware.ReasonOther, "", "", format, args...)
}

// cause is an error without its consequence, when that is said elsewhere.
func cause(err error) error {
	var e *hardware.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// get reads a resource, and returns the answer's status, 0 for none.
func (c *Client) get(ctx context.Context, path string, into any) (int, error) {
	a, err := c.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return a.status, err
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return a.status, failed(hardware.Unavailable, "the answer to GET %s is no Redfish: %w", path, err)
	}
	return a.status, nil
}

// call makes a request with our credentials. Of a session that the controller
// has forgotten another is made, once.
func (c *Client) call(ctx context.Context, method, path string, body any) (answer, error) {
	if !c.options.Session {
		basic := func(r *http.Request) { r.SetBasicAuth(c.options.User, c.options.Password) }
		return c.send(ctx, method, path, body, basic)
	}
	for fresh := false; ; {
		token, err := c.session(ctx, &fresh)
		if err != nil {
			return answer{}, err
		}
		a, err := c.send(ctx, method, path, body, func(r *http.Request) { r.Header.Set("X-Auth-Token", token) })
		if a.status != http.StatusUnauthorized || fresh {
			return a, err
		}
		c.forget()
	}
}

// session returns the token, and in fresh whether it was made just now.
func (c *Client) session(ctx context.Context, fresh *bool) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" {
		return c.token, nil
	}
	*fresh = true
	nobody := func(*http.Request) {}
	// The root may be read without a login.
	path := "/redfish/v1/SessionService/Sessions"
	var r root
	if a, err := c.send(ctx, http.MethodGet, rootPath, nil, nobody); err == nil && json.Unmarshal(a.body, &r) == nil && r.Links.Sessions.ID != "" {
		path = r.Links.Sessions.ID
	}
	a, err := c.send(ctx, http.MethodPost, path, map[string]string{"UserName": c.options.User, "Password": c.options.Password}, nobody)
	if err != nil {
		// Whether or not there is a session now, nothing happened to the machine.
		e := failed(hardware.Unavailable, "log in: %w", cause(err))
		if hardware.ConsequenceOf(err) == hardware.Refused {
			e.Consequence = hardware.Refused
		}
		return "", e
	}
	token := a.header.Get("X-Auth-Token")
	if token == "" {
		return "", failed(hardware.Unavailable, "log in: the answer holds no token")
	}
	c.token, c.login = token, a.header.Get("Location")
	return token, nil
}

func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.login = "", ""
}

// send makes one request and sorts what comes of it.
func (c *Client) send(ctx context.Context, method, path string, body any, authorise func(*http.Request)) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, failed(hardware.Unavailable, "%w", err)
	}
	at, err := c.resolve(path)
	if err != nil {
		return answer{}, err
	}
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		content = bytes.NewReader(data)
	}
	// Once there is a connection the request may have arrived, whatever happens
	// then. It is a new one each time, so until then nothing was sent.
	sent := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), method, at.String(), content)
	if err != nil {
		return answer{}, failed(hardware.Refused, "%w", err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("OData-Version", "4.0")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	authorise(r)
	response, err := c.http.Do(r)
	if err != nil {
		return answer{}, failed(silence(method, sent), "%w", err)
	}
	defer response.Body.Close()
	a := answer{status: response.StatusCode, header: response.Header}
	a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if refusal := judge(method, at.Path, a); refusal != nil {
		return a, refusal
	}
	if err != nil && method == http.MethodGet {
		return a, failed(hardware.Unavailable, "%w", err)
	}
	return a, nil // of an order the head says that it was accepted
}

// resolve takes a controller's word for where something is only within that
// controller: our credentials go nowhere else.
func (c *Client) resolve(path string) (*url.URL, error) {
	u, err := c.base.Parse(path)
	if err != nil {
		return nil, failed(hardware.Refused, "it refers to %q: %w", path, err)
	}
	if path == "" || u.Scheme != c.base.Scheme || u.Host != c.base.Host {
		return nil, failed(hardware.Refused, "it refers to %q, which is not there", path)
	}
	return u, nil
}

// silence is what it means that there was no answer.
func silence(method string, sent bool) hardware.Consequence {
	if sent && method != http.MethodGet {
		return hardware.Unknown
	}
	return hardware.Unavailable
}

// judge sorts an answer; nil is success. 202, with or without a task, is that an
// order was accepted, which is all that is promised.
func judge(method, path string, a answer) error {
	text := fmt.Sprintf("%s %s: %d %s%s", method, path, a.status, http.StatusText(a.status), explanation(a.body))
	order := method != http.MethodGet
	switch {
	case a.status >= 200 && a.status <= 299:
		return nil
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		return failed(hardware.Refused, "%s", text)
	case a.status == http.StatusNotImplemented:
		e := failed(hardware.Refused, "%s", text)
		e.Reason = hardware.ReasonUnsupported
		return e
	case a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "":
		return failed(hardware.Unavailable, "%s; it says to ask again after %s", text, a.header.Get("Retry-After"))
	case a.status >= 500 && order: // perhaps it began, and fell on the way
		return failed(hardware.Unknown, "%s", text)
	case a.status >= 500, a.status == http.StatusTooManyRequests, a.status == http.StatusRequestTimeout:
		return failed(hardware.Unavailable, "%s", text)
	case a.status == http.StatusNotFound: // so says one that has just booted of all it has
		return failed(hardware.Unavailable, "%s", text)
	case a.status >= 400 && order:
		return failed(hardware.Refused, "%s (%w)", text, errNotNow)
	}
	return failed(hardware.Refused, "%s", text)
}

// explanation is what an error says of itself (DSP0266, error responses).
func explanation(body []byte) string {
	var e struct {
		Error struct {
			Message  string
			Extended []struct{ Message, MessageID string } `json:"@Message.ExtendedInfo"`
		}
	}
	if json.Unmarshal(body, &e) != nil {
		return ""
	}
	var words []string
	for _, m := range e.Error.Extended {
		if m.Message == "" {
			m.Message = m.MessageID
		}
		words = append(words, m.Message)
	}
	if len(words) == 0 {
		words = append(words, e.Error.Message)
	}
	text := strings.Join(strings.Fields(strings.Join(words, " ")), " ")
	if text == "" {
		return ""
	}
	return ": " + text[:min(len(text), 300)]
}
