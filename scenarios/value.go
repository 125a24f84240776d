// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Duration is a time span written as 90s, 5m or 1h30m.
type Duration time.Duration

// UnmarshalYAML reads a Duration and says where a bad one stands.
func (d *Duration) UnmarshalYAML(node ast.Node) error {
	text, err := scalar(node)
	if err != nil {
		return err
	}
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return at(node, "%q is no time span; write it as 90s, 5m or 1h30m", text)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes written as a Kubernetes quantity: 4Gi, 512Mi, 10M.
type Size uint64

// UnmarshalYAML reads a Size and says where a bad one stands.
func (s *Size) UnmarshalYAML(node ast.Node) error {
	text, err := scalar(node)
	if err != nil {
		return err
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return at(node, "%q is no size; write it as 4Gi, 512Mi or a number of bytes", text)
	}
	*s = Size(q.Value())
	return nil
}

// Error is a mistake in a scenario: where it stands and how to mend it.
type Error struct {
	File         string
	Line, Column int
	Problem      string
}

// Error returns FILE:LINE:COLUMN: PROBLEM.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Problem)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Problem)
}

func at(node ast.Node, format string, args ...any) *Error {
	e := &Error{Problem: fmt.Sprintf(format, args...)}
	if node != nil && node.GetToken() != nil {
		position := node.GetToken().Position
		e.Line, e.Column = position.Line, position.Column
		if path := strings.TrimPrefix(node.GetPath(), "$."); path != "" {
			e.Problem = path + ": " + e.Problem
		}
	}
	return e
}

func scalar(node ast.Node) (string, error) {
	if s, ok := node.(ast.ScalarNode); ok {
		return fmt.Sprint(s.GetValue()), nil
	}
	return "", at(node, "a single value is wanted here, not a %s", strings.ToLower(node.Type().String()))
}
