// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/sim"
)

// line is an HA agent's way to the HA service: the host's management link, in
// virtual time. It finds the leader as internal/rpc does over a real network,
// by the same times.
type line struct {
	w     *World
	host  string
	agent Process
	rand  *rand.Rand

	next   int           // the replica to ask first
	heard  time.Duration // when a leader last took a report; 0: never
	faults []*lineFault
	cut    int // faults that part the agent from all others
}

// lineFault is what goes wrong with reports on their way.
type lineFault struct {
	lost    float64 // chance that a report, or the answer to it, is lost
	dup     bool    // each report arrives twice
	by      time.Duration
	reorder bool // by is drawn anew for each
}

// The times of internal/rpc's client, and what it does between rounds.
const (
	reportTimeout = 4 * time.Second
	firstPause    = 200 * time.Millisecond
	maxPause      = 2 * time.Second
)

var (
	errNoAnswer  = errors.New("no answer in time")
	errRefused   = errors.New("connection refused")
	errNotLeader = errors.New("does not lead")
)

// reporter is a line as a life of its agent holds it.
type reporter struct {
	l    *line
	call func(func())
}

// Report hands a report to the service.
func (r reporter) Report(ctx context.Context, report *hav1.ReportRequest) (answer *hav1.ReportResponse, err error) {
	err = errNoAnswer
	r.call(func() { answer, err = r.l.Report(ctx, report) })
	return answer, err
}

// Report hands a report to whichever replica leads. It is called on the agent's
// tasks.
func (l *line) Report(ctx context.Context, report *hav1.ReportRequest) (*hav1.ReportResponse, error) {
	done := l.agent.Step("Report")
	defer done()
	deadline := l.w.now() + reportTimeout
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		answer, err := l.round(report, deadline)
		if err == nil {
			return answer, nil
		}
		rest := pause/2 + time.Duration(l.rand.Int64N(int64(pause)))
		if ctx.Err() != nil || l.w.now()+rest >= deadline {
			return nil, err
		}
		l.rest(rest)
	}
}

// rest lets virtual time pass on the agent's task.
func (l *line) rest(d time.Duration) {
	task := l.w.Scheduler.Current()
	l.w.Scheduler.After(d, func() { l.agent.Deliver(task.Resume) })
	task.Park()
}

// round asks each replica once. The first, who led last, may take half of the
// time that is left, and the others share the rest.
func (l *line) round(report *hav1.ReportRequest, deadline time.Duration) (*hav1.ReportResponse, error) {
	replicas := l.w.spec.replicas()
	first := l.next
	var errs []error
	for i := range replicas {
		at, share := (first+i)%len(replicas), len(replicas)-i
		if i == 0 {
			share = min(share, 2)
		}
		answer, err := l.ask(replicas[at], report, (deadline-l.w.now())/time.Duration(share))
		if err == nil && !answer.GetLeader() {
			err = errNotLeader
		}
		if err == nil {
			l.next = at
			return answer, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", replicas[at], err))
		if l.w.now() >= deadline {
			break
		}
	}
	l.next = (first + 1) % len(replicas)
	return nil, fmt.Errorf("no replica of the HA service answered as leader: %w", errors.Join(errs...))
}

// exchange is one report that waits for its answer.
type exchange struct {
	l      *line
	task   *sim.Task
	timer  *sim.Timer
	done   bool
	answer *hav1.ReportResponse
	err    error
}

func (x *exchange) end(answer *hav1.ReportResponse, err error) {
	if x.done {
		return
	}
	x.done, x.answer, x.err = true, answer, err
	x.timer.Stop()
	x.l.agent.Deliver(x.task.Resume)
}

// ask sends a report to one replica and waits for its answer.
func (l *line) ask(replica string, report *hav1.ReportRequest, patience time.Duration) (*hav1.ReportResponse, error) {
	x := &exchange{l: l, task: l.w.Scheduler.Current()}
	x.timer = l.w.Scheduler.After(patience, func() { x.end(nil, errNoAnswer) })
	l.send(replica, report, x)
	for !x.done {
		x.task.Park()
	}
	return x.answer, x.err
}

// send lets a report travel: not at all, once or more often. What is on its way
// arrives whatever becomes of its host meanwhile.
func (l *line) send(replica string, report *hav1.ReportRequest, x *exchange) {
	if !l.w.Fleet.Reaches(l.host, hwsim.Outside, hwsim.LinkManagement) || l.cut > 0 || l.lost() {
		return
	}
	copies := 1
	if slices.ContainsFunc(l.faults, func(f *lineFault) bool { return f.dup }) {
		copies = 2
	}
	for range copies {
		l.w.Scheduler.After(l.way()+l.delay(), func() { l.arrive(replica, report, x) })
	}
}

// arrive is a report at a replica's door.
func (l *line) arrive(replica string, report *hav1.ReportRequest, x *exchange) {
	p := l.w.processes[replica]
	switch {
	case l.w.ha.isolated[replica] > 0:
	case !p.Alive():
		l.back(replica, x, nil, errRefused)
	default:
		p.Deliver(func() {
			answer, err := l.w.ha.services[replica].Report(context.Background(), l.wired(report))
			if err == nil && answer.GetLeader() {
				l.heard = max(l.w.now(), 1)
			}
			l.back(replica, x, answer, err)
		})
	}
}

// back lets an answer travel.
func (l *line) back(replica string, x *exchange, answer *hav1.ReportResponse, err error) {
	if x.done {
		return // who asked has gone on
	}
	l.w.Scheduler.After(l.way(), func() {
		if l.w.Fleet.Reaches(hwsim.Outside, l.host, hwsim.LinkManagement) && l.cut == 0 && l.w.ha.isolated[replica] == 0 && !l.lost() {
			x.end(answer, err)
		}
	})
}

// wired is a report as it comes out of a wire. It costs as much as the rest of
// a report's way, and so is left to the runs that check everything.
func (l *line) wired(report *hav1.ReportRequest) *hav1.ReportRequest {
	if l.w.options.Fidelity != kubesim.Full {
		return report
	}
	out := &hav1.ReportRequest{}
	data, err := proto.Marshal(report)
	if err == nil {
		err = proto.Unmarshal(data, out)
	}
	if err != nil {
		l.w.watch.violate("testbed", fmt.Sprintf("a report of %s does not go through a wire: %v", l.host, err))
	}
	return out
}

// way is the time a message travels and is handled at its end: within a site,
// with a tail.
func (l *line) way() time.Duration {
	return 500*time.Microsecond + min(time.Duration(l.rand.ExpFloat64()*float64(time.Millisecond)), 50*time.Millisecond)
}

func (l *line) lost() bool {
	return slices.ContainsFunc(l.faults, func(f *lineFault) bool { return f.lost > 0 && l.rand.Float64() < f.lost })
}

func (l *line) delay() (d time.Duration) {
	for _, f := range l.faults {
		if f.by > 0 && f.reorder {
			d += time.Duration(l.rand.Int64N(int64(f.by)))
		} else {
			d += f.by
		}
	}
	return d
}

// disturb lets a fault of reports begin; the function returned ends it.
func (l *line) disturb(f *lineFault) (end func()) {
	l.faults = append(l.faults, f)
	return func() { l.faults = slices.DeleteFunc(l.faults, func(o *lineFault) bool { return o == f }) }
}
