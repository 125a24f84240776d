// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

type stateChange = func(*kubevirtv1.VirtualMachineInstanceMigrationState)

// departing is a settled VM on its way from a to b.
func departing(change ...stateChange) *kubevirtv1.VirtualMachineInstance {
	return settled(moving(change...))
}

func with(v *kubevirtv1.VirtualMachineInstance, change ...func(*kubevirtv1.VirtualMachineInstance)) *kubevirtv1.VirtualMachineInstance {
	for _, c := range change {
		c(v)
	}
	return v
}

func allow(change func(*kubevirtv1.MigrationConfiguration)) stateChange {
	return func(st *kubevirtv1.VirtualMachineInstanceMigrationState) {
		if st.MigrationConfiguration == nil {
			st.MigrationConfiguration = &kubevirtv1.MigrationConfiguration{}
		}
		change(st.MigrationConfiguration)
	}
}

func postCopyAllowed(c *kubevirtv1.MigrationConfiguration)   { c.AllowPostCopy = new(true) }
func disruptionAllowed(c *kubevirtv1.MigrationConfiguration) { c.AllowWorkloadDisruption = new(true) }

func mode(m kubevirtv1.MigrationMode) stateChange {
	return func(st *kubevirtv1.VirtualMachineInstanceMigrationState) { st.Mode = m }
}

// job is one of migration m1 that has run for so long.
func job(elapsed time.Duration, change ...func(*hardware.Job)) func(*observation) {
	j := hardware.Job{ID: "m1", Type: hardware.JobUnbounded, Operation: hardware.OperationMigrationOut,
		Elapsed: elapsed, MemoryIteration: 3, DataRemaining: 1 << 30, MemoryPageSize: 4096}
	for _, c := range change {
		c(&j)
	}
	return withJob(j)
}

func over_(t hardware.JobType, message string) func(*hardware.Job) {
	return func(j *hardware.Job) { j.Type, j.Error = t, message }
}
func inPostCopy(j *hardware.Job) { j.PostCopy = true }
func inward(j *hardware.Job)     { j.Operation = hardware.OperationMigrationIn }

// of remembers things of migration m1.
func of(m memory) func(*observation) {
	m.migration = "m1"
	return remembering(m)
}

