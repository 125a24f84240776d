// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hardware"
)

func outgoing(kind hardware.JobType, age time.Duration) *hardware.Job {
	return &hardware.Job{ID: "j1", Type: kind, Operation: hardware.OperationMigrationOut, Peer: "b", StartedAt: noon.Add(-age), Elapsed: age}
}

func incoming(kind hardware.JobType, age time.Duration) *hardware.Job {
	j := outgoing(kind, age)
	j.Operation, j.Peer = hardware.OperationMigrationIn, "a"
	return j
}

// recordOf is the record of a job from node-a to node-b.
func recordOf(kind, id string, age time.Duration) *v1alpha1.Migration {
	return &v1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{LabelHost: "a"}, Annotations: map[string]string{AnnotationJob: id}},
		Status: v1alpha1.MigrationStatus{
			Type: kind, Origin: "node-a", Destination: "node-b", Started: &metav1.Time{Time: noon.Add(-age).Truncate(time.Second)},
		},
	}
}

func TestRecord(t *testing.T) {
	here := &hardware.Domain{State: hardware.StateRunning}
	half := &hardware.Domain{State: hardware.StatePaused, Incoming: true}
	type want struct {
		kind    string // written; "": nothing
		archive bool
		again   time.Duration
		done    bool
	}
	for name, c := range map[string]struct {
		at   string // host
		view recordView
		want want
	}{
		"source: a young job is not worth a write": {"a", recordView{job: outgoing("unbounded", 2*time.Second)}, want{again: 3 * time.Second}},
		"source: after five seconds it is":         {"a", recordView{job: outgoing("unbounded", 5*time.Second)}, want{kind: "unbounded", again: 30 * time.Second}},
		"source: progress waits its time": {"a", recordView{job: outgoing("unbounded", 20*time.Second), record: recordOf("unbounded", "j1", 20*time.Second), written: noon.Add(-10 * time.Second)},
			want{again: 20 * time.Second}},
		"source: progress is due": {"a", recordView{job: outgoing("bounded", 40*time.Second), record: recordOf("unbounded", "j1", 40*time.Second), written: noon.Add(-30 * time.Second)},
			want{kind: "bounded", again: 30 * time.Second}},
		"source: the agent restarted":                  {"a", recordView{job: outgoing("unbounded", 40*time.Second), record: recordOf("unbounded", "j1", 40*time.Second)}, want{kind: "unbounded", again: 30 * time.Second}},
		"source: a short job's end":                    {"a", recordView{job: outgoing("completed", 3*time.Second), sawEndAt: noon}, want{kind: "completed", done: true}},
		"source: a failure":                            {"a", recordView{job: outgoing("failed", 50*time.Second), record: recordOf("unbounded", "j1", 50*time.Second), sawEndAt: noon, domain: here}, want{kind: "failed", done: true}},
		"source: a cancellation":                       {"a", recordView{job: outgoing("cancelled", 50*time.Second), record: recordOf("unbounded", "j1", 50*time.Second), sawEndAt: noon, domain: here}, want{kind: "cancelled", done: true}},
		"source: the end is said once":                 {"a", recordView{job: outgoing("completed", 50*time.Second), record: recordOf("completed", "j1", 50*time.Second), sawEndAt: noon}, want{done: true}},
		"source: no job after the end changes nothing": {"a", recordView{record: recordOf("completed", "j1", time.Hour), sawEndAt: noon}, want{done: true}},
		"source: the VM moves again":                   {"a", recordView{job: outgoing("unbounded", 6*time.Second), record: recordOf("completed", "j0", time.Hour)}, want{kind: "unbounded", archive: true, again: 30 * time.Second}},
		"source: a short second move": {"a", recordView{job: outgoing("completed", time.Second), record: recordOf("failed", "j0", 8*time.Second), sawEndAt: noon},
			want{kind: "completed", archive: true, done: true}},
		"source: without ids, the start tells": {"a", recordView{job: noID(outgoing("unbounded", time.Minute)), record: recordOf("unbounded", "", time.Minute), written: noon.Add(-time.Minute)},
			want{kind: "unbounded", again: 30 * time.Second}},
		"source: without ids, another start is another job": {"a", recordView{job: noID(outgoing("unbounded", 10*time.Second)), record: recordOf("failed", "", time.Minute)},
			want{kind: "unbounded", archive: true, again: 30 * time.Second}},
		"source: a job that ended while nobody looked, long ago": {"a", recordView{job: longAgo(outgoing("completed", time.Minute)), sawEndAt: noon}, want{done: true}},
		"source: the last job is older than the record":          {"a", recordView{job: longAgo(outgoing("completed", time.Minute)), record: recordOf("unbounded", "j9", time.Minute), sawEndAt: noon}, want{done: true}},
		"source: the job vanished and the VM is here":            {"a", recordView{record: recordOf("unbounded", "j1", time.Minute), domain: here, sawEndAt: noon}, want{kind: "failed", done: true}},
		"source: the job vanished with the VM":                   {"a", recordView{record: recordOf("unbounded", "j1", time.Minute), sawEndAt: noon.Add(-time.Minute)}, want{again: 4 * time.Minute}},
		"source: the destination never spoke":                    {"a", recordView{record: recordOf("unbounded", "j1", time.Minute), sawEndAt: noon.Add(-5 * time.Minute)}, want{kind: "failed", done: true}},

		"destination: waits while it runs":          {"b", recordView{job: incoming("unbounded", time.Minute)}, want{}},
		"destination: leaves the end to source":     {"b", recordView{job: incoming("completed", time.Minute), domain: here, sawEndAt: noon}, want{again: time.Minute}},
		"destination: the source has written":       {"b", recordView{job: incoming("completed", time.Minute), domain: here, record: recordOf("completed", "j1", time.Minute), sawEndAt: noon.Add(-time.Minute)}, want{done: true}},
		"destination: the source has died":          {"b", recordView{job: incoming("completed", time.Minute), domain: here, record: recordOf("unbounded", "j1", time.Minute), sawEndAt: noon.Add(-time.Minute)}, want{kind: "completed", done: true}},
		"destination: the source wrote nothing":     {"b", recordView{job: incoming("completed", time.Minute), domain: here, sawEndAt: noon.Add(-time.Minute)}, want{kind: "completed", done: true}},
		"destination: the source died before":       {"b", recordView{job: incoming("failed", time.Minute), record: recordOf("unbounded", "j1", time.Minute), sawEndAt: noon.Add(-time.Minute)}, want{kind: "failed", done: true}},
		"destination: the job is reaped":            {"b", recordView{record: recordOf("unbounded", "j1", time.Minute), domain: here, sawEndAt: noon.Add(-time.Minute)}, want{kind: "completed", done: true}},
		"destination: the VM has not arrived":       {"b", recordView{record: recordOf("unbounded", "j1", time.Minute), domain: half, sawEndAt: noon.Add(-time.Minute)}, want{done: true}},
		"a host between: the record is not its own": {"c", recordView{record: recordOf("unbounded", "j1", time.Minute), domain: here, sawEndAt: noon.Add(-time.Hour)}, want{done: true}},
		"a backup is no migration":                  {"a", recordView{job: &hardware.Job{Type: "unbounded", Operation: hardware.OperationBackup}}, want{done: true}},
		"an unknown VM":                             {"a", recordView{sawEndAt: noon}, want{done: true}},
	} {
		t.Run(name, func(t *testing.T) {
			v := c.view
			v.now, v.host, v.self, v.every = noon, c.at, "node-"+c.at, 30*time.Second
			if v.job != nil {
				v.peer = "node-" + v.job.Peer
			}
			p := decideRecord(v)
			got := want{archive: p.archive, again: p.lookAgain, done: p.done}
			if p.write {
				got.kind = p.status.Type
			}
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if p.write && v.job != nil && (p.status.Origin != "node-a" || p.status.Destination != "node-b") {
				t.Errorf("from %s to %s", p.status.Origin, p.status.Destination)
			}
			if p.write && p.status.Started == nil {
				t.Error("no start")
			}
		})
	}
}

