// SPDX-License-Identifier: Apache-2.0

package tidy

import (
	"bytes"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEachPackageHasOneComment(t *testing.T) {
	comments := map[string]int{}
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		comments[s.dir()] += 0
		if s.ast.Doc != nil {
			comments[s.dir()]++
			words := strings.Fields(s.ast.Doc.Text())
			if first := strings.Join(words[:min(2, len(words))], " "); first != "Package "+s.ast.Name.Name && s.ast.Name.Name != "main" {
				t.Errorf("%s: the package comment begins with %q; begin with Package %s", s.name, first, s.ast.Name.Name)
			}
		}
	}
	for dir, n := range comments {
		if n != 1 {
			t.Errorf("%s has %d package comments; it wants one: what it is for, reads, alone may write and must never know", dir, n)
		}
	}
}

// noNames say nothing of what is inside.
var noNames = []string{"util", "utils", "common", "base", "helper", "helpers", "manager", "misc", "shared", "lib", "types"}

func TestNoPackageIsCalledAfterNothing(t *testing.T) {
	for _, s := range sources(t) {
		if name := strings.TrimSuffix(s.ast.Name.Name, "_test"); slices.Contains(noNames, name) {
			t.Errorf("%s: a package called %s says nothing; take a noun of the glossary", s.name, name)
		}
	}
}

func TestEachGoFileNamesItsLicence(t *testing.T) {
	const spdx = "// SPDX-License-Identifier: Apache-2.0\n"
	for _, f := range tree(t) {
		if !f.isGo() || f.inTestdata() {
			continue
		}
		if f.generated() && strings.Contains(f.text, spdx) { // a build tag may come first
			continue
		}
		if !strings.HasPrefix(f.text, spdx) {
			t.Errorf("%s does not begin with %s", f.name, strings.TrimSpace(spdx))
		}
	}
}

// longest is how many lines a file may have that a person reads at three in
// the morning.
const longest = 400

// longer are the files that may be longer, each for its reason.
var longer = map[string]string{
	"api/kvm/v1/hypervisor.go": "one API type and what it means, most of it comments that become the CRD's",
}

func TestFilesAreShort(t *testing.T) {
	for _, f := range tree(t) {
		if !f.isGo() || f.isTest() || f.generated() || f.inTestdata() {
			continue
		}
		n := strings.Count(f.text, "\n")
		if _, may := longer[f.name]; n > longest && !may {
			t.Errorf("%s has %d lines; past %d, split it by what its parts are about", f.name, n, longest)
		} else if n <= longest && may {
			t.Errorf("%s is short now; take it off the list of long files", f.name)
		}
	}
}

// foreign are things that mean nothing to who reads this elsewhere. They are
// put together here so that this file does not hold them.
var foreign = []*regexp.Regexp{
	regexp.MustCompile(`/(wo` + `rk|ro` + `ot|ho` + `me)/[a-z.]`),
	regexp.MustCompile(`(?i)\bissue ` + `#\d`),
	regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`),
}

func TestNothingSpeaksOfOneMachineOrOneTracker(t *testing.T) {
	for _, f := range tree(t) {
		if !isText(f.text) || f.inTestdata() || path.Base(f.name) == "go.sum" || f.name == "LICENSE" || strings.HasPrefix(f.name, "config/crd/") {
			continue
		}
		number := 0
		for line := range strings.Lines(f.text) {
			number++
			for _, r := range foreign {
				if found := r.FindString(line); found != "" {
					t.Errorf("%s:%d says %q, which means nothing elsewhere", f.name, number, found)
				}
			}
		}
	}
}

func isText(s string) bool { return utf8.ValidString(s) && !bytes.ContainsRune([]byte(s), 0) }

// TestEachExportedNameIsExplained takes a comment to hold for what follows
// without an empty line between.
func TestEachExportedNameIsExplained(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || s.generated() || s.ast.Name.Name == "main" {
			continue
		}
		line := func(p token.Pos) int { return s.fset.Position(p).Line }
		covered := 0 // the last line of a neighbour that is explained
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				says := d.Doc != nil || covered != 0 && line(d.Pos()) == covered+1
				if d.Name.IsExported() && exportedReceiver(d) && !says && !explained[d.Name.Name] {
					t.Errorf("%s: %s says nothing of itself", s.at(d), d.Name.Name)
				}
				covered = 0
				if says {
					covered = line(d.End())
				}
			case *ast.GenDecl:
				for _, name := range unexplained(d, line) {
					t.Errorf("%s: %s says nothing of itself", s.at(name), name.Name)
				}
			}
		}
	}
}

// explained are methods whose meaning everybody knows from an interface of the
// standard library.
var explained = map[string]bool{"String": true, "Error": true, "Unwrap": true, "Len": true, "Less": true, "Swap": true}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	kind := d.Recv.List[0].Type
	for {
		switch k := kind.(type) {
		case *ast.StarExpr:
			kind = k.X
		case *ast.IndexExpr:
			kind = k.X
		case *ast.Ident:
			return k.IsExported()
		default:
			return false
		}
	}
}

// unexplained returns the exported names of a declaration that neither it, nor
// their own line, nor the comment over their neighbours explains. The values of
// an enumeration are explained by its type.
func unexplained(d *ast.GenDecl, line func(token.Pos) int) []*ast.Ident {
	if d.Tok == token.IMPORT || d.Doc != nil {
		return nil
	}
	var names []*ast.Ident
	covered := 0
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() && spec.Doc == nil && spec.Comment == nil {
				names = append(names, spec.Name)
			}
		case *ast.ValueSpec:
			says := spec.Doc != nil || covered != 0 && line(spec.Pos()) == covered+1
			covered = 0
			if says {
				covered = line(spec.End())
			}
			if says || spec.Comment != nil || d.Tok == token.CONST && spec.Type != nil {
				continue
			}
			for _, name := range spec.Names {
				if name.IsExported() {
					names = append(names, name)
				}
			}
		}
	}
	return names
}
