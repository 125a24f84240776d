// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
)

// haVerbs are the actions that need high availability.
var haVerbs = map[string]verb{
	"ha.confirm": {[]string{"on", "reason"}, []string{"who", "for"}, "a person confirms that hosts run nothing; valid for for=, 1h"},
	"ha.pause":   {nil, nil, "hold the HA service: nothing new begins"},
	"ha.resume":  {nil, nil, "let it go on"},
	"ha.dry-run": {[]string{"enabled"}, nil, "the HA service decides and does nothing, or no more so"},
	"host.ha":    {[]string{"on", "enabled"}, nil, "set spec.highAvailability of hosts"},
}

// policyKeys are the keys of vm.policy and the values that each takes.
var policyKeys = map[string][]string{
	"protected": {"true", "false"},
	"restart":   {"high", "medium", "low"},
	"yields":    {"true", "false"},
	"onCrash":   {"restart", "fail"},
	"onPanic":   {"restart", "keep", "fail"},
	"onIOError": {"move", "wait"},
}

// checkHA checks what an action says about high availability.
func (a Action) checkHA(spec Spec) error {
	if _, needs := haVerbs[a.verb]; needs && spec.HA == nil {
		return fmt.Errorf("%s needs high availability; give the scenario a field ha, as ha: {replicas: 2}", a.verb)
	}
	if a.verb == "vm.policy" {
		said := 0
		for _, key := range []string{"protected", "restart", "yields", "onCrash", "onPanic", "onIOError"} {
			value, given := a.args[key]
			if !given {
				continue
			}
			said++
			if !slices.Contains(policyKeys[key], value) {
				return fmt.Errorf("%s=%s; it is %s", key, value, strings.Join(policyKeys[key], ", "))
			}
		}
		if said == 0 {
			return fmt.Errorf("vm.policy changes nothing; give protected=, restart=, yields=, onCrash=, onPanic= or onIOError=")
		}
	}
	if v := a.args["enabled"]; v != "" && v != "true" && v != "false" {
		return fmt.Errorf("enabled=%s is neither true nor false", v)
	}
	if a.verb == "ha.confirm" {
		if _, err := a.duration("for"); err != nil {
			return err
		}
		if who := a.args["who"]; strings.ContainsAny(who, " :") {
			return fmt.Errorf("who=%s; it is one word", who)
		}
	}
	return nil
}

// policy is what vm.policy asks for.
func (a Action) policy() Policy {
	return Policy{
		Protected: a.args["protected"], Restart: a.args["restart"], Yields: a.args["yields"],
		OnCrash: a.args["onCrash"], OnPanic: a.args["onPanic"], OnIOError: a.args["onIOError"],
	}
}

// confirm writes a person's word that a host runs nothing.
func (w *World) confirm(host string, a Action) error {
	valid, _ := a.duration("for")
	until := w.Scheduler.Now().Add(cmp.Or(valid, time.Hour)).UTC().Format(time.RFC3339)
	word := fmt.Sprintf("%s until %s: %s", cmp.Or(a.args["who"], "scenario"), until, a.args["reason"])
	return w.patch(&kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: host}}, func(o client.Object) {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[kvmv1alpha1.AnnotationConfirmFenced] = word
		o.SetAnnotations(annotations)
	})
}

// hold changes the settings by which people hold the HA service.
func (w *World) hold(setting string, on bool) error {
	ctx, have := context.Background(), &corev1.ConfigMap{}
	err := w.user.Get(ctx, client.ObjectKeyFromObject(haSettings(nil)), have)
	if apierrors.IsNotFound(err) {
		return w.user.Create(ctx, haSettings(map[string]string{setting: strconv.FormatBool(on)}))
	}
	if err != nil {
		return err
	}
	return w.patch(have, func(o client.Object) {
		c := o.(*corev1.ConfigMap)
		if c.Data == nil {
			c.Data = map[string]string{}
		}
		c.Data[setting] = strconv.FormatBool(on)
	})
}

