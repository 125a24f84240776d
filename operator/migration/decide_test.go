// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time   { return metav1.NewTime(now.Add(-d)) }
func agoP(d time.Duration) *metav1.Time { t := ago(d); return &t }

type vmOption func(*kubevirtv1.VirtualMachineInstance)

// vm runs on a.
func vm(options ...vmOption) *kubevirtv1.VirtualMachineInstance {
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "v", UID: "uid-v", ResourceVersion: "1",
		Labels: map[string]string{kubevirt.LabelNodeName: "a", kubevirt.HostLabel("a"): ""}, Annotations: map[string]string{},
	}}
	vmi.Status.NodeName, vmi.Status.Phase = "a", kubevirtv1.Running
	for _, option := range options {
		option(vmi)
	}
	return vmi
}

// to is handed off to a host for migration m.
func to(host, m string, options ...func(*kubevirtv1.VirtualMachineInstanceMigrationState)) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Labels[kubevirt.HostLabel(host)] = ""
		vmi.Labels[kubevirt.LabelMigrationTargetNodeName] = host
		vmi.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{
			MigrationUID: types.UID(m), SourceNode: "a", TargetNode: host,
		}
		for _, option := range options {
			option(vmi.Status.MigrationState)
		}
	}
}

func token(n string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Annotations[kubevirt.AnnotationRunToken] = n }
}

func answered(s *kubevirtv1.VirtualMachineInstanceMigrationState) { s.TargetNodeAddress = "10.0.0.2" }
func running(s *kubevirtv1.VirtualMachineInstanceMigrationState) {
	answered(s)
	s.StartTimestamp = agoP(time.Second)
}
func aborting(s *kubevirtv1.VirtualMachineInstanceMigrationState) { s.AbortRequested = true }
func hasFailed(s *kubevirtv1.VirtualMachineInstanceMigrationState) {
	s.Failed, s.FailureReason = true, "no space"
}

func arrived(vmi *kubevirtv1.VirtualMachineInstance) {
	vmi.Status.MigrationState.Completed = true
	vmi.Status.NodeName = vmi.Status.MigrationState.TargetNode
	vmi.Labels = map[string]string{kubevirt.LabelNodeName: vmi.Status.NodeName, kubevirt.HostLabel(vmi.Status.NodeName): ""}
}
func letGoOf(vmi *kubevirtv1.VirtualMachineInstance) {
	delete(vmi.Labels, kubevirt.HostLabel(vmi.Status.MigrationState.TargetNode))
}
func ended(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Status.Phase = kubevirtv1.Failed }
func isBooting(vmi *kubevirtv1.VirtualMachineInstance) {
	vmi.Status.Phase = kubevirtv1.Scheduled
}
func power(state kubevirt.PowerState) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Annotations[kubevirt.AnnotationPowerState] = string(state)
	}
}
func unknownReady(vmi *kubevirtv1.VirtualMachineInstance) {
	vmi.Status.Conditions = []kubevirtv1.VirtualMachineInstanceCondition{{
		Type: kubevirtv1.VirtualMachineInstanceReady, Status: corev1.ConditionUnknown, Reason: reasonMayRunElsewhere,
	}}
}
func stuckTo(reason string) vmOption {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Status.Conditions = []kubevirtv1.VirtualMachineInstanceCondition{{
			Type: kubevirtv1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse, Reason: reason, Message: "it is so",
		}}
	}
}

// wish is a migration, asked for so long ago, that went through these phases
// so long ago.
func wish(uid string, age time.Duration, phases ...any) kubevirtv1.VirtualMachineInstanceMigration {
	m := kubevirtv1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: uid, UID: types.UID(uid), CreationTimestamp: ago(age),
	}}
	m.Spec.VMIName = "v"
	for i := 0; i+1 < len(phases); i += 2 {
		m.Status.Phase = phases[i].(kubevirtv1.VirtualMachineInstanceMigrationPhase)
		m.Status.PhaseTransitionTimestamps = append(m.Status.PhaseTransitionTimestamps,
			kubevirtv1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{Phase: m.Status.Phase, PhaseTransitionTimestamp: ago(phases[i+1].(time.Duration))})
	}
	return m
}

func withdrawnWish(m kubevirtv1.VirtualMachineInstanceMigration) kubevirtv1.VirtualMachineInstanceMigration {
	m.DeletionTimestamp = agoP(0)
	m.Finalizers = []string{"somebody's"}
	return m
}

type wishes = []kubevirtv1.VirtualMachineInstanceMigration

