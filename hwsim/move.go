// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"slices"
	"strings"
	"time"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hwsim/precopy"
	"github.com/adit-hv/adit/sim"
)

// move is one peer to peer migration under way: what both libvirts and both
// QEMUs hold of it. The physics is precopy's, the wire is the network's.
type move struct {
	f        *Fleet
	seq      uint64
	o        hardware.MigrateOptions
	src, dst *Host
	sd, dd   *domain // dd is nil until the target is prepared
	spec     *hardware.DomainSpec
	stage    stage
	record   int // in the ledger
	started  time.Time
	answer   func(error) // of the Migrate call, until the job runs

	m       *precopy.Migration
	fl      *flow
	timer   *sim.Timer // the next boundary
	breaker *sim.Timer // runs while the link is cut
	cut     bool
	done    bool   // the physics has ended; only the confirmation is to come
	failing bool   // a fault has struck and the error is on its way
	round   uint64 // announced last

	wasPaused bool // the user suspended it before the switch-over
	postCopy  bool
	broken    bool // post-copy failed, both sides hold what they have
	stoppedAt time.Duration
}

// stage is where a move stands as libvirt sees it.
type stage int

const (
	stagePrepare  stage = iota // the target's QEMU starts
	stageCopy                  // the guest runs at the source
	stageSwitch                // the guest stands still
	stagePostCopy              // it runs at the target, pages follow
	stageConfirm               // it runs at the target, the source does not know yet
	stageEnded
)

func (mv *move) now() time.Duration { return mv.f.s.Elapsed() }

// switched reports whether the target has taken over.
func (mv *move) switched() bool { return mv.stage == stagePostCopy || mv.stage == stageConfirm }

// faultAt reports whether a migration.fail strikes this move in that phase.
func (mv *move) faultAt(phase string) bool {
	for _, a := range mv.f.faults {
		if a.Kind == "migration.fail" && a.Phase == phase && (a.VM == "*" || a.VM == mv.sd.uuid || a.VM == mv.sd.name) {
			return true
		}
	}
	return false
}

// prepared is the moment when the target's QEMU listens: the job runs.
func (mv *move) prepared() {
	if mv.stage != stagePrepare {
		return
	}
	if err := mv.targetTakes(); err != nil {
		mv.refuse(err)
		return
	}
	if mv.faultAt("prepare") {
		mv.refuse(mv.error(hardware.Refused, hardware.ReasonOther, "process exited while connecting to monitor"))
		return
	}
	mv.makeTarget()
	disk := uint64(0)
	if mv.o.CopyStorage {
		disk = mv.localBytes()
	}
	g := mv.sd.q.guest
	memory := mv.sd.live.MemoryKiB * 1024
	mv.m = precopy.New(precopy.Params{
		MemoryBytes:       memory,
		ZeroBytes:         memory - g.behaviour().UsedMemoryBytes,
		WorkingSets:       g.workingSets(),
		DiskBytes:         disk,
		Setup:             between(mv.src.rand, 20*time.Millisecond, 60*time.Millisecond),
		Downtime:          mv.o.Downtime,
		DeviceTime:        between(mv.src.rand, 15*time.Millisecond, 40*time.Millisecond),
		NetworkRTT:        mv.src.nics[LinkMigration].latency,
		MaxBytesPerSecond: float64(mv.o.BytesPerSecond),
		Connections:       max(1, mv.o.Connections),
		AutoConverge:      mv.o.AutoConverge,
	})
	mv.stage = stageCopy
	if !mv.sd.cpusRun() {
		mv.m.SetPaused(mv.now(), true)
	}
	mv.m.Start(mv.now(), 0)
	mv.fl = &flow{mv: mv, from: mv.src.nics[LinkMigration], to: mv.dst.nics[LinkMigration]}
	mv.f.open(mv.fl)
	mv.schedule()
	answer := mv.answer
	mv.answer = nil
	answer(nil)
}

// makeTarget starts the half-made domain at the target.
func (mv *move) makeTarget() {
	d := mv.dst.domains[mv.sd.uuid]
	if d == nil {
		d = &domain{h: mv.dst, uuid: mv.sd.uuid, name: mv.sd.name}
		d.live = clone(mv.spec)
		mv.dst.add(d)
	}
	d.live = clone(mv.spec)
	d.q = &qemu{startedAt: mv.f.s.Now(), incoming: true, move: mv, ranAt: -1, maxVCPUs: mv.sd.q.maxVCPUs, maxMemoryKiB: mv.sd.q.maxMemoryKiB}
	mv.dd = d
	d.set(hardware.StatePaused, hardware.DetailMigrating)
	mv.dst.emit(d, hardware.Event{Kind: hardware.EventStarted, Detail: hardware.DetailMigrated})
}

// refuse ends a move before its job ran, with an error for the caller.
func (mv *move) refuse(err error) {
	answer := mv.answer
	mv.fail(hardware.JobFailed, err.Error())
	if answer != nil {
		answer(err)
	}
}

