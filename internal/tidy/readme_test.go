// SPDX-License-Identifier: Apache-2.0

package tidy

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages are what people read.
func pages(t *testing.T) []file {
	t.Helper()
	return slices.DeleteFunc(tree(t), func(f file) bool { return path.Ext(f.name) != ".md" || f.inTestdata() })
}

func TestReadmeAndCIRunTheSameCommand(t *testing.T) {
	loop := regexp.MustCompile(`(?m)^for target in ([a-z ]+); do$`).FindStringSubmatch(read(t, ".ci/run"))
	if loop == nil {
		t.Fatal(".ci/run has no loop over the targets of the Makefile")
	}
	if command := "\nmake " + loop[1] + "\n"; !strings.Contains(read(t, "README.md"), command) {
		t.Errorf("README.md does not give the command that CI runs:%s", command)
	}
}

func TestPagesNameTargetsThatTheMakefileHas(t *testing.T) {
	targets := map[string]bool{}
	makefile := read(t, "Makefile")
	for _, m := range regexp.MustCompile(`(?m)^([a-z]+):`).FindAllStringSubmatch(makefile, -1) {
		targets[m[1]] = true
		if !regexp.MustCompile(`(?m)^` + m[1] + `:.* ## .`).MatchString(makefile) {
			t.Errorf("Makefile: %s does not say what it does, after ##", m[1])
		}
	}
	if n := strings.Count(makefile, "\n"); n > 45 {
		t.Errorf("Makefile has %d lines; it fits a screen of 45", n)
	}
	code := regexp.MustCompile("(?m)(?:^|`)make((?: [a-z]+)+)")
	for _, f := range pages(t) {
		for _, m := range code.FindAllStringSubmatch(onlyCode(f.text), -1) {
			for _, target := range strings.Fields(m[1]) {
				if !targets[target] {
					t.Errorf("%s: make %s: the Makefile has no %s", f.name, target, target)
				}
			}
		}
	}
}

func TestPagesNameFlagsThatAditHas(t *testing.T) {
	var tool strings.Builder
	for _, s := range sources(t) {
		if s.dir() == "cmd/adit" && !s.isTest() {
			tool.WriteString(s.text)
		}
	}
	has := func(word string) bool { return strings.Contains(tool.String(), `"`+word) }
	command := regexp.MustCompile("(?m)(?:bin/)?\\badit ([a-z][^`#\n|]*)")
	for _, f := range pages(t) {
		for _, m := range command.FindAllStringSubmatch(onlyCode(f.text), -1) {
			words := strings.Fields(m[1])
			if !has(words[0]) {
				t.Errorf("%s: adit %s: there is no command %s", f.name, m[1], words[0])
			}
			if words[0] == "scenario" && len(words) > 1 && !has(words[1]) {
				t.Errorf("%s: adit %s: there is no command scenario %s", f.name, m[1], words[1])
			}
			for _, w := range words {
				flag, isFlag := strings.CutPrefix(w, "--")
				flag, _, _ = strings.Cut(flag, "=")
				if isFlag && !has(flag+`"`) {
					t.Errorf("%s: adit %s: there is no flag --%s", f.name, m[1], flag)
				}
			}
		}
	}
}

// onlyCode is what a page sets in code: blocks, and spans in backticks with
// the backtick before them.
func onlyCode(text string) string {
	var code []string
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			code = append(code, part)
			continue
		}
		code = append(code, regexp.MustCompile("`[^`\n]+`").FindAllString(part, -1)...)
	}
	return strings.Join(code, "\n")
}

func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, f := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(f.text, -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			target := f.name
			if to != "" {
				target = path.Join(f.dir(), to)
			}
			data, err := os.ReadFile(filepath.Join(root, target))
			info, statErr := os.Stat(filepath.Join(root, target))
			if statErr != nil || err != nil && !info.IsDir() {
				t.Errorf("%s links to %s, which is not there", f.name, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(string(data)), anchor) {
				t.Errorf("%s links to %s, which has no heading #%s", f.name, target, anchor)
			}
		}
	}
}

// anchors are a page's headings as GitHub writes them in links.
func anchors(text string) []string {
	var list []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		name := strings.ToLower(m[1])
		name = regexp.MustCompile(`[^\p{L}\p{N}\- ]`).ReplaceAllString(name, "")
		list = append(list, strings.ReplaceAll(name, " ", "-"))
	}
	return list
}

func TestScenarioNamesAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, f := range tree(t) {
		if !strings.HasPrefix(f.name, "scenarios/suite/") || path.Ext(f.name) != ".yaml" || path.Base(f.dir()) == "inputs" {
			continue
		}
		name := path.Base(f.name)
		if other := seen[name]; other != "" {
			t.Errorf("%s and %s have one name; adit run %s could mean either", f.name, other, strings.TrimSuffix(name, ".yaml"))
		}
		seen[name] = f.name
	}
}
