// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/adit-hv/adit/sim"
)

// Fault is a trouble of the API. The zero value of a selector selects all.
// FaultHelp lists the kinds.
//
// Faults meet processes only, never an outside client.
type Fault struct {
	Kind      string
	For       time.Duration // 0: once, for watch.cut, watch.expire and api.compact; else until ended
	P         float64       // chance per call; 0 means 1
	Times     int           // ends after this many hits; 0: no limit
	Verbs     []string      // of the calls; get, list, watch, create, update, patch, apply, delete, deletecollection
	Resources []string      // plural names, with or without "/status"
	On        []string      // process names, or users; a trailing * matches any rest
	Phase     string        // of api.timeout: before or after the commit; "": drawn
	Delay     time.Duration // of api.latency and api.stale; Retry-After of api.429
}

// faultHelp says what each kind does.
var faultHelp = [][2]string{
	{"api.409", "writes are refused as if the object had changed"},
	{"api.429", "calls are refused with Retry-After delay="},
	{"api.5xx", "calls fail inside the server, nothing happened"},
	{"api.unavailable", "calls are refused: no server is there"},
	{"api.timeout", "calls get no answer; phase=before|after says whether they took effect"},
	{"api.latency", "calls take delay= longer"},
	{"api.stale", "live reads answer from delay= ago"},
	{"api.compact", "all watch history is gone"},
	{"watch.cut", "the watches end, and come back when it is over"},
	{"watch.expire", "the watches end, and come back with a new list (410)"},
	{"watch.freeze", "the watches stay silent"},
}

// FaultKinds lists the kinds of faults.
func FaultKinds() (kinds []string) {
	for _, one := range faultHelp {
		kinds = append(kinds, one[0])
	}
	return kinds
}

// FaultHelp lists the kinds with their keys, and what they do.
func FaultHelp() (help [][2]string) {
	for _, one := range faultHelp {
		help = append(help, [2]string{one[0] + " [for=] [p=] [times=] [verbs=] [resources=] [on=]", one[1]})
	}
	return help
}

// ParseFault reads what String prints: the kind, then key=value pairs, as in
// "api.429 for=30s p=0.3 verbs=update,patch on=operator".
func ParseFault(text string) (Fault, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Fault{}, errors.New("fault: no kind given")
	}
	f := Fault{Kind: words[0]}
	if !slices.Contains(FaultKinds(), f.Kind) {
		return f, fmt.Errorf("fault %q: the kinds are %s", f.Kind, strings.Join(FaultKinds(), ", "))
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "for":
			f.For, err = time.ParseDuration(value)
		case "delay":
			f.Delay, err = time.ParseDuration(value)
		case "p":
			f.P, err = strconv.ParseFloat(value, 64)
			if err != nil || !(f.P > 0 && f.P <= 1) {
				err = errors.New("a chance lies above 0 and up to 1")
			}
		case "times":
			f.Times, err = strconv.Atoi(value)
		case "verbs":
			f.Verbs = strings.Split(value, ",")
		case "resources":
			f.Resources = strings.Split(value, ",")
		case "on":
			f.On = strings.Split(value, ",")
		case "phase":
			f.Phase = value
			if value != "before" && value != "after" {
				err = errors.New("a phase is before or after")
			}
		default:
			err = errors.New("the keys are for, delay, p, times, verbs, resources, on, phase")
		}
		if err != nil {
			return f, fmt.Errorf("fault %s: %s: %w", f.Kind, word, err)
		}
	}
	return f, nil
}

// String prints the fault so that ParseFault reads it.
func (f Fault) String() string {
	words := []string{f.Kind}
	add := func(key, value string) {
		if value != "" {
			words = append(words, key+"="+value)
		}
	}
	if f.For > 0 {
		add("for", f.For.String())
	}
	if f.Delay > 0 {
		add("delay", f.Delay.String())
	}
	if f.P > 0 {
		add("p", strconv.FormatFloat(f.P, 'g', -1, 64))
	}
	if f.Times > 0 {
		add("times", strconv.Itoa(f.Times))
	}
	add("verbs", strings.Join(f.Verbs, ","))
	add("resources", strings.Join(f.Resources, ","))
	add("on", strings.Join(f.On, ","))
	add("phase", f.Phase)
	return strings.Join(words, " ")
}

type activeFault struct {
	Fault
	hits int
}

// Inject lets a fault begin now. It is noted when it begins, hits and ends.
// The returned function ends it early.
func (c *Cluster) Inject(f Fault) (end func()) {
	a := &activeFault{Fault: f}
	c.noteFault("begins", a.String(), "")
	switch f.Kind {
	case "api.compact":
		for _, k := range c.sortedKinds() {
			if len(f.Resources) == 0 || slices.Contains(f.Resources, k.gr.Resource) {
				k.past.cut(len(k.past.changes))
				k.past.compacted = c.rv
			}
		}
		return func() {}
	case "watch.cut", "watch.expire":
		for _, p := range c.hit(a) {
			p.life.m.cache.cut(f.Kind == "watch.expire", a.concerns)
		}
		if f.For == 0 {
			return func() {}
		}
	}
	c.faults = append(c.faults, a)
	for _, p := range c.hit(a) {
		switch {
		case f.Kind == "watch.freeze":
			p.life.m.cache.freeze(a.concerns)
		case a.silences():
			for _, h := range p.life.beats {
				h.stop()
			}
		}
	}
	end = func() { c.endFault(a) }
	if f.For > 0 {
		c.s.After(f.For, end)
	}
	return end
}

