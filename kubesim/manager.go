// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/adit-hv/adit/sim"
)

// Heartbeater is a runnable that only renews a lease. Its Start is not called:
// the cluster renews in its place, without writes where it may.
type Heartbeater interface {
	Heartbeat() (lease types.NamespacedName, holder string, every, duration time.Duration)
}

// simManager is the manager of one life.
type simManager struct {
	manager.Manager // nil: what a simulated process has no use for
	l               *life
	cache           *cacheReader
	client, live    *apiClient
	logger          logr.Logger
	elected         chan struct{}
	leading         bool
	started         bool
	runnables       []*runnable
}

// runnable is something the process runs.
type runnable struct {
	manager.Runnable
	name       string
	controller bool
	leader     bool // runs only while the process leads
	begun      bool
	queue      *queue
	booted     chan struct{}
}

func newManager(l *life) *simManager {
	m := &simManager{l: l, elected: make(chan struct{}), logger: l.c.o.Logger}
	if m.logger.GetSink() != nil {
		m.logger = m.logger.WithName(l.p.name)
	}
	by := request{by: l.p.name, role: l.p.options.Role, host: l.p.options.Host, manager: l.p.user()}
	m.cache = &cacheReader{l: l, by: map[schema.GroupVersionKind]*informer{}}
	m.live = &apiClient{c: l.c, l: l, by: by}
	m.client = &apiClient{c: l.c, l: l, by: by, cache: m.cache}
	return m
}

func (m *simManager) GetCache() cache.Cache                         { return m.cache }
func (m *simManager) GetClient() client.Client                      { return m.client }
func (m *simManager) GetAPIReader() client.Reader                   { return m.live }
func (m *simManager) GetScheme() *runtime.Scheme                    { return m.l.c.o.Scheme }
func (m *simManager) GetRESTMapper() meta.RESTMapper                { return restMapper{m.l.c} }
func (m *simManager) GetFieldIndexer() client.FieldIndexer          { return m.cache }
func (m *simManager) GetLogger() logr.Logger                        { return m.logger }
func (m *simManager) GetConfig() *rest.Config                       { return &rest.Config{} }
func (m *simManager) GetHTTPClient() *http.Client                   { return nil }
func (m *simManager) GetWebhookServer() webhook.Server              { return nil }
func (m *simManager) GetConverterRegistry() conversion.Registry     { return nil }
func (m *simManager) Elected() <-chan struct{}                      { return m.elected }
func (m *simManager) AddHealthzCheck(string, healthz.Checker) error { return nil }
func (m *simManager) AddReadyzCheck(string, healthz.Checker) error  { return nil }
func (m *simManager) AddMetricsServerExtraHandler(string, http.Handler) error {
	return nil
}

func (m *simManager) Start(context.Context) error {
	return errors.New("kubesim: a process is started by Process.Start")
}

// GetControllerOptions are the defaults for controllers that do not take
// theirs from ControllerOptions.
func (m *simManager) GetControllerOptions() config.Controller {
	yes := true
	return config.Controller{SkipNameValidation: &yes, UsePriorityQueue: &yes, Logger: m.logger}
}

// ControllerOptions are a controller's, with that many workers. Names repeat
// from process to process: metrics carry the controller's name alone.
func (m *simManager) ControllerOptions(workers int) controller.Options {
	yes := true
	return controller.Options{SkipNameValidation: &yes, UsePriorityQueue: &yes, MaxConcurrentReconciles: workers}
}

// Add registers a controller or another runnable.
func (m *simManager) Add(r manager.Runnable) error {
	one := &runnable{Runnable: r}
	if led, ok := r.(manager.LeaderElectionRunnable); ok {
		one.leader = led.NeedLeaderElection()
	}
	if err := m.wire(one); err != nil {
		return err
	}
	m.runnables = append(m.runnables, one)
	if m.started {
		m.startGroup(one.leader)
	}
	return nil
}

// queueMaker is the type of a controller's NewQueue.
type queueMaker = func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request]

// wire gives a controller our queue and looks over its reconciler's shoulder.
// The controller's type is internal to controller-runtime; its fields are not.
func (m *simManager) wire(one *runnable) error {
	v := reflect.ValueOf(one.Runnable)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil
	}
	v = v.Elem()
	queueField := v.FieldByName("NewQueue")
	do := v.FieldByName("Do")
	if !queueField.IsValid() || !do.IsValid() {
		return nil
	}
	if queueField.Type() != reflect.TypeFor[queueMaker]() {
		return fmt.Errorf("kubesim runs controllers of reconcile.Request, not %s", v.Type())
	}
	one.controller, one.name = true, v.FieldByName("Name").String()
	one.booted = make(chan struct{})
	workers := int(v.FieldByName("MaxConcurrentReconciles").Int())
	path := m.l.p.name + "/" + one.name
	queueField.Set(reflect.ValueOf(queueMaker(func(_ string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		one.queue = newQueue(m.l, path, workers, limiter, one.booted)
		return one.queue
	})))
	do.Set(reflect.ValueOf(&guard{l: m.l, controller: one.name, inner: do.Interface().(reconcile.Reconciler)}))
	return nil
}

// lead starts what only a leader runs.
func (m *simManager) lead() {
	m.leading = true
	close(m.elected)
	m.startGroup(true)
}

// startGroup starts what is registered and may run: controllers one after the
// other, then the informers they asked for, and the rest once these are in.
func (m *simManager) startGroup(leader bool) {
	var rest []*runnable
	for _, one := range m.runnables {
		if one.begun || one.leader != leader || leader && !m.leading {
			continue
		}
		one.begun = true
		if !one.controller {
			rest = append(rest, one)
			continue
		}
		if err := m.startController(one); err != nil {
			m.l.exit(fmt.Errorf("start controller %s: %w", one.name, err))
			return
		}
	}
	m.cache.startAll()
	m.l.whenSynced(func() {
		for _, one := range m.runnables {
			if one.queue != nil {
				one.queue.kick()
			}
		}
		for _, one := range rest {
			m.startRunnable(one)
		}
	})
}

func (m *simManager) startController(one *runnable) error {
	if err := takeTurns(m.l, one.Runnable); err != nil {
		return err
	}
	if err := m.l.launch(one.Runnable, one.booted); err != nil {
		return err
	}
	for _, w := range one.queue.idle {
		m.l.tasks = append(m.l.tasks, w.task)
	}
	return nil
}

func (m *simManager) startRunnable(one *runnable) {
	if h, ok := one.Runnable.(Heartbeater); ok {
		m.l.startHeartbeat(h)
		return
	}
	m.l.task(func(t *sim.Task) {
		err := one.Start(&runContext{Context: m.l.ctx, t: t})
		if err != nil && m.l.alive {
			m.l.exit(fmt.Errorf("run %T: %w", one.Runnable, err))
		}
	})
}
