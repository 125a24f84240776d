// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"errors"
	"io"
)

// JUnit writes a test suite per scenario and in it a test case per run.
func JUnit(w io.Writer, s Suite) error { return errors.ErrUnsupported }
