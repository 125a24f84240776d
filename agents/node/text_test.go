// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/adit-hv/adit/hardware"
)

func TestAmounts(t *testing.T) {
	for n, want := range map[uint64]string{
		0:              "0 B",
		1023:           "1023 B",
		1024:           "1.0 KiB",
		1536:           "1.5 KiB",
		1048575:        "1024.0 KiB",
		10905190:       "10.4 MiB",
		4 << 30:        "4.0 GiB",
		68719476736:    "64.0 GiB",
		1 << 40:        "1.0 TiB",
		1 << 50:        "1.0 PiB",
		1 << 60:        "1.0 EiB",
		1<<64 - 1:      "16.0 EiB",
		1<<40 - 1<<20:  "1024.0 GiB",
		62706534809:    "58.4 GiB",
		753716429:      "718.8 MiB",
		1024*1024 - 53: "1023.9 KiB",
	} {
		if got := iec(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                   "0s",
		52 * time.Millisecond:               "52ms",
		2755*time.Millisecond + 999_999:     "2.755s",
		35078 * time.Millisecond:            "35.078s",
		60500 * time.Millisecond:            "1m0.5s",
		3723*time.Second + 4e6:              "1h2m3.004s",
		900 * time.Microsecond:              "0s",
		time.Hour:                           "1h0m0s",
		1234567 * time.Millisecond:          "20m34.567s",
		time.Duration(1500) * 1_000_000_000: "25m0s",
	} {
		if got := milliseconds(d); got != want {
			t.Errorf("%d is %q, want %q", d, got, want)
		}
	}
}

func TestVersions(t *testing.T) {
	for v, want := range map[hardware.Version]string{
		0:          "unknown",
		9_000_000:  "9.0.0",
		11_003_000: "11.3.0",
		48_000_000: "48.0.0",
		10_000_012: "10.0.12",
	} {
		if got := versionText(v); got != want {
			t.Errorf("%d is %q, want %q", v, got, want)
		}
	}
}

func TestARecordSpeaksAsCobaltCores(t *testing.T) {
	s := recordStatus(hardware.Job{
		Type: hardware.JobCompleted, Operation: hardware.OperationMigrationOut,
		Elapsed: 35078 * time.Millisecond, Downtime: 52 * time.Millisecond,
		DataTotal: 64 << 30, DataProcessed: 62706534809,
		MemoryBytesPerSecond: 1932735283, MemoryDirtyRate: 1250, MemoryIteration: 4, MemoryPageSize: 4096,
		AutoConvergeThrottle: 20,
	}, "node006", "node003-bb087", time.Date(2025, 8, 1, 10, 0, 0, 700, time.FixedZone("", 7200)))
	for what, pair := range map[string][2]string{
		"type":      {s.Type, "completed"},
		"operation": {s.Operation, "migration_out"},
		"elapsed":   {s.TimeElapsed, "35.078s"},
		"downtime":  {s.Downtime, "52ms"},
		"total":     {s.DataTotal, "64.0 GiB"},
		"processed": {s.DataProcessed, "58.4 GiB"},
		"remaining": {s.DataRemaining, "0 B"},
		"memory tx": {s.MemBps, "1.8 GiB/s"},
		"dirty":     {s.MemDirtyRate, "1250/s"},
		"page":      {s.MemPageSize, "4.0 KiB"},
		"throttle":  {s.AutoConvergeThrottle, "20%"},
		"started":   {s.Started.Format(time.RFC3339), "2025-08-01T08:00:00Z"},
		"origin":    {s.Origin, "node006"},
		"dest":      {s.Destination, "node003-bb087"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %q, want %q", what, pair[0], pair[1])
		}
	}
	if s.MemIteration != 4 {
		t.Errorf("iteration %d, want 4", s.MemIteration)
	}
}
