// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/adit-hv/adit/sim"
)

// Cluster is the simulated Kubernetes. Its methods are called by whoever holds
// the scheduler's baton.
type Cluster struct {
	s *sim.Scheduler
	o Options

	OnHotLoop      func(HotLoop)
	OnForeignWrite func(ForeignWrite)
	OnPanic        func(Panic)
}

// New makes an empty cluster on the scheduler.
func New(s *sim.Scheduler, o Options) (*Cluster, error) { return &Cluster{s: s, o: o}, nil }

// Close ends all processes. No goroutine is left when it returns.
func (c *Cluster) Close() {}

// Client is an outside actor's: a person or the scenario. Its calls take no
// time, meet no faults and see the store itself.
func (c *Cluster) Client(user string) client.WithWatch { return nil }

// Lookup returns the stored object, or nil. It is the store's own: read only.
func (c *Cluster) Lookup(gvk schema.GroupVersionKind, key client.ObjectKey) client.Object {
	return nil
}

// Each calls fn with the stored objects of a kind by namespace and name. They
// are the store's own: read only.
func (c *Cluster) Each(gvk schema.GroupVersionKind, fn func(client.Object)) {}

// Counts returns the requests so far, sorted by client, verb and resource.
func (c *Cluster) Counts() []Count { return nil }

// Totals returns the sums so far.
func (c *Cluster) Totals() Totals { return Totals{} }
