// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/adit-hv/adit/scenarios"
)

// FuzzParse holds the reader of scenarios to what it promises of any input: a
// scenario, or one line that names a place; never a panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	err := fs.WalkDir(os.DirFS("."), "suite", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".yaml") {
			return err
		}
		data, err := os.ReadFile(p)
		f.Add(data)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := scenarios.Parse("fuzz.yaml", data, func(string) ([]byte, error) { return data, nil })
		if err == nil {
			return
		}
		var ours *scenarios.Error
		if !errors.As(err, &ours) || ours.Line == 0 || !strings.HasPrefix(err.Error(), "fuzz.yaml:") {
			t.Errorf("the error has no place: %v", err)
		}
		if strings.ContainsAny(ours.Problem, "\n\t\x00\x1b") {
			t.Errorf("the error is not one line: %q", err)
		}
	})
}