func (c *Cluster) endFault(a *activeFault) {
	i := slices.Index(c.faults, a)
	if i < 0 {
		return
	}
	c.faults = slices.Delete(slices.Clone(c.faults), i, i+1)
	c.noteFault("ends", a.String(), "")
	for _, p := range c.hit(a) {
		switch {
		case a.Kind == "watch.freeze":
			p.life.m.cache.thaw(a.concerns)
		case a.silences():
			for _, h := range p.life.beats {
				h.start()
			}
		}
	}
}

func (c *Cluster) noteFault(what, fault, object string) {
	c.s.Note(sim.Note{Component: "fault", What: what, Object: object, Detail: fault})
}

// hit lists the living processes a fault is on.
func (c *Cluster) hit(a *activeFault) (out []*Process) {
	for _, p := range c.processes {
		if p.life != nil && a.on(p) {
			out = append(out, p)
		}
	}
	return out
}

func (a *activeFault) on(p *Process) bool {
	return len(a.On) == 0 || slices.ContainsFunc(a.On, func(pattern string) bool {
		if rest, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(p.name, rest) || strings.HasPrefix(p.user(), rest)
		}
		return pattern == p.name || pattern == p.user()
	})
}

func (a *activeFault) concerns(k *kind) bool {
	return len(a.Resources) == 0 || slices.Contains(a.Resources, k.gr.Resource)
}

// silences: while every renewal fails, a lease must not beat by itself.
func (a *activeFault) silences() bool {
	switch a.Kind {
	case "api.429", "api.5xx", "api.unavailable", "api.timeout":
	default:
		return false
	}
	return (a.P == 0 || a.P == 1) && a.Times == 0 && a.Phase != "after" &&
		(len(a.Verbs) == 0 || slices.Contains(a.Verbs, "update")) && (len(a.Resources) == 0 || slices.Contains(a.Resources, "leases"))
}

func (c *Cluster) silences(p *Process) bool {
	return slices.ContainsFunc(c.faults, func(a *activeFault) bool { return a.silences() && a.on(p) })
}

func (c *Cluster) watchesBlocked(p *Process, k *kind) bool {
	return slices.ContainsFunc(c.faults, func(a *activeFault) bool {
		return (a.Kind == "watch.cut" || a.Kind == "watch.expire") && a.on(p) && a.concerns(k)
	})
}

func (c *Cluster) freezes(p *Process, k *kind) bool {
	return slices.ContainsFunc(c.faults, func(a *activeFault) bool { return a.Kind == "watch.freeze" && a.on(p) && a.concerns(k) })
}

// strike is what the faults do to a call: an error, before or after it took
// effect, and a delay.
type strike struct {
	err   error
	after bool
	delay time.Duration
}

func (c *Cluster) strike(p *Process, verb string, k *kind, sub string) (hit strike) {
	if len(c.faults) == 0 {
		return hit
	}
	for _, a := range c.faults {
		if hit.err != nil || !a.strikes(p, verb, k, sub) || a.P > 0 && c.faultRand.Float64() >= a.P {
			continue
		}
		after := a.Phase == "after"
		switch a.Kind {
		case "api.409":
			hit.err = apierrors.NewConflict(k.gr, "", errors.New("the object has been modified; please apply your changes to the latest version and try again"))
		case "api.429":
			hit.err = apierrors.NewTooManyRequests("the server has received too many requests and has asked us to try again later", int(max(a.Delay, time.Second)/time.Second))
		case "api.5xx":
			hit.err = apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
		case "api.unavailable":
			hit.err = apierrors.NewServiceUnavailable("the server is currently unable to handle the request")
		case "api.timeout":
			if a.Phase == "" {
				after = c.faultRand.Float64() < 0.5
			}
			hit.err, hit.after = unknown(verb, k, "the server did not answer"), after
		case "api.latency":
			hit.delay += a.Delay
		}
		c.noteFault("hits", a.Kind, p.name+" "+verb+" "+k.resource(sub))
		if a.hits++; a.Times > 0 && a.hits >= a.Times {
			c.endFault(a)
		}
	}
	return hit
}

func (a *activeFault) strikes(p *Process, verb string, k *kind, sub string) bool {
	switch a.Kind {
	case "api.409":
		if len(a.Verbs) == 0 && verb != "update" && verb != "patch" {
			return false
		}
	case "api.429", "api.5xx", "api.unavailable", "api.timeout", "api.latency":
	default:
		return false
	}
	return a.on(p) && (len(a.Verbs) == 0 || slices.Contains(a.Verbs, verb)) &&
		(len(a.Resources) == 0 || slices.Contains(a.Resources, k.gr.Resource) || slices.Contains(a.Resources, k.resource(sub)))
}

// unknown is the error of a call that may have worked.
func unknown(verb string, k *kind, why string) error {
	return apierrors.NewTimeoutError(fmt.Sprintf("%s %s: %s; the request may have been processed", verb, k.gr.Resource, why), 0)
}

// stale says which changes a live read does not see yet, nil: it sees all.
func (a *apiClient) stale(k *kind) func(change) bool {
	if a.l == nil {
		return nil
	}
	for _, f := range a.c.faults {
		if f.Kind == "api.stale" && f.on(a.l.p) && f.concerns(k) && (f.P == 0 || a.c.faultRand.Float64() < f.P) {
			from := a.c.s.Elapsed() - f.Delay
			return func(ch change) bool { return ch.at > from }
		}
	}
	return nil
}
