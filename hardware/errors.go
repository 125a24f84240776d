// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"errors"
	"fmt"
)

// Consequence sorts errors by what the caller can do.
type Consequence string

const (
	// Refused: it said no. Asking again will not help; the user must change
	// something.
	Refused Consequence = "refused"

	// Unavailable: nothing happened. Back off and ask again.
	Unavailable Consequence = "unavailable"

	// Unknown: it may have happened. Look before you act.
	Unknown Consequence = "unknown"
)

// Reason narrows a refusal down to what a caller may want to tell apart.
type Reason string

// The closed list of reasons. Anything else is ReasonOther.
const (
	ReasonOther         Reason = ""
	ReasonNoDomain      Reason = "no such domain"
	ReasonInvalidState  Reason = "not in this state"  // e.g. suspend of a domain that is shut off
	ReasonInvalidSpec   Reason = "invalid definition" // the definition can never work
	ReasonNoMemory      Reason = "not enough memory"
	ReasonStorageLocked Reason = "storage in use" // another host holds the disk's lock
	ReasonNoStorage     Reason = "no such volume"
	ReasonNoAgent       Reason = "guest agent not connected"
	ReasonNoJob         Reason = "no job"
	ReasonJobRunning    Reason = "another job runs"
	ReasonIncompatible  Reason = "incompatible CPU or machine"
	ReasonUnsupported   Reason = "not supported"
)

// Error is an error of the seam: what was attempted, on what, with what
// consequence.
type Error struct {
	Consequence Consequence
	Reason      Reason
	Attempt     string // e.g. "start"
	On          string // e.g. "domain 7c…"
	Err         error  // the implementation's own error; may be nil
}

// Error returns "ATTEMPT ON: CONSEQUENCE (REASON): ERR", leaving out what is
// empty.
func (e *Error) Error() string {
	s := e.Attempt
	if e.On != "" {
		s += " " + e.On
	}
	s += ": " + string(e.Consequence)
	if e.Reason != "" {
		s += " (" + string(e.Reason) + ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the implementation's own error.
func (e *Error) Unwrap() error { return e.Err }

// Fail returns an Error with a formatted cause.
func Fail(c Consequence, r Reason, attempt, on, format string, args ...any) *Error {
	return &Error{Consequence: c, Reason: r, Attempt: attempt, On: on, Err: fmt.Errorf(format, args...)}
}

// ConsequenceOf returns an error's consequence. An error that does not say is
// Unknown: it may have happened. It returns "" for nil.
func ConsequenceOf(err error) Consequence {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Consequence
	}
	return Unknown
}

// ReasonOf returns the reason of a refusal, or ReasonOther.
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ReasonOther
}
