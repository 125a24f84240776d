// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/hardware"
)

// iec prints an amount of bytes as CobaltCore does: whole bytes below 1024, else
// one decimal of the largest binary unit that it reaches. There is no carry:
// 1048575 is "1024.0 KiB".
func iec(n uint64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d B", n)
	}
	divisor, unit := uint64(step), 0
	for rest := n / step; rest >= step; rest /= step {
		divisor *= step
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", float64(n)/float64(divisor), "KMGTPE"[unit])
}

// milliseconds prints a duration in libvirt's resolution as Go does: "2.755s".
func milliseconds(d time.Duration) string { return d.Truncate(time.Millisecond).String() }

// recordStatus is a job in a record's words.
func recordStatus(j hardware.Job, origin, destination string, started time.Time) v1alpha1.MigrationStatus {
	return v1alpha1.MigrationStatus{
		Origin:      origin,
		Destination: destination,
		Type:        string(j.Type),
		Operation:   string(j.Operation),
		Started:     &metav1.Time{Time: started.UTC().Truncate(time.Second)},
		ErrMsg:      j.Error,

		TimeElapsed:   milliseconds(j.Elapsed),
		TimeRemaining: milliseconds(j.Remaining),
		Downtime:      milliseconds(j.Downtime),
		SetupTime:     milliseconds(j.SetupTime),

		DataTotal:     iec(j.DataTotal),
		DataProcessed: iec(j.DataProcessed),
		DataRemaining: iec(j.DataRemaining),

		MemTotal:            iec(j.MemoryTotal),
		MemProcessed:        iec(j.MemoryProcessed),
		MemRemaining:        iec(j.MemoryRemaining),
		MemBps:              iec(j.MemoryBytesPerSecond) + "/s",
		MemPageSize:         iec(j.MemoryPageSize),
		MemDirtyRate:        fmt.Sprintf("%d/s", j.MemoryDirtyRate),
		MemIteration:        int64(j.MemoryIteration),
		MemConstant:         int64(j.MemoryConstantPages),
		MemNormal:           int64(j.MemoryNormalPages),
		MemNormalBytes:      iec(j.MemoryNormalBytes),
		MemPostcopyRequests: int64(j.MemoryPostCopyRequests),

		DiskTotal:     iec(j.DiskTotal),
		DiskProcessed: iec(j.DiskProcessed),
		DiskRemaining: iec(j.DiskRemaining),
		DiskBps:       iec(j.DiskBytesPerSecond) + "/s",

		AutoConvergeThrottle: fmt.Sprintf("%d%%", j.AutoConvergeThrottle),
	}
}
