// SPDX-License-Identifier: Apache-2.0

// Package permit is the word between two agents of one host: the HA agent says
// until when protected VMs may run there, and the nova agent starts none without
// it.
//
// It also says which domains the HA agent stopped for want of one, so that nobody
// takes their end for their guests' own wish.
//
// It owns the records' form and meaning. They are kept as notes on the host, which
// end with the boot: a host that has just booted has no permit. It must never
// know the HA service, nor why a VM is protected.
package permit

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// NoteName is the name of the note that holds the permit.
const NoteName = "run-permit"

// Permit says until when protected VMs may run.
type Permit struct {
	// Until is a time of the host's steady clock, the time since boot.
	Until time.Duration `json:"until"`
	// Boot is the boot it is for.
	Boot string `json:"boot"`
}

// Valid says whether protected VMs may be started now, the host's steady time.
func (p Permit) Valid(now time.Duration, boot string) bool {
	return p.Boot == boot && boot != "" && now < p.Until
}

// Encode writes the permit as a note.
func (p Permit) Encode() []byte {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // two plain fields
	}
	return data
}

// Decode reads the note. No note is no permit.
func Decode(note []byte) (Permit, error) {
	var p Permit
	if len(note) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(note, &p); err != nil {
		return Permit{}, fmt.Errorf("note %s: %w", NoteName, err)
	}
	return p, nil
}

// StoppedName is the name of the note that holds what was stopped.
const StoppedName = "run-stopped"

// Stopped are the domains that the HA agent stopped because the host had lost its
// run lease. It adds a domain before it asks it to stop, and takes it out once it
// sees it active again with a valid lease. It alone writes the note.
type Stopped struct {
	Domains []string `json:"domains"` // UUIDs, sorted
}

// Has says whether a domain was stopped.
func (s Stopped) Has(uuid string) bool {
	_, has := slices.BinarySearch(s.Domains, uuid)
	return has
}

// Encode writes the record as a note.
func (s Stopped) Encode() []byte {
	slices.Sort(s.Domains)
	data, err := json.Marshal(s)
	if err != nil {
		panic(err) // a list of strings
	}
	return data
}

// DecodeStopped reads the note. No note is that none was stopped.
func DecodeStopped(note []byte) (Stopped, error) {
	var s Stopped
	if len(note) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(note, &s); err != nil {
		return Stopped{}, fmt.Errorf("note %s: %w", StoppedName, err)
	}
	return s, nil
}
