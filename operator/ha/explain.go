// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
)

// Explain writes on one page why a host is in its state, what is known of it and
// what a person can do. The Evacuations are the host's, in any order.
func Explain(w io.Writer, h *kvmv1.Hypervisor, all []v1alpha1.Evacuation, now time.Time) {
	fmt.Fprintf(w, "Host         %s\n", h.Name)
	for _, kind := range []string{kvmv1.ConditionHostAlive, kvmv1.ConditionHaEnabled, kvmv1.ConditionReady} {
		c := meta.FindStatusCondition(h.Status.Conditions, kind)
		if c == nil {
			fmt.Fprintf(w, "%-12s not said yet\n", kind)
			continue
		}
		fmt.Fprintf(w, "%-12s %s, %s, since %s\n             %s\n", kind, c.Status, c.Reason, c.LastTransitionTime.UTC().Format(time.RFC3339), c.Message)
	}
	maintenance := "none"
	if h.Spec.Maintenance != "" {
		maintenance = strings.TrimSuffix(fmt.Sprintf("%s: %s", h.Spec.Maintenance, h.Spec.MaintenanceReason), ": ")
	}
	fmt.Fprintf(w, "Maintenance  %s\n", maintenance)
	explainLease(w, h)
	if word, problem := confirmed(h, now); word != nil {
		fmt.Fprintf(w, "Confirmed    by %s until %s: %s\n", word.who, word.until.UTC().Format(time.RFC3339), word.why)
	} else if problem != "" {
		fmt.Fprintf(w, "Confirmed    no: %s\n", problem)
	}
	ordered := inOrder(all)
	if len(ordered) == 0 {
		fmt.Fprintln(w, "Evacuation   never")
		return
	}
	e := ordered[len(ordered)-1]
	fmt.Fprintf(w, "Evacuation   %s, %s: %s\n", e.Name, cmp.Or(string(e.Status.Phase), string(v1alpha1.EvacuationFencing)), e.Status.Message)
	explainEvacuation(w, &e)
	if aliveReason(h) == kvmv1.ReasonUnproven || aliveReason(h) == kvmv1.ReasonHeld {
		fmt.Fprintf(w, "\n%s.\n", confirmHow(h.Name))
	}
}

func explainLease(w io.Writer, h *kvmv1.Hypervisor) {
	lease, times, armed := parseRunLease(h.Annotations[v1alpha1.AnnotationRunLease])
	switch {
	case lease.Boot == "":
		fmt.Fprintln(w, "Run lease    none on record")
	case !armed:
		fmt.Fprintf(w, "Run lease    of boot %s, without an armed watchdog: its end proves nothing\n", lease.Boot)
	default:
		fmt.Fprintf(w, "Run lease    of boot %s: term %s, stop %s, watchdog %s\n", lease.Boot, times.term, times.stop, times.watchdog)
	}
}

func explainEvacuation(w io.Writer, e *v1alpha1.Evacuation) {
	if p := e.Status.Power; p != nil {
		fmt.Fprintf(w, "Power off    ordered %d times", p.Attempts)
		if p.LastError != "" {
			fmt.Fprintf(w, ", latest trouble: %s", p.LastError)
		}
		fmt.Fprintln(w)
	}
	if p := e.Status.Proof; p != nil {
		fmt.Fprintf(w, "Proof        %s at %s: %s\n", p.Kind, p.At.UTC().Format(time.RFC3339), p.Message)
	} else {
		fmt.Fprintln(w, "Proof        none yet; no VM is touched without one")
	}
	if s := e.Status.Summary; s != nil {
		fmt.Fprintf(w, "VMs          %d in all, %d run elsewhere, %d wait, %d ended otherwise\n", s.Total, s.Running, s.Waiting, s.Ended)
	}
	for _, v := range e.Status.VMs {
		if v.State == v1alpha1.VMRunning || v.Message == "" {
			continue
		}
		fmt.Fprintf(w, "             %s/%s %s: %s\n", v.Namespace, v.Name, v.State, v.Message)
	}
}

// History writes what was decided about a host, the oldest first. The Evacuations
// are the host's, in any order.
func History(w io.Writer, host string, all []v1alpha1.Evacuation) {
	ordered := inOrder(all)
	if len(ordered) == 0 {
		fmt.Fprintf(w, "Nothing was ever decided about %s.\n", host)
		return
	}
	for i := range ordered {
		e := &ordered[i]
		fmt.Fprintf(w, "%s  %s  made\n", e.CreationTimestamp.UTC().Format(time.RFC3339), e.Name)
		for _, d := range e.Status.Decisions {
			fmt.Fprintf(w, "%s  %s  %s: %s\n", d.At.UTC().Format(time.RFC3339), e.Name, d.What, d.Message)
		}
	}
}

// inOrder are Evacuations, the oldest first.
func inOrder(all []v1alpha1.Evacuation) []v1alpha1.Evacuation {
	ordered := slices.Clone(all)
	slices.SortFunc(ordered, func(a, b v1alpha1.Evacuation) int { return cmp.Compare(numberOf(&a), numberOf(&b)) })
	return ordered
}
