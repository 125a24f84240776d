// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/config/rbac"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/testbed"
)

// cluster is a testbed.Cluster on a real API server.
type cluster struct {
	*mirror
	r       *Runtime
	options kubesim.Options
	config  *rest.Config
	mapper  meta.RESTMapper // one for all: each would ask for the same
	counts  counts
	all     []*process
	running sync.WaitGroup // lives of processes
	cancel  context.CancelFunc
}

var _ testbed.Cluster = (*cluster)(nil)

func newCluster(r *Runtime, o kubesim.Options) (*cluster, error) {
	ctx, cancel := context.WithCancel(r.ctx)
	c := &cluster{r: r, options: o, config: rest.CopyConfig(r.o.Config), counts: counts{each: map[kubesim.Count]uint64{}}, cancel: cancel}
	c.config.QPS = -1
	err := prepare(ctx, c.config, o.CRDs)
	if err == nil {
		c.mapper, err = newMapper(ctx, c.config, o.Scheme)
	}
	if err == nil {
		c.mirror, err = newMirror(ctx, c)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("prepare the API server at %s: %w", c.config.Host, err)
	}
	return c, nil
}

// prepare installs our definitions and makes the namespaces of a world, and the
// accounts and roles of our programs.
func prepare(ctx context.Context, config *rest.Config, crds []*apiextensionsv1.CustomResourceDefinition) error {
	admin, _, err := belongings(config)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := admin.Create(ctx, crd.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("install %s: %w", crd.Name, err)
		}
	}
	for _, crd := range crds {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			now := &apiextensionsv1.CustomResourceDefinition{}
			err := admin.Get(ctx, client.ObjectKeyFromObject(crd), now)
			return slices.ContainsFunc(now.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			}), err
		})
		if err != nil {
			return fmt.Errorf("%s is not served: %w", crd.Name, err)
		}
	}
	for _, name := range testbed.Namespaces() {
		err := admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	rights, err := rbac.All()
	if err != nil {
		return err
	}
	for _, o := range rights {
		if err := admin.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// newMapper knows the kinds of a world once it returns: an API server tells of a
// definition some moments after it serves it.
func newMapper(ctx context.Context, config *rest.Config, scheme *runtime.Scheme) (meta.RESTMapper, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, client)
	if err != nil {
		return nil, err
	}
	for _, o := range testbed.Watched() {
		gvk, err := apiutil.GVKForObject(o, scheme)
		if err != nil {
			return nil, err
		}
		err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			_, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			if meta.IsNoMatchError(err) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", gvk, err)
		}
	}
	return mapper, nil
}

// Client implements testbed.Cluster. A user of a world is an administrator.
func (c *cluster) Client(user string) client.WithWatch {
	out, err := client.NewWithWatch(c.through(newGate(), user), client.Options{Scheme: c.options.Scheme})
	if err != nil {
		panic(err) // The API server has answered the mirror by the same configuration.
	}
	return out
}

// through is the API for one that passes a gate.
func (c *cluster) through(g *gate, name string) *rest.Config {
	config := rest.CopyConfig(c.config)
	config.UserAgent = name // The field manager is the part before the slash.
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &transport{gate: g, next: next, counts: &c.counts, client: name}
	})
	return config
}

// Process implements testbed.Cluster.
func (c *cluster) Process(name string, o kubesim.ProcessOptions, onExit func(testbed.Process), setup func(manager.Manager) error) testbed.Process {
	p := &process{c: c, name: name, options: o, onExit: onExit, setup: setup}
	c.all = append(c.all, p)
	return p
}

// Inject implements testbed.Cluster. Faults of the API are the simulated one's:
// whoever plays a scenario asks Fault.OfSimulatedAPI before.
func (c *cluster) Inject(kubesim.Fault) (end func()) { return func() {} }

// Counts implements testbed.Cluster.
func (c *cluster) Counts() []kubesim.Count {
	c.counts.mu.Lock()
	defer c.counts.mu.Unlock()
	var out []kubesim.Count
	for count, n := range c.counts.each {
		count.N = n
		out = append(out, count)
	}
	slices.SortFunc(out, func(a, b kubesim.Count) int {
		return cmp.Or(strings.Compare(a.Client, b.Client), strings.Compare(a.Resource, b.Resource), strings.Compare(a.Verb, b.Verb))
	})
	return out
}

// Totals implements testbed.Cluster.
func (c *cluster) Totals() kubesim.Totals {
	var t kubesim.Totals
	for _, n := range c.Counts() {
		t.Requests += n.N
	}
	t.Writes = c.writes
	return t
}

// Close implements testbed.Cluster.
func (c *cluster) Close() {
	for _, p := range c.all {
		p.Crash()
	}
	c.cancel()
	c.r.pace.close()
	c.running.Wait()
}
