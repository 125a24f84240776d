// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/adit-hv/adit/sim"
)

// EventRecord is what a controller told its users.
type EventRecord struct {
	At      time.Duration
	Process string
	Object  string // "Kind namespace/name"
	Type    string
	Reason  string
	Message string
}

// maxEvents bounds what is kept of them: clusters forget theirs after an hour.
const maxEvents = 10000

// Events returns the latest events that controllers recorded, oldest first.
// They are kept beside the store, as nobody watches them.
func (c *Cluster) Events() []EventRecord { return c.events }

// eventRecorder records at once: the real one posts from a goroutine of its
// own, and its writer never waits.
type eventRecorder struct{ l *life }

func (m *simManager) GetEventRecorderFor(string) record.EventRecorder { return oldRecorder{m.l} }
func (m *simManager) GetEventRecorder(string) recorder.EventRecorder  { return eventRecorder{m.l} }

func (l *life) record(o runtime.Object, kind, reason, message string) {
	if !l.alive {
		return
	}
	name := fmt.Sprintf("%T", o)
	if object, ok := o.(client.Object); ok {
		if gvk, err := l.c.gvkOf(o); err == nil {
			name = gvk.Kind + " " + client.ObjectKeyFromObject(object).String()
		}
	}
	l.c.count(l.p.user(), "create", "events", len(message))
	l.c.s.Note(sim.Note{Host: l.p.options.Host, Component: l.p.name, What: "event " + reason, Object: name})
	if len(l.c.events) >= 2*maxEvents {
		l.c.events = append([]EventRecord(nil), l.c.events[maxEvents:]...)
	}
	l.c.events = append(l.c.events, EventRecord{At: l.c.s.Elapsed(), Process: l.p.name, Object: name, Type: kind, Reason: reason, Message: message})
}

func (r eventRecorder) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	r.l.record(regarding, kind, reason, fmt.Sprintf(note, args...))
}

func (r eventRecorder) AnnotatedEventf(regarding, _ runtime.Object, _ map[string]string, kind, reason, _, note string, args ...any) {
	r.l.record(regarding, kind, reason, fmt.Sprintf(note, args...))
}

type oldRecorder struct{ l *life }

func (r oldRecorder) Event(o runtime.Object, kind, reason, message string) {
	r.l.record(o, kind, reason, message)
}

func (r oldRecorder) Eventf(o runtime.Object, kind, reason, format string, args ...any) {
	r.l.record(o, kind, reason, fmt.Sprintf(format, args...))
}

func (r oldRecorder) AnnotatedEventf(o runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	r.l.record(o, kind, reason, fmt.Sprintf(format, args...))
}