func TestSource(t *testing.T) {
	paused := func(d hardware.Detail) *hardware.Domain { return domain(hardware.StatePaused, d) }
	off := func(d hardware.Detail) *hardware.Domain { return domain(hardware.StateShutOff, d) }
	late := 300 * time.Second // 2 GiB, 150 s each
	walk(t, []row{
		{name: "a target that is not ready is waited for", o: seen(departing(unprepared), running()), want: ""},
		{name: "meanwhile the power state is obeyed", o: seen(with(departing(unprepared), power_("Paused")), running()), want: "suspend Ready=False/GuestNotRunning Paused=True/PausedByUser"},
		{name: "a ready one lets the job start, and one patch says when", o: seen(departing(), running()), want: "migrate started mode=PreCopy"},
		{name: "after a look past the cache", o: seen(departing(), running(), cached), want: "ask the API migrate started mode=PreCopy"},
		{name: "a job that cannot be started is given up", o: seen(departing(), running(), of(memory{tries: 5})), want: "failed"},
		{name: "a VM that runs but is not said to is said to first", o: seen(with(vmi(scheduled), moving()), running()), want: "phase=Running Ready=True LiveMigratable=True"},
		{name: "we died after starting the job: its start is written", o: seen(departing(), running(), job(time.Minute)), want: "started mode=PreCopy"},
		{name: "another migration's old job is no job", o: seen(departing(), running(), job(time.Minute, func(j *hardware.Job) { j.ID = "m0" }, over_(hardware.JobFailed, ""))), want: "migrate started mode=PreCopy"},
		{name: "a running job is left to run", o: seen(departing(started(time.Minute)), running(), job(time.Minute)), want: "", again: 5 * time.Second},

		{name: "the completion deadline cancels", o: seen(departing(started(late)), running(), job(late)), want: "abort"},
		{name: "once", o: seen(departing(started(late)), running(), job(late), of(memory{cancelled: "deadline"})), want: ""},
		{name: "or switches to post-copy where that is allowed", o: seen(departing(started(late), allow(postCopyAllowed), allow(disruptionAllowed)), running(), job(late)), want: "post-copy"},
		{name: "the job shows that it has", o: seen(departing(started(late), allow(postCopyAllowed)), paused(hardware.DetailPostCopy), job(late, inPostCopy)), want: "mode=PostCopy"},
		{name: "post-copy has no deadline", o: seen(departing(started(4*late), mode(kubevirtv1.MigrationPostCopy)), paused(hardware.DetailPostCopy), job(4*late, inPostCopy)), want: ""},
		{name: "or pauses the guest where that is allowed, the object first", o: seen(departing(started(late), allow(disruptionAllowed)), running(), job(late)), want: "mode=Paused"},
		{name: "and then the guest", o: seen(departing(started(late), allow(disruptionAllowed), mode(kubevirtv1.MigrationPaused)), running(), job(late)), want: "suspend"},
		{name: "a paused guest gets the deadline twice", o: seen(departing(started(2*late-time.Minute), allow(disruptionAllowed), mode(kubevirtv1.MigrationPaused)), paused(hardware.DetailUser), job(2*late-time.Minute)), want: ""},
		{name: "and then the job is cancelled", o: seen(departing(started(2*late), allow(disruptionAllowed), mode(kubevirtv1.MigrationPaused)), paused(hardware.DetailUser), job(2*late)), want: "abort"},
		{name: "no progress cancels", o: seen(departing(started(170*time.Second)), running(), job(170*time.Second), of(memory{progress: progress{sample: true, round: 3, low: 1 << 30, lowAt: ago(150 * time.Second)}})), want: "abort"},
		{name: "a round that ended is progress", o: seen(departing(started(170*time.Second)), running(), job(170*time.Second), of(memory{progress: progress{sample: true, round: 2, low: 1 << 20, lowAt: ago(150 * time.Second)}})), want: ""},

		{name: "cancelled before it began", o: seen(departing(unprepared, aborting), running()), want: "abort=Succeeded failed"},
		{name: "cancelled while it runs", o: seen(departing(started(time.Minute), aborting), running(), job(time.Minute)), want: "abort abort=Aborting"},
		{name: "and once", o: seen(departing(started(time.Minute), aborting), running(), job(time.Minute), of(memory{cancelled: "cancelled on request"})), want: ""},
		{name: "cancelled, and the job has ended", o: seen(departing(started(time.Minute), aborting), running(), job(time.Minute, over_(hardware.JobCancelled, ""))), want: "abort=Succeeded failed"},
		{name: "cancelled too late in post-copy", o: seen(departing(started(time.Minute), aborting, mode(kubevirtv1.MigrationPostCopy)), paused(hardware.DetailPostCopy), job(time.Minute, inPostCopy)), want: "abort=Failed"},
		{name: "a VM that is to stop is not moved on", o: seen(with(departing(started(time.Minute)), power_("Stopped")), running(), job(time.Minute)), want: "abort"},
		{name: "a pause on request reaches a moving guest", o: seen(with(departing(started(time.Minute)), power_("Paused")), running(), job(time.Minute)), want: "suspend"},
		{name: "and its end as well", o: seen(departing(started(time.Minute)), paused(hardware.DetailUser), job(time.Minute)), want: "resume"},

		{name: "failed, and the guest runs here", o: seen(departing(started(time.Minute)), running(), job(time.Minute, over_(hardware.JobFailed, "link"))), want: "failed"},
		{name: "failed in the moment of its start", o: seen(departing(), running(), job(time.Second, over_(hardware.JobFailed, "link"))), want: "failed"},
		{name: "the job is forgotten and the guest runs here", o: seen(departing(started(time.Minute)), running()), want: "failed"},
		{name: "failed, but the guest stands in the switch-over", o: seen(departing(started(time.Minute)), paused(hardware.DetailMigrating), job(time.Minute, over_(hardware.JobFailed, "x"))), want: ""},
		{name: "failed, but the domain has gone", o: seen(departing(started(time.Minute)), nil), want: ""},
		{name: "failed, but only a definition is left", o: seen(departing(started(time.Minute)), off(hardware.DetailMigrated), job(time.Minute, over_(hardware.JobFailed, "cannot remove"))), want: ""},
		{name: "done: the target speaks", o: seen(departing(started(time.Minute)), paused(hardware.DetailMigrating), job(time.Minute, over_(hardware.JobCompleted, ""))), want: ""},
		{name: "a QEMU that died here leaves the target time to speak", o: seen(departing(started(time.Minute)), off(hardware.DetailFailed)), want: "", again: 15 * time.Second},
		{name: "and then is the migration's end, and not yet the VM's", o: seen(departing(started(time.Minute)), off(hardware.DetailFailed), of(memory{stoppedAt: ago(15 * time.Second)})), want: "Ready=Unknown/MayRunElsewhere Synchronized=Unknown/MayRunElsewhere failed"},
		{name: "one that died before the job began ends the VM at once", o: seen(departing(), off(hardware.DetailFailed)), want: "phase=Failed reason=Crashed Ready=False/Crashed failed"},
		{name: "a domain that is gone for very long asks the target for its word", o: seen(departing(started(time.Hour)), nil, of(memory{absentAt: ago(15 * time.Minute)})), want: "failed"},
		{name: "a job whose migration was taken back is aborted", o: seen(departing(failedSt), running(), job(time.Second), of(memory{tries: 1})), want: "abort"},

		{name: "a stopped VM waits for its target", o: seen(with(vmi(scheduled, power_("Stopped")), moving(unprepared)), off("")), want: ""},
		{name: "and is undefined when that is ready, and handed over", o: seen(with(vmi(scheduled, power_("Stopped")), moving()), off("")), want: "undefine started"},
		{name: "we died in between: handed over", o: seen(with(vmi(scheduled, power_("Stopped")), moving()), nil), want: "started"},
		{name: "from then on the target speaks", o: seen(with(vmi(scheduled, power_("Stopped")), moving(started(time.Second))), nil), want: ""},
		{name: "a cold move can be cancelled before", o: seen(with(vmi(scheduled, power_("Stopped")), moving(aborting)), off("")), want: "abort=Succeeded failed"},
		{name: "a stopped VM that is wanted again is not started while it moves", o: seen(with(vmi(scheduled), moving(started(time.Second))), nil), want: ""},
	})
}

