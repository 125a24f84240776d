// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime/debug"
)

// A run is short and its live heap small, so that by default the collector
// would take a quarter of the time: it may wait until there is five times as
// much. The limit makes it diligent again where a fleet is large, well below
// the 4 GiB we promise for a thousand hosts.
const (
	collectAtPercent = 400
	memoryLimit      = 3600 << 20
)

// tuneMemory leaves what GOGC or GOMEMLIMIT say.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAtPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}
