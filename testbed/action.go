// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/adit-hv/adit/api/kubevirt"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// Action is something a person or another program does: through the API where
// they would use it, by hand on a host where they would do that.
type Action struct{ command }

// verb is an action's verb, the keys it needs and those it may have.
type verb struct {
	needs, may []string
	help       string
}

// verbs lists all actions.
var verbs = map[string]verb{
	"vm.create":         {[]string{"group"}, []string{"count"}, "create VMs of a workload group"},
	"vm.delete":         {[]string{"vm"}, nil, "delete VMs"},
	"vm.power":          {[]string{"vm", "state"}, nil, "want VMs Running, Paused or Stopped"},
	"vm.policy":         {[]string{"vm"}, []string{"protected", "restart", "yields", "onCrash", "onPanic", "onIOError"}, "change what shall become of VMs after a failure"},
	"vm.migrate":        {[]string{"vm"}, []string{"to", "priority"}, "ask for a live migration"},
	"migration.cancel":  {[]string{"vm"}, nil, "delete the migrations of VMs"},
	"maintenance.start": {[]string{"on"}, []string{"mode", "reason"}, "put hosts into maintenance"},
	"maintenance.end":   {[]string{"on"}, nil, "take hosts out of maintenance"},
	"evict":             {[]string{"on"}, []string{"dryRun", "parallel", "reason"}, "create an Eviction of a host"},
	"evict.cancel":      {[]string{"on"}, nil, "delete the Eviction of a host"},
	"domain.run":        {[]string{"on", "name"}, []string{"memory", "cpus"}, "start a domain by hand that is not ours"},
	"host.power-on":     {[]string{"on"}, nil, "switch on hosts that are off, as a person with a key does"},
	"host.update":       {[]string{"on", "version"}, []string{"reboot"}, "want an OS version on hosts"},
	"host.identity":     {[]string{"on"}, []string{"hostname", "machineID", "serial", "uuid"}, "change who a host says it is"},
	"node.label":        {[]string{"on", "key"}, []string{"value"}, "label a Node; without value the label goes"},
	"node.delete":       {[]string{"on"}, nil, "delete a Node"},
}

// allVerbs are the actions there are.
var allVerbs = func() map[string]verb {
	all := maps.Clone(verbs)
	maps.Copy(all, haVerbs)
	return all
}()

// ParseAction reads an action: VERB KEY=VALUE ...
func ParseAction(text string) (Action, error) {
	c, err := parseCommand(text)
	if err != nil {
		return Action{}, err
	}
	v, ok := allVerbs[c.verb]
	if !ok {
		return Action{}, fmt.Errorf("%q is no action; the actions are %s", c.verb, strings.Join(slices.Sorted(maps.Keys(allVerbs)), ", "))
	}
	if err := c.only(slices.Concat(v.needs, v.may)...); err != nil {
		return Action{}, err
	}
	if err := c.need(v.needs...); err != nil {
		return Action{}, err
	}
	return Action{c}, nil
}

// ActionHelp returns the actions with what they take and do, for --help and
// the documentation.
func ActionHelp() [][2]string { return helpOf(allVerbs) }

func helpOf(verbs map[string]verb) [][2]string {
	var out [][2]string
	for _, name := range slices.Sorted(maps.Keys(verbs)) {
		v := verbs[name]
		line := name
		for _, k := range v.needs {
			line += " " + k + "="
		}
		for _, k := range v.may {
			line += " [" + k + "=]"
		}
		out = append(out, [2]string{line, v.help})
	}
	return out
}

// String returns the action as it was written.
func (a Action) String() string { return a.text }

// Check says whether the names an action gives can be there.
func (a Action) Check(spec Spec) error {
	if on := a.args["on"]; on != "" {
		if err := spec.checkHosts(on); err != nil {
			return err
		}
	}
	if to := a.args["to"]; to != "" {
		if err := spec.checkHosts(to); err != nil {
			return err
		}
	}
	if vm := a.args["vm"]; vm != "" {
		if err := spec.checkVMs(vm); err != nil {
			return err
		}
	}
	if group := a.args["group"]; group != "" && !slices.ContainsFunc(spec.VMs, func(g VMGroup) bool { return g.Name == group }) {
		return fmt.Errorf("group=%s is no workload group; the groups are %s", group, strings.Join(spec.groupNames(), ", "))
	}
	if state := a.args["state"]; a.verb == "vm.power" && !slices.Contains([]string{string(kubevirt.PowerRunning), string(kubevirt.PowerPaused), string(kubevirt.PowerStopped)}, state) {
		return fmt.Errorf("state=%s is no power state; it is Running, Paused or Stopped", state)
	}
	if mode := a.args["mode"]; mode != "" && !slices.Contains([]kvmv1.Maintenance{kvmv1.MaintenanceManual, kvmv1.MaintenanceAuto, kvmv1.MaintenanceHA, kvmv1.MaintenanceTermination}, kvmv1.Maintenance(mode)) {
		return fmt.Errorf("mode=%s is no maintenance mode; it is manual, auto, ha or termination", mode)
	}
	const most = 200000 // as a workload group; of memory it is MiB
	for _, key := range []string{"count", "parallel", "cpus", "memory"} {
		if v := a.args[key]; v != "" {
			if n, err := strconv.Atoi(v); err != nil || n < 1 || n > most {
				return fmt.Errorf("%s=%s is no number from 1 to %d", key, v, most)
			}
		}
	}
	for _, key := range []string{"dryRun", "reboot"} {
		if v := a.args[key]; v != "" && v != "true" && v != "false" {
			return fmt.Errorf("%s=%s is neither true nor false", key, v)
		}
	}
	return a.checkHA(spec)
}

