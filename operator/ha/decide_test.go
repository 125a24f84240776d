// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
)

var midday = metav1.NewTime(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))

// dead is a host of boot b that nobody hears, with three VMs and a working
// controller.
func dead(changes ...func(*observation)) observation {
	seen := observation{
		now: 1000 * seconds, wall: midday, limits: limits, protected: 3,
		hypervisor: &kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: "kvm-1"}, Spec: kvmv1.HypervisorSpec{HighAvailability: true}},
		memory:     memory("b", 970*seconds),
		verdict:    verdict{state: kvmv1.ReasonUnreachable, message: "silent"},
		expiry: expiry{
			evidence: evidence{now: 1000 * seconds, limits: limits}, terms: usual, armed: true, boot: "b",
			granted: 970 * seconds, ledAt: 10 * seconds,
		},
		ledAt: 10 * seconds,
	}
	for _, change := range changes {
		change(&seen)
	}
	return seen
}

func memory(boot string, last time.Duration) hostMemory {
	return hostMemory{
		boot: boot, first: 100 * seconds, last: last, granted: last, synced: true, soundSince: 100 * seconds,
		virtualisation: &hav1.Virtualisation{Answers: true}, storage: []*hav1.Storage{{Pool: "shared", Writable: true}},
		watchdog: &hav1.Watchdog{Present: true, Armed: true, Timeout: durationpb.New(20 * seconds)},
		lease:    &hav1.Lease{Valid: true, Term: durationpb.New(20 * seconds), Stop: durationpb.New(10 * seconds)},
	}
}

// heard makes it report again, from a boot.
func heard(boot string) func(*observation) {
	return func(seen *observation) {
		first := seen.memory.first
		anew := boot != seen.memory.boot
		if anew {
			first = 900 * seconds
		}
		seen.memory = memory(boot, 999*seconds)
		seen.memory.lease.Valid = !anew
		seen.memory.first, seen.memory.granted = first, 0
		seen.verdict = verdict{state: kvmv1.ReasonOnline, message: "reports"}
	}
}

func evacuating(phase v1alpha1.EvacuationPhase, changes ...func(*v1alpha1.Evacuation)) func(*observation) {
	return func(seen *observation) {
		e := &v1alpha1.Evacuation{ObjectMeta: metav1.ObjectMeta{Name: "kvm-1-4"}, Spec: v1alpha1.EvacuationSpec{Hypervisor: "kvm-1", Boot: "b"}}
		e.Status.Phase = phase
		if phase != v1alpha1.EvacuationFencing {
			e.Status.Proof = &v1alpha1.Proof{Kind: v1alpha1.ProofPowerOff, Message: "it is off", At: midday}
		}
		for _, change := range changes {
			change(e)
		}
		seen.evacuation, seen.history = e, []v1alpha1.Evacuation{*e}
		seen.hypervisor.Spec.Maintenance = kvmv1.MaintenanceHA
		seen.hypervisor.Spec.MaintenanceReason = reasonFor(e)
	}
}

func ordered(e *v1alpha1.Evacuation) {
	e.Status.Power = &v1alpha1.PowerRecord{Ordered: &midday, Attempts: 1}
}

// confirm is a person's word.
func confirm(o *observation) {
	o.hypervisor.Annotations = map[string]string{v1alpha1.AnnotationConfirmFenced: "ann until 2026-01-02T13:00:00Z: unplugged"}
}

func dryRun(o *observation) { o.brakes.dryRun = true }

func paused(o *observation) { o.brakes.paused = true }

// withoutDisks is a host that has lost the storage that others have, with VMs that
// stand still for it.
func withoutDisks(o *observation) {
	o.lost, o.memory.strandedSince = true, 990*seconds
}

// speaks holds that HostAlive says so.
func speaks(words string) func(*testing.T, plan) {
	return func(t *testing.T, p plan) {
		t.Helper()
		if p.hostAlive == nil || !strings.Contains(p.hostAlive.Message, words) {
			t.Errorf("%+v does not say %q", p.hostAlive, words)
		}
	}
}