// demand is what the move could send a second now.
func (mv *move) demand() float64 {
	if mv.m == nil || mv.cut || mv.broken || mv.done || mv.stage == stageEnded {
		return 0
	}
	return mv.m.Demand()
}

// granted takes the share of the wire the move has from now on.
func (mv *move) granted(share float64) {
	mv.m.SetBandwidth(mv.now(), share)
	mv.schedule()
}

// schedule sets the timer for the next thing the physics has in store.
func (mv *move) schedule() {
	if mv.done {
		return // the timer is the confirmation's
	}
	mv.timer.Stop()
	if mv.cut || mv.broken || mv.failing || mv.stage == stageEnded {
		return
	}
	if at, ok := mv.m.Next(); ok {
		mv.timer = mv.f.s.At(at, mv.advance)
	}
}

func (mv *move) advance() {
	demand := mv.demand()
	for _, c := range mv.m.Advance(mv.now()) {
		mv.changed(c)
		if mv.stage == stageEnded || mv.failing || mv.done {
			return
		}
	}
	if mv.demand() != demand {
		mv.share()
	}
	mv.schedule()
}

func (mv *move) share() {
	mv.f.share(mv.fl.from)
	mv.f.share(mv.fl.to)
}

// changed makes libvirt's events and states of a change of the physics.
func (mv *move) changed(c precopy.Change) {
	switch c.Kind {
	case precopy.SetupEnded:
		mv.failIf("setup", "Unable to write to socket: Connection reset by peer")
	case precopy.MemoryBegan:
		mv.announce(1)
	case precopy.RoundEnded:
		mv.failIf("active", "Unable to write to socket: Broken pipe")
		if !mv.failing {
			mv.announce(c.Iteration + 1)
		}
	case precopy.SwitchOverBegan:
		mv.sourceStops()
		mv.failIf("switch-over", "unable to load device state at the target")
		mv.failWithoutDisks()
	case precopy.Switched:
		mv.targetRuns()
	case precopy.PostCopyStarted:
		if mv.faultAt("post-copy") {
			mv.failing = true
			mv.f.s.After(between(mv.src.rand, 50*time.Millisecond, 500*time.Millisecond), func() {
				mv.failing = false
				mv.breaks()
			})
		}
	case precopy.Completed:
		mv.completed()
	}
}

func (mv *move) announce(round uint64) {
	if round > mv.round {
		mv.round = round
		mv.src.emit(mv.sd, hardware.Event{Kind: hardware.EventMigrationIteration, Iteration: round})
	}
}

// failWithoutDisks ends a switch-over to a target that has lost its storage:
// its QEMU cannot activate the disks.
func (mv *move) failWithoutDisks() {
	if (mv.sd.stalled() || mv.dst.hangsFor(mv.spec.Disks)) && !mv.failing {
		mv.strike("operation failed: the disks' I/O does not come to its end")
		return
	}
	for _, disk := range mv.spec.Disks {
		if disk.Volume == "" {
			continue
		}
		p, _, err := mv.dst.find(disk.Volume)
		if err != nil && p != nil && !mv.failing {
			mv.strike("operation failed: cannot activate disk " + disk.Target + ": " + err.Error())
		}
	}
}

// failIf lets an injected failure strike; QEMU needs a moment to say so.
func (mv *move) failIf(phase, message string) {
	if mv.failing || !mv.faultAt(phase) {
		return
	}
	mv.strike("operation failed: " + message)
}

func (mv *move) strike(message string) {
	mv.failing = true
	mv.timer.Stop()
	mv.f.s.After(between(mv.src.rand, 10*time.Millisecond, 100*time.Millisecond), func() {
		if mv.stage != stageEnded {
			mv.fail(hardware.JobFailed, message)
		}
	})
}

// finish takes the move out of everything that drives it.
func (mv *move) finish(result, message string) {
	progress := precopy.Progress{}
	if mv.m != nil {
		progress = mv.m.Progress(mv.now())
	}
	mv.stage = stageEnded
	mv.timer.Stop()
	mv.breaker.Stop()
	if mv.fl != nil {
		mv.f.close(mv.fl)
	}
	mv.f.moves = slices.DeleteFunc(mv.f.moves, func(o *move) bool { return o == mv })
	for _, d := range []*domain{mv.sd, mv.dd} {
		if d != nil && d.q != nil && d.q.move == mv {
			d.q.move = nil
		}
	}
	mv.f.ledger.migration(mv.record, func(m *Migration) {
		m.End, m.Result, m.Error = mv.now(), result, message
		m.Bytes, m.Rounds = progress.MemoryProcessed+progress.DiskProcessed, progress.Iteration
	})
	mv.f.note(mv.src.name, "migration", result, mv.sd.uuid, strings.TrimSpace(mv.src.name+" to "+mv.dst.name+" "+message))
}

func pick[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}
