// SPDX-License-Identifier: Apache-2.0

package nova

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hardware"
)

// limits are what a migration may take and do.
type limits struct {
	completion time.Duration // of the whole
	progress   time.Duration // without any
	postCopy   bool
	disruption bool
}

// The limits of a migration that says nothing. KubeVirt's.
const (
	completionPerGiB = 150 * time.Second
	progressTimeout  = 150 * time.Second
)

// limitsOf reads the limits the operator handed over. The completion deadline
// grows with the memory, in whole GiB.
func limitsOf(vmi *kubevirtv1.VirtualMachineInstance) limits {
	l := limits{completion: completionPerGiB, progress: progressTimeout}
	if c := configuration(vmi); c != nil {
		if c.CompletionTimeoutPerGiB != nil {
			l.completion = time.Duration(*c.CompletionTimeoutPerGiB) * time.Second
		}
		if c.ProgressTimeout != nil {
			l.progress = time.Duration(*c.ProgressTimeout) * time.Second
		}
		l.postCopy = c.AllowPostCopy != nil && *c.AllowPostCopy
		l.disruption = c.AllowWorkloadDisruption != nil && *c.AllowWorkloadDisruption
	}
	memory := kubevirt.GuestMemory(vmi)
	l.completion *= time.Duration(max(1, (memory.Value()+1<<30-1)>>30))
	return l
}

func configuration(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.MigrationConfiguration {
	if st := vmi.Status.MigrationState; st != nil {
		return st.MigrationConfiguration
	}
	return nil
}

// progress is how a migration goes, seen in samples. Within a round the
// remainder falls to nothing and then jumps back to what the guest wrote
// meanwhile; so low-water marks hold within one round only, and a round that
// ends is progress in itself. That it will never converge is the completion
// deadline's to say.
type progress struct {
	round  uint64    // as QEMU counts: 1 is the first pass
	low    uint64    // least remainder of this round
	lowAt  time.Time // when it was reached
	least  uint64    // least remainder of all
	dirty  uint64    // bytes a second, last seen
	sample bool      // one was seen
}

func (p progress) see(j hardware.Job, now time.Time) progress {
	left := j.DataRemaining
	if left == 0 {
		left = j.MemoryRemaining + j.DiskRemaining
	}
	if !p.sample || j.MemoryIteration != p.round || left < p.low {
		p.round, p.low, p.lowAt = j.MemoryIteration, left, now
	}
	if !p.sample || left < p.least {
		p.least = left
	}
	p.dirty = j.MemoryDirtyRate * j.MemoryPageSize
	p.sample = true
	return p
}

// verdict is what a deadline asks for.
type verdict string

const (
	goOn       verdict = "go on"
	toPostCopy verdict = "post-copy"
	pauseGuest verdict = "pause"
	cancel     verdict = "cancel"
)

// judge holds a running job against its limits. Mode is what was done to it
// before; the answer "pause" may come again, the others come once if obeyed.
func judge(j hardware.Job, p progress, l limits, mode kubevirtv1.MigrationMode, elapsed time.Duration, now time.Time) (verdict, string) {
	if j.PostCopy || mode == kubevirtv1.MigrationPostCopy {
		return goOn, "" // it cannot be stopped, only be done
	}
	deadline := l.completion
	if mode == kubevirtv1.MigrationPaused {
		deadline *= 2
	}
	if deadline > 0 && elapsed >= deadline {
		switch {
		case mode == kubevirtv1.MigrationPaused:
		case l.postCopy:
			return toPostCopy, ""
		case l.disruption:
			return pauseGuest, ""
		}
		return cancel, fmt.Sprintf("not done within its %s: %s", deadline, p)
	}
	if l.progress > 0 && p.sample && now.Sub(p.lowAt) >= l.progress {
		return cancel, fmt.Sprintf("no progress for %s: %s", l.progress, p)
	}
	return goOn, ""
}

// left is the time until the next deadline.
func (l limits) left(p progress, mode kubevirtv1.MigrationMode, elapsed time.Duration, now time.Time) time.Duration {
	deadline := l.completion
	if mode == kubevirtv1.MigrationPaused {
		deadline *= 2
	}
	left := deadline - elapsed
	if l.progress > 0 && p.sample {
		left = min(left, l.progress-now.Sub(p.lowAt))
	}
	return left
}

// String tells a user how far it came.
func (p progress) String() string {
	if !p.sample {
		return "nothing is known of its rounds"
	}
	return fmt.Sprintf("%d rounds done, at best %s (%d bytes) were left, the guest writes %s/s",
		max(p.round, 1)-1, humanize.IBytes(p.least), p.least, humanize.IBytes(p.dirty))
}
