// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// document is the one YAML document in data.
func document(data []byte) (ast.Node, *Error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // what some editors put before a text
	if e := text(data); e != nil {
		return nil, e
	}
	tree, err := parsed(data)
	if err != nil {
		return nil, located(err)
	}
	if len(tree.Docs) > 1 {
		e := &Error{Line: 1, Column: 1, Problem: "a second document; put one scenario in one file"}
		if start := tree.Docs[1].Start; start != nil {
			e.Line, e.Column = start.Position.Line, start.Position.Column
		}
		return nil, e
	}
	if len(tree.Docs) == 0 || tree.Docs[0].Body == nil || tree.Docs[0].Body.Type() == ast.NullType || tree.Docs[0].Body.Type() == ast.CommentType {
		return nil, &Error{Line: 1, Column: 1, Problem: "the file is empty; a scenario has at least about, for, fleet and expect"}
	}
	if _, ok := tree.Docs[0].Body.(ast.MapNode); !ok {
		return nil, at(tree.Docs[0].Body, "the file is %s; a scenario has fields, as about, for, fleet and expect: see docs/scenarios.md", described(tree.Docs[0].Body))
	}
	return tree.Docs[0].Body, nil
}

// parsed calls the YAML library, which some inputs make panic.
func parsed(data []byte) (tree *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			tree, err = nil, &Error{Line: 1, Column: 1, Problem: fmt.Sprintf("is no YAML that can be read (%v); begin anew from adit scenario show NAME", p)}
		}
	}()
	return parser.ParseBytes(data, 0)
}

// maxDepth is how many brackets may be open at once. A scenario needs four; the
// YAML library's stack grows with each.
const maxDepth = 100

// text refuses what is no text a scenario could be in.
func text(data []byte) *Error {
	if len(data) > maxFile {
		return &Error{Line: 1, Column: 1, Problem: fmt.Sprintf("is larger than %d bytes; that is no scenario", maxFile)}
	}
	line, column, depth := 1, 0, 0
	for i, r := range string(data) {
		column++
		switch {
		case r == utf8.RuneError && !bytes.HasPrefix(data[i:], []byte("\ufffd")), r < ' ' && r != '\n' && r != '\r' && r != '\t':
			return &Error{Line: line, Column: column, Problem: "is no text in UTF-8; save it as such, or name the scenario's own file"}
		case r == '[' || r == '{':
			depth++
		case r == ']' || r == '}':
			depth = max(0, depth-1)
		case r == '\n':
			line, column = line+1, 0
		}
		if depth > maxDepth {
			return &Error{Line: line, Column: column, Problem: fmt.Sprintf("more than %d brackets are open here; close them", maxDepth)}
		}
	}
	return nil
}

// mends say what to do about the YAML library's errors, by what they say.
var mends = [][2]string{
	{"cannot start any token", "indent with blanks, and put a text that begins so into quotes"},
	{"already defined", "leave one of them out"},
	{"duplicate key", "leave one of them out"},
	{"not found", "each bracket and quote that is opened is closed"},
	{"must be specified", "each bracket and quote that is opened is closed, and a text with commas or braces stands in quotes"},
	{"", "mind the indentation; a text with colons, commas or braces stands in quotes"},
}

// located turns the YAML library's errors into ours.
func located(err error) *Error {
	var ours *Error
	if errors.As(err, &ours) {
		return ours
	}
	e := &Error{Line: 1, Column: 1, Problem: err.Error()}
	var theirs yaml.Error
	if errors.As(err, &theirs) {
		e.Problem = theirs.GetMessage()
		if token := theirs.GetToken(); token != nil {
			e.Line, e.Column = token.Position.Line, token.Position.Column
		}
	}
	e.Problem = strings.Join(strings.Fields(strings.ReplaceAll(e.Problem, "'\t'", "TAB")), " ") // one line
	for _, m := range mends {
		if strings.Contains(e.Problem, m[0]) {
			e.Problem += "; " + m[1]
			break
		}
	}
	return e
}
