// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/adit-hv/adit/agents/permit"
	"github.com/adit-hv/adit/hardware"
)

// The notes that the agent keeps for its next start.
const (
	epochNote = "ha-epoch"
	spoolNote = "ha-events"
)

const (
	// retry is how soon something local that went wrong is tried again.
	retry = time.Second
	// gather is how long events are waited for before the domains are listed and
	// the service is told: a guest that starts makes several.
	gather = 200 * time.Millisecond
	// gap is the least time between two reports that nobody waits for: a storm of
	// events is told once a second.
	gap = time.Second
)

// agent is what the loops know together.
type agent struct {
	o    Options
	boot string

	keeper, reporter, beater, reacher, reader, looker, shutter, destroyer *loop

	mu    sync.Mutex // never held across a call
	begun bool       // what follows was read after the start
	epoch uint64

	lease    lease
	was      standing // as the keeper saw it last
	watchdog hardware.WatchdogState
	noted    permit.Permit // as saved
	spool    spool
	savedAt  time.Duration // the spool
	table    table

	talk       talk
	heart      pulse
	hypervisor pulse
	neighbours map[string]*neighbour
	stops      stops

	subscribed bool
}

func newAgent(o Options) *agent {
	a := &agent{o: o, was: none, lease: lease{times: o.Times}, table: newTable(), neighbours: map[string]*neighbour{}, stops: newStops()}
	one := func(do func(context.Context) time.Duration) func(context.Context, string) time.Duration {
		return func(ctx context.Context, _ string) time.Duration { return do(ctx) }
	}
	a.keeper = &loop{name: "keep", workers: 1, starts: true, do: one(a.keep)}
	a.reporter = &loop{name: "report", workers: 1, starts: true, do: a.once(a.report)}
	a.beater = &loop{name: "beat", workers: 1, starts: true, do: a.once(a.beat)}
	a.reacher = &loop{name: "reach", workers: 1, do: one(a.reach)}
	a.reader = &loop{name: "read", workers: 1, do: one(a.read)}
	a.looker = &loop{name: "look", workers: 1, starts: true, do: a.once(a.look)}
	a.shutter = &loop{name: "shutdown", workers: 2, do: a.shutDown}
	a.destroyer = &loop{name: "destroy", workers: 4, do: a.destroy}
	return a
}

func (a *agent) loops() []*loop {
	l := []*loop{a.keeper, a.reporter, a.looker, a.shutter, a.destroyer, a.reacher}
	if a.o.Pool != "" {
		l = append(l, a.beater, a.reader)
	}
	return l
}

// once lets a loop wait until the keeper has read what there is to know.
func (a *agent) once(do func(context.Context) time.Duration) func(context.Context, string) time.Duration {
	return func(ctx context.Context, _ string) time.Duration {
		a.mu.Lock()
		begun := a.begun
		a.mu.Unlock()
		if !begun {
			return gather
		}
		return do(ctx)
	}
}

func (a *agent) now() time.Duration { return a.o.Steady.Elapsed() }

// begin reads what an earlier agent of this boot left, and counts this start.
// Nothing is done before, and above all nothing is fed.
func (a *agent) begin(ctx context.Context) error {
	hw := a.o.Hardware
	boot, err := hw.Boot(ctx)
	if err != nil {
		return err
	}
	var notes [4][]byte
	for i, name := range []string{epochNote, spoolNote, permit.NoteName, permit.StoppedName} {
		if notes[i], err = hw.LoadNote(ctx, name); err != nil {
			return err
		}
	}
	var epoch uint64
	if len(notes[0]) > 0 {
		if err := json.Unmarshal(notes[0], &epoch); err != nil {
			return fmt.Errorf("note %s: %w", epochNote, err)
		}
	}
	events, err := readSpool(notes[1])
	if err != nil {
		return err
	}
	held, err := permit.Decode(notes[2])
	if err != nil {
		return err
	}
	stopped, err := permit.DecodeStopped(notes[3])
	if err != nil {
		return err
	}
	dog, err := hw.Watchdog(ctx)
	if err != nil {
		return err
	}
	epoch++
	data, _ := json.Marshal(epoch) // a number
	if err := hw.SaveNote(ctx, epochNote, data); err != nil {
		return err
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	a.boot, a.epoch, a.begun = boot.ID, epoch, true
	a.lease = resume(held, a.o.Times, boot.ID, dog.Armed, now)
	a.noted, a.spool, a.watchdog = held, events, dog
	a.stops.resume(stopped, now)
	a.hypervisor.since, a.heart.since = now, now
	return nil
}

// pulse is how something that may fall silent answers.
type pulse struct {
	answers bool
	since   time.Duration // how long it has been so
	asked   time.Duration // a call is under way since then; 0: none is
	last    time.Duration // when the last call that was answered began
}

// ask notes that a call begins.
func (p *pulse) ask(now time.Duration) { p.asked = max(now, 1) }

// hear notes that the call begun then has ended, and says whether that is news.
func (p *pulse) hear(begun, now time.Duration, ok bool) (news bool) {
	p.asked = 0
	news = p.answers != ok
	switch {
	case ok && news:
		p.since = now
	case news:
		p.since = begun
	}
	if ok {
		p.last = begun
	}
	p.answers = ok
	return news
}

// state is whether it answers, and since when that is so. A call that has been
// under way for longer than patience is not answered.
func (p *pulse) state(now, patience time.Duration) (answers bool, since time.Duration) {
	if p.answers && p.asked > 0 && now-p.asked >= patience {
		return false, p.asked
	}
	return p.answers, p.since
}
