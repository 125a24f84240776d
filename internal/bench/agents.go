// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/types/known/durationpb"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/internal/rpc"
	"github.com/adit-hv/adit/internal/rpc/rpctest"
)

// agents are what a thousand of them have been told.
type agents struct {
	reports, failed atomic.Int64
	without         [ingestHosts]atomic.Bool // the latest answer granted nothing

	mu      sync.Mutex
	took    []time.Duration
	error   error  // the latest
	refused string // why a lease was refused, the latest
}

func agentClient(dir, address string, i int, authority *rpctest.Authority) (*rpc.Client, error) {
	own := filepath.Join(dir, hostName(i))
	if err := os.Mkdir(own, 0o700); err != nil {
		return nil, err
	}
	files, err := authority.Write(own, rpctest.Leaf{CommonName: hostName(i)})
	if err != nil {
		return nil, err
	}
	return rpc.NewClient(rpc.ClientOptions{Addresses: []string{address}, Files: files, Log: logr.Discard()})
}

// untilLed waits until the service leads and has its cache: on a machine that has
// other things to do, loading and a thousand handshakes at once would not end.
func untilLed(c *rpc.Client) {
	for begun := time.Now(); time.Since(begun) < 2*time.Minute; time.Sleep(time.Second) {
		if _, err := c.Report(context.Background(), &hav1.ReportRequest{Host: hostName(0), Boot: "before", Epoch: 1, Seq: 1}); err == nil {
			return
		}
	}
}

// report is an agent on whose host nothing happens: all its instances once, then
// only that it is there.
func (a *agents) report(ctx context.Context, c *rpc.Client, i int) {
	rest := time.Duration(rand.Int64N(int64(ingestInterval)))
	r := &hav1.ReportRequest{
		Host: hostName(i), Boot: uuidOf(i, 1000), Epoch: 1,
		Virtualisation: &hav1.Virtualisation{Answers: true, Since: durationpb.New(time.Hour)},
		Watchdog:       &hav1.Watchdog{Present: true, Armed: true, Timeout: durationpb.New(20 * time.Second)},
		Lease:          &hav1.Lease{Valid: true, Term: durationpb.New(20 * time.Second), Stop: durationpb.New(10 * time.Second)},
		Storage:        []*hav1.Storage{{Pool: "shared", Writable: true, Age: durationpb.New(time.Second)}},
	}
	taken := uint64(0)
	begun := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
		r.Seq++
		r.Uptime = durationpb.New(24*time.Hour + time.Since(begun))
		r.Full, r.Base, r.Instances = taken == 0, taken, nil
		if r.Full {
			for j := range ingestVMs {
				r.Instances = append(r.Instances, &hav1.Instance{Uuid: uuidOf(i, j), Namespace: fmt.Sprintf("project-%03d", i%100), Name: fmt.Sprintf("vm-%04d-%02d", i, j), Token: 1, State: "running", Detail: "booted", Protected: true})
			}
		}
		sent := time.Now()
		answer, err := c.Report(ctx, r)
		if ctx.Err() != nil {
			return
		}
		a.heard(i, answer, err, time.Since(sent))
		rest = max(ingestInterval-time.Since(sent), 0)
		switch {
		case err != nil || answer.Resync:
			taken, rest = 0, time.Second
		default:
			taken = r.Seq
			r.Witnesses = r.Witnesses[:0]
			for _, host := range answer.Watch {
				r.Witnesses = append(r.Witnesses, &hav1.Witness{Host: host, Management: true, Migration: true, Storage: true, Boot: uuidOf(0, 1000), Count: r.Seq, Still: durationpb.New(3 * time.Second)})
			}
		}
	}
}

func (a *agents) heard(i int, answer *hav1.ReportResponse, err error, took time.Duration) {
	a.reports.Add(1)
	a.without[i].Store(!answer.GetGranted())
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, took)
	if answer.GetRefused() != "" {
		a.refused = answer.GetRefused()
	}
	if err != nil {
		a.failed.Add(1)
		a.error = err
	}
}

func (a *agents) hostsWithout() (n int) {
	for i := range a.without {
		if a.without[i].Load() {
			n++
		}
	}
	return n
}

func (a *agents) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = nil
	a.reports.Store(0)
	a.failed.Store(0)
}

func (a *agents) said() (n, failed int64, p50, p99 time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.took)
	if len(a.took) == 0 {
		return 0, 0, 0, 0
	}
	return a.reports.Load(), a.failed.Load(), a.took[len(a.took)/2], a.took[len(a.took)*99/100]
}
