// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
)

// errNotLeader is the answer of a replica that does not lead.
var errNotLeader = errors.New("does not lead")

// replica is one process of the HA service.
type replica struct {
	target string // an address without names, or unix:///path
	conn   *grpc.ClientConn
}

// ask sends a report and allows it the time that is left divided by share.
func (r *replica) ask(ctx context.Context, report *hav1.ReportRequest, share int) (*hav1.ReportResponse, error) {
	if by, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(by)/time.Duration(share))
		defer cancel()
	}
	answer, err := hav1.NewHighAvailabilityClient(r.conn).Report(ctx, report)
	if err == nil && !answer.Leader {
		err = errNotLeader
	}
	return answer, err
}

// replicas are the processes that the addresses lead to. Names are resolved when
// no replica led, since pods come and go; while they cannot be resolved, the
// replicas known before are asked on.
type replicas struct {
	addresses []string
	server    string
	id        *identity // nil when all addresses are Unix sockets
	lookUp    func(ctx context.Context, host string) ([]string, error)
	every     time.Duration // a thousand clients without a leader must not bury the resolver

	mu      sync.Mutex
	known   []*replica
	stale   bool
	looking bool
	looked  time.Time // when the names were resolved last, or tried
}

func newReplicas(o ClientOptions) (*replicas, error) {
	r := &replicas{addresses: o.Addresses, server: o.ServerName, lookUp: o.LookUp, every: o.LookUpEvery, stale: true}
	if r.lookUp == nil {
		r.lookUp = net.DefaultResolver.LookupHost
	}
	if r.every == 0 {
		r.every = 5 * time.Second
	}
	if len(o.Addresses) == 0 {
		return nil, errors.New("no address")
	}
	for _, address := range o.Addresses {
		if isSocket(address) {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, err
		}
		if r.id != nil {
			continue
		}
		var err error
		if r.id, err = newIdentity(o.Files, o.Log); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func isSocket(address string) bool { return strings.HasPrefix(address, "unix://") }

// suspect has the names resolved again before the next round.
func (r *replicas) suspect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = true
}

// list returns the replicas, at least one.
func (r *replicas) list(ctx context.Context) ([]*replica, error) {
	r.mu.Lock()
	known := r.known
	look := !r.looking && (len(known) == 0 || r.stale && time.Since(r.looked) >= r.every)
	if look {
		r.looking, r.looked = true, time.Now()
	}
	r.mu.Unlock()
	if look {
		var err error
		if known, err = r.resolve(ctx); len(known) == 0 {
			return nil, fmt.Errorf("look up the replicas of the HA service: %w", err)
		}
	}
	if len(known) == 0 {
		return nil, errors.New("the replicas of the HA service are being looked up")
	}
	return known, nil
}

// resolve looks all names up, connects to those who are new, and lets go of
// those who are no more, provided that it could look up every name.
func (r *replicas) resolve(ctx context.Context) ([]*replica, error) {
	places, lookupErr := r.places(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looking = false
	now, err := r.join(places)
	for _, old := range r.known {
		if slices.Contains(now, old) {
			continue
		}
		if err != nil || lookupErr != nil {
			now = append(now, old)
			continue
		}
		_ = old.conn.Close() // it is gone
	}
	r.known, r.stale = now, err != nil || lookupErr != nil
	return now, errors.Join(lookupErr, err)
}

// place is where a replica may be, and the name its certificate must have.
type place struct{ target, server string }

// places are sorted, each once. With an error they are those that were found.
func (r *replicas) places(ctx context.Context) ([]place, error) {
	var places []place
	var errs []error
	for _, address := range r.addresses {
		if isSocket(address) {
			places = append(places, place{target: address})
			continue
		}
		host, port, _ := net.SplitHostPort(address) // was looked at in newReplicas
		ips, err := r.resolveHost(ctx, host)
		errs = append(errs, err)
		for _, ip := range ips {
			places = append(places, place{"passthrough:///" + net.JoinHostPort(ip, port), host})
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return strings.Compare(a.target, b.target) })
	places = slices.CompactFunc(places, func(a, b place) bool { return a.target == b.target })
	return places, errors.Join(errs...)
}

// join returns the replicas at places, old ones with their connections.
func (r *replicas) join(places []place) ([]*replica, error) {
	var list []*replica
	for _, p := range places {
		i := slices.IndexFunc(r.known, func(o *replica) bool { return o.target == p.target })
		if i >= 0 {
			list = append(list, r.known[i])
			continue
		}
		conn, err := r.connect(p.target, p.server)
		if err != nil {
			return list, err
		}
		list = append(list, &replica{p.target, conn})
	}
	return list, nil
}

// resolveHost takes not more than a second: a resolver that is silent must not
// take the time of replicas that are known.
func (r *replicas) resolveHost(ctx context.Context, host string) ([]string, error) {
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return r.lookUp(ctx, host)
}

func (r *replicas) connect(target, server string) (*grpc.ClientConn, error) {
	var creds credentials.TransportCredentials = insecure.NewCredentials()
	if !isSocket(target) {
		if r.server != "" {
			server = r.server
		}
		creds = handshakes{r.id}
	}
	return grpc.NewClient(target,
		grpc.WithTransportCredentials(creds),
		grpc.WithAuthority(server), // what its certificate must say
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),              // a report's next attempt is the Client's to make
		grpc.WithIdleTimeout(connectionIdle), // those that do not lead are let go
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.3, MaxDelay: maxPause},
			MinConnectTimeout: handshakeTime,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(maxRequest), grpc.MaxCallRecvMsgSize(maxResponse)),
		grpc.WithWriteBufferSize(buffer),
		grpc.WithReadBufferSize(buffer),
	)
}

func (r *replicas) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.known {
		_ = known.conn.Close() // nobody waits for it
	}
	r.known = nil
}
