// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"

	"github.com/adit-hv/adit/testbed"
)

// Program is a compiled expression over the state of a world. Expressions are
// CEL (https://cel.dev); their variables are those of testbed.View.
type Program struct {
	text    string
	program cel.Program
}

// environment is CEL with our variables.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	options := []cel.EnvOption{
		cel.CustomTypeAdapter(registry), cel.CustomTypeProvider(rows{registry}),
		ext.Strings(), ext.Sets(), ext.Math(), cel.CrossTypeNumericComparisons(true),
	}
	for _, name := range testbed.ViewLists {
		options = append(options, cel.Variable(name, cel.ListType(rowTypes[name])))
	}
	for _, name := range testbed.ViewMaps {
		options = append(options, cel.Variable(name, cel.MapType(cel.StringType, rowTypes[name+"s"])))
	}
	for _, name := range testbed.ViewNumbers {
		options = append(options, cel.Variable(name, cel.DoubleType))
	}
	for _, name := range testbed.ViewCounts {
		options = append(options, cel.Variable(name, cel.IntType))
	}
	return cel.NewEnv(options...)
})

func compile(text string, spec testbed.Spec) (*Program, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	tree, issues := env.Compile(text)
	if issues != nil && issues.Err() != nil {
		var problems []string
		for _, e := range issues.Errors() {
			problems = append(problems, fmt.Sprintf("at character %d: %s", e.Location.Column()+1, e.Message))
		}
		return nil, fmt.Errorf("%s; an expression is CEL over %s, as vms.all(v, v.running); adit scenario words has their fields", strings.Join(problems, "; "), strings.Join(slices.Concat(testbed.ViewLists, testbed.ViewMaps, testbed.ViewNumbers, testbed.ViewCounts), ", "))
	}
	if !tree.OutputType().IsExactType(cel.BoolType) && !tree.OutputType().IsExactType(cel.DynType) {
		return nil, fmt.Errorf("the expression gives a %s; it must give true or false", tree.OutputType())
	}
	if err := checkKeys(tree.NativeRep().Expr(), spec); err != nil {
		return nil, err
	}
	program, err := env.Program(tree)
	if err != nil {
		return nil, err
	}
	return &Program{text: text, program: program}, nil
}

// Holds evaluates the expression. An error (a missing key, say) is not a
// false: the caller decides.
func (p *Program) Holds(view map[string]any) (bool, error) {
	out, _, err := p.program.Eval(view)
	if err != nil {
		return false, err
	}
	holds, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("the expression gave %v, not true or false", out.Value())
	}
	return holds, nil
}
