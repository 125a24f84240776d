// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// shape holds a node of the file to the Go type it will be read into, and names
// the first place where they differ. The YAML library would say it in Go's
// words, and would round a 2.5 in silence.
func shape(node ast.Node, t reflect.Type) *Error {
	if e := plain(node); e != nil {
		return e
	}
	if _, empty := node.(*ast.NullNode); empty {
		if k := t.Kind(); k == reflect.Struct || k == reflect.Slice || k == reflect.Map {
			return nil // as if it were left out
		}
		return at(node, "is empty; give it a value, or leave the line out")
	}
	if t.Kind() == reflect.Pointer { // a field of which it matters that it is there
		return shape(node, t.Elem())
	}
	switch {
	case t == reflect.TypeFor[Duration]():
		return asError(new(Duration).UnmarshalYAML(node))
	case t == reflect.TypeFor[Shift]():
		return asError(new(Shift).UnmarshalYAML(node))
	case t == reflect.TypeFor[Size]():
		return asError(new(Size).UnmarshalYAML(node))
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return shapeOfMapping(node, t)
	case reflect.Slice:
		return shapeOfList(node, t)
	case reflect.String:
		return shapeOfText(node)
	case reflect.Int:
		return shapeOfInt(node)
	case reflect.Float64:
		return shapeOfNumber(node)
	case reflect.Bool:
		if node.Type() != ast.BoolType {
			return at(node, "is %s; it is true or false", described(node))
		}
	}
	return nil
}

// plain refuses what makes a file say other than what it shows.
func plain(node ast.Node) *Error {
	switch n := node.(type) {
	case nil:
		return &Error{Problem: "is empty; give it a value, or leave the line out"}
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return at(node, "anchors (&), aliases (*) and merges (<<) are not read; write it out, or put the text into quotes")
	case *ast.TagNode:
		return at(node, "tags as %s are not read; leave it out", n.Start.Value)
	}
	return nil
}

func shapeOfMapping(node ast.Node, t reflect.Type) *Error {
	m, ok := node.(ast.MapNode)
	if !ok {
		return at(node, "is %s; it has fields of its own, as NAME: VALUE", described(node))
	}
	for i := m.MapRange(); i.Next(); {
		if e := plain(i.Key()); e != nil {
			return e
		}
		of, e := fieldType(i.Key(), t, node)
		if e == nil {
			e = shape(i.Value(), of)
		}
		if e != nil {
			return e.or(i.Key())
		}
	}
	return nil
}

// fieldType is the type of a mapping's field.
func fieldType(key ast.MapKeyNode, t reflect.Type, node ast.Node) (reflect.Type, *Error) {
	if t.Kind() == reflect.Map {
		return t.Elem(), nil
	}
	name := key.GetToken().Value
	var known []string
	for i := range t.NumField() {
		tag := t.Field(i).Tag.Get("yaml")
		if tag == name {
			return t.Field(i).Type, nil
		}
		known = append(known, tag)
	}
	e := at(node, "unknown field %q%s; the fields here are %s (see docs/scenarios.md)", shortened(name), alike(name, known), strings.Join(known, ", "))
	if position := key.GetToken().Position; position != nil {
		e.Line, e.Column = position.Line, position.Column
	}
	return nil, e
}

func shapeOfList(node ast.Node, t reflect.Type) *Error {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		return at(node, "is %s; it is a list: lines that begin with a dash, or [A, B]", described(node))
	}
	for _, v := range list.Values {
		e := plain(v)
		if _, empty := v.(*ast.NullNode); empty {
			e = at(v, "is empty; write the entry behind its dash, or take the dash away")
		}
		if e == nil {
			e = shape(v, t.Elem())
		}
		if e != nil {
			return e.or(node)
		}
	}
	return nil
}

func shapeOfText(node ast.Node) *Error {
	switch node.Type() {
	case ast.StringType, ast.LiteralType:
		return nil
	case ast.IntegerType, ast.FloatType, ast.BoolType, ast.InfinityType, ast.NanType:
		return at(node, "is %s to YAML; put it in quotes, as %q", described(node), node.GetToken().Value)
	}
	return at(node, "is %s; it is a text", described(node))
}

// decimal is how whole numbers are written: no hexadecimal, and no octal in
// disguise.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

func shapeOfInt(node ast.Node) *Error {
	text := ""
	if node.GetToken() != nil {
		text = node.GetToken().Value
	}
	if decimal.MatchString(text) && len(text) > 18 {
		return at(node, "%s is too large a number", text)
	}
	if node.Type() != ast.IntegerType || !decimal.MatchString(text) {
		return at(node, "is %s; it is a whole number, as 3", described(node))
	}
	return nil
}

func shapeOfNumber(node ast.Node) *Error {
	switch n := node.(type) {
	case *ast.IntegerNode:
		return nil
	case *ast.FloatNode:
		if !math.IsInf(n.Value, 0) && !math.IsNaN(n.Value) {
			return nil
		}
	}
	return at(node, "is %s; it is a number, as 1.5", described(node))
}

// described says what a node is, for who wrote it.
func described(node ast.Node) string {
	text := ""
	if node.GetToken() != nil {
		text = node.GetToken().Value
	}
	switch node.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "a mapping"
	case ast.SequenceType:
		return "a list"
	case ast.NullType:
		return "nothing"
	case ast.IntegerType, ast.FloatType, ast.InfinityType, ast.NanType:
		return "the number " + text
	case ast.BoolType:
		return "the truth value " + text
	}
	return fmt.Sprintf("the text %q", shortened(text))
}

// shortened keeps an error on a line, whatever was in the file.
func shortened(text string) string {
	const most = 60
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "..."
	}
	return text
}

// alike suggests the one of known that a misspelt name may mean.
func alike(name string, known []string) string {
	near := func(k string) bool {
		a, b := strings.ToLower(name), strings.ToLower(k)
		return len(a) > 2 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a) || sorted(a) == sorted(b))
	}
	if i := slices.IndexFunc(known, near); i >= 0 {
		return fmt.Sprintf(" (did you mean %s?)", known[i])
	}
	return ""
}

func sorted(s string) string {
	b := []byte(s)
	slices.Sort(b)
	return string(b)
}