func TestDecideWithoutEvacuation(t *testing.T) {
	online := []func(*observation){heard("b")}
	with := func(base []func(*observation), more ...func(*observation)) observation {
		return dead(append(base, more...)...)
	}
	for _, tt := range []struct {
		name  string
		seen  observation
		alive string
		makes bool
		check func(*testing.T, plan)
	}{
		{"one that reports is granted, once its lease is on record", with(online), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			if p.record == nil || p.record.Boot != "b" || p.policy == nil || !p.policy.grant || p.policy.boot != "b" {
				t.Errorf("record %+v, policy %+v", p.record, p.policy)
			}
		}},
		{"one that nobody hears is to be fenced, and gets no grant before that is written", dead(), kvmv1.ReasonFencing, true, func(t *testing.T, p plan) {
			if p.create.Name != "kvm-1-1" || p.create.Spec.Boot != "b" || p.refuse == "" || p.policy != nil {
				t.Errorf("%+v, refuse %q, policy %+v", p.create, p.refuse, p.policy)
			}
		}},
		{"its number is the next", dead(func(o *observation) {
			o.history = []v1alpha1.Evacuation{{ObjectMeta: metav1.ObjectMeta{Name: "kvm-1-9"}, Spec: v1alpha1.EvacuationSpec{Hypervisor: "kvm-1"}, Status: v1alpha1.EvacuationStatus{Phase: v1alpha1.EvacuationDone}}}
		}), kvmv1.ReasonFencing, true, func(t *testing.T, p plan) {
			if p.create.Name != "kvm-1-10" {
				t.Error(p.create.Name)
			}
		}},
		{"one that was never heard of is left alone: high availability has not begun there", dead(func(o *observation) {
			o.memory, o.expiry = hostMemory{}, expiry{}
		}), kvmv1.ReasonUnreachable, false, nil},
		{"unless a person says that it is dead", dead(func(o *observation) {
			o.memory, o.expiry = hostMemory{}, expiry{}
		}, confirm), kvmv1.ReasonFencing, true, nil},
		{"one that only the record knows is fenced", dead(func(o *observation) { o.memory = hostMemory{} }), kvmv1.ReasonFencing, true, func(t *testing.T, p plan) {
			if p.create.Spec.Boot != "b" {
				t.Error(p.create.Spec.Boot)
			}
		}},
		{"a doubt of one that hears hardly anybody is not worth saying", dead(func(o *observation) {
			o.verdict.state, o.brakes.observer = kvmv1.ReasonSuspect, true
		}), "", false, nil},
		{"one in whose turn it is not waits", dead(func(o *observation) { o.brakes.fencing = 10 }), kvmv1.ReasonHeld, false, func(t *testing.T, p plan) {
			if !p.turn {
				t.Error("nobody will wake it")
			}
		}},
		{"whoever confirmed a host that is heard was wrong", with(online, confirm), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			if !p.unconfirm || p.tell == nil {
				t.Error("the word would count when it falls silent next")
			}
		}},
		{"what a predecessor may have told it to do counts more than what it says", with(online, func(o *observation) { o.ledAt = 1000 * seconds }), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			if p.record.Watchdog != "" || p.lookAgain == 0 {
				t.Errorf("%+v", p.record)
			}
		}},
		{"unless it is on record already", with(online, func(o *observation) {
			o.ledAt = 1000 * seconds
			o.hypervisor.Annotations = map[string]string{v1alpha1.AnnotationRunLease: leaseOf(o.memory, true).text()}
		}), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			if p.record.Watchdog == "" {
				t.Errorf("%+v", p.record)
			}
		}},
		{"while it is onboarded nobody is watched over", with(online, func(o *observation) {
			o.hypervisor.Status.Conditions = []metav1.Condition{{Type: kvmv1.ConditionOnboarding, Status: metav1.ConditionTrue, Reason: kvmv1.ReasonTesting}}
		}), "", false, func(t *testing.T, p plan) {
			if p.policy == nil || !p.policy.off || p.enabled.Reason != kvmv1.ReasonOnboarding {
				t.Errorf("policy %+v, HaEnabled %+v", p.policy, p.enabled)
			}
		}},
		{"one with nothing to save is left alone", dead(func(o *observation) { o.protected = 0 }), kvmv1.ReasonUnreachable, false, nil},
		{"a doubt is no verdict", dead(func(o *observation) { o.verdict.state = kvmv1.ReasonSuspect }), kvmv1.ReasonSuspect, false, nil},
		{"one whose VMs live is left alone", dead(func(o *observation) { o.verdict.state = kvmv1.ReasonIsolated }), kvmv1.ReasonIsolated, false, nil},
		{"a brake holds", dead(func(o *observation) { o.brakes.storm = true }), kvmv1.ReasonHeld, false, nil},
		{"a new leader says nothing yet", dead(func(o *observation) { o.verdict = verdict{} }), "", false, nil},
		{"one that lost its storage is evacuated although it reports", with(online, func(o *observation) { o.verdict.stranded = true }), kvmv1.ReasonFencing, true, nil},
		{"unless it has nothing to save: it keeps its lease", with(online, func(o *observation) { o.verdict.stranded, o.protected = true, 0 }), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			if p.policy == nil || !p.policy.grant || !strings.Contains(p.hostAlive.Message, "Nothing protected") {
				t.Errorf("policy %+v, %q", p.policy, p.hostAlive.Message)
			}
		}},
		{"held, it keeps its lease", with(online, func(o *observation) { o.verdict.stranded, o.brakes.storm = true, true }), kvmv1.ReasonHeld, false, func(t *testing.T, p plan) {
			if p.policy == nil || !p.policy.grant {
				t.Error("a storm of storage must not stop the VMs of all")
			}
		}},
		{"high availability off: no lease is needed, and that is on record first", with(online, func(o *observation) { o.hypervisor.Spec.HighAvailability = false }), "", false, func(t *testing.T, p plan) {
			if p.policy == nil || !p.policy.off || p.record == nil || p.record.Watchdog != "" {
				t.Errorf("policy %+v, record %+v", p.policy, p.record)
			}
		}},
		{"high availability off: it may die", dead(func(o *observation) { o.hypervisor.Spec.HighAvailability = false }), "", false, nil},
		{"before onboarding nothing is said", dead(func(o *observation) { o.hypervisor.Spec.LifecycleEnabled = true }), "", false, func(t *testing.T, p plan) {
			if p.enabled != nil {
				t.Errorf("%+v", p.enabled)
			}
		}},
		{"memory that failed: its VMs leave while they can", with(online, func(o *observation) { o.memory.memoryFailed = "vm" }), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			if p.maintenance == nil || p.maintenance.mode != string(kvmv1.MaintenanceAuto) || p.handled {
				t.Errorf("%+v, handled %v before it is written", p.maintenance, p.handled)
			}
		}},
		{"and once that is on record, a person may put the host back", with(online, func(o *observation) {
			o.memory.memoryFailed, o.hypervisor.Spec.Maintenance = "vm", kvmv1.MaintenanceAuto
		}), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			if p.maintenance != nil || !p.handled {
				t.Errorf("%+v, handled %v", p.maintenance, p.handled)
			}
		}},
		{"maintenance that a leader left behind is given back", with(online, evacuating(v1alpha1.EvacuationDone, func(e *v1alpha1.Evacuation) {
			e.Spec.Maintenance, e.Spec.MaintenanceReason = "manual", "disk"
		}), func(o *observation) { o.evacuation = nil }), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			if p.maintenance == nil || *p.maintenance != (maintenance{"manual", "disk"}) {
				t.Errorf("%+v", p.maintenance)
			}
		}},
		{"in a dry run nobody needs a lease", with(online, dryRun), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			if p.policy == nil || !p.policy.off || p.record == nil || p.record.Watchdog != "" || p.enabled.Reason != kvmv1.ReasonDryRun {
				t.Errorf("policy %+v, record %+v, HaEnabled %+v", p.policy, p.record, p.enabled)
			}
		}},
		{"in a dry run it is said what would be done", dead(dryRun), kvmv1.ReasonHeld, false, speaks("it would be fenced now and its 3 protected VMs started elsewhere")},
		{"also to a host without storage", with(online, dryRun, func(o *observation) { o.verdict.stranded = true }), kvmv1.ReasonHeld, false, func(t *testing.T, p plan) {
			speaks("it would be fenced now")(t, p)
			if p.policy == nil || !p.policy.off {
				t.Errorf("policy %+v", p.policy)
			}
		}},
		{"and of memory that failed, once", with(online, dryRun, func(o *observation) { o.memory.memoryFailed = "vm" }), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			if p.maintenance != nil || !p.handled || p.tell == nil || !strings.Contains(p.tell.message, "it would be emptied now") {
				t.Errorf("%+v, handled %v, tells %+v", p.maintenance, p.handled, p.tell)
			}
		}},
		{"while the service is paused memory that failed waits", with(online, paused, func(o *observation) { o.memory.memoryFailed = "vm" }), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			speaks("is to be emptied. Held: the service is paused")(t, p)
			if p.maintenance != nil || p.handled {
				t.Errorf("%+v, handled %v", p.maintenance, p.handled)
			}
		}},
		{"VMs without their disks are asked to leave", with(online, withoutDisks), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			if !p.relieve || !p.leave {
				t.Errorf("relieves %v, asks to leave %v", p.relieve, p.leave)
			}
		}},
		{"but not in a dry run", with(online, withoutDisks, dryRun), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			speaks("would be asked to leave it, but this is a dry run")(t, p)
			if !p.relieve || p.leave {
				t.Errorf("takes back what was asked %v, asks to leave %v", p.relieve, p.leave)
			}
		}},
		{"nor in a pause", with(online, withoutDisks, paused), kvmv1.ReasonOnline, false, func(t *testing.T, p plan) {
			if !p.relieve || p.leave {
				t.Errorf("takes back what was asked %v, asks to leave %v", p.relieve, p.leave)
			}
		}},
		{"a cache that is behind decides nothing", dead(func(o *observation) { o.behind = true }), "", false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := decide(tt.seen)
			if got := reasonOfPlan(p); got != tt.alive || (p.create != nil) != tt.makes {
				t.Errorf("HostAlive %q, makes %v; want %q, %v", got, p.create != nil, tt.alive, tt.makes)
			}
			if p.evacuate || p.power != wishNothing {
				t.Error("acts without an Evacuation")
			}
			if tt.check != nil {
				tt.check(t, p)
			}
		})
	}
}