// haFaults are the faults of the HA service and of the reports to it.
var haFaults = map[string]verb{
	"ha.crash":        {nil, []string{"replica", "for"}, "kill replicas of the HA service; they come back after for=, by default 5s"},
	"ha.pause":        {[]string{"for"}, []string{"replica"}, "replicas stand still"},
	"ha.partition":    {[]string{"for"}, []string{"replica"}, "replicas cannot reach the API"},
	"ha.isolate":      {[]string{"for"}, []string{"replica"}, "replicas reach no host and no management controller"},
	"ha.clock":        {[]string{"by", "for"}, []string{"replica"}, "the replicas' wall clocks are off by by=, also backwards"},
	"reports.lost":    {[]string{"on", "for"}, []string{"p"}, "reports of HA agents, or the answers to them, are lost; p= is the chance"},
	"reports.dup":     {[]string{"on", "for"}, nil, "each report arrives twice"},
	"reports.delay":   {[]string{"on", "by", "for"}, nil, "each report arrives later by by="},
	"reports.reorder": {[]string{"on", "by", "for"}, nil, "each report is held up for up to by=, so that later ones overtake it"},
}

// checkHA checks a fault of the HA service or of reports.
func (f Fault) checkHA(spec Spec) error {
	if _, ours := haFaults[f.verb]; ours && spec.HA == nil {
		return fmt.Errorf("%s needs high availability; give the scenario a field ha, as ha: {replicas: 2}", f.verb)
	}
	if f.args["agent"] == "ha" && spec.HA == nil {
		return fmt.Errorf("agent=ha: hosts have an HA agent only with high availability; give the scenario a field ha, as ha: {replicas: 2}")
	}
	if r := f.args["replica"]; r != "" && r != replicaLeader && !slices.Contains(spec.replicas(), r) {
		return fmt.Errorf("replica=%s is none; it is %s or leader", r, strings.Join(spec.replicas(), ", "))
	}
	return nil
}

// parseHA checks the values of such a fault.
func (f Fault) parseHA() error {
	if by, given := f.args["by"]; given {
		d, err := time.ParseDuration(by)
		if err != nil || d == 0 || d < 0 && f.verb != "ha.clock" {
			return fmt.Errorf("by=%s is no time span; write it as 3s or 1h", by)
		}
	}
	if p, given := f.args["p"]; given {
		if v, err := strconv.ParseFloat(p, 64); err != nil || !(v > 0 && v <= 1) {
			return fmt.Errorf("p=%s: a chance lies above 0 and up to 1", p)
		}
	}
	return nil
}

// replicaLeader stands for the replica that leads when the fault begins.
const replicaLeader = "leader"

// struck are the replicas that a fault strikes.
func (h *highAvailability) struck(f Fault) []Process {
	names := h.w.spec.replicas()
	switch r := f.args["replica"]; r {
	case "":
	case replicaLeader:
		names = slices.DeleteFunc([]string{h.leader()}, func(n string) bool { return n == "" })
	default:
		names = []string{r}
	}
	var out []Process
	for _, n := range names {
		out = append(out, h.w.processes[n])
	}
	return out
}

// isolate cuts a replica off from all hosts, or heals that.
func (h *highAvailability) isolate(replica string, begin bool) {
	if begin {
		h.isolated[replica]++
	} else {
		h.isolated[replica]--
	}
}

// reports is a fault of reports.
func (f Fault) reports() *lineFault {
	by, _ := time.ParseDuration(f.args["by"])
	switch f.verb {
	case "reports.lost":
		p, err := strconv.ParseFloat(f.args["p"], 64)
		if err != nil {
			p = 1
		}
		return &lineFault{lost: p}
	case "reports.dup":
		return &lineFault{dup: true}
	}
	return &lineFault{by: by, reorder: f.verb == "reports.reorder"}
}
