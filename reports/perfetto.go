// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"errors"
	"io"
)

// Perfetto writes the runs as Chrome trace events, to be opened in Perfetto or
// chrome://tracing: a process per host, a thread per lane of VMs.
func Perfetto(w io.Writer, s Suite) error { return errors.ErrUnsupported }
