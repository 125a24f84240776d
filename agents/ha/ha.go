// SPDX-License-Identifier: Apache-2.0

// Package ha is the HA agent: it says how one host is to the HA service, keeps
// the host's run lease, and stops the host's protected VMs when it has lost it.
//
// It reads the host through the hardware seam and hears the service's answers. It
// alone feeds the watchdog, writes the host's heartbeat and the notes run-permit
// and run-stopped (package permit), and destroys domains for want of a lease; it
// writes nothing to the API. It must never know the API, a VM's object, other
// hosts' agents but by what can be seen of their hosts, or which runtime is under
// it. It reads no wall clock. docs/ha.md has its rules.
//
// What may hang has a loop of its own, so that a storage that hangs, a service
// that is silent or a hypervisor that stands still keeps nobody else:
//
//	keep       feeds the watchdog, notices the lapse, saves the notes; waits for nothing else
//	report     tells the service, and hears its answer
//	beat       writes the heartbeat
//	reach      asks whether the neighbours answer
//	read       reads the neighbours' heartbeats
//	look       lists the domains; after a lapse says who is stopped
//	shutdown   asks guests to power off
//	destroy    ends domains
//
// They meet in agent, which is what is known; they wake each other, and each
// decides by what it finds there.
package ha

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/internal/wiring"
)

// Service is the HA service as an agent reaches it.
type Service interface {
	// Report hands over a report and returns the leader's answer. It is bounded
	// in time: an agent renews nothing while it waits.
	Report(ctx context.Context, report *hav1.ReportRequest) (*hav1.ReportResponse, error)
}

// Times are those by which the run lease is kept; see docs/ha.md. Zeros take the
// default named beside them.
type Times struct {
	Interval time.Duration // between reports, heartbeats, looks at neighbours; 5 s
	Term     time.Duration // how long a renewal lasts; 20 s
	Stop     time.Duration // from the lapse until no protected VM is left; 10 s
	Watchdog time.Duration // the hardware watchdog's time-out, whole seconds; 20 s
}

// Options say which host an agent speaks for.
type Options struct {
	// Host is the host's name: its Hypervisor's and its Node's.
	Host string

	Hardware hardware.Host
	Service  Service

	// Steady is the host's time since boot.
	Steady wiring.Steady

	// Pool is the shared storage pool that holds the heartbeats; "" is that there
	// is none, and only the service renews the lease.
	Pool string

	Times Times

	// Resync is how often the domains are listed with no event; 0 is 5 minutes.
	// Each host's own is up to a tenth longer, by its name.
	Resync time.Duration
}

func (o Options) withDefaults() (Options, error) {
	t := &o.Times
	t.Interval, t.Term = cmp.Or(t.Interval, 5*time.Second), cmp.Or(t.Term, 20*time.Second)
	t.Stop, t.Watchdog = cmp.Or(t.Stop, 10*time.Second), cmp.Or(t.Watchdog, 20*time.Second)
	o.Resync = cmp.Or(o.Resync, 5*time.Minute)
	o.Resync += o.Resync / 10000 * time.Duration(roll(1000, o.Host))
	switch {
	case o.Host == "" || o.Hardware == nil || o.Service == nil || o.Steady == nil:
		return o, errors.New("HA agent: Host, Hardware, Service and Steady are needed")
	case t.Interval <= 0 || t.Stop <= 0 || t.Term < 2*t.Interval:
		return o, fmt.Errorf("HA agent: a term of %v with an interval of %v: one lost report would end the lease; the term is two intervals or more, and all times are more than nothing", t.Term, t.Interval)
	case t.Watchdog < 4*time.Second || t.Watchdog%time.Second != 0:
		return o, fmt.Errorf("HA agent: a watchdog of %v: it counts whole seconds, and is fed four times within its time-out; take 4s or more", t.Watchdog)
	}
	return o, nil
}

// Setup adds the agent to a manager, of which it needs no cache and no client.
// The manager is best its own: what keeps another agent from running must not
// keep this one.
func Setup(mgr manager.Manager, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	a := newAgent(o)
	for _, l := range a.loops() {
		if err := l.add(mgr); err != nil {
			return fmt.Errorf("set up the HA agent of %s: %w", o.Host, err)
		}
	}
	return nil
}

// roll is a number below n that the words decide: the same for the same ones.
func roll(n uint64, words ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, words...)
	return h.Sum64() % n
}
