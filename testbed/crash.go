// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"strconv"
	"strings"
)

// String prints the crash as ParseCrash reads it: PROCESS:NTH:before or
// PROCESS:NTH:after.
func (c Crash) String() string {
	side := "before"
	if c.After {
		side = "after"
	}
	return fmt.Sprintf("%s:%d:%s", c.Process, c.Nth, side)
}

// ParseCrash reads a crash.
func ParseCrash(text string) (Crash, error) {
	parts := strings.Split(text, ":")
	if len(parts) == 3 && (parts[2] == "before" || parts[2] == "after") {
		if n, err := strconv.Atoi(parts[1]); err == nil && n > 0 {
			return Crash{Process: parts[0], Nth: n, After: parts[2] == "after"}, nil
		}
	}
	return Crash{}, fmt.Errorf("%q is no crash; write PROCESS:CALL:before or :after, as operator:17:after or nova/node001:3:before", text)
}
