// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

type (
	sourceOf = source.TypedSource[reconcile.Request]
	queueOf  = workqueue.TypedRateLimitingInterface[reconcile.Request]
)

// takeTurns makes a controller start its sources one by one. It would start
// them at once, each on a goroutine, and the order of an informer's handlers
// would be the machine's. They stand in an unexported field; a test looks
// whether it is still there.
func takeTurns(l *life, controller any) error {
	v := reflect.ValueOf(controller).Elem().FieldByName("startWatches")
	if !v.IsValid() || v.Type() != reflect.TypeFor[[]sourceOf]() {
		return errors.New("kubesim: this version of controller-runtime keeps its sources elsewhere")
	}
	sources := *(*[]sourceOf)(unsafe.Pointer(v.UnsafeAddr()))
	before := make(chan struct{})
	close(before)
	for i, inner := range sources {
		if strings.HasPrefix(reflect.TypeOf(inner).String(), "*source.channel[") {
			polled, err := newPolled(l, inner)
			if err != nil {
				return err
			}
			inner = polled
		}
		done := make(chan struct{})
		sources[i] = &turn{inner: inner, before: before, done: done}
		before = done
	}
	return nil
}

// turn is a source that waits for the one before it.
type turn struct {
	inner        sourceOf
	before, done chan struct{}
}

func (t *turn) Start(ctx context.Context, q queueOf) error {
	select {
	case <-t.before:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := t.inner.Start(ctx, q)
	if err != nil {
		close(t.done)
	}
	return err
}

func (t *turn) WaitForSync(ctx context.Context) error {
	defer close(t.done)
	if s, ok := t.inner.(source.TypedSyncingSource[reconcile.Request]); ok {
		return s.WaitForSync(ctx)
	}
	return nil
}

func (t *turn) String() string { return fmt.Sprint(t.inner) }

// polled stands in for a source.Channel, whose goroutines would run beside the
// baton: the channel is looked at after each event instead.
type polled struct {
	l          *life
	events     <-chan event.GenericEvent
	handler    handler.EventHandler
	predicates []predicate.Predicate
}

func newPolled(l *life, channel any) (*polled, error) {
	v := reflect.ValueOf(channel).Elem()
	field := func(name string) any {
		f := v.FieldByName(name)
		if !f.IsValid() {
			return nil
		}
		return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Interface()
	}
	p := &polled{l: l}
	var ok, handled bool
	p.events, ok = field("source").(<-chan event.GenericEvent)
	p.handler, handled = field("handler").(handler.EventHandler)
	p.predicates, _ = field("predicates").([]predicate.Predicate)
	if !ok || !handled {
		return nil, fmt.Errorf("kubesim: cannot look into %T: use source.Func", channel)
	}
	if cap(p.events) == 0 {
		return nil, errors.New("kubesim: a source.Channel needs a buffered channel: its sender holds the baton")
	}
	return p, nil
}

func (p *polled) Start(ctx context.Context, q queueOf) error {
	p.l.channels = append(p.l.channels, func() {
		for len(p.events) > 0 {
			p.handle(ctx, <-p.events, q)
		}
	})
	p.l.c.poll(p.l)
	return nil
}

func (p *polled) handle(ctx context.Context, e event.GenericEvent, q queueOf) {
	for _, allow := range p.predicates {
		if !allow.Generic(e) {
			return
		}
	}
	p.handler.Generic(ctx, e, q)
}

// poll looks at the channels of a life after each event.
func (c *Cluster) poll(l *life) {
	if len(l.channels) > 1 {
		return
	}
	if c.polling == nil {
		c.s.AfterEach(func() {
			for _, l := range c.polling {
				if l.alive && !l.paused {
					for _, look := range l.channels {
						look()
					}
				}
			}
		})
	}
	living := c.polling[:0:0]
	for _, x := range c.polling {
		if x.alive {
			living = append(living, x)
		}
	}
	c.polling = append(living, l)
}