func reasonOfPlan(p plan) string {
	if p.hostAlive == nil {
		return ""
	}
	return p.hostAlive.Reason
}

func TestFencing(t *testing.T) {
	proven := func(proof, of string) func(*observation) {
		return func(o *observation) { o.power = powerMemory{evacuation: of + "/", wish: wishOff, proof: proof} }
	}
	expired := func(o *observation) {
		o.expiry.granted = 900 * seconds
		o.expiry.sightings = []sighting{{at: o.now, storage: true, boot: "b", still: 90 * seconds}}
	}
	lapsed := func(stopped bool) func(*observation) {
		return func(o *observation) {
			o.memory.lease = &hav1.Lease{Lapsed: true, Stopped: stopped}
			o.memory.granted = 960 * seconds
		}
	}
	fencing := evacuating(v1alpha1.EvacuationFencing)
	told := evacuating(v1alpha1.EvacuationFencing, ordered)
	noPower := func(o *observation) { o.hasPower = "none" }
	for _, tt := range []struct {
		name  string
		seen  observation
		proof v1alpha1.ProofKind
		phase v1alpha1.EvacuationPhase // written; "": none
		alive string
		power wish
	}{
		{"first the controller has to be that of the right machine", dead(fencing), "", "", kvmv1.ReasonFencing, wishLook},
		{"while it is not nothing is ordered", dead(fencing, func(o *observation) {
			o.power = powerMemory{evacuation: "kvm-1-4/", wish: wishLook, problem: "another machine's answers"}
		}), "", v1alpha1.EvacuationFencing, kvmv1.ReasonFencing, wishLook},
		{"then the order is written down", dead(fencing, func(o *observation) { o.power = powerMemory{evacuation: "kvm-1-4/", wish: wishLook, right: true} }), "", v1alpha1.EvacuationFencing, kvmv1.ReasonFencing, wishNothing},
		{"not for what an earlier Evacuation had seen", dead(fencing, func(o *observation) { o.power = powerMemory{evacuation: "kvm-1-3/", wish: wishLook, right: true} }), "", "", kvmv1.ReasonFencing, wishLook},
		{"then it is given", dead(told), "", "", kvmv1.ReasonFencing, wishOff},
		{"off, twice", dead(told, proven("off twice", "kvm-1-4")), v1alpha1.ProofPowerOff, v1alpha1.EvacuationFenced, kvmv1.ReasonFenced, wishNothing},
		{"what an earlier Evacuation has learned is no proof", dead(told, proven("off twice", "kvm-1-3")), "", "", kvmv1.ReasonFencing, wishOff},
		{"its lease has run out", dead(told, expired), v1alpha1.ProofLeaseExpired, v1alpha1.EvacuationFenced, kvmv1.ReasonFenced, wishNothing},
		{"the lease of another boot has", dead(told, expired, func(o *observation) { o.expiry.boot = "a" }), "", "", kvmv1.ReasonFencing, wishOff},
		{"a person says so", dead(told, confirm), v1alpha1.ProofConfirmed, v1alpha1.EvacuationFenced, kvmv1.ReasonFenced, wishNothing},
		{"a person says so of a host that reports", dead(told, heard("b"), confirm), "", "", kvmv1.ReasonFencing, wishOff},
		{"it reports from a later boot", dead(told, heard("c")), v1alpha1.ProofNewBoot, v1alpha1.EvacuationFenced, kvmv1.ReasonFenced, wishNothing},
		{"a single report of another boot may be an old one", dead(told, heard("c"), func(o *observation) { o.memory.first = o.memory.last }), "", "", kvmv1.ReasonFencing, wishNothing},
		{"a later boot that was granted proves nothing", dead(told, heard("c"), func(o *observation) { o.memory.granted = 995 * seconds }), "", "", kvmv1.ReasonFencing, wishNothing},
		{"a later boot that says it has a lease has it from somebody", dead(told, heard("c"), func(o *observation) { o.memory.lease.Valid = true }), "", "", kvmv1.ReasonFencing, wishNothing},
		{"or that it needs none", dead(told, heard("c"), func(o *observation) { o.memory.lease.Off = true }), "", "", kvmv1.ReasonFencing, wishNothing},
		{"or that has something running", dead(told, heard("c"), func(o *observation) {
			o.memory.instances = map[string]*hav1.Instance{"u": {Uuid: "u", State: "running", Protected: true}}
		}), "", "", kvmv1.ReasonFencing, wishNothing},
		{"what a later boot said before a predecessor's last grant", dead(told, heard("c"), func(o *observation) { o.ledAt = 999 * seconds }), "", "", kvmv1.ReasonFencing, wishNothing},
		{"one that may lead no more proves nothing", dead(told, proven("off twice", "kvm-1-4"), func(o *observation) { o.brakes.blind = true }), "", "", kvmv1.ReasonFencing, wishOff},
		{"a namesake's readings are no proof", dead(told, proven("off twice", "kvm-1-4"), func(o *observation) { o.evacuation.UID = "2" }), "", "", kvmv1.ReasonFencing, wishOff},
		{"its lease has run out, says the arithmetic, and it reports", dead(told, expired, heard("b")), "", "", kvmv1.ReasonFencing, wishOff},
		{"it stopped before a predecessor's last grant", dead(fencing, heard("b"), lapsed(true), func(o *observation) { o.ledAt = 999 * seconds }), "", "", kvmv1.ReasonFencing, wishNothing},
		{"its heartbeat moves again before anything was done", dead(fencing, func(o *observation) { o.verdict.state = kvmv1.ReasonIsolated }), "", v1alpha1.EvacuationCancelled, "", wishNothing},
		{"its heartbeat moves again after the order", dead(told, func(o *observation) { o.verdict.state = kvmv1.ReasonIsolated }), "", "", kvmv1.ReasonFencing, wishOff},
		{"one nobody had heard of is heard", dead(fencing, heard("c"), func(o *observation) { o.evacuation.Spec.Boot = "" }), "", v1alpha1.EvacuationCancelled, "", wishNothing},
		{"it has stopped its VMs itself", dead(fencing, heard("b"), lapsed(true)), v1alpha1.ProofStopped, v1alpha1.EvacuationFenced, kvmv1.ReasonFenced, wishNothing},
		{"it is still stopping them", dead(fencing, heard("b"), lapsed(false)), "", "", kvmv1.ReasonFencing, wishNothing},
		{"it says stopped and lists one that runs", dead(fencing, heard("b"), lapsed(true), func(o *observation) {
			o.memory.instances = map[string]*hav1.Instance{"u": {Uuid: "u", State: "running", Protected: true}}
		}), "", "", kvmv1.ReasonFencing, wishNothing},
		{"a dry run ends what nothing was ordered for", dead(fencing, expired, dryRun), "", v1alpha1.EvacuationCancelled, "", wishNothing},
		{"also what a person has confirmed", dead(fencing, confirm, dryRun), "", v1alpha1.EvacuationCancelled, "", wishNothing},
		{"what was ordered goes on in a dry run", dead(told, dryRun), "", "", kvmv1.ReasonFencing, wishOff},
		{"and to its end", dead(told, proven("off twice", "kvm-1-4"), dryRun), v1alpha1.ProofPowerOff, v1alpha1.EvacuationFenced, kvmv1.ReasonFenced, wishNothing},
		{"heard again before anything was done", dead(fencing, heard("b")), "", v1alpha1.EvacuationCancelled, "", wishNothing},
		{"heard again after the order: it may still be carried out", dead(told, heard("b"), func(o *observation) { o.expiry.granted = 940 * seconds }), "", "", kvmv1.ReasonFencing, wishOff},
		{"no controller and no watchdog: a person is needed", dead(fencing, noPower, func(o *observation) { o.expiry.armed = false }), "", "", kvmv1.ReasonUnproven, wishNothing},
		{"no controller, but a lease that will end", dead(fencing, noPower), "", "", kvmv1.ReasonFencing, wishNothing},
		{"a controller in trouble is written down", dead(told, func(o *observation) {
			o.power = powerMemory{evacuation: "kvm-1-4/", wish: wishOff, problem: "no answer"}
		}), "", v1alpha1.EvacuationFencing, kvmv1.ReasonFencing, wishOff},
		{"and without a watchdog a person is needed", dead(told, func(o *observation) {
			o.power, o.expiry.armed = powerMemory{evacuation: "kvm-1-4/", wish: wishOff, problem: "no answer"}, false
		}), "", v1alpha1.EvacuationFencing, kvmv1.ReasonUnproven, wishOff},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := decide(tt.seen)
			var proof v1alpha1.ProofKind
			var phase v1alpha1.EvacuationPhase
			if p.status != nil {
				phase = p.status.Phase
				if p.status.Proof != nil {
					proof = p.status.Proof.Kind
				}
			}
			if proof != tt.proof || phase != tt.phase || reasonOfPlan(p) != tt.alive || p.power != tt.power {
				t.Errorf("proof %q, phase %q, HostAlive %q, power %q; want %q, %q, %q, %q", proof, phase, reasonOfPlan(p), p.power, tt.proof, tt.phase, tt.alive, tt.power)
			}
			if p.evacuate {
				t.Error("VMs are touched before the proof is written")
			}
			if phase != v1alpha1.EvacuationCancelled && (p.refuse == "" || p.policy != nil) {
				t.Error("it may get a grant")
			}
			if p.hostAlive != nil && p.hostAlive.Status == metav1.ConditionFalse && proof == "" {
				t.Error("called dead without a proof")
			}
		})
	}
	if p := decide(dead(fencing, noPower, func(o *observation) { o.expiry.armed = false })); !strings.Contains(p.hostAlive.Message, v1alpha1.AnnotationConfirmFenced) {
		t.Errorf("%q does not say how to confirm", p.hostAlive.Message)
	}
}

