// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"context"
	"slices"
	"strings"

	"github.com/adit-hv/adit/hardware"
)

// SaveNote implements hardware.Notes.
func (v *view) SaveNote(ctx context.Context, name string, data []byte) error {
	c := &call{name: "SaveNote", object: name, attempt: "save", on: "note " + name, mutating: true, instant: true, quiet: true}
	c.work = func() error {
		if !noteName(name) {
			return hardware.Fail(hardware.Refused, hardware.ReasonInvalidSpec, c.attempt, c.on, `names are lower-case words joined by "-"`)
		}
		if v.h.notes == nil {
			v.h.notes = map[string][]byte{}
		}
		v.h.notes[name] = append([]byte{}, data...) // an empty note is one
		return nil
	}
	return v.do(ctx, c)
}

// LoadNote implements hardware.Notes.
func (v *view) LoadNote(ctx context.Context, name string) (data []byte, err error) {
	err = v.do(ctx, &call{name: "LoadNote", object: name, attempt: "load", on: "note " + name, instant: true, work: func() error {
		data = slices.Clone(v.h.notes[name])
		return nil
	}})
	return data, err
}

func noteName(s string) bool {
	for _, word := range strings.Split(s, "-") {
		if word == "" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return false
		}
	}
	return true
}
