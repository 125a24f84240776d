// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// forAll is an expectation of each row of a list.
var forAll = regexp.MustCompile(`^(\w+)\.all\((\w+), (.*)\)$`)

// mostCulprits bounds how many rows a violation shows.
const mostCulprits = 3

// culprits shows the rows of which an expectation of all rows was not true, or
// "" if it is another kind of expectation.
func culprits(text string, view map[string]any) string {
	m := forAll.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	env, err := environment()
	if err != nil {
		return ""
	}
	tree, issues := env.Compile(fmt.Sprintf("%s.filter(%s, !(%s)).map(%s, %s.name)", m[1], m[2], m[3], m[2], m[2]))
	if issues != nil && issues.Err() != nil {
		return "" // it only looked like one
	}
	program, err := env.Program(tree)
	if err != nil {
		return ""
	}
	out, _, err := program.Eval(view)
	if err != nil {
		return ""
	}
	names, err := out.ConvertToNative(reflect.TypeFor[[]string]())
	if err != nil {
		return ""
	}
	rows, _ := view[m[1]].([]map[string]any)
	var shown []string
	for _, row := range rows {
		if name, _ := row["name"].(string); slices.Contains(names.([]string), name) {
			if len(shown) == mostCulprits {
				shown = append(shown, "...")
				break
			}
			shown = append(shown, showRow(row))
		}
	}
	return strings.Join(shown, "; ")
}

// showRow prints what a row says, its name first, without what is empty.
func showRow(row map[string]any) string {
	parts := []string{fmt.Sprint(row["name"])}
	for _, key := range slices.Sorted(maps.Keys(row)) {
		if v := reflect.ValueOf(row[key]); key != "name" && v.IsValid() && !v.IsZero() && !(v.Kind() == reflect.Slice && v.Len() == 0) {
			parts = append(parts, fmt.Sprintf("%s=%v", key, row[key]))
		}
	}
	return strings.Join(parts, " ")
}

// of names the culprits, for the text of a violation.
func of(e Expectation, view map[string]any) string {
	if who := culprits(e.Text, view); who != "" {
		return ", of " + who
	}
	return ""
}
