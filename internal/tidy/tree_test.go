// SPDX-License-Identifier: Apache-2.0

package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/adit-hv/adit/"
	root   = "../.."
)

// file is one file of the tree; its name is relative to the root, with slashes.
type file struct{ name, text string }

func (f file) dir() string      { return path.Dir(f.name) }
func (f file) isGo() bool       { return strings.HasSuffix(f.name, ".go") }
func (f file) isTest() bool     { return strings.HasSuffix(f.name, "_test.go") }
func (f file) inTestdata() bool { return strings.Contains("/"+f.name, "/testdata/") }
func (f file) generated() bool {
	return f.isGo() && strings.Contains(f.text, "\n// Code generated ") && strings.Contains(f.text, " DO NOT EDIT.\n")
}

// notOurs are folders that hold what was built, reported or installed.
var notOurs = map[string]bool{".git": true, "bin": true, "reports/out": true}

// tree reads every file. It walks by itself and asks no `go list`: the test
// cache sees the files that a test opens, not those of a child process, so with
// a child a second run would answer "(cached)" whatever had changed.
func tree(t *testing.T) []file {
	t.Helper()
	var files []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, p)
		name = filepath.ToSlash(name)
		if name == ".git" && !d.IsDir() {
			return nil // of a linked worktree
		}
		if d.IsDir() {
			if notOurs[name] {
				return filepath.SkipDir
			}
			return nil
		}
		data, err := os.ReadFile(p)
		if err == nil && d.Type().IsRegular() {
			files = append(files, file{name, string(data)})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// source is a parsed Go file of the main module, tests included.
type source struct {
	file
	fset *token.FileSet
	ast  *ast.File
}

func (s source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return s.name + ":" + strconv.Itoa(p.Line)
}

func sources(t *testing.T) []source {
	t.Helper()
	var list []source
	for _, f := range tree(t) {
		if !f.isGo() || f.inTestdata() || strings.HasPrefix(f.name, "tools/") {
			continue
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, f.name, f.text, parser.ParseComments)
		if err != nil {
			t.Error(err)
			continue
		}
		list = append(list, source{f, fset, tree})
	}
	return list
}

// read returns a file of the tree.
func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func parse(t *testing.T, name, text string) source {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return source{file{name, text}, fset, tree}
}

// parseInto parses a source anew into a file set that it shares with others.
func parseInto(t *testing.T, fset *token.FileSet, s source) *ast.File {
	t.Helper()
	tree, err := parser.ParseFile(fset, s.name, s.text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}
