// SPDX-License-Identifier: Apache-2.0

// Package permit is the word between two agents of one host: the HA agent says
// until when protected VMs may run there, and the nova agent starts none without
// it.
//
// It owns the record's form and meaning. It is kept as a note on the host, which
// ends with the boot: a host that has just booted has no permit. It must never
// know the HA service or a VM.
package permit

import (
	"encoding/json"
	"fmt"
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
