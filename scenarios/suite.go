// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"embed"
	"fmt"
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
	return load(suite, "suite", "", func(name string) ([]byte, error) { return suite.ReadFile(path.Clean(filepath.ToSlash(name))) })
}

// load reads all scenarios below root, which folder is the place of; read opens
// the files they name.
func load(files fs.FS, root, folder string, read func(string) ([]byte, error)) ([]*Scenario, error) {
	var list []*Scenario
	err := fs.WalkDir(files, root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isScenario(p) {
			return err
		}
		data, err := fs.ReadFile(files, p)
		if err != nil {
			return err
		}
		s, err := Parse(filepath.Join(folder, p), data, read)
		if err != nil {
			return err
		}
		list = append(list, s)
		return nil
	})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("there is no scenario in %s; scenarios are files ending in .yaml", filepath.Join(folder, root))
	}
	return list, err
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
	all, err := Suite()
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, func(s *Scenario) bool { return s.Name == name }); i >= 0 {
		return all[i : i+1], nil
	}
	return nil, fmt.Errorf("%s is no file, folder or built-in scenario; adit scenario list names those%s", name, nearest(name, all))
}

func nearest(name string, all []*Scenario) string {
	for _, s := range all {
		if strings.Contains(s.Name, name) || strings.Contains(name, s.Name) {
			return fmt.Sprintf(" (did you mean %s?)", s.Name)
		}
	}
	return ""
}

// Source returns the text of a built-in scenario.
func Source(name string) ([]byte, error) {
	found, err := Find(name)
	if err != nil {
		return nil, err
	}
	return suite.ReadFile(found[0].File)
}
