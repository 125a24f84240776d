// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"slices"
	"strings"
)

// expectations are what is true of any fleet left in peace: first what the API
// says against the truth, then that nothing is stuck.
func (g *gamble) expectations() [][2]string {
	list := func(names []string) string {
		slices.Sort(names)
		var q []string
		for _, n := range slices.Compact(names) {
			q = append(q, `"`+n+`"`)
		}
		return "[" + strings.Join(q, ", ") + "]"
	}
	out := [][2]string{
		{`vms.all(v, v.copies.size() <= (v.migration == "Running" ? 2 : 1))`, "no copy is left over"},
		{`vms.all(v, v.phase != "Running" || v.host in v.copies)`, "a VM runs where the API says"},
		{`vms.all(v, v.phase == "Running" || v.copies.size() == 0)`, "what does not run has no QEMU"},
		{`vms.all(v, v.phase != "Running" || v.ready == v.running)`, "Ready is the truth"},
		{`vms.all(v, v.power != "Running" || v.phase != "Running" || v.running)`, "what shall run runs"},
		{`vms.all(v, v.power != "Paused" || v.phase != "Running" || (!v.running && v.paused))`, "what shall be paused is"},
		{`vms.all(v, v.power != "Stopped" || v.phase != "Running")`, "what shall be stopped is"},
		{`vms.all(v, v.phase != "Scheduled" || v.power == "Stopped" || v.message != "")`, "a VM that waits says for what"},
		{`vms.all(v, v.phase != "Pending" || (!v.placeable && v.message != ""))`, "a VM without a host says why"},
		{`vms.all(v, v.phase in ["Running", "Scheduled", "Pending", "Failed", "Succeeded"])`, "each VM was looked at"},
		{`vms.all(v, !v.deleting)`, "deleted VMs go"},
		{fmt.Sprintf(`vms.all(v, v.phase != "Succeeded" || v.name in %s)`, list(g.poweredOff)), "only a guest that powers off has succeeded"},
		{`vms.all(v, v.phase == "Scheduled" || v.phase == "Pending" || v.host != "")`, "ends and runs have a place"},
		{`hosts.all(h, h.up)`, "the faults are over"},
		{`hosts.all(h, !h.identity || vms.filter(v, v.phase == "Running" && v.host == h.name).all(v, h.ids.exists(i, i.endsWith(v.name))))`, "a host lists what it has"},
	}
	if !g.hostsDie {
		ends := fmt.Sprintf(`v.phase != "Failed" || v.name in %s`, list(slices.Concat(g.killed, g.poweredOff)))
		if g.postCopy {
			ends += ` || v.reason == "PostCopy"`
		}
		out = append(out, [2]string{`vms.all(v, ` + ends + `)`, "no VM was ended but by what ends VMs"})
	}
	ready := `h.ready`
	if g.stays {
		ready += ` || h.maintenance != "" || h.disabled`
	}
	if g.identities {
		ready += ` || !h.identity`
	}
	out = append(out, [2]string{`hosts.all(h, ` + ready + `)`, "hosts serve again"})
	if g.stays {
		out = append(out,
			[2]string{`migrations.all(m, m.phase in ["Succeeded", "Failed"] || m.eviction != "")`, "migrations end"},
			[2]string{`evictions.all(e, e.state in ["Succeeded", "Failed"] || e.message != "")`, "evictions end or say why not"})
	} else {
		out = append(out,
			[2]string{`migrations.all(m, m.phase in ["Succeeded", "Failed"])`, "migrations end"},
			[2]string{`evictions.size() == 0`, "evictions that nobody wants go"},
			[2]string{`hosts.all(h, !h.disabled && !h.evicting && !h.evicted)`, "maintenance is over"})
	}
	return out
}
