// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"
	"time"

	"github.com/adit-hv/adit/hardware"
)

// notes is what the event feed leaves for the next look at the host.
type notes struct {
	mu      sync.Mutex
	domains bool // instances changed
	daemon  bool // the connection came or went: all of libvirt's answers may have
}

func (n *notes) domainsChanged() {
	n.mu.Lock()
	n.domains = true
	n.mu.Unlock()
}

func (n *notes) daemonChanged() {
	n.mu.Lock()
	n.domains, n.daemon = true, true
	n.mu.Unlock()
}

func (n *notes) take() (domains, daemon bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	domains, daemon = n.domains, n.daemon
	n.domains, n.daemon = false, false
	return domains, daemon
}

// observer reads a host and remembers what does not change by itself: hardware
// and system for a boot, capabilities for a life of the daemon, domains until
// an event. Everything is read anew at each resync.
type observer struct {
	host   hardware.Host
	notes  notes
	resync time.Duration

	readAt       time.Time // of the last resync
	boot         hardware.Boot
	bootReadAt   time.Time
	facts        facts
	staleSystem  bool
	staleDaemon  bool
	staleDomains bool
}

// seenHost is one look at a host.
type seenHost struct {
	now        time.Time
	boot       hardware.Boot // ID "": not known
	units      unitSet
	libvirt    judgement
	connectErr error // libvirt's daemon does not answer
	processErr error // it answers, but not all
	facts      facts
}

func (o *observer) look(ctx context.Context, now time.Time) seenHost {
	o.markStale(ctx, now)
	if o.staleSystem {
		o.readSystem(ctx)
	}
	boot := o.boot
	boot.Uptime += now.Sub(o.bootReadAt)
	seen := seenHost{now: now, boot: boot, units: o.readUnits(ctx, now)}
	seen.libvirt = judgeLibvirt(seen.units, now)
	switch seen.libvirt.verdict {
	case healthy, waiting, keep:
		seen.connectErr, seen.processErr = o.readLibvirt(ctx)
	default:
		// Nobody asks it: through its socket that would start a daemon that
		// somebody stopped, or wait for an answer that never comes.
		o.staleDaemon, o.staleDomains = true, true
	}
	if o.facts.os == nil && o.facts.system != nil {
		o.facts.os = operatingSystem(*o.facts.system, o.facts.identity)
	}
	if o.facts.able == nil && o.facts.capabilities != nil {
		o.facts.able = ableTo(*o.facts.capabilities)
	}
	if o.facts.counted == nil && o.facts.capabilities != nil && o.facts.domainsKnown {
		o.facts.counted = count(*o.facts.capabilities, o.facts.domains)
	}
	seen.facts = o.facts
	if o.staleDaemon {
		seen.facts.capabilities, seen.facts.able, seen.facts.counted = nil, nil, nil
	}
	if o.staleDomains {
		seen.facts.domains, seen.facts.domainsKnown, seen.facts.counted = nil, false, nil
	}
	return seen
}

func (o *observer) markStale(ctx context.Context, now time.Time) {
	domains, daemon := o.notes.take()
	o.staleDomains = o.staleDomains || domains
	o.staleDaemon = o.staleDaemon || daemon
	// A process ends with its boot, so that this is not asked each time.
	if resync := o.readAt.IsZero() || now.Sub(o.readAt) >= o.resync; resync || o.boot.ID == "" {
		if boot, err := o.host.Boot(ctx); err == nil {
			o.boot, o.bootReadAt = boot, now
		}
	}
	if o.readAt.IsZero() || now.Sub(o.readAt) >= o.resync {
		o.readAt = now
		o.staleSystem, o.staleDaemon, o.staleDomains = true, true, true
	}
}

// readSystem leaves what it cannot read stale; an agent without the rights to
// read the firmware's tables still reports the rest.
func (o *observer) readSystem(ctx context.Context) {
	o.staleSystem, o.facts.os = false, nil
	if identity, err := o.host.Identity(ctx); err != nil {
		o.staleSystem = true
	} else {
		o.facts.identity = identity
	}
	if system, err := o.host.System(ctx); err != nil {
		o.staleSystem = true
	} else {
		o.facts.system = &system
	}
}

// readUnits reads what is needed to judge the two daemons: the socket and the
// modular daemon count only when the plain service does not run.
func (o *observer) readUnits(ctx context.Context, now time.Time) unitSet {
	units := unitSet{}
	read := func(names ...string) {
		answers, err := o.host.Units(ctx, names...)
		for i, name := range names {
			u := hardware.Unit{} // no load state: keeps the last verdict
			if err == nil {
				u = answers[i]
			}
			u.Name = name
			units[name] = u
		}
	}
	read(unitLibvirtd, unitOpenvswitch, unitVswitchd)
	if judge(units[unitLibvirtd], now).verdict != healthy {
		read(unitLibvirtdSock, unitVirtqemud, unitVirtqemudSk)
	}
	return units
}

// aliveUUID is no domain's: to be told so takes a living daemon and little else.
const aliveUUID = "00000000-0000-0000-0000-000000000000"

// readLibvirt reads what is stale, or else asks the daemon for a sign of life.
func (o *observer) readLibvirt(ctx context.Context) (connectErr, processErr error) {
	if !o.staleDomains && !o.staleDaemon {
		if _, err := o.host.Domain(ctx, aliveUUID); err != nil && hardware.ConsequenceOf(err) != hardware.Refused {
			o.staleDomains, o.staleDaemon = true, true
			return err, nil
		}
		return nil, nil
	}
	if o.staleDomains {
		domains, err := o.host.Domains(ctx)
		switch {
		case err == nil:
			o.facts.domains, o.facts.domainsKnown, o.facts.counted, o.staleDomains = domains, true, nil, false
		case hardware.ConsequenceOf(err) == hardware.Refused:
			processErr = err
		default:
			o.staleDaemon = true
			return err, nil
		}
	}
	if o.staleDaemon {
		capabilities, err := o.host.Capabilities(ctx)
		switch {
		case err == nil:
			o.facts.capabilities, o.facts.able, o.facts.counted, o.staleDaemon = &capabilities, nil, nil, false
		case processErr == nil:
			processErr = err
		}
	}
	return nil, processErr
}