const (
	pending    = kubevirtv1.MigrationPending
	scheduling = kubevirtv1.MigrationScheduling
	preparing  = kubevirtv1.MigrationPreparingTarget
	succeeded  = kubevirtv1.MigrationSucceeded
	failed     = kubevirtv1.MigrationFailed
)

// TestDecide walks the table in the package comment, then its edges.
func TestDecide(t *testing.T) {
	inService := func(seen observation) observation { seen.targetTakes = true; return seen }
	tests := []struct {
		name  string
		seen  observation
		want  string // What is written.
		again time.Duration
	}{
		{name: "slot and host: handed off, with one write each",
			seen: observation{vmi: vm(), migrations: wishes{wish("m", 0)}, slot: true, host: "b"},
			want: "hand off to b; m PreparingTarget"},
		{name: "no slot yet: not worth a write", seen: observation{vmi: vm(), migrations: wishes{wish("m", 0)}}, again: time.Second},
		{name: "no slot for long: Pending", seen: observation{vmi: vm(), migrations: wishes{wish("m", 2*time.Second)}},
			want: "m Pending", again: 3 * time.Second},
		{name: "Pending is said once", seen: observation{vmi: vm(), migrations: wishes{wish("m", time.Hour, pending, time.Hour)}}, again: 3 * time.Second},
		{name: "no host yet: not worth a write", seen: observation{vmi: vm(), migrations: wishes{wish("m", 0)}, slot: true}, again: time.Second},
		{name: "no host for long: Scheduling", seen: observation{vmi: vm(), migrations: wishes{wish("m", 2*time.Second)}, slot: true},
			want: "m Scheduling", again: 3 * time.Second},
		{name: "no host for too long: Failed",
			seen: observation{vmi: vm(), migrations: wishes{wish("m", time.Hour, scheduling, 301*time.Second)}, slot: true},
			want: "m Failed: Migration failed because no host takes the VM: 0/0 hosts: there is no hypervisor", again: 3 * time.Second},
		{name: "no slot does not count as no host", seen: observation{vmi: vm(), migrations: wishes{wish("m", time.Hour, scheduling, time.Hour)}}, again: 3 * time.Second},

		{name: "handed off and a crash: the status is told from the VMI",
			seen: inService(observation{vmi: vm(to("b", "m")), migrations: wishes{wish("m", time.Minute)}}),
			want: "m PreparingTarget", again: targetCheck},
		{name: "answered for a moment: not worth a write",
			seen:  inService(observation{vmi: vm(to("b", "m", answered)), migrations: wishes{wish("m", time.Minute, preparing, time.Minute)}, answeredSince: now.Add(-time.Second)}),
			again: time.Second},
		{name: "answered and a slow source: TargetReady",
			seen: inService(observation{vmi: vm(to("b", "m", answered)), migrations: wishes{wish("m", time.Minute, preparing, time.Minute)}, answeredSince: now.Add(-3 * time.Second)}),
			want: "m TargetReady", again: targetCheck},
		{name: "started: Running", seen: observation{vmi: vm(to("b", "m", running)), migrations: wishes{wish("m", time.Minute, preparing, time.Minute)}}, want: "m Running"},
		{name: "running, a dead target agent ends nothing: the source keeps the deadlines",
			seen: observation{vmi: vm(to("b", "m", running)), migrations: wishes{wish("m", time.Hour, preparing, time.Hour, kubevirtv1.MigrationRunning, time.Hour)}}},
		{name: "there: Succeeded", seen: observation{vmi: vm(to("b", "m", running), arrived), migrations: wishes{wish("m", time.Minute, preparing, time.Minute)}}, want: "m Succeeded"},
		{name: "over is never written again", seen: observation{vmi: vm(to("b", "m", running, hasFailed), letGoOf, arrived), migrations: wishes{wish("m", time.Minute, succeeded, time.Second)}}},
		{name: "failed: Failed with the source's words, and the target keeps sight of it",
			seen: inService(observation{vmi: vm(to("b", "m", running, hasFailed)), migrations: wishes{wish("m", time.Minute, preparing, time.Minute)}, failedSince: now}),
			want: "m Failed: no space", again: copyMost},
		{name: "failed and let go of: the target's name is cleared",
			seen: inService(observation{vmi: vm(to("b", "m", running, hasFailed), letGoOf), migrations: wishes{wish("m", time.Minute, failed, 0*time.Second)}, failedSince: now}),
			want: "clear target of"},
		{name: "failed, and a target out of service: let go in its stead",
			seen: observation{vmi: vm(to("b", "m", running, hasFailed)), migrations: wishes{wish("m", time.Minute, failed, 0*time.Second)}, failedSince: now.Add(-copyRest), sourceActive: true},
			want: "clear silent target of"},
		{name: "failed, and the guest is at neither host: the target alone says that it has nothing",
			seen:  observation{vmi: vm(to("b", "m", running, hasFailed)), migrations: wishes{wish("m", time.Minute, failed, 0*time.Second)}, failedSince: now.Add(-time.Hour)},
			again: targetCheck},
		{name: "failed before it began: the source has it",
			seen: observation{vmi: vm(to("b", "m", answered, hasFailed)), migrations: wishes{wish("m", time.Minute, failed, 0*time.Second)}, failedSince: now.Add(-time.Hour)},
			want: "clear silent target of"},
		{name: "the source says failed and the guest is at the target only: nothing is cleared (CA-04)",
			seen:  inService(observation{vmi: vm(to("b", "m", running, hasFailed)), migrations: wishes{wish("m", time.Minute, failed, 0*time.Second)}, failedSince: now.Add(-time.Hour), targetLists: true, targetActive: true}),
			again: targetCheck},
		{name: "a new one waits until the last target has let go",
			seen:  inService(observation{vmi: vm(to("b", "m", running, hasFailed)), migrations: wishes{wish("m", time.Minute, failed, 0*time.Second), wish("n", 0)}, failedSince: now}),
			again: time.Second},
		{name: "a new one after that takes over in one write",
			seen: inService(observation{vmi: vm(to("b", "m", running, hasFailed), letGoOf), migrations: wishes{wish("m", time.Minute, failed, 0*time.Second), wish("n", 0)}, failedSince: now, slot: true, host: "c"}),
			want: "hand off to c; n PreparingTarget"},

		{name: "deleted before the target answered: withdrawn at once (CA-01)",
			seen: inService(observation{vmi: vm(to("b", "m"))}), want: "withdraw migration of: Migration canceled"},
		{name: "deleted after: abort asked", seen: inService(observation{vmi: vm(to("b", "m", answered))}), want: "abort migration of: Migration canceled"},
		{name: "deleted while running: abort asked", seen: inService(observation{vmi: vm(to("b", "m", running))}), want: "abort migration of: Migration canceled"},
		{name: "abort is asked once", seen: inService(observation{vmi: vm(to("b", "m", running, aborting))})},
		{name: "deleted with somebody's finalizer: told the end",
			seen: inService(observation{vmi: vm(to("b", "m")), migrations: wishes{withdrawnWish(wish("m", time.Minute, preparing, time.Second))}}),
			want: "withdraw migration of: Migration canceled; m Failed: Migration canceled"},
		{name: "deleted while it waits, with somebody's finalizer",
			seen: observation{vmi: vm(), migrations: wishes{withdrawnWish(wish("m", time.Minute, pending, time.Second))}}, want: "m Failed: Migration canceled"},
		{name: "cancelled too late changes nothing", seen: observation{vmi: vm(to("b", "m", running), arrived)}},
		{name: "a new one waits for the end of one that is cancelled",
			seen:  inService(observation{vmi: vm(to("b", "m", running, aborting)), migrations: wishes{wish("n", 0)}}),
			again: time.Second},

		{name: "a target gone before it answered: withdrawn",
			seen: observation{vmi: vm(to("b", "m")), migrations: wishes{wish("m", time.Minute, preparing, time.Second)}},
			want: "withdraw migration of: Migration failed because target b went out of service before it was prepared; m Failed: Migration failed because target b went out of service before it was prepared"},
		{name: "a target silent for too long: withdrawn",
			seen: inService(observation{vmi: vm(to("b", "m")), migrations: wishes{wish("m", time.Hour, preparing, 900*time.Second)}}),
			want: "withdraw migration of: Migration failed because target b was not prepared within 15m0s; m Failed: Migration failed because target b was not prepared within 15m0s"},
		{name: "a source silent for too long: asked to stop",
			seen: inService(observation{vmi: vm(to("b", "m", answered)), migrations: wishes{wish("m", time.Hour, preparing, 900*time.Second, kubevirtv1.MigrationTargetReady, time.Minute)}}),
			want: "abort migration of: Migration failed because source a did not start it within 15m0s"},
		{name: "a source that does not answer that either: withdrawn",
			seen: inService(observation{vmi: vm(to("b", "m", answered, aborting)), migrations: wishes{wish("m", time.Hour, preparing, 1800*time.Second, kubevirtv1.MigrationTargetReady, time.Minute)}}),
			want: "withdraw migration of: Migration failed because source a did not start it within 15m0s; m Failed: Migration failed because source a did not start it within 15m0s"},
		{name: "the VM ended on the way",
			seen: observation{vmi: vm(to("b", "m", running), ended), migrations: wishes{wish("m", time.Minute, preparing, time.Second)}},
			want: "withdraw migration of: Migration failed because vmi shutdown during migration.; m Failed: Migration failed because vmi shutdown during migration."},
		{name: "another one took over",
			seen: inService(observation{vmi: vm(to("b", "n", running)), migrations: wishes{wish("m", time.Hour, preparing, time.Minute), wish("n", time.Minute, kubevirtv1.MigrationRunning, time.Second)}}),
			want: "m Failed: Migration failed because the VMI no longer names it: another one took over"},
		{name: "a hand-off that the VMI does not show yet is not lost",
			seen:  observation{vmi: vm(), migrations: wishes{wish("m", time.Minute, preparing, time.Second)}},
			again: 4 * time.Second},

		{name: "a target that died, whether the guest had gone there or not: its source goes on from that",
			seen: observation{vmi: vm(to("b", "m", running)), migrations: wishes{wish("m", time.Minute, kubevirtv1.MigrationRunning, time.Second)}, targetFenced: true},
			want: "withdraw migration and target of: Migration failed because target b died; m Failed: Migration failed because target b died"},
		{name: "a source that died while it ran: failed, and the target keeps sight of the VM",
			seen: observation{vmi: vm(to("b", "m", running)), migrations: wishes{wish("m", time.Minute, kubevirtv1.MigrationRunning, time.Second)}, sourceFenced: true, hostFenced: true},
			want: "withdraw migration of: Migration failed because source a died; m Failed: Migration failed because source a died"},
		{name: "also when nobody has written that it ran: the source may have died over that",
			seen: observation{vmi: vm(to("b", "m", answered)), migrations: wishes{wish("m", time.Minute, preparing, time.Second)}, sourceFenced: true, hostFenced: true},
			want: "withdraw migration of: Migration failed because source a died; m Failed: Migration failed because source a died"},
		{name: "a source that died before the target had answered: there is nothing anywhere",
			seen: observation{vmi: vm(to("b", "m")), migrations: wishes{wish("m", time.Minute, preparing, time.Second)}, sourceFenced: true, hostFenced: true},
			want: "withdraw migration and target of: Migration failed because source a died before it began; m Failed: Migration failed because source a died before it began"},
		{name: "both died: there is nothing anywhere",
			seen: observation{vmi: vm(to("b", "m", running)), migrations: wishes{wish("m", time.Minute, kubevirtv1.MigrationRunning, time.Second)}, sourceFenced: true, targetFenced: true, hostFenced: true},
			want: "withdraw migration and target of: Migration failed because target b died; m Failed: Migration failed because target b died"},
		{name: "after its source's death a silent target is waited for, whatever the source had reported",
			seen:  observation{vmi: vm(to("b", "m", running, hasFailed)), migrations: wishes{wish("m", time.Hour, failed, 0*time.Second)}, failedSince: now.Add(-time.Hour), sourceActive: true, sourceFenced: true, hostFenced: true},
			again: targetCheck},
		{name: "until it is dead as well",
			seen: observation{vmi: vm(to("b", "m", running, hasFailed)), migrations: wishes{wish("m", time.Hour, failed, 0*time.Second)}, failedSince: now, sourceActive: true, sourceFenced: true, targetFenced: true, hostFenced: true},
			want: "clear silent target of"},
		{name: "a source that says that the VM may run at the target is believed, whatever its last report shows",
			seen:  observation{vmi: vm(to("b", "m", running, hasFailed), unknownReady), migrations: wishes{wish("m", time.Hour, failed, 0*time.Second)}, failedSince: now.Add(-time.Hour), sourceActive: true},
			again: targetCheck},
		{name: "no VM of a dead host is handed off",
			seen: observation{vmi: vm(), migrations: wishes{wish("m", time.Minute, pending, time.Minute)}, hostFenced: true, slot: true, host: "b"}, again: 3 * time.Second},
		{name: "nor one that is marked to be placed anew",
			seen: observation{vmi: vm(func(vmi *kubevirtv1.VirtualMachineInstance) {
				vmi.Annotations[kubevirt.AnnotationEvacuatedFrom] = "a/a-1"
			}), migrations: wishes{wish("m", time.Minute, pending, time.Minute)}, slot: true, host: "b"}, again: 3 * time.Second},

		{name: "a second one while the first runs",
			seen: observation{vmi: vm(to("b", "m", running)), migrations: wishes{wish("m", time.Minute, kubevirtv1.MigrationRunning, time.Second), wish("n", 0)}},
			want: "n Failed: in-flight migration detected. Active migration job (m) is currently already in progress for VMI v."},
		{name: "a second one while the first waits",
			seen: observation{vmi: vm(), migrations: wishes{wish("m", 10*time.Second, pending, time.Second), wish("n", 0)}},
			want: "n Failed: in-flight migration detected. Active migration job (m) is currently already in progress for VMI v.", again: 3 * time.Second},
		{name: "no VMI, but perhaps only not yet", seen: observation{migrations: wishes{wish("m", time.Second)}}, again: 4 * time.Second},
		{name: "no VMI", seen: observation{migrations: wishes{wish("m", time.Minute)}}, want: "m Failed: Migration failed because vmi does not exist."},
		{name: "a VMI that has ended", seen: observation{vmi: vm(ended), migrations: wishes{wish("m", 0)}}, want: "m Failed: Cannot migrate VMI in finalized state."},
		{name: "a VMI that cannot move live", seen: observation{vmi: vm(stuckTo("DisksNotLiveMigratable")), migrations: wishes{wish("m", 0)}},
			want: "m Failed: Cannot migrate VMI, Reason: DisksNotLiveMigratable, Message: it is so"},
		{name: "a stopped one may all the same: it moves cold",
			seen: observation{vmi: vm(stuckTo("DisksNotLiveMigratable"), isBooting, power(kubevirt.PowerStopped), token("4")), migrations: wishes{wish("m", 0)}, slot: true, host: "b"},
			want: "hand off to b under run token 5; m PreparingTarget"},
		{name: "one that is not up yet waits", seen: observation{vmi: vm(isBooting), migrations: wishes{wish("m", time.Minute)}}, want: "m Pending", again: 3 * time.Second},
		{name: "one that never comes up", seen: observation{vmi: vm(isBooting), migrations: wishes{wish("m", 900*time.Second, pending, time.Minute)}},
			want: "m Failed: Migration failed because the VMI was not ready to migrate within 15m0s: it is Scheduled"},
		{name: "one that is shutting down waits", seen: observation{vmi: vm(power(kubevirt.PowerStopped)), migrations: wishes{wish("m", time.Minute, pending, time.Minute)}}, again: 3 * time.Second},
		{name: "the oldest finished ones go",
			seen: observation{vmi: vm(), migrations: wishes{
				wish("1", 9*time.Hour, failed, time.Hour), wish("2", 8*time.Hour, succeeded, time.Hour), wish("3", 7*time.Hour, failed, time.Hour),
				wish("4", 6*time.Hour, failed, time.Hour), wish("5", 5*time.Hour, failed, time.Hour), wish("6", 4*time.Hour, failed, time.Hour), wish("7", 3*time.Hour, failed, time.Hour)}},
			want: "remove 2; remove 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.seen.now = now
			p := decide(tt.seen, Options{}.withDefaults())
			if got := show(tt.seen, p); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			if p.again != tt.again {
				t.Errorf("looks again after %v, want %v", p.again, tt.again)
			}
		})
	}
}

func show(seen observation, p *plan) string {
	var parts []string
	switch {
	case p.vmi == handOff:
		parts = append(parts, "hand off to "+p.target)
		if after := p.applyToVMI(seen, Options{}.withDefaults()); after.Annotations[kubevirt.AnnotationRunToken] != seen.vmi.Annotations[kubevirt.AnnotationRunToken] {
			parts[0] += " under run token " + after.Annotations[kubevirt.AnnotationRunToken]
		}
	case p.vmi == clear || p.vmi == clearAll:
		parts = append(parts, string(p.vmi))
	case p.vmi != nothing:
		parts = append(parts, fmt.Sprintf("%s: %s", p.vmi, p.reason))
	}
	for _, w := range p.writes {
		m := w.apply(&seen.migrations[w.index], seen, p)
		s := m.Name + " " + string(m.Status.Phase)
		if m.Status.MigrationState != nil && m.Status.MigrationState.FailureReason != "" {
			s += ": " + m.Status.MigrationState.FailureReason
		}
		parts = append(parts, s)
	}
	for _, i := range p.remove {
		parts = append(parts, "remove "+seen.migrations[i].Name)
	}
	return strings.Join(parts, "; ")
}
