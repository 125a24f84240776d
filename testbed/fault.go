// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/adit-hv/adit/agents/nova"
	"github.com/adit-hv/adit/hwsim"
	"github.com/adit-hv/adit/kubesim"
	"github.com/adit-hv/adit/sim"
)

// ParseFault reads a fault of a process, of the hardware or of the API.
func ParseFault(text string) (Fault, error) {
	c, err := parseCommand(text)
	if err != nil {
		return Fault{}, err
	}
	f := Fault{command: c}
	if f.For, err = c.duration("for"); err != nil {
		return Fault{}, err
	}
	switch {
	case isProcessFault(c.verb):
		v := allProcessFaults[c.verb]
		if err := c.only(slices.Concat(v.needs, v.may)...); err != nil {
			return Fault{}, err
		}
		if err := c.need(v.needs...); err != nil {
			return Fault{}, err
		}
		if agent := c.args["agent"]; agent != "" && agent != "node" && agent != "nova" && agent != "ha" {
			return Fault{}, fmt.Errorf("agent=%s is no agent; it is node, nova or ha", agent)
		}
		err = f.parseHA()
	case slices.Contains(hwsim.FaultKinds(), c.verb):
		_, err = hwsim.ParseFault(text)
	case slices.Contains(kubesim.FaultKinds(), c.verb):
		_, err = kubesim.ParseFault(text)
	default:
		err = fmt.Errorf("%q is no fault; the faults are %s", c.verb, strings.Join(FaultKinds(), ", "))
	}
	return f, err
}

// FaultKinds returns the kinds of faults there are.
func FaultKinds() []string {
	return slices.Concat(slices.Sorted(maps.Keys(allProcessFaults)), hwsim.FaultKinds(), kubesim.FaultKinds())
}

func isProcessFault(verb string) bool {
	_, ok := allProcessFaults[verb]
	return ok
}

// allProcessFaults are those of all processes and of what passes between them.
var allProcessFaults = func() map[string]verb {
	all := maps.Clone(processFaults)
	maps.Copy(all, haFaults)
	return all
}()

// Verb is the fault's first word.
func (f Fault) Verb() string { return f.verb }

// OfSimulatedAPI says that only the simulated API can have the fault.
func (f Fault) OfSimulatedAPI() bool { return slices.Contains(kubesim.FaultKinds(), f.verb) }

// Check says whether the names a fault gives can be there.
func (f Fault) Check(spec Spec) error {
	if f.OfSimulatedAPI() {
		return f.checkAPI(spec)
	}
	if err := f.checkHA(spec); err != nil {
		return err
	}
	if pool := f.args["pool"]; pool != "" && pool != nova.SharedPool {
		return fmt.Errorf("pool=%s is no pool; the pool of the VMs' disks is %s", pool, nova.SharedPool)
	}
	for _, key := range []string{"on", "between", "to"} {
		if hosts, _ := withoutOutside(f.args[key]); hosts != "" {
			if err := spec.checkHosts(hosts); err != nil {
				return err
			}
		}
	}
	if vm := f.args["vm"]; vm != "" {
		return spec.checkVMs(vm)
	}
	return nil
}

// checkAPI checks what kubesim cannot know: whether a process, a verb or a
// resource of that name is there. A name that is not would hit nothing, and the
// run would pass for it.
func (f Fault) checkAPI(spec Spec) error {
	processes := spec.Processes()
	for _, pattern := range words(f.args["on"]) {
		if !slices.ContainsFunc(processes, func(p string) bool { return matchesProcess(pattern, p) }) {
			return fmt.Errorf("no process is called %s; %s", pattern, ProcessesSaid(processes))
		}
	}
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "apply", "delete", "deletecollection"}
	for _, v := range words(f.args["verbs"]) {
		if !slices.Contains(verbs, v) {
			return fmt.Errorf("verbs=%s: there is no verb %s; the verbs are %s", f.args["verbs"], v, strings.Join(verbs, ", "))
		}
	}
	resources := []string{"hypervisors", "evictions", "evacuations", "migrations", "virtualmachineinstances", "virtualmachineinstancemigrations", "nodes", "leases", "configmaps", "events"}
	for _, r := range words(f.args["resources"]) {
		if name, sub, _ := strings.Cut(r, "/"); !slices.Contains(resources, name) || sub != "" && sub != "status" {
			return fmt.Errorf("resources=%s: there is no resource %s; the resources are %s, each also with /status", f.args["resources"], r, strings.Join(resources, ", "))
		}
	}
	if v, given := f.args["times"]; given {
		if n, err := strconv.Atoi(v); err != nil || n < 1 {
			return fmt.Errorf("times=%s is no number above 0", v)
		}
	}
	if _, err := f.duration("delay"); err != nil {
		return err
	}
	return nil
}

// withoutOutside takes hwsim.Outside out of a list of hosts: it is no pattern.
func withoutOutside(list string) (hosts string, outside bool) {
	kept := slices.DeleteFunc(words(list), func(s string) bool { return s == hwsim.Outside })
	return strings.Join(kept, ","), len(kept) < len(words(list))
}