func TestTarget(t *testing.T) {
	flip := "-" + kubevirt.HostLabel("a") + " -" + kubevirt.LabelMigrationTargetNodeName
	at := func(v *kubevirtv1.VirtualMachineInstance, d *hardware.Domain, change ...func(*observation)) observation {
		return seen(v, d, append([]func(*observation){onB}, change...)...)
	}
	half := domain(hardware.StatePaused, hardware.DetailMigrating, incoming)
	arrived := domain(hardware.StateRunning, hardware.DetailMigrated)
	off := func(d hardware.Detail) *hardware.Domain { return domain(hardware.StateShutOff, d) }
	walk(t, []row{
		{name: "room is claimed and the address given", o: at(departing(unprepared), nil), want: "claim address"},
		{name: "after a look past the cache", o: at(departing(unprepared), nil, cached), want: "ask the API claim address"},
		{name: "not for a migration that is cancelled", o: at(departing(unprepared, aborting), nil), want: ""},
		{name: "nor for a VM that is deleted", o: at(with(departing(unprepared), deleted), nil), want: ""},
		{name: "what was left from before goes first", o: at(departing(unprepared), off(hardware.DetailMigrated)), want: "undefine"},
		{name: "prepared: wait", o: at(departing(), nil), want: ""},
		{name: "half made: wait", o: at(departing(started(time.Minute)), half), want: ""},
		{name: "in post-copy: wait", o: at(departing(started(time.Minute)), domain(hardware.StateRunning, hardware.DetailPostCopy)), want: ""},
		{name: "post-copy broke: neither running nor resumed", o: at(departing(started(time.Minute)), domain(hardware.StatePaused, hardware.DetailPostCopyFailed)), want: "Ready=False/GuestNotRunning Paused=True/PausedPostCopyFailed"},
		{name: "in post-copy and paused by its disk: it only looks as if it had come", o: at(departing(started(time.Minute)), domain(hardware.StatePaused, hardware.DetailIOError), job(time.Minute, inPostCopy, inward)), want: ""},
		{name: "when the memory has followed it has come", o: at(departing(started(time.Minute)), domain(hardware.StatePaused, hardware.DetailIOError), job(time.Minute, inward, over_(hardware.JobCompleted, ""))),
			want: "node=b Ready=False/GuestNotRunning Paused=True/PausedIOError completed " + flip},
		{name: "it runs here: one patch makes it ours", o: at(departing(started(time.Minute)), arrived), want: "node=b completed " + flip},
		{name: "but not on the cache's word", o: at(departing(started(time.Minute)), arrived, cached), want: "ask the API"},
		{name: "a pause on request survives the journey", o: at(with(departing(started(time.Minute)), power_("Paused")), domain(hardware.StatePaused, hardware.DetailUser)),
			want: "node=b Ready=False/GuestNotRunning Paused=True/PausedByUser completed " + flip},
		{name: "a pause for the journey ends with it", o: at(departing(started(time.Minute), mode(kubevirtv1.MigrationPaused)), domain(hardware.StatePaused, hardware.DetailUser)), want: "resume node=b completed " + flip},
		{name: "it ended in the moment it came: its end is told here", o: at(departing(started(time.Minute)), off(hardware.DetailFailed)), want: "node=b completed " + flip},
		{name: "it runs here though the source said failed", o: at(with(departing(started(time.Minute), failedSt), placed("a")), arrived), want: "node=b completed " + flip},

		{name: "failed: the half-made domain goes", o: at(departing(started(time.Minute), failedSt), half), want: "destroy undefine"},
		{name: "failed: a definition goes", o: at(departing(started(time.Minute), failedSt), off("")), want: "undefine"},
		{name: "failed: with nothing left the VM is let go", o: at(departing(started(time.Minute), failedSt), nil), want: "-" + kubevirt.HostLabel("b") + " forget"},
		{name: "failed in post-copy, for its source has died: our half goes", o: at(departing(started(time.Minute), failedSt), domain(hardware.StatePaused, hardware.DetailPostCopyFailed)), want: "destroy undefine"},
		{name: "but not while the hypervisor still holds both together", o: at(departing(started(time.Minute), failedSt), domain(hardware.StatePaused, hardware.DetailPostCopyFailed), job(time.Minute, inPostCopy, inward)), want: ""},
		{name: "given up in post-copy: our half goes with the VM", o: at(with(departing(started(time.Minute), failedSt), func(v *kubevirtv1.VirtualMachineInstance) { v.Status.Phase = kubevirtv1.Failed }), domain(hardware.StatePaused, hardware.DetailPostCopyFailed)), want: "destroy"},

		{name: "a stopped VM is not defined before its source gave it up", o: at(with(vmi(scheduled, power_("Stopped")), moving()), nil), want: ""},
		{name: "then it is, and it is ours", o: at(with(vmi(scheduled, power_("Stopped")), moving(started(time.Second))), nil), want: "define node=b completed " + flip},
		{name: "one that is deleted on its way is let go here", o: at(with(vmi(scheduled, power_("Stopped"), deleted), moving(started(time.Second))), nil), want: "node=b completed " + flip},
		{name: "we died in between: it is ours", o: at(with(vmi(scheduled, power_("Stopped")), moving(started(time.Second))), off("")), want: "node=b completed " + flip},
	})
}

