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
		return at(node, "%q is no time span; write it as 90s, 5m or 1h30m", shortened(text))
	}
	*d = Duration(v)
	return nil
}

// Shift is how far a clock is off, written as a Duration, also below nothing.
type Shift time.Duration

// UnmarshalYAML reads a Shift and says where a bad one stands.
func (s *Shift) UnmarshalYAML(node ast.Node) error {
	text, err := scalar(node)
	if err != nil {
		return err
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return at(node, "%q is no time span; write it as 90s, -1h or 1h30m", shortened(text))
	}
	*s = Shift(v)
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
		return at(node, "%q is no size; write it as 4Gi, 512Mi or a number of bytes", shortened(text))
	}
	if q.Cmp(largest) > 0 {
		return at(node, "%s is too large; a size is at most %s", shortened(text), largest.String())
	}
	*s = Size(q.Value())
	return nil
}

// largest is far beyond any host or link, and far below where sums overflow.
var largest = resource.MustParse("1Pi")

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

// or takes the place of another node when the error has none of its own.
func (e *Error) or(node ast.Node) *Error {
	if e.Line == 0 && node != nil && node.GetToken() != nil {
		*e = *at(node, "%s", e.Problem)
	}
	return e
}

// asError is the Error that err is, or nil.
func asError(err error) *Error {
	e, _ := err.(*Error)
	return e
}

func at(node ast.Node, format string, args ...any) *Error {
	e := &Error{Problem: fmt.Sprintf(format, args...)}
	if node == nil {
		return e
	}
	if path := strings.TrimPrefix(strings.TrimPrefix(node.GetPath(), "$"), "."); path != "" {
		e.Problem = path + ": " + e.Problem
	}
	if token := first(node).GetToken(); token != nil {
		e.Line, e.Column = token.Position.Line, token.Position.Column
	}
	return e
}

// first is the node a reader sees first: of a mapping without braces it is the
// first key, not the colon behind it.
func first(node ast.Node) ast.Node {
	switch n := node.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return first(n.Values[0])
		}
	case *ast.MappingValueNode:
		return n.Key
	}
	return node
}

func scalar(node ast.Node) (string, error) {
	if _, empty := node.(*ast.NullNode); empty {
		return "", at(node, "is empty; give it a value, or leave the line out")
	}
	if s, ok := node.(ast.ScalarNode); ok {
		return fmt.Sprint(s.GetValue()), nil
	}
	return "", at(node, "is %s; it is a single value", described(node))
}
