// SPDX-License-Identifier: Apache-2.0

package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// looked finds, in a comment on the line of a loop or the one above, that a
// person has looked: the order is nothing, or what is gathered is sorted below.
var looked = regexp.MustCompile(`(?i)\border\b|\bsorted\b`)

// TestMapsAreSortedBeforeTheyMatter finds loops over maps in deterministic rooms
// whose body does more than gather: Go draws their order anew at each run. It is
// conservative and easily satisfied: gather and sort, or say on the loop's line
// why any order will do.
//
// Types need export data, so here a child process is asked; the test cache still
// sees every source, as the test reads them itself.
func TestMapsAreSortedBeforeTheyMatter(t *testing.T) {
	packages := map[string][]source{}
	for _, s := range sources(t) {
		if isDeterministic(s) {
			packages[s.dir()] = append(packages[s.dir()], s)
		}
	}
	exports := exportData(t)
	var found []violation
	for dir, files := range packages {
		fset, trees := token.NewFileSet(), []*ast.File{}
		for _, s := range files {
			trees = append(trees, parseInto(t, fset, s))
		}
		open := func(path string) (io.ReadCloser, error) {
			if exports[path] == "" {
				return nil, fmt.Errorf("no export data of %s", path)
			}
			return os.Open(exports[path])
		}
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
		conf := types.Config{Importer: importer.ForCompiler(fset, "gc", open)}
		if _, err := conf.Check(module+dir, fset, trees, info); err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		for _, tree := range trees {
			for _, loop := range looseLoops(fset, tree, info) {
				at := fset.Position(loop.Pos())
				found = append(found, violation{at.Filename, mapOrder, fmt.Sprintf("%s:%d", at.Filename, at.Line), "the loop goes another way at each run; sort the keys first, or say on its line why any order will do"})
			}
		}
	}
	report(t, found, func(e exception) bool { return e.ban == mapOrder })
}

// exportData returns the files with the exported types of all packages.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("NOT RUN: go list: %v\n%s", err, stderr.String())
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			files[path] = file
		}
	}
	return files
}

// looseLoops are the loops over maps of a file that do more than gather.
func looseLoops(fset *token.FileSet, tree *ast.File, info *types.Info) []*ast.RangeStmt {
	said := map[int]bool{}
	for _, group := range tree.Comments {
		if looked.MatchString(group.Text()) {
			said[fset.Position(group.Pos()).Line] = true
			said[fset.Position(group.End()).Line+1] = true
		}
	}
	var loose []*ast.RangeStmt
	ast.Inspect(tree, func(n ast.Node) bool {
		function, ok := n.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			return true
		}
		ast.Inspect(function.Body, func(n ast.Node) bool {
			loop, ok := n.(*ast.RangeStmt)
			if !ok || info.Types[loop.X].Type == nil {
				return true
			}
			if _, isMap := info.Types[loop.X].Type.Underlying().(*types.Map); !isMap || said[fset.Position(loop.Pos()).Line] {
				return true
			}
			g := gathering{info: info, function: function, loop: loop}
			if !g.all(loop.Body.List) {
				loose = append(loose, loop)
			}
			return true
		})
		return true
	})
	return loose
}

// gathering judges the body of one loop.
type gathering struct {
	info     *types.Info
	function *ast.FuncDecl
	loop     *ast.RangeStmt
}

func (g gathering) all(list []ast.Stmt) bool {
	return !slices.ContainsFunc(list, func(s ast.Stmt) bool { return !g.one(s) })
}

// one says whether a statement comes to the same in any order.
func (g gathering) one(s ast.Stmt) bool {
	switch s := s.(type) {
	case nil, *ast.EmptyStmt, *ast.IncDecStmt, *ast.DeclStmt, *ast.BranchStmt:
		return true
	case *ast.BlockStmt:
		return g.all(s.List)
	case *ast.IfStmt:
		return g.one(s.Init) && g.all(s.Body.List) && g.one(s.Else)
	case *ast.SwitchStmt:
		return g.one(s.Init) && g.all(s.Body.List)
	case *ast.CaseClause:
		return g.all(s.Body)
	case *ast.RangeStmt:
		return g.all(s.Body.List)
	case *ast.ForStmt:
		return g.one(s.Init) && g.one(s.Post) && g.all(s.Body.List)
	case *ast.ReturnStmt: // of a constant: whoever comes first says the same
		return !slices.ContainsFunc(s.Results, func(e ast.Expr) bool { return !g.constant(e) })
	case *ast.ExprStmt: // delete of an entry
		call, ok := s.X.(*ast.CallExpr)
		return ok && isNamed(call.Fun, "delete")
	case *ast.AssignStmt:
		return g.assign(s)
	}
	return false
}

func (g gathering) constant(e ast.Expr) bool {
	return g.info.Types[e].Value != nil || g.info.Types[e].IsNil()
}

func (g gathering) assign(s *ast.AssignStmt) bool {
	if s.Tok != token.ASSIGN { // a new variable of the body, or += and the like
		return true
	}
	for i, to := range s.Lhs {
		if index, ok := to.(*ast.IndexExpr); ok {
			if _, isMap := g.info.Types[index.X].Type.Underlying().(*types.Map); isMap {
				continue
			}
		}
		if i < len(s.Rhs) {
			if call, ok := s.Rhs[i].(*ast.CallExpr); ok {
				if isNamed(call.Fun, "min") || isNamed(call.Fun, "max") {
					continue
				}
				if isNamed(call.Fun, "append") && g.sortedLater(to) {
					continue
				}
			}
			if g.constant(s.Rhs[i]) || g.inside(to) {
				continue
			}
		}
		return false
	}
	return true
}

// inside says that a variable was made in the loop.
func (g gathering) inside(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	if !ok {
		return false
	}
	object := g.info.Uses[name]
	return name.Name == "_" || object != nil && object.Pos() >= g.loop.Pos() && object.Pos() < g.loop.End()
}

// sortedLater says that what was gathered is sorted after the loop.
func (g gathering) sortedLater(gathered ast.Expr) bool {
	name, found := types.ExprString(gathered), false
	ast.Inspect(g.function.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if ok && call.Pos() > g.loop.End() && strings.Contains(strings.ToLower(types.ExprString(call.Fun)), "sort") {
			found = found || slices.ContainsFunc(call.Args, func(a ast.Expr) bool { return types.ExprString(a) == name })
		}
		return true
	})
	return found
}

func isNamed(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func TestLooseLoopsAreSeen(t *testing.T) {
	const code = `package p
func gathers(m map[string]int) (keys []string) { for k := range m { keys = append(keys, k) }; Sort(keys); return }
func counts(m map[string]int) (n int) { for _, v := range m { if v > 0 { n += v } }; return }
func calls(m map[string]func()) { for _, f := range m { f() } }
func forgets(m map[string]int) (keys []string) { for k := range m { keys = append(keys, k) }; return }
func picks(m map[string]int) string { for k := range m { return k }; return "" }
func keeps(m map[string]int) (last string) { for k := range m { last = k }; return }
func says(m map[string]func()) { for _, f := range m { f() } } // the order is nothing
func Sort([]string) {}
`
	s := parse(t, "p.go", code)
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	if _, err := (&types.Config{}).Check("p", s.fset, []*ast.File{s.ast}, info); err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, loop := range looseLoops(s.fset, s.ast, info) {
		lines = append(lines, s.fset.Position(loop.Pos()).Line)
	}
	if want := []int{4, 5, 6, 7}; !slices.Equal(lines, want) {
		t.Errorf("found loops in lines %v, want %v", lines, want)
	}
}
