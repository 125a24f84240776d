// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/testbed"
)

const root = "../../.."

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestExamplesAreScenarios reads each block that is marked so:
//
//	```yaml scenario
func TestExamplesAreScenarios(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?ms)^```yaml scenario\n(.*?)^```$").FindAllStringSubmatchIndex(string(data), -1) {
			examples++
			line := strings.Count(string(data[:m[2]]), "\n") + 1
			name := fmt.Sprintf("%s:%d", filepath.Base(page), line)
			t.Run(name, func(t *testing.T) {
				if _, err := scenarios.Parse("example.yaml", data[m[2]:m[3]], os.ReadFile); err != nil {
					t.Errorf("the example that begins at %s: %v", name, err)
				}
			})
		}
	}
	if examples < 4 {
		t.Errorf("only %d examples were found; are they marked yaml scenario?", examples)
	}
}

func TestThePageNamesAllActionsFaultsAndVariables(t *testing.T) {
	page := read(t, "docs/scenarios.md")
	want := func(kind, word string) {
		if !strings.Contains(page, "`"+word) {
			t.Errorf("docs/scenarios.md does not speak of the %s %s", kind, word)
		}
	}
	for _, h := range testbed.ActionHelp() {
		want("action", h[0])
	}
	for _, kind := range testbed.FaultKinds() {
		want("fault", kind)
	}
	for _, h := range testbed.ViewHelp {
		for _, variable := range strings.Split(h[0], ", ") {
			want("variable", variable)
		}
	}
	for _, rule := range testbed.Rules {
		want("invariant", rule[0])
	}
}

// TestThePageNamesAllFields finds the fields in the reader's own source, since
// its types are its own.
func TestThePageNamesAllFields(t *testing.T) {
	page := read(t, "docs/scenarios.md")
	source := read(t, "scenarios/scenario.go")
	for _, m := range regexp.MustCompile("`yaml:\"([a-zA-Z]+)\"`").FindAllStringSubmatch(source, -1) {
		if !strings.Contains(page, "| `"+m[1]+"`") {
			t.Errorf("docs/scenarios.md has no row for the field %s", m[1])
		}
	}
}
