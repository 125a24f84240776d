// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
)

// refusedBy is what a host writes that has no room for one placement.
func refusedBy(token string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{
			Type: kubevirtv1.VirtualMachineInstanceSynchronized, Status: corev1.ConditionFalse,
			Reason: ReasonHostFull, Message: "run token " + token + ": no room",
		})
	}
}

func with(vmi *kubevirtv1.VirtualMachineInstance, options ...vmOption) *kubevirtv1.VirtualMachineInstance {
	for _, option := range options {
		option(vmi)
	}
	return vmi
}

func inPhase(phase kubevirtv1.VirtualMachineInstancePhase) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Status.Phase = phase }
}

func deleted(vmi *kubevirtv1.VirtualMachineInstance) {
	now := metav1.NewTime(start)
	vmi.DeletionTimestamp = &now
	vmi.Finalizers = []string{"other", kubevirt.Finalizer}
}

func unschedulableSince(ago time.Duration, message string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		c := notScheduled(corev1.PodReasonUnschedulable, message)
		setCondition(vmi, *c, metav1.NewTime(start.Add(-ago)))
		vmi.Status.Phase = kubevirtv1.Pending
	}
}

func evacuatedFrom(host string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Annotations[kubevirt.AnnotationEvacuatedFrom] = host + "/" + host + "-1"
	}
}

// gaveUp is what a host writes that will not run a VM under token 1 any more.
func gaveUp(reason string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Status.Phase = kubevirtv1.Scheduled
		vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{
			Type: kubevirtv1.VirtualMachineInstanceSynchronized, Status: corev1.ConditionFalse, Reason: reason, Message: "run token 1: enough",
		})
	}
}

type decideRow struct {
	name string
	seen observation
	asks bool
	want string // What the VMI is afterwards; "" if nothing is written.
	wait bool
}

