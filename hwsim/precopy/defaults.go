// SPDX-License-Identifier: Apache-2.0

package precopy

import (
	"math"
	"time"
)

const (
	gib = 1 << 30

	// QEMU migration/options.c.
	defaultDowntime  = 300 * time.Millisecond
	defaultInitial   = 20
	defaultIncrement = 10
	defaultMax       = 99
	defaultTrigger   = 50

	// QEMU's throttle timer since 9.2, migration/cpu-throttle.c.
	defaultSyncPeriod = 5 * time.Second
	// QEMU judges dirtying over at least this long, migration/ram.c.
	minimumPeriod = time.Second
	// libvirt and QEMU take the limit in whole milliseconds; it also bounds how
	// many rounds a second can hold.
	minimumDowntime = time.Millisecond

	// Plain virtio devices: 10 to 40 ms, more with passed-through ones.
	defaultDeviceTime = 30 * time.Millisecond
	// Two racks of one data centre.
	defaultRTT = 200 * time.Microsecond
	// What one thread gets through a socket on a server of today, some 10 Gb/s.
	defaultStream = 1.3e9
	// One thread over zero pages: 3.6 GiB/s fits the run in QEMU
	// docs/devel/migration/qatzip-compression.rst, 3.9 the one of KVMforNFV.
	defaultZeroScan = 3.6 * gib

	defaultPageSize = 4096
)

// withDefaults fills what is not set and mends what cannot be.
func (p Params) withDefaults() Params {
	p.ZeroBytes = min(p.ZeroBytes, p.MemoryBytes)
	p.Setup = max(p.Setup, 0)
	p.Downtime = max(duration(p.Downtime, defaultDowntime), minimumDowntime)
	p.DeviceTime = max(duration(p.DeviceTime, defaultDeviceTime), 0)
	p.NetworkRTT = max(duration(p.NetworkRTT, defaultRTT), 0)
	p.MaxBytesPerSecond = amount(p.MaxBytesPerSecond)
	p.StreamBytesPerSecond = number(p.StreamBytesPerSecond, defaultStream)
	p.Connections = max(p.Connections, 1)
	p.ZeroScanBytesPerSecond = number(p.ZeroScanBytesPerSecond, defaultZeroScan)
	p.CompressionRatio = number(p.CompressionRatio, 1)
	if p.PageSize == 0 {
		p.PageSize = defaultPageSize
	}
	t := &p.Throttle
	t.Initial = percent(t.Initial, defaultInitial)
	t.Increment = percent(t.Increment, defaultIncrement)
	t.Max = percent(t.Max, defaultMax)
	if t.Trigger <= 0 {
		t.Trigger = defaultTrigger
	}
	if t.SyncPeriod == 0 {
		t.SyncPeriod = defaultSyncPeriod
	} else if t.SyncPeriod > 0 {
		t.SyncPeriod = max(t.SyncPeriod, minimumPeriod)
	}
	return p
}

func duration(d, unset time.Duration) time.Duration {
	if d == 0 {
		return unset
	}
	return d
}

func percent(n, unset int) int {
	if n <= 0 {
		return unset
	}
	return min(n, defaultMax) // a guest that gets nothing cannot be throttled further
}

// amount is a rate as given, with nonsense read as 0.
func amount(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

func number(x, unset float64) float64 {
	if x = amount(x); x == 0 {
		return unset
	}
	return x
}