func (a Action) number(key string, otherwise int) int {
	if n, err := strconv.Atoi(a.args[key]); err == nil {
		return n
	}
	return otherwise
}

// Fault is something that goes wrong: in the hardware, the API or a process.
type Fault struct {
	command
	For time.Duration
}

// processFaults are the faults of processes; those of the hardware and of the
// API are hwsim's and kubesim's own.
var processFaults = map[string]verb{
	"agent.crash":        {[]string{"on"}, []string{"agent", "for"}, "kill agents of hosts; they come back after for=, by default 5s"},
	"agent.pause":        {[]string{"on", "for"}, []string{"agent"}, "agents stand still"},
	"agent.partition":    {[]string{"on", "for"}, []string{"agent"}, "agents cannot reach the API; HA agents not the HA service"},
	"operator.crash":     {nil, []string{"for"}, "kill the operator; it comes back after for=, by default 5s"},
	"operator.pause":     {[]string{"for"}, nil, "the operator stands still"},
	"operator.partition": {[]string{"for"}, nil, "the operator cannot reach the API"},
}

// String returns the fault as it was written.
func (f Fault) String() string { return f.text }

func (s Spec) groupNames() []string {
	var names []string
	for _, g := range s.VMs {
		names = append(names, g.Name)
	}
	return names
}

// HostNames returns the names of all hosts, in order.
func (s Spec) HostNames() []string {
	var names []string
	for _, g := range s.Hosts {
		for i := range g.Count {
			names = append(names, g.hostName(i))
		}
	}
	return names
}

// HostsSaid names the hosts there are, for an error.
func (s Spec) HostsSaid() string { return "the hosts are " + shorten(s.HostNames()) }

func (g HostGroup) hostName(i int) string { return fmt.Sprintf("%s%03d", g.Name, i+1) }

// checkHosts checks a comma-separated list of host names and patterns.
func (s Spec) checkHosts(list string) error {
	names := s.HostNames()
	for _, pattern := range strings.Split(list, ",") {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%s is no pattern; its [ is not closed", pattern)
		}
		if vm, byVM := strings.CutPrefix(pattern, "@"); byVM {
			name, role, _ := strings.Cut(vm, ".")
			if role != "" && role != "source" && role != "target" {
				return fmt.Errorf("%s is no host of a VM; write @VM for the host it is on, @VM.source or @VM.target for those of its migration", pattern)
			}
			if err := s.checkVMs(name); err != nil {
				return err
			}
			continue
		}
		if !slices.ContainsFunc(names, func(n string) bool { return matches(pattern, n) }) {
			return fmt.Errorf("no host is called %s; %s", pattern, s.HostsSaid())
		}
	}
	return nil
}

// checkVMs checks a comma-separated list of VM names and patterns. VMs may be
// created later, so it is the group that must be there.
func (s Spec) checkVMs(list string) error {
	for _, pattern := range strings.Split(list, ",") {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%s is no pattern; its [ is not closed", pattern)
		}
		group, _, found := cutLast(pattern, "-")
		if !found || !slices.ContainsFunc(s.VMs, func(g VMGroup) bool { return matches(group, g.Name) || matches(pattern, g.Name+"-1") }) {
			return fmt.Errorf("no VM can be called %s; VMs are GROUP-NUMBER, and the groups are %s", pattern, strings.Join(s.groupNames(), ", "))
		}
	}
	return nil
}

// hosts returns the hosts that a comma-separated list names: by name or pattern,
// as @VM the host a VM is on, as @VM.source and @VM.target those of its latest
// migration.
func (w *World) hosts(list string) []string {
	var patterns []string
	for _, pattern := range strings.Split(list, ",") {
		vm, byVM := strings.CutPrefix(pattern, "@")
		if !byVM {
			patterns = append(patterns, pattern)
			continue
		}
		name, role, _ := strings.Cut(vm, ".")
		o, _ := w.Cluster.Lookup(kindVMI, client.ObjectKey{Namespace: Namespace, Name: name}).(*kubevirtv1.VirtualMachineInstance)
		switch {
		case o == nil:
		case role == "":
			patterns = append(patterns, o.Status.NodeName)
		case o.Status.MigrationState != nil && role == "source":
			patterns = append(patterns, o.Status.MigrationState.SourceNode)
		case o.Status.MigrationState != nil:
			patterns = append(patterns, o.Status.MigrationState.TargetNode)
		}
	}
	return pick(strings.Join(patterns, ","), w.spec.HostNames())
}

// pick returns those of names that a comma-separated list of names and
// patterns matches, in the order of names.
func pick(list string, names []string) []string {
	var out []string
	for _, n := range names {
		if slices.ContainsFunc(strings.Split(list, ","), func(p string) bool { return matches(p, n) }) {
			out = append(out, n)
		}
	}
	return out
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func shorten(names []string) string {
	if len(names) > 6 {
		return strings.Join(names[:3], ", ") + ", ... " + names[len(names)-1]
	}
	return strings.Join(names, ", ")
}
