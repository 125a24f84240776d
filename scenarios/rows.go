// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/adit-hv/adit/testbed"
)

// rows tells CEL what fields the rows of a view have. The rows themselves are
// plain maps.
type rows struct{ types.Provider }

// rowTypes are CEL's types of the rows, by the list they are in.
var rowTypes = func() map[string]*cel.Type {
	out := map[string]*cel.Type{}
	for list := range testbed.ViewRows {
		out[list] = cel.ObjectType(strings.TrimSuffix(list, "s"))
	}
	return out
}()

func (r rows) FindStructType(name string) (*types.Type, bool) {
	if t, ok := rowTypes[name+"s"]; ok {
		return types.NewTypeTypeWithParam(t), true
	}
	return r.Provider.FindStructType(name)
}

func (r rows) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	fields, ours := testbed.ViewRows[name+"s"]
	if !ours {
		return r.Provider.FindStructFieldType(name, field)
	}
	kind, known := fields[field]
	if !known {
		return nil, false
	}
	get := func(row any) (any, error) {
		if m, ok := row.(map[string]any); ok {
			if v, ok := m[field]; ok {
				return v, nil
			}
		}
		return nil, fmt.Errorf("a %s has no %s", name, field)
	}
	return &types.FieldType{Type: celTypes[kind], GetFrom: get, IsSet: func(row any) bool { _, err := get(row); return err == nil }}, true
}

var celTypes = map[testbed.RowType]*cel.Type{
	testbed.Text: cel.StringType, testbed.Truth: cel.BoolType, testbed.Number: cel.IntType, testbed.Texts: cel.ListType(cel.StringType),
}

// checkKeys holds the rows that an expression names, as vm["web-1"], to what can
// be there.
func checkKeys(e ast.Expr, spec testbed.Spec) (err error) {
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if err != nil || e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Index {
			return
		}
		of, key := e.AsCall().Args()[0], e.AsCall().Args()[1]
		if of.Kind() != ast.IdentKind || !slices.Contains(testbed.ViewMaps, of.AsIdent()) || key.Kind() != ast.LiteralKind {
			return
		}
		if name, ok := key.AsLiteral().Value().(string); ok {
			err = spec.CheckKey(of.AsIdent(), name)
		}
	}))
	return err
}
