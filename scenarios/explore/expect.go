// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"slices"
	"strings"
)

// expectations are what is true of any fleet left in peace: first what the API
// says against the truth, then that nothing is stuck. What a host that stays
// broken has a part in is left out, and what waits for it and says so.
func (g *gamble) expectations() (out [][2]string) {
	broken := list(g.broken)
	vms := func(text, because string) {
		if len(g.broken) > 0 {
			waits := `v.host == b || b in v.copies || v.message.contains("host " + b)`
			if g.ha != nil {
				waits += ` || evacuations.exists(e, e.vms.exists(l, l.startsWith(v.name + " Waiting") && l.contains("host " + b)))`
			}
			text = fmt.Sprintf(`%s.exists(b, %s) || (%s)`, broken, waits, text)
		}
		out = append(out, [2]string{`vms.all(v, ` + text + `)`, because})
	}
	hosts := func(text, because string) {
		if len(g.broken) > 0 {
			text = fmt.Sprintf(`h.name in %s || (%s)`, broken, text)
		}
		out = append(out, [2]string{`hosts.all(h, ` + text + `)`, because})
	}
	vms(`v.copies.size() <= (v.migration == "Running" ? 2 : 1)`, "no copy is left over")
	vms(`v.phase != "Running" || v.host in v.copies`, "a VM runs where the API says")
	vms(`v.phase == "Running" || v.copies.size() == 0`, "what does not run has no QEMU")
	vms(`v.phase != "Running" || v.ready == v.running`, "Ready is the truth")
	vms(`v.power != "Running" || v.phase != "Running" || v.running`, "what shall run runs")
	vms(`v.power != "Paused" || v.phase != "Running" || (!v.running && v.paused)`, "what shall be paused is")
	vms(`v.power != "Stopped" || v.phase != "Running"`, "what shall be stopped is")
	vms(`v.phase != "Scheduled" || v.power == "Stopped" || v.message != ""`, "a VM that waits says for what")
	vms(`v.phase != "Pending" || (!v.placeable && v.message != "")`, "a VM without a host says why")
	vms(`v.phase in ["Running", "Scheduled", "Pending", "Failed", "Succeeded"]`, "each VM was looked at")
	vms(`!v.deleting`, "deleted VMs go")
	vms(fmt.Sprintf(`v.phase != "Succeeded" || v.name in %s`, list(g.poweredOff)), "only a guest that powers off has succeeded")
	vms(`v.phase == "Scheduled" || v.phase == "Pending" || v.host != ""`, "ends and runs have a place")
	if !g.hostsDie || g.ha != nil && !g.toggled {
		text := fmt.Sprintf(`v.phase != "Failed" || v.name in %s`, list(slices.Concat(g.killed, g.poweredOff)))
		if g.hostsDie {
			text += ` || !v.protected`
		}
		if g.postCopy {
			text += ` || v.reason == "PostCopy"`
		}
		vms(text, "no VM was ended but by what ends VMs")
	}
	hosts(`h.up`, "the faults are over")
	hosts(`!h.identity || vms.filter(v, v.phase == "Running" && v.host == h.name && h.name in v.copies).all(v, h.ids.exists(i, i.endsWith(v.name)))`, "a host lists what it has")
	ready := `h.ready`
	if g.stays {
		ready += ` || h.maintenance != "" || h.disabled`
	}
	if g.identities {
		ready += ` || !h.identity`
	}
	if g.ha != nil {
		ready += heldDown + g.heldUp(broken)
	}
	hosts(ready, "hosts serve again")
	out = append(out, g.endings(broken)...)
	if !g.stays {
		over := `!h.disabled && !h.evicting && !h.evicted`
		if g.ha != nil {
			over += heldDown + g.heldUp(broken)
		}
		hosts(over, "maintenance is over")
	}
	return out
}

// heldDown is a host that keeps dying and is back only in a while.
const heldDown = ` || h.alive == "Recovering" && h.aliveMessage.contains("held down")`

// heldUp is a host whose evacuation waits for what a broken one has to say.
func (g *gamble) heldUp(broken string) string {
	if len(g.broken) == 0 {
		return ""
	}
	return fmt.Sprintf(` || evacuations.exists(e, e.host == h.name && e.vms.exists(v, %s.exists(b, v.contains("host " + b))))`, broken)
}

// endings says what becomes of what was asked for.
func (g *gamble) endings(broken string) [][2]string {
	migrations, evictions := `m.phase in ["Succeeded", "Failed"]`, ``
	if g.stays {
		migrations += ` || m.eviction != ""`
		evictions = `e.state in ["Succeeded", "Failed"] || e.message != ""`
	}
	if len(g.broken) > 0 {
		// A host that answers nobody holds up what it is needed for, and whoever
		// waits says so.
		migrations = fmt.Sprintf(`%s || m.source in %s || m.target in %s || vms.exists(v, v.name == m.vm && v.host in %s)`, migrations, broken, broken, broken)
		evictions = fmt.Sprintf(`e.host in %s || e.message != ""`, broken)
	}
	out := [][2]string{{`migrations.all(m, ` + migrations + `)`, "migrations end"}}
	if evictions == "" {
		return append(out, [2]string{`evictions.size() == 0`, "evictions that nobody wants go"})
	}
	return append(out, [2]string{`evictions.all(e, ` + evictions + `)`, "evictions end or say why not"})
}

// list is a list of names as an expression has it.
func list(names []string) string {
	names = slices.Sorted(slices.Values(names))
	var quoted []string
	for _, n := range slices.Compact(names) {
		quoted = append(quoted, `"`+n+`"`)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
