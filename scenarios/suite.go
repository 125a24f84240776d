// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// suite holds the built-in scenarios, one folder a topic, and in inputs the
// files they name.
//
//go:embed suite
var suite embed.FS

// Suite returns the built-in scenarios, sorted by topic and name.
func Suite() ([]*Scenario, error) {
	list, err := load(suite, "suite", "", func(name string) ([]byte, error) { return suite.ReadFile(path.Clean(filepath.ToSlash(name))) })
	for _, s := range list {
		s.builtIn = true
	}
	return list, err
}

// load reads all scenarios below root, which folder is the place of; read opens
// the files they name.
func load(files fs.FS, root, folder string, read func(string) ([]byte, error)) ([]*Scenario, error) {
	var list []*Scenario
	var mistakes []error
	err := fs.WalkDir(files, root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isScenario(p) {
			return err
		}
		file, err := files.Open(p)
		if err != nil {
			return err
		}
		defer file.Close()
		data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
		if err != nil {
			return err
		}
		s, err := Parse(filepath.Join(folder, p), data, read)
		if err != nil {
			mistakes = append(mistakes, err)
			return nil
		}
		list = append(list, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the scenarios in %s: %w", filepath.Join(folder, root), err)
	}
	if len(list) == 0 && len(mistakes) == 0 {
		return nil, fmt.Errorf("there is no scenario in %s; scenarios are files ending in .yaml", filepath.Join(folder, root))
	}
	return list, errors.Join(mistakes...)
}

// isScenario tells scenarios from the inputs that lie beside them.
func isScenario(p string) bool {
	return strings.HasSuffix(p, ".yaml") && path.Base(path.Dir(p)) != "inputs"
}

// Find returns the scenarios a name stands for: a file, a folder of files, or
// a built-in scenario.
func Find(name string) ([]*Scenario, error) {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return load(os.DirFS(name), ".", name, os.ReadFile)
	case err == nil:
		s, err := Load(name)
		if err != nil {
			return nil, err
		}
		return []*Scenario{s}, nil
	}
	s, err := builtIn(name)
	switch {
	case err != nil:
		return nil, err
	case s == nil && strings.ContainsAny(name, "./"):
		return nil, fmt.Errorf("%s is not there; name a scenario file, a folder of them, or one that adit scenario list names", name)
	case s == nil:
		return nil, fmt.Errorf("%s is no file, folder or built-in scenario%s; adit scenario list names those", name, nearest(name))
	}
	return []*Scenario{s}, nil
}

// builtIn is the built-in scenario of that name, or nil.
func builtIn(name string) (*Scenario, error) {
	all, err := Suite()
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, func(s *Scenario) bool { return s.Name == name }); i >= 0 {
		return all[i], nil
	}
	return nil, nil
}

func nearest(name string) string {
	all, _ := Suite()
	for _, s := range all {
		if strings.Contains(s.Name, name) || strings.Contains(name, s.Name) {
			return fmt.Sprintf(" (did you mean %s?)", s.Name)
		}
	}
	return ""
}

// Source returns the text of a built-in scenario.
func Source(name string) ([]byte, error) {
	s, err := builtIn(name)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("%s is no built-in scenario%s; adit scenario list names those", name, nearest(name))
	}
	return suite.ReadFile(s.File)
}