func TestAfterTheProof(t *testing.T) {
	powerOn := func(o *observation) { o.limits.PowerOn = true }
	back := func(boot string) []func(*observation) {
		return []func(*observation){evacuating(v1alpha1.EvacuationRecovering), heard(boot)}
	}
	for _, tt := range []struct {
		name     string
		seen     observation
		phase    v1alpha1.EvacuationPhase
		alive    string
		evacuate bool
		power    wish
	}{
		{"fenced: the VMs' turn", dead(evacuating(v1alpha1.EvacuationFenced)), "", kvmv1.ReasonFenced, true, ""},
		{"evacuating goes on, whoever leads", dead(evacuating(v1alpha1.EvacuationEvacuating)), "", kvmv1.ReasonEvacuating, true, ""},
		{"evacuating goes on although the host is back", dead(evacuating(v1alpha1.EvacuationEvacuating), heard("c")), "", kvmv1.ReasonEvacuating, true, ""},
		{"evacuated: it stays off", dead(evacuating(v1alpha1.EvacuationEvacuated, ordered)), "", kvmv1.ReasonHostEmpty, false, ""},
		{"evacuated: on again, if that is the policy", dead(evacuating(v1alpha1.EvacuationEvacuated, ordered), powerOn), "", kvmv1.ReasonHostEmpty, false, wishOn},
		{"what we did not switch off we do not switch on", dead(evacuating(v1alpha1.EvacuationEvacuated), powerOn), "", kvmv1.ReasonHostEmpty, false, ""},
		{"it is back", dead(evacuating(v1alpha1.EvacuationEvacuated), heard("c"), func(o *observation) { o.memory.soundSince = 990 * seconds }), v1alpha1.EvacuationRecovering, kvmv1.ReasonRecovering, false, ""},
		{"the same boot, without having stopped, is not back", dead(evacuating(v1alpha1.EvacuationEvacuated), heard("b")), "", kvmv1.ReasonHostEmpty, false, ""},
		{"it has done well for long enough", dead(back("c")...), v1alpha1.EvacuationDone, kvmv1.ReasonOnline, false, ""},
		{"an old VM runs there", dead(append(back("c"), func(o *observation) {
			o.memory.instances = map[string]*hav1.Instance{"u": {Uuid: "u", State: "running", Protected: true}}
		})...), "", kvmv1.ReasonRecovering, false, ""},
		{"it keeps dying", dead(append(back("c"), func(o *observation) {
			earlier := *o.evacuation.DeepCopy()
			earlier.Name, earlier.CreationTimestamp = "kvm-1-3", metav1.NewTime(midday.Add(-30*time.Minute))
			o.history[0].CreationTimestamp = midday
			o.history = []v1alpha1.Evacuation{earlier, o.history[0]}
		})...), "", kvmv1.ReasonRecovering, false, ""},
		{"it fell silent again", dead(evacuating(v1alpha1.EvacuationRecovering)), v1alpha1.EvacuationEvacuated, kvmv1.ReasonHostEmpty, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := decide(tt.seen)
			var phase v1alpha1.EvacuationPhase
			if p.status != nil {
				phase = p.status.Phase
			}
			if phase != tt.phase || reasonOfPlan(p) != tt.alive || p.evacuate != tt.evacuate || p.power != tt.power {
				t.Errorf("phase %q, HostAlive %q, evacuate %v, power %q; want %q, %q, %v, %q", phase, reasonOfPlan(p), p.evacuate, p.power, tt.phase, tt.alive, tt.evacuate, tt.power)
			}
			if p.policy != nil {
				t.Error("it gets a grant before the end is written")
			}
		})
	}
}