// words are the parts of a list with commas; an empty list has none.
func words(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// matchesProcess is kubesim's rule: a name, or its beginning and a star.
func matchesProcess(pattern, name string) bool {
	begin, star := strings.CutSuffix(pattern, "*")
	return name == pattern || star && strings.HasPrefix(name, begin)
}

// Inject lets a fault begin. A hardware fault of a VM strikes each VM its
// pattern matches now; a host's, each host. The error, which is also in the trace,
// says why it could not.
func (w *World) Inject(f Fault) error {
	w.Scheduler.Note(sim.Note{Component: "fault", What: "begin", Object: f.text})
	w.watch.changed()
	w.watch.faultBegan(f)
	if err := w.inject(f); err != nil {
		w.Scheduler.Note(sim.Note{Component: "fault", What: "refused", Object: f.text, Detail: err.Error()})
		w.watch.mark("refused", f.text+": "+err.Error(), "")
		return err
	}
	w.watch.faultStruck(f.verb)
	return nil
}

func (w *World) inject(f Fault) error {
	switch {
	case isProcessFault(f.verb):
		return w.injectProcess(f)
	case f.OfSimulatedAPI():
		fault, err := kubesim.ParseFault(f.text)
		if err != nil {
			return err
		}
		w.lasts(w.Cluster.Inject(fault), f)
		return nil
	default:
		return w.injectHardware(f)
	}
}

func (w *World) injectHardware(f Fault) error {
	fault, err := hwsim.ParseFault(f.text)
	if err != nil {
		return err
	}
	for _, list := range []*[]string{&fault.On, &fault.Between, &fault.To} {
		if len(*list) == 0 {
			continue
		}
		hosts, outside := withoutOutside(strings.Join(*list, ","))
		*list = nil
		if hosts != "" {
			*list = w.hosts(hosts)
		}
		if outside {
			*list = append(*list, hwsim.Outside)
		}
	}
	if fault.VM == "" {
		return w.Fleet.Inject(fault)
	}
	vms := pick(fault.VM, w.vmOrder)
	if len(vms) == 0 {
		return fmt.Errorf("there is no VM %s now", fault.VM)
	}
	for _, name := range vms {
		fault.VM = w.vms[name].uuid
		if err := w.Fleet.Inject(fault); err != nil {
			return err
		}
	}
	return nil
}

// injectProcess lets a fault of processes begin, and end when its time is over.
func (w *World) injectProcess(f Fault) error {
	if strings.HasPrefix(f.verb, "reports.") {
		for _, host := range w.hosts(f.args["on"]) {
			w.endsAfter(f.For, w.ha.lines[host].disturb(f.reports()))
		}
		return nil
	}
	processes := w.operators()
	switch {
	case strings.HasPrefix(f.verb, "agent."):
		processes = w.agents(w.hosts(f.args["on"]), f.args["agent"])
	case strings.HasPrefix(f.verb, "ha."):
		processes = w.ha.struck(f)
		if len(processes) == 0 {
			return errors.New("no replica leads now")
		}
	}
	back := f.For
	if back == 0 {
		back = restartAfter
	}
	for _, p := range processes {
		w.endsAfter(back, w.strike(f, p))
	}
	return nil
}

// strike lets a fault of one process begin; the function returned ends it.
func (w *World) strike(f Fault, p Process) (end func()) {
	switch _, what, _ := strings.Cut(f.verb, "."); what {
	case "crash":
		p.Crash()
		return func() { w.startIfUp(p) }
	case "pause":
		p.Pause()
		return p.Resume
	case "isolate":
		w.ha.isolate(p.Name(), true)
		return func() { w.ha.isolate(p.Name(), false) }
	case "clock":
		by, _ := time.ParseDuration(f.args["by"])
		clock := w.ha.clocks[p.Name()]
		clock.by += by
		return func() { clock.by -= by }
	}
	if host, ofHA := strings.CutPrefix(p.Name(), "ha/"); ofHA { // it speaks with the service alone
		l := w.ha.lines[host]
		l.cut++
		return func() { l.cut-- }
	}
	w.partition(p, true)
	return func() { w.partition(p, false) }
}

// endsAfter ends a fault when its time is over, or when all are healed.
func (w *World) endsAfter(d time.Duration, end func()) {
	ended := false
	once := func() {
		if !ended {
			ended = true
			end()
		}
	}
	w.ends = append(w.ends, once)
	w.Scheduler.After(d, once)
}

// startIfUp starts a process again unless the host it runs on is down: then it
// starts when that has booted, or goes on.
func (w *World) startIfUp(p Process) {
	if _, host, onHost := strings.Cut(p.Name(), "/"); onHost {
		switch w.Fleet.Host(host).State() {
		case hwsim.HostUp:
		case hwsim.HostHung:
			w.due[p] = true
			return
		default:
			return
		}
	}
	if !p.Alive() {
		p.Start()
	}
}

// lasts remembers how to end a fault that has no end of its own.
func (w *World) lasts(end func(), f Fault) {
	if end != nil && f.For == 0 {
		w.ends = append(w.ends, end)
	}
}

// Heal ends all faults: what is off is switched on, what is cut is whole.
func (w *World) Heal() {
	w.Scheduler.Note(sim.Note{Component: "fault", What: "heal"})
	w.watch.changed()
	w.watch.mark("action", "heal", "")
	ends := w.ends
	w.ends = nil
	for _, end := range ends {
		end()
	}
	w.Fleet.HealAll()
	w.watch.healed(w.Scheduler.Elapsed())
}

// FaultHelp returns the faults with what they take and do, for --help and the
// documentation.
func FaultHelp() [][2]string {
	return slices.Concat(helpOf(allProcessFaults), hwsim.FaultHelp(), kubesim.FaultHelp())
}