func TestFailureReasonsName(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    observation
		want []string
	}{
		{"the deadline, the rounds and the remainder, after our own cancel",
			seen(departing(started(time.Hour)), running(), job(time.Hour, over_(hardware.JobCancelled, "operation aborted")), of(memory{cancelled: "not done within its 5m0s: 3 rounds done"})),
			[]string{"5m0s", "3 rounds"}},
		{"the deadline even if we died after the cancel",
			seen(departing(started(time.Hour)), running(), job(time.Hour, over_(hardware.JobCancelled, ""))), []string{"5m0s", "round 3"}},
		{"libvirt's words",
			seen(departing(started(time.Minute)), running(), job(time.Minute, over_(hardware.JobFailed, "Unable to write to socket"))), []string{"Unable to write to socket"}},
		{"who asked", seen(departing(aborting, unprepared), running()), []string{"cancelled on request"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := decide(tt.o)
			if p.vmi == nil {
				t.Fatalf("%s writes nothing", p.why)
			}
			for _, w := range tt.want {
				if got := p.vmi.Status.MigrationState.FailureReason; !strings.Contains(got, w) {
					t.Errorf("reason %q does not name %q", got, w)
				}
			}
		})
	}
}

func TestMigrateOptions(t *testing.T) {
	bandwidth := resource.MustParse("64Mi")
	v := departing(allow(func(c *kubevirtv1.MigrationConfiguration) {
		c.BandwidthPerMigration, c.AllowAutoConverge, c.AllowPostCopy, c.DisableTLS = &bandwidth, new(true), new(true), new(true)
	}), func(st *kubevirtv1.VirtualMachineInstanceMigrationState) { st.TargetNodeAddress = "10.0.0.2" })
	want := hardware.MigrateOptions{ID: "m1", Target: "b", Address: "10.0.0.2", BytesPerSecond: 64 << 20, AutoConverge: true, PostCopy: true}
	if got := migrateOptions(v); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	want = hardware.MigrateOptions{ID: "m1", Target: "b", TLS: true}
	if got := migrateOptions(departing()); got != want {
		t.Errorf("with nothing said: got %+v, want %+v", got, want)
	}
}
