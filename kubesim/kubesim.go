// SPDX-License-Identifier: Apache-2.0

// Package kubesim is a simulated Kubernetes: an API store, and per process a
// manager that runs ordinary controller-runtime controllers in virtual time.
//
// It reads the CRDs it is given and nothing else of the world. It alone owns
// resource versions, watches, caches, queues and processes; every client call
// is a scheduling point where time passes, faults strike and processes die.
// Rules for controllers: take options from ControllerOptions, wait by
// RequeueAfter or event, feed foreign events in through source.Func. A plain
// Runnable runs as a task and may end or wait on its context's Done.
// It must never know what a kind means, beyond namespaces, leases and owners.
package kubesim

import (
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Fidelity is how much of the API server's admission a write passes.
type Fidelity int

const (
	// Typed trusts writers to send valid objects. Defaults still apply.
	Typed Fidelity = iota
	// Full passes each write through the CRD's whole pipeline: defaulting,
	// pruning, OpenAPI validation with ratcheting, list keys, CEL. For valid
	// objects its traces equal those of Typed.
	Full
)

// Options configure a Cluster. Scheme is required.
type Options struct {
	// Scheme knows the Go types of all kinds, those of CRDs and built-in ones.
	Scheme   *runtime.Scheme
	Fidelity Fidelity
	// CRDs say scope, subresources, schemas and selectable fields. Built-in
	// kinds (Node, Namespace, Lease, Event, Pod, Secret, ConfigMap) need none.
	CRDs []*apiextensionsv1.CustomResourceDefinition

	// Schemas, when set, keeps compiled kinds from one cluster to the next.
	Schemas *Schemas

	// Latency is drawn per client call; it takes effect somewhere in between.
	// CacheLag is drawn per watch event and watcher.
	Latency, CacheLag func(*rand.Rand) time.Duration

	// EagerLeases writes every heartbeat instead of computing it on read.
	EagerLeases bool
	// History is how many events of a kind a watch can be resumed over.
	// Default 4096.
	History int
	// MaxObjectBytes is the largest object's size as JSON. Default 1.5 MiB,
	// etcd's request limit.
	MaxObjectBytes int
	// NamespacesOnDemand creates a missing namespace at the first write into
	// it; otherwise such a write is refused.
	NamespacesOnDemand bool
	// GCDelay is drawn per garbage collection step. Default 50 ms to 1 s.
	GCDelay func(*rand.Rand) time.Duration

	// Owners, when set, is asked about each field a process with a role
	// changes; see Cluster.OnForeignWrite.
	Owners OwnerTable
	// OnWrite sees each committed write. The objects are the store's own:
	// read only. It may be nil.
	OnWrite func(Write)
	// HotLoop is how many reconciles of one request within one virtual second
	// are reported as a hot loop. Default 50.
	HotLoop int
	// Logger receives the controllers' logs. The zero Logger drops them.
	Logger logr.Logger
}

// Write is one committed write.
type Write struct {
	Process     string // or user, for an outside client
	Role        string // of the process, "" for an outside client
	Verb        string // create, update, patch, apply, delete
	Subresource string // "" or status
	GVK         schema.GroupVersionKind
	Old, New    client.Object // nil: did not exist, does not exist any more
	RV          uint64
	At          time.Duration // virtual time since the start
}

// Count is how often a client sent requests of one sort.
type Count struct {
	Client   string
	Verb     string
	Resource string // plural, with "/status" for that subresource
	N        uint64
	Bytes    uint64 // of patches that travelled as documents
}

// HotLoop is a request that was reconciled suspiciously often.
type HotLoop struct {
	Process, Controller, Request string
	Times                        int // within one virtual second
	At                           time.Duration
}

// ForeignWrite is a write to a field by a role that does not own it.
type ForeignWrite struct {
	Write
	Field   string
	Allowed []string
}

// Panic is a reconciler's, which controller-runtime would hide as an error.
type Panic struct {
	Process, Controller, Request string
	Value                        any
	Stack                        string
	At                           time.Duration
}

// Totals are sums over a run.
type Totals struct {
	Requests  uint64
	Writes    uint64 // that made a new resource version
	NoOps     uint64 // that changed nothing
	Conflicts uint64
	Watched   uint64 // watch events delivered
	Reconcile uint64
}
