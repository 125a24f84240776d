// SPDX-License-Identifier: Apache-2.0

//go:build sabotage

package sabotage

import "os"

var chosen = Name(os.Getenv(Variable))

// On says whether a sabotage is on.
func On(n Name) bool { return n == chosen }