// TestDecide walks the table in the package comment, then its edges.
func TestDecide(t *testing.T) {
	fresh := func(options ...vmOption) *kubevirtv1.VirtualMachineInstance { return instance("v", 1, 1, options...) }
	onA := func(options ...vmOption) *kubevirtv1.VirtualMachineInstance {
		return with(placedOn(instance("v", 1, 1), "a", "2"), options...)
	}
	full := Refusal{hosts: 1}
	full.counts[noMemory] = 1
	allBusy := Refusal{hosts: 1}
	allBusy.counts[busy] = 1
	tests := []decideRow{
		{name: "one that has ended stays", seen: observation{vmi: onA(inPhase(kubevirtv1.Succeeded))}},
		{name: "one that is placed stays", seen: observation{vmi: onA()}},
		{name: "one that was written since waits for its event", seen: observation{vmi: fresh(), behind: true}},
		{name: "one deleted before it was placed is let go", seen: observation{vmi: fresh(deleted)}, want: " on  token  keeps [other]"},
		{name: "one deleted when placed is its host's", seen: observation{vmi: onA(deleted)}},
		{
			name: "what is not supported is refused by its name",
			seen: observation{vmi: fresh(func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Spec.Hostname = "x" })},
			want: "Failed on  token  keeps [] PodScheduled=False Unsupported: spec.hostname: Forbidden: not supported: remove it",
		},
		{
			name: "one without memory is refused",
			seen: observation{vmi: instance("v", 1, 0)},
			want: "Failed on  token  keeps [] PodScheduled=False Unsupported: spec.domain.memory.guest: Required value: say how much memory the VM has",
		},
		{
			name: "a host that fits gets it", seen: observation{vmi: fresh(), host: "b"}, asks: true,
			want: "Scheduled on b token 1 keeps [" + kubevirt.Finalizer + "]",
		},
		{
			name: "the next placement has the next token, and says so where it said otherwise",
			seen: observation{vmi: fresh(unschedulableSince(0, "x"), func(vmi *kubevirtv1.VirtualMachineInstance) {
				vmi.Annotations = map[string]string{kubevirt.AnnotationRunToken: "4"}
			}), host: "b"}, asks: true,
			want: "Scheduled on b token 5 keeps [" + kubevirt.Finalizer + "] PodScheduled=True : ",
		},
		{
			name: "one its host refused goes elsewhere", seen: observation{vmi: onA(refusedBy("1")), host: "b"}, asks: true,
			want: "Scheduled on b token 2 keeps [" + kubevirt.Finalizer + "]",
		},
		{name: "what an earlier host refused is old", seen: observation{vmi: onA(refusedBy("0"))}},
		{
			name: "one that ran once is its host's, full or not",
			seen: observation{vmi: onA(refusedBy("1"), func(vmi *kubevirtv1.VirtualMachineInstance) {
				vmi.Status.PhaseTransitionTimestamps = []kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp{{Phase: kubevirtv1.Running}}
			})},
		},
		{
			name: "one its host refused waits when there is no other", seen: observation{vmi: onA(refusedBy("1")), why: full}, asks: true, wait: true,
			want: "Pending on  token 1 keeps [" + kubevirt.Finalizer + "] PodScheduled=False Unschedulable: 0/1 hosts: 1 not enough memory",
		},
		{
			name: "without room it waits and says why", seen: observation{vmi: fresh(), why: full}, asks: true, wait: true,
			want: "Pending on  token  keeps [] PodScheduled=False Unschedulable: 0/1 hosts: 1 not enough memory",
		},
		{
			name: "it says so once", seen: observation{vmi: fresh(unschedulableSince(time.Hour, "0/1 hosts: 1 not enough memory")), why: full},
			asks: true, wait: true,
		},
		{
			name: "another reason has to wait", seen: observation{vmi: fresh(unschedulableSince(time.Second, "other")), why: full},
			asks: true, wait: true,
		},
		{
			name: "but not for ever", seen: observation{vmi: fresh(unschedulableSince(time.Minute, "other")), why: full}, asks: true, wait: true,
			want: "Pending on  token  keeps [] PodScheduled=False Unschedulable: 0/1 hosts: 1 not enough memory",
		},
	}
	ran := func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Status.Phase = kubevirtv1.Running
		vmi.Status.PhaseTransitionTimestamps = []kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp{{Phase: kubevirtv1.Scheduled}, {Phase: kubevirtv1.Running}}
		vmi.Status.Conditions = []kubevirtv1.VirtualMachineInstanceCondition{
			{Type: kubevirtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue},
			{Type: kubevirtv1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue},
		}
	}
	tests = append(tests, []decideRow{
		{name: "one whose host runs it no more goes elsewhere", seen: observation{vmi: onA(ran, evacuatedFrom("a")), host: "b"}, asks: true,
			want: "Scheduled on b token 2 keeps [" + kubevirt.Finalizer + "] Ready=False/Evacuated"},
		{name: "and is on no host when there is none, so that nobody starts it meanwhile", seen: observation{vmi: onA(ran, evacuatedFrom("a")), why: full}, asks: true, wait: true,
			want: "Pending on  token 1 keeps [" + kubevirt.Finalizer + "] PodScheduled=False Unschedulable: 0/1 hosts: 1 not enough memory Ready=False/Evacuated"},
		{name: "the mark of a host it is not on any more is removed, and nothing else", seen: observation{vmi: onA(ran, evacuatedFrom("b"))},
			want: "Running on a token 1 keeps [" + kubevirt.Finalizer + "] Ready=True/ AgentConnected=True/"},
		{name: "as long as another host may act on it, it stays", seen: observation{vmi: onA(ran, evacuatedFrom("a"), labelled(kubevirt.HostLabel("c"), ""))}},
		{name: "one that has ended is left alone, marked or not", seen: observation{vmi: onA(ran, inPhase(kubevirtv1.Failed), evacuatedFrom("a"))}},
		{name: "a deleted one is let go, since its host cannot", seen: observation{vmi: onA(ran, evacuatedFrom("a"), deleted)},
			want: "Failed on  token 1 keeps [other] Ready=False/Evacuated"},
		{name: "a deleted one that moved to another host is that one's", seen: observation{vmi: onA(ran, evacuatedFrom("b"), deleted)},
			want: "Running on a token 1 keeps [other " + kubevirt.Finalizer + "] Ready=True/ AgentConnected=True/"},
		{name: "one that never began on its dead host goes elsewhere, too", seen: observation{vmi: onA(evacuatedFrom("a")), host: "b"}, asks: true,
			want: "Scheduled on b token 2 keeps [" + kubevirt.Finalizer + "] Ready=False/Evacuated"},
		{name: "while all hosts that fit are busy starting others it stays marked, and on none", seen: observation{vmi: onA(ran, evacuatedFrom("a")), why: allBusy}, asks: true},
		{name: "one that crashed too often on its host goes elsewhere, though it ran there", seen: observation{vmi: onA(ran, gaveUp(ReasonRestartsExhausted)), host: "b"}, asks: true,
			want: "Scheduled on b token 2 keeps [" + kubevirt.Finalizer + "] Ready=False/Evacuated"},
		{name: "one whose host lost its disks as well", seen: observation{vmi: onA(ran, gaveUp(ReasonStorageLost)), host: "b"}, asks: true,
			want: "Scheduled on b token 2 keeps [" + kubevirt.Finalizer + "] Ready=False/Evacuated"},
	}...)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.seen.now = start
			if got := wantsHost(tt.seen); got != tt.asks {
				t.Fatalf("asks for a host: %t, want %t", got, tt.asks)
			}
			p := decide(tt.seen)
			if p.wait != tt.wait {
				t.Errorf("wait = %t, want %t", p.wait, tt.wait)
			}
			if got := show(p.apply(tt.seen)); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func show(vmi *kubevirtv1.VirtualMachineInstance) string {
	if vmi == nil {
		return ""
	}
	var labels []string
	for label := range vmi.Labels {
		if host, ours := strings.CutPrefix(label, kubevirt.LabelHostPrefix); ours {
			labels = append(labels, host)
		}
	}
	slices.Sort(labels)
	if strings.Join(labels, ",") != vmi.Status.NodeName || vmi.Labels[kubevirt.LabelNodeName] != vmi.Status.NodeName {
		return "labels and node do not agree"
	}
	s := string(vmi.Status.Phase) + " on " + vmi.Status.NodeName + " token " + vmi.Annotations[kubevirt.AnnotationRunToken] +
		" keeps [" + strings.Join(vmi.Finalizers, " ") + "]"
	if c := condition(vmi, podScheduled); c != nil {
		s += " PodScheduled=" + string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	for _, kind := range []kubevirtv1.VirtualMachineInstanceConditionType{kubevirtv1.VirtualMachineInstanceReady, kubevirtv1.VirtualMachineInstanceAgentConnected} {
		if c := condition(vmi, kind); c != nil {
			s += " " + string(kind) + "=" + string(c.Status) + "/" + c.Reason
		}
	}
	if vmi.Annotations[kubevirt.AnnotationEvacuatedFrom] != "" && !vmi.IsFinal() {
		s += " still marked"
	}
	return s
}

func TestPlacementSaysWhetherAVMIsProtected(t *testing.T) {
	for _, tt := range []struct{ wish, was, want string }{
		{"", "", "true"}, {"true", "", "true"}, {"false", "", ""}, {"false", "true", ""},
	} {
		vmi := instance("v", 1, 1)
		vmi.Annotations = map[string]string{kubevirt.AnnotationHighAvailability: tt.wish}
		vmi.Labels = map[string]string{}
		if tt.was != "" {
			vmi.Labels[kubevirt.LabelProtected] = tt.was
		}
		after := plan{host: "a", token: 1}.apply(observation{now: start, vmi: vmi})
		if got := after.Labels[kubevirt.LabelProtected]; got != tt.want {
			t.Errorf("wish %q, was %q: label %q, want %q", tt.wish, tt.was, got, tt.want)
		}
	}
}

func TestALifeElsewhereKeepsTheStoryOfItsMigrationsOnly(t *testing.T) {
	vmi := placedOn(instance("v", 1, 1), "a", "2")
	vmi.Status.PhaseTransitionTimestamps = []kubevirtv1.VirtualMachineInstancePhaseTransitionTimestamp{{Phase: kubevirtv1.Running}}
	vmi.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{MigrationUID: "m", TargetNode: "a", Completed: true}
	evacuatedFrom("a")(vmi)
	after := plan{host: "b", token: 2}.apply(observation{now: start, vmi: vmi})
	if after.Status.MigrationState == nil {
		t.Error("a migration that has ended is forgotten before its object says so")
	}
	if n := len(after.Status.PhaseTransitionTimestamps); n != 1 || startedOnce(after) {
		t.Errorf("%d phase times, started %t: want the new placement's alone", n, startedOnce(after))
	}
	vmi.Status.MigrationState.Completed = false
	if after = (plan{host: "b", token: 2}).apply(observation{now: start, vmi: vmi}); after.Status.MigrationState != nil {
		t.Error("a migration that its dead source left half done goes on")
	}
}
