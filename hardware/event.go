// SPDX-License-Identifier: Apache-2.0

package hardware

import "time"

// EventKind tells what an event is about.
type EventKind string

// The kinds of events.
const (
	EventGap                EventKind = "gap" // events may be missing before this one: list again
	EventDefined            EventKind = "defined"
	EventUndefined          EventKind = "undefined"
	EventStarted            EventKind = "started"
	EventSuspended          EventKind = "suspended"
	EventResumed            EventKind = "resumed"
	EventStopped            EventKind = "stopped"
	EventShutdown           EventKind = "shutdown" // the guest has powered off; stopped follows
	EventPMSuspended        EventKind = "pmsuspended"
	EventCrashed            EventKind = "crashed" // the guest panicked
	EventReboot             EventKind = "reboot"
	EventWatchdog           EventKind = "watchdog"
	EventIOError            EventKind = "io-error"
	EventControlError       EventKind = "control-error"
	EventAgent              EventKind = "agent" // Detail: connected or disconnected
	EventMemoryFailure      EventKind = "memory-failure"
	EventMigrationIteration EventKind = "migration-iteration"
	EventJobCompleted       EventKind = "job-completed" // Job holds the end
	EventBlockJob           EventKind = "block-job"
	EventDeviceRemoved      EventKind = "device-removed"
	EventConnectionLost     EventKind = "connection-lost" // a Gap follows when it is back
)

// The details of EventAgent.
const (
	DetailConnected    Detail = "connected"
	DetailDisconnected Detail = "disconnected"
)

// Event is one thing that happened on a host.
type Event struct {
	Kind   EventKind
	UUID   string // the domain's; "" for events of the host
	Name   string // the domain's name
	Detail Detail

	Iteration uint64 // of EventMigrationIteration
	Job       *Job   // of EventJobCompleted
	Device    string // of EventDeviceRemoved, EventIOError, EventBlockJob
	At        time.Time
}
