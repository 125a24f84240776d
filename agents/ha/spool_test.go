// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/adit-hv/adit/hardware"
)

func save(t interface{ Fatal(...any) }, sp *spool) []byte {
	data, done := sp.note()
	if data == nil {
		t.Fatal("nothing to save")
	}
	done()
	return data
}

func crashed(uuid string) hardware.Event {
	return hardware.Event{Kind: hardware.EventCrashed, UUID: uuid, Detail: hardware.DetailPanicked}
}

func TestAnEventIsSentOnceItIsSaved(t *testing.T) {
	var sp spool
	sp.add(crashed("u1"), s)
	if len(sp.next()) != 0 || sp.waits() {
		t.Error("an event was sent whose number may be given again")
	}
	save(t, &sp)
	if !sp.waits() {
		t.Error("it does not wait to be sent")
	}
	if e := sp.next(); len(e) != 1 || e[0].Seq != 1 || sp.waits() {
		t.Errorf("%+v", e)
	}
	if e := sp.next(); len(e) != 1 {
		t.Error("it is not sent again though nobody took it")
	}
	sp.taken(1)
	if e := sp.next(); len(e) != 0 {
		t.Errorf("taken, and still there: %+v", e)
	}
}

func TestEventsAlikeAreCountedUntilOneIsSaved(t *testing.T) {
	var sp spool
	for i := range 5 {
		sp.add(crashed("u1"), time.Duration(i)*s)
	}
	sp.add(crashed("u2"), 9*s)
	save(t, &sp)
	e := sp.next()
	if len(e) != 2 || e[0].Times != 5 || e[0].At != 4*s || e[1].Times != 1 {
		t.Errorf("%+v", e)
	}
	sp.add(crashed("u1"), 10*s)
	if e := sp.next(); len(e) != 2 {
		t.Errorf("the storm goes on and nothing is sent: %+v", e)
	}
	save(t, &sp)
	if e := sp.next(); len(e) != 3 || e[0].Times != 5 || e[2].Seq != 3 {
		t.Errorf("one that was sent has changed, or the next one has no number of its own: %+v", e)
	}
	if m := e[0].message(20 * s); m.Age.AsDuration() != 16*s || m.Times != 5 || m.Kind != "crashed" {
		t.Errorf("%v", m)
	}
}

func TestAFullSpoolDropsTheOldestAndCounts(t *testing.T) {
	var sp spool
	dropped := false
	for i := range spoolLimit + 10 {
		dropped = sp.add(crashed(fmt.Sprint(i)), s)
	}
	if !dropped || sp.Dropped != 10 || len(sp.Events) != spoolLimit || sp.Events[0].Seq != 11 {
		t.Errorf("dropped %v: %d, of %d left the first is %d", dropped, sp.Dropped, len(sp.Events), sp.Events[0].Seq)
	}
	save(t, &sp)
	if n := len(sp.next()); n != reportLimit {
		t.Errorf("%d in one report", n)
	}
}

// TestEventsArriveAtLeastOnce draws events, lost reports, lost answers and agents
// that die, and holds: what the service took, each number once, are all events
// but those that were dropped, or died with an agent that had not saved them.
func TestEventsArriveAtLeastOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sp spool
		var disk []byte
		got := map[uint64]uint32{}
		made, lost := 0, 0
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"event", "event", "save", "report", "answer lost", "report lost", "die"}).Draw(t, "what") {
			case "event":
				made++
				sp.add(crashed(rapid.SampledFrom([]string{"u1", "u2", "u3"}).Draw(t, "of")), s)
			case "save":
				if data, done := sp.note(); data != nil {
					disk = data
					done()
				}
			case "report", "answer lost":
				upTo := uint64(0)
				for _, h := range sp.next() {
					if was, twice := got[h.Seq]; twice && was != h.Times {
						t.Fatalf("event %d is %d times and was %d times", h.Seq, h.Times, was)
					}
					got[h.Seq], upTo = h.Times, h.Seq
				}
				if rapid.Bool().Draw(t, "answer arrives") {
					sp.taken(upTo)
				}
			case "report lost":
				sp.next()
			case "die":
				in := func(sp *spool) (n int) {
					for _, h := range sp.Events {
						if h.change > sp.saved || got[h.Seq] == 0 {
							n += int(h.Times)
						}
					}
					return n
				}
				before := in(&sp)
				var err error
				if sp, err = readSpool(disk); err != nil {
					t.Fatal(err)
				}
				lost += before - in(&sp)
			}
		}
		if data, done := sp.note(); data != nil {
			done()
		}
		for range 10 {
			for _, h := range sp.next() {
				got[h.Seq] = h.Times
				sp.taken(h.Seq)
			}
		}
		sum := 0
		for _, n := range got { // the order is nothing
			sum += int(n)
		}
		if sum+lost != made {
			t.Fatalf("%d made, %d arrived, %d lost with agents", made, sum, lost)
		}
	})
}

func TestASpoolOutlivesItsAgent(t *testing.T) {
	var sp spool
	sp.add(crashed("u1"), s)
	sp.add(crashed("u2"), s)
	data := save(t, &sp)
	sp.add(crashed("u3"), s) // dies before it is saved
	back, err := readSpool(data)
	if err != nil {
		t.Fatal(err)
	}
	back.add(crashed("u1"), 2*s)
	save(t, &back)
	var seqs []uint64
	for _, h := range back.next() {
		seqs = append(seqs, h.Seq)
	}
	if !slices.Equal(seqs, []uint64{1, 2, 3}) {
		t.Errorf("numbers %v", seqs)
	}
	if _, err := readSpool([]byte("{")); err == nil {
		t.Error("half a note was read")
	}
}