func noID(j *hardware.Job) *hardware.Job { j.ID = ""; return j }

func longAgo(j *hardware.Job) *hardware.Job { j.StartedAt = noon.Add(-time.Hour); return j }

func TestAFailureSaysWhy(t *testing.T) {
	job := outgoing("failed", time.Minute)
	job.Error = "operation failed: migration out job: socket closed"
	p := decideRecord(recordView{now: noon, host: "a", self: "node-a", job: job, sawEndAt: noon})
	if p.status.ErrMsg != job.Error {
		t.Error(p.status.ErrMsg)
	}
}

func TestTheStartStaysAsFirstWritten(t *testing.T) {
	first := recordOf("unbounded", "j1", time.Minute)
	job := outgoing("completed", 58*time.Second) // another clock's view
	p := decideRecord(recordView{now: noon, host: "a", self: "node-a", job: job, record: first, sawEndAt: noon})
	if !p.status.Started.Equal(first.Status.Started) {
		t.Errorf("%s, want %s", p.status.Started, first.Status.Started)
	}
}

func TestRecordsExpire(t *testing.T) {
	week := 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		record string
		age    time.Duration
		want   bool
	}{
		"an earlier one after a week":   {"vm.1", week + time.Second, true},
		"an earlier one before":         {"vm.1", week - time.Second, false},
		"the latest after a week":       {"vm", week + time.Second, false},
		"the latest after three months": {"vm", 13*week + time.Second, true},
	} {
		m := recordOf("completed", "", c.age)
		m.Name, m.Labels[LabelVM] = c.record, "vm"
		if got := expired(*m, noon, week); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
