// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"time"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// verdict is what the evidence of one host says.
type verdict struct {
	state   string // a reason of HostAlive, or "" where nothing can be said yet
	message string
	// stranded: the host is heard, but has lost the storage that others have.
	stranded bool
}

// evidence is all that a verdict depends on. Times are the leader's steady clock.
type evidence struct {
	now    time.Duration
	ledFor time.Duration // since this leader could first hear anybody
	limits Limits

	heard    bool // by this leader
	silence  time.Duration
	stranded time.Duration // how long its storage has been away; 0: it is there
	paused   bool          // its VMs stand still for that, so that they can leave one by one

	sightings []sighting
	pulse     pulse
	// othersWrite: hosts that share its storage can write it now.
	othersWrite bool
}

// pulse is the node agent's Lease, which needs another process and another way.
type pulse string

// What a Lease shows.
const (
	pulseNone    pulse = ""        // there is none, which says nothing
	pulseUnknown pulse = "unknown" // not watched for long enough, or not to be read
	pulseStill   pulse = "still"
	pulseMoves   pulse = "moves"
)

// pausedPatience is how much longer a host without storage is left its lease when
// its VMs are paused for I/O errors: nothing hangs, and its agents can move them.
const pausedPatience = 8

// judge is the table of docs/ha.md, States, as far as evidence goes.
func judge(e evidence) verdict {
	suspectAfter, silentAfter := 3*e.limits.Interval, 5*e.limits.Interval
	silence := e.silence
	patience := e.limits.Stranded
	if e.paused {
		patience *= pausedPatience
	}
	if !e.heard {
		// Whoever was never heard is given the time in which he would have been.
		if e.ledFor < e.limits.Settle {
			return verdict{}
		}
		silence = max(silentAfter, e.ledFor)
	}
	switch {
	case silence < suspectAfter && e.stranded >= patience && e.othersWrite:
		return verdict{state: kvmv1.ReasonOnline, stranded: true, message: "The host is heard, but cannot write to the storage that others can write to"}
	case silence < suspectAfter:
		return verdict{state: kvmv1.ReasonOnline, message: "The host's HA agent reports"}
	case silence < silentAfter:
		return verdict{state: kvmv1.ReasonSuspect, message: "The host's HA agent has missed three reports; its neighbours are being asked"}
	}
	for _, s := range e.sightings {
		if e.fresh(s) && s.storage && !s.lapsed && s.still < silentAfter {
			return verdict{state: kvmv1.ReasonIsolated, message: "The host is silent, but its heartbeat in the storage moves: its VMs run. Look after its management network and its HA agent"}
		}
	}
	switch e.pulse {
	case pulseMoves:
		return verdict{state: kvmv1.ReasonIsolated, message: "The host is silent, but its node agent renews its Lease: its VMs may well run. Look after its HA agent"}
	case pulseUnknown:
		return verdict{state: kvmv1.ReasonSuspect, message: "The host's HA agent is silent; its other signs of life are being watched"}
	}
	return verdict{state: kvmv1.ReasonUnreachable, message: "The host is silent for everybody who was asked"}
}

// fresh says whether a sighting is of now.
func (e evidence) fresh(s sighting) bool { return e.now-s.at < 3*e.limits.Interval }

// doubt is what is watched of a host while it is silent.
type doubt struct {
	lease      string        // its renewal, as last read; "none" when there is no Lease
	since      time.Duration // when it was first read like that
	moved      bool          // it moved since we watch
	read       time.Duration
	unreadable bool
}

// pulseAfter is how long a Lease that does not move was watched before that says
// anything: longer than the node agent's renewals are apart.
const pulseAfter = 13 * time.Second

// watchPulse takes in one look at a Lease's renewal.
func (d doubt) watchPulse(renewal string, readable bool, now time.Duration) doubt {
	d.read, d.unreadable = now, !readable
	switch {
	case !readable:
	case d.lease == "":
		d.lease, d.since = renewal, now
	case d.lease != renewal:
		d.lease, d.since, d.moved = renewal, now, true
	}
	return d
}

// says is what the looks together show.
func (d doubt) says(now time.Duration) pulse {
	switch {
	case d.unreadable || d.lease == "":
		return pulseUnknown
	case d.lease == "none":
		return pulseNone
	case now-d.since >= 2*pulseAfter || !d.moved && now-d.since >= pulseAfter:
		return pulseStill
	case d.moved:
		return pulseMoves
	}
	return pulseUnknown
}
