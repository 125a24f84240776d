// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

	crds       map[schema.GroupKind]*apiextensionsv1.CustomResourceDefinition
	kinds      map[schema.GroupVersionKind]*kind
	gvks       map[reflect.Type]schema.GroupVersionKind
	namespaces *kind
	rv         uint64
	totals     Totals
	counts     map[countKey]*Count

	dependents map[types.UID]map[dependent]bool
	processes  []*Process
	faults     []*activeFault
	faultRand  *rand.Rand
	events     []EventRecord
	polling    []*life // with channel sources
	reaping    bool    // goroutines of a dead process are ending
}

type countKey struct{ client, verb, resource string }

// New makes a cluster that holds the namespaces every cluster has.
func New(s *sim.Scheduler, o Options) (*Cluster, error) {
	if o.Scheme == nil {
		return nil, fmt.Errorf("kubesim: options lack a scheme")
	}
	o.defaults()
	c := &Cluster{
		s: s, o: o,
		crds:       map[schema.GroupKind]*apiextensionsv1.CustomResourceDefinition{},
		kinds:      map[schema.GroupVersionKind]*kind{},
		gvks:       map[reflect.Type]schema.GroupVersionKind{},
		counts:     map[countKey]*Count{},
		dependents: map[types.UID]map[dependent]bool{},
		faultRand:  s.Rand("kubesim/faults"),
	}
	for _, crd := range o.CRDs {
		c.crds[schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}] = crd
	}
	if o.Scheme.Recognizes(corev1.SchemeGroupVersion.WithKind("Namespace")) {
		var err error
		if c.namespaces, err = c.kindOf(corev1.SchemeGroupVersion.WithKind("Namespace")); err != nil {
			return nil, err
		}
		for _, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
			rq := &request{by: "kube-apiserver", manager: "kube-apiserver", verb: "create"}
			if _, err := c.create(rq, c.namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

func (o *Options) defaults() {
	if o.Schemas == nil {
		o.Schemas = NewSchemas()
	}
	// A healthy API server answers in milliseconds, its slowest percent in
	// tens (the SLO is 1 s); watches lag little but with a long tail.
	if o.Latency == nil {
		o.Latency = skewed(4*time.Millisecond, 60*time.Millisecond)
	}
	if o.CacheLag == nil {
		o.CacheLag = skewed(20*time.Millisecond, 1500*time.Millisecond)
	}
	if o.GCDelay == nil {
		o.GCDelay = skewed(50*time.Millisecond, time.Second)
	}
	o.History = cmp.Or(o.History, 4096)
	o.MaxObjectBytes = cmp.Or(o.MaxObjectBytes, 3<<19) // 1.5 MiB
	o.HotLoop = cmp.Or(o.HotLoop, 50)
}

// skewed draws durations with that median and 99th percentile: one uniform
// draw, stretched cubically above the median.
func skewed(p50, p99 time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration {
		u := r.Float64()
		if u < 0.5 {
			return time.Duration((0.5 + u) * float64(p50))
		}
		x := (u - 0.5) / 0.49
		return p50 + time.Duration(x*x*x*x*x*x*float64(p99-p50))
	}
}

// Close ends all processes. No goroutine of theirs is left when it returns.
// It is called from outside any task.
func (c *Cluster) Close() {
	for _, p := range c.processes {
		p.Crash()
	}
}

// Scheduler returns the scheduler the cluster lives on.
func (c *Cluster) Scheduler() *sim.Scheduler { return c.s }

// Lookup returns the stored object, or nil. It is the store's own: read only.
func (c *Cluster) Lookup(gvk schema.GroupVersionKind, key client.ObjectKey) client.Object {
	k, err := c.kindOf(gvk)
	if err != nil {
		return nil
	}
	st := k.objects[key]
	if st == nil {
		return nil
	}
	return c.seen(st, c.s.Elapsed())
}

// Each calls fn with the stored objects of a kind by namespace and name. They
// are the store's own: read only.
func (c *Cluster) Each(gvk schema.GroupVersionKind, fn func(client.Object)) {
	k, err := c.kindOf(gvk)
	if err != nil {
		return
	}
	for _, key := range k.keys() {
		if st := k.objects[key]; st != nil { // fn may delete
			fn(c.seen(st, c.s.Elapsed()))
		}
	}
}

// ResourceVersion is that of the latest write.
func (c *Cluster) ResourceVersion() uint64 { return c.rv }

// Counts returns the requests so far, sorted by client, verb and resource.
func (c *Cluster) Counts() []Count {
	out := make([]Count, 0, len(c.counts))
	for _, n := range c.counts {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Resource, b.Resource))
	})
	return out
}

func (c *Cluster) count(by, verb, resource string, bytes int) {
	c.totals.Requests++
	key := countKey{by, verb, resource}
	n := c.counts[key]
	if n == nil {
		n = &Count{Client: by, Verb: verb, Resource: resource}
		c.counts[key] = n
	}
	n.N++
	n.Bytes += uint64(bytes)
}

// Totals returns the sums so far.
func (c *Cluster) Totals() Totals { return c.totals }

// sortedKinds are the kinds in use, in an order that is not the map's.
func (c *Cluster) sortedKinds() []*kind {
	return slices.SortedFunc(maps.Values(c.kinds), func(a, b *kind) int {
		return strings.Compare(a.gvk.String(), b.gvk.String())
	})
}
