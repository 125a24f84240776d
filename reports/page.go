// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"errors"
	"io"
)

// Page writes the suite as one self-contained HTML page.
func Page(w io.Writer, s Suite) error { return errors.ErrUnsupported }
