// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	"github.com/adit-hv/adit/hardware"
)

const (
	// spoolLimit is how many events wait for the service to take them: ten for
	// each VM of a host that holds many, and some 30 KiB of a note.
	spoolLimit = 256
	// reportLimit is how many of them one report carries.
	reportLimit = 64
)

// told are the kinds of events that the service hears of. Of the others it sees
// what has come of them.
var told = []hardware.EventKind{
	hardware.EventStarted, hardware.EventSuspended, hardware.EventResumed, hardware.EventStopped, hardware.EventShutdown,
	hardware.EventPMSuspended, hardware.EventCrashed, hardware.EventReboot, hardware.EventWatchdog, hardware.EventIOError,
	hardware.EventControlError, hardware.EventAgent, hardware.EventMemoryFailure,
}

// happened is one event, or several alike.
type happened struct {
	Seq    uint64             `json:"seq"`
	Kind   hardware.EventKind `json:"kind"`
	UUID   string             `json:"uuid,omitempty"`
	Detail hardware.Detail    `json:"detail,omitempty"`
	Device string             `json:"device,omitempty"`
	Times  uint32             `json:"times"`
	At     time.Duration      `json:"at"` // of the last one, by the steady clock

	change uint64 // of the spool that made it what it is
}

// spool keeps the events that the service has not taken yet, each under a number
// of the boot. Each is saved before it is sent, so that no number ever means two
// things.
type spool struct {
	Last    uint64     `json:"last"`    // number that was given
	Dropped uint64     `json:"dropped"` // events, for want of room
	Events  []happened `json:"events"`  // oldest first

	changes uint64 // made so far
	saved   uint64 // changes that are saved
	sent    uint64 // number up to which events were sent
}

// add takes in an event. One like it that is not saved yet is counted instead: one
// that is stands as it is. It returns whether room had to be made.
func (s *spool) add(e hardware.Event, now time.Duration) (dropped bool) {
	s.changes++
	for i := range s.Events {
		h := &s.Events[i]
		if h.change > s.saved && h.Kind == e.Kind && h.UUID == e.UUID && h.Detail == e.Detail && h.Device == e.Device {
			h.Times++
			h.At, h.change = now, s.changes
			return false
		}
	}
	s.Last++
	s.Events = append(s.Events, happened{Seq: s.Last, Kind: e.Kind, UUID: e.UUID, Detail: e.Detail, Device: e.Device, Times: 1, At: now, change: s.changes})
	for len(s.Events) > spoolLimit {
		s.Dropped += uint64(s.Events[0].Times)
		s.Events = slices.Delete(s.Events, 0, 1)
		dropped = true
	}
	return dropped
}

// next are the events of the next report, and count as sent.
func (s *spool) next() []happened {
	n := 0
	for n < len(s.Events) && n < reportLimit && s.Events[n].change <= s.saved {
		n++
	}
	if n > 0 {
		s.sent = max(s.sent, s.Events[n-1].Seq)
	}
	return slices.Clone(s.Events[:n])
}

// waits says that there are events that could be sent and never were.
func (s *spool) waits() bool {
	return slices.ContainsFunc(s.Events, func(h happened) bool { return h.Seq > s.sent && h.change <= s.saved })
}

// taken drops the events up to a number, which were sent.
func (s *spool) taken(upTo uint64) {
	upTo = min(upTo, s.sent)
	before := len(s.Events)
	s.Events = slices.DeleteFunc(s.Events, func(h happened) bool { return h.Seq <= upTo })
	if len(s.Events) < before {
		s.changes++
	}
}

// note is the spool as it is to be saved, nil when it is.
func (s *spool) note() (data []byte, done func()) {
	if s.changes == s.saved {
		return nil, nil
	}
	data, err := json.Marshal(s)
	if err != nil {
		panic(err) // plain fields
	}
	changes := s.changes
	return data, func() { s.saved = changes }
}

// readSpool reads what an earlier agent saved. It may have sent all of it.
func readSpool(note []byte) (spool, error) {
	var s spool
	if len(note) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(note, &s); err != nil {
		return spool{}, fmt.Errorf("note %s: %w", spoolNote, err)
	}
	s.sent = s.Last
	return s, nil
}

// message is the event as the service gets it.
func (h happened) message(now time.Duration) *hav1.Event {
	return &hav1.Event{
		Seq: h.Seq, Kind: string(h.Kind), Uuid: h.UUID, Detail: string(h.Detail), Device: h.Device,
		Times: h.Times, Age: durationpb.New(now - h.At),
	}
}
