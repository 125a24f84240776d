// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
)

// ClientOptions say where the replicas of the HA service are.
type ClientOptions struct {
	// Addresses are of the form host:port, where each address that a name
	// resolves to is a replica, or unix:///path.
	Addresses []string

	// Files hold the agent's certificate, which names its host, and the authority
	// of the service's. Not needed for Unix sockets.
	Files Files
	// ServerName is what the service's certificate must say. Empty: the host in
	// the address.
	ServerName string

	// Timeout is how long a report may take with all attempts. Zero is 4 s, less
	// than the 5 s between reports.
	Timeout time.Duration

	// LookUp resolves a name; nil is the system's way. Names are looked up while
	// no replica leads, not more often than every LookUpEvery; zero is 5 s.
	LookUp      func(ctx context.Context, host string) ([]string, error)
	LookUpEvery time.Duration

	Log logr.Logger
}

// The pause after a round in which no replica led, doubling.
const (
	firstPause = 200 * time.Millisecond
	maxPause   = 2 * time.Second
)

// Client reports to whichever replica leads. It is a Service, and may be used by
// several at once.
type Client struct {
	replicas *replicas
	timeout  time.Duration

	mu   sync.Mutex
	next int // the replica to ask first: the leader, as far as is known
}

// NewClient returns a Client that has connected to nobody yet. It must be
// closed.
func NewClient(o ClientOptions) (*Client, error) {
	r, err := newReplicas(o)
	if err != nil {
		return nil, fmt.Errorf("client of the HA service: %w", err)
	}
	if o.Timeout == 0 {
		o.Timeout = 4 * time.Second
	}
	// A thousand clients do not all ask the same replica first.
	return &Client{replicas: r, timeout: o.Timeout, next: rand.IntN(1 << 16)}, nil
}

// Close ends all connections.
func (c *Client) Close() { c.replicas.close() }

// Report returns the leader's answer. It asks the replicas in turn, beginning
// with the one that led last, in rounds with pauses between, until ctx is done
// or the Client's timeout is over. An error says what each replica answered; the
// report may have been taken all the same. That the leader forbids the report,
// or finds it malformed, is said at once. Nobody who may have taken it is asked
// again: a report that comes twice is granted once, and the answer may be lost.
// The next one is the caller's to make.
func (c *Client) Report(ctx context.Context, report *hav1.ReportRequest) (*hav1.ReportResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		answer, err := c.round(ctx, report)
		if err == nil || isFinal(err) || errors.Is(err, errMayBeTaken) {
			return answer, err
		}
		if !rest(ctx, pause/2+rand.N(pause)) {
			return nil, err
		}
	}
}

// round asks each replica once. The first, who led last, may take half of the
// time, and the others share what is left, so that one that is silent does not
// take the others' turn.
func (c *Client) round(ctx context.Context, report *hav1.ReportRequest) (*hav1.ReportResponse, error) {
	list, err := c.replicas.list(ctx)
	if err != nil {
		return nil, err
	}
	first := c.first()
	var errs []error
	for i := range list {
		at, share := (first+i)%len(list), len(list)-i
		if i == 0 {
			share = min(share, 2)
		}
		answer, err := list[at].ask(ctx, report, share)
		if err == nil {
			c.remember(at)
			return answer, nil
		}
		if isFinal(err) {
			return nil, err
		}
		errs = append(errs, fmt.Errorf("%s: %w", list[at].target, err))
		if mayBeTaken(err) {
			errs = append(errs, errMayBeTaken)
		}
		if ctx.Err() != nil {
			break
		}
	}
	c.remember(first + 1) // whoever was silent is not asked first again
	c.replicas.suspect()
	return nil, fmt.Errorf("no replica of the HA service answered as leader: %w", errors.Join(errs...))
}

func (c *Client) first() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

func (c *Client) remember(replica int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = replica
}

// isFinal says that no replica would answer otherwise.
func isFinal(err error) bool {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument:
		return true
	}
	return false
}

// errMayBeTaken says that a replica may have taken the report and did not answer.
var errMayBeTaken = errors.New("the report may have been taken")

// mayBeTaken says so of one replica's error. Unavailable is, but for a connection
// that breaks in the middle, that there was none.
func mayBeTaken(err error) bool {
	return !errors.Is(err, errNotLeader) && status.Code(err) != codes.Unavailable
}

// rest waits, unless ctx would be done by then.
func rest(ctx context.Context, d time.Duration) bool {
	if by, ok := ctx.Deadline(); ok && time.Until(by) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
