// SPDX-License-Identifier: Apache-2.0

package precopy_test

import (
	"errors"
	"testing"
	"time"

	"github.com/adit-hv/adit/hwsim/precopy"
)

func TestWhatPostCopyHasToSend(t *testing.T) {
	const hot = 1e13 // every page of the set is dirty at once
	tests := []struct {
		name   string
		params precopy.Params
		want   uint64 // after half of the first round
	}{
		{"an idle guest's other half", precopy.Params{MemoryBytes: 8 * gib}, 4 * gib},
		{"all of it when all is dirty", precopy.Params{MemoryBytes: 8 * gib,
			WorkingSets: []precopy.WorkingSet{{Bytes: 8 * gib, DirtyBytesPerSecond: hot}}}, 8 * gib},
		{"a hot half, and half of the cold one", precopy.Params{MemoryBytes: 8 * gib,
			WorkingSets: []precopy.WorkingSet{{Bytes: 4 * gib, DirtyBytesPerSecond: hot}}}, 6 * gib},
		{"no more than there is when the sets are too large", precopy.Params{MemoryBytes: 8 * gib,
			WorkingSets: []precopy.WorkingSet{{Bytes: 8 * gib, DirtyBytesPerSecond: hot}, {Bytes: 8 * gib, DirtyBytesPerSecond: hot}}}, 8 * gib},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			const half = 4 * time.Second
			m := precopy.New(tt.params)
			m.Start(0, gib)
			if err := m.StartPostCopy(half); err != nil {
				t.Fatal(err)
			}
			if got := m.Progress(half); got.MemoryRemaining != tt.want {
				t.Errorf("%d bytes remain, want %d", got.MemoryRemaining, tt.want)
			}
			follow(m, time.Hour)
			if got, want := m.Progress(time.Hour).NormalBytes, 4*gib+tt.want; got != want {
				t.Errorf("%d bytes sent, want %d", got, want)
			}
		})
	}
}

func TestPostCopyWaitsForPages(t *testing.T) {
	// A set so small that it is touched before much has arrived: each page that
	// is missing is waited for once, and the guest hardly moves meanwhile.
	p := precopy.Params{MemoryBytes: 8 * gib, WorkingSets: []precopy.WorkingSet{{Bytes: gib / 64, DirtyBytesPerSecond: 1e10}}}
	m := precopy.New(p)
	m.Start(0, wire)
	if err := m.StartPostCopy(6 * time.Second); err != nil {
		t.Fatal(err)
	}
	follow(m, time.Hour)
	got := m.Progress(time.Hour)
	pages := float64(gib / 64 / 4096)
	within(t, "requests", float64(got.PostCopyRequests), []float64{0.4 * pages, pages})
	wait := 200e-6 + 4096/wire
	near(t, "time lost", got.BrownOut.Seconds(), float64(got.PostCopyRequests)*wait, 0.1)
}

func TestPagesAreMissedAsTheyArrive(t *testing.T) {
	// Slow touches all over a memory that arrives evenly.
	const dirty = 1e6
	m := precopy.New(precopy.Params{MemoryBytes: 8 * gib, NetworkRTT: none,
		WorkingSets: []precopy.WorkingSet{{Bytes: 8 * gib, DirtyBytesPerSecond: dirty}}})
	m.Start(0, wire/100)
	if err := m.StartPostCopy(0); err != nil {
		t.Fatal(err)
	}
	whole := 8 * gib / (wire / 100)
	at := time.Duration(whole / 3 * 1e9)
	before := m.Progress(at)
	m.SetBandwidth(at, 1e3)
	if after := m.Progress(at); after.PostCopyRequests != before.PostCopyRequests {
		t.Errorf("a new pace turned %d requests into %d", before.PostCopyRequests, after.PostCopyRequests)
	}
	m.SetBandwidth(at, wire/100)
	follow(m, time.Hour)

	// The same in small steps: what is touched, missed, and lost by waiting.
	const steps = 100000
	dt, wait := whole/steps, 4096/(wire/100)
	touched, requests, lost := 0.0, 0.0, 0.0
	for i := range steps {
		left := 1 - (float64(i)+0.5)/steps
		touches := dirty * (1 - touched/(8*gib))
		speed := 1 / (1 + touches*left/4096*wait)
		requests += touches * left / 4096 * speed * dt
		touched += touches * speed * dt
		lost += (1 - speed) * dt
	}
	got := m.Progress(time.Hour)
	near(t, "requests", float64(got.PostCopyRequests), requests, 0.003)
	near(t, "time lost", got.BrownOut.Seconds(), lost, 0.03)
}

func TestPostCopyIsRefused(t *testing.T) {
	m := precopy.New(precopy.Params{MemoryBytes: gib, Setup: time.Second})
	if err := m.StartPostCopy(0); !errors.Is(err, precopy.ErrNotCopying) {
		t.Errorf("before the start: %v", err)
	}
	m.Start(0, wire)
	if err := m.StartPostCopy(time.Millisecond); !errors.Is(err, precopy.ErrNotCopying) {
		t.Errorf("in setup: %v", err)
	}
	if err := m.StartPostCopy(time.Hour); !errors.Is(err, precopy.ErrTooLate) {
		t.Errorf("after the end: %v", err)
	}
}
