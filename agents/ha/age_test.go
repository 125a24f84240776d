// SPDX-License-Identifier: Apache-2.0

package ha_test

import (
	"testing"
	"time"
)

// TestAnAgentThatHasJustBegunTellsNoOldTrouble starts an agent anew on a host
// that is well: before its first write it has nothing to complain of.
func TestAnAgentThatHasJustBegunTellsNoOldTrouble(t *testing.T) {
	w := healthy(t)
	w.run(20 * time.Minute)
	before := len(w.service.reports)
	w.agents["a"].Crash()
	w.agents["a"].Start()
	w.run(time.Minute)
	told := 0
	for _, r := range w.service.reports[before:] {
		if r.Host != "a" || len(r.Storage) == 0 {
			continue
		}
		told++
		if age := r.Storage[0].Age.AsDuration(); age > 10*time.Second {
			t.Errorf("report %d says that its storage has been away for %v", r.Seq, age)
		}
	}
	w.want("reports of the new agent", told > 5, true)
}
