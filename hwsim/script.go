// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"fmt"
	"strings"
	"time"

	"github.com/adit-hv/adit/hardware"
)

// script is what a controller says after an order, by time since the order.
type script []scripted

type scripted struct {
	from  time.Duration
	state hardware.PowerState
}

// parseScript reads e.g. "1s:Off,10s:PoweringOff,20s:On,30s:Error,50s:Off".
func parseScript(text string) (script, error) {
	var out script
	for _, entry := range strings.Split(text, ",") {
		at, state, ok := strings.Cut(entry, ":")
		from, err := time.ParseDuration(at)
		if !ok || err != nil || state == "" || len(out) > 0 && from <= out[len(out)-1].from {
			return nil, fmt.Errorf("states=%s: write AT:STATE with growing times, as in 1s:Off,10s:PoweringOff", text)
		}
		out = append(out, scripted{from, hardware.PowerState(state)})
	}
	return out, nil
}

// at is the state shown so long after the order; none before the first entry,
// nor once the last has come: then it is the truth's turn.
func (s script) at(since time.Duration) (hardware.PowerState, bool) {
	for i := len(s) - 2; i >= 0; i-- {
		if since >= s[i].from {
			return s[i].state, since < s[len(s)-1].from
		}
	}
	return "", false
}
