// SPDX-License-Identifier: Apache-2.0

package tidy

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// alsoInTests are the rooms that a room's tests may use beside those of its row
// in ARCHITECTURE.md: the simulators, as subjects or as surroundings, and the
// suite they have to pass. A test may look up, code may not.
var alsoInTests = map[string][]string{
	"api":           {"config/crd"},
	"config/crd":    {"api", "internal/controlplane", "kubesim"},
	"hardware":      {"hwsim", "sim"},
	"cmd/operator":  {"config/rbac", "internal/controlplane"},
	"live":          {"internal/controlplane", "reports", "scenarios"},
	"kubesim":       {"api", "config/crd", "internal/wiring"},
	"agents/node":   {"config/crd", "hwsim", "kubesim", "sim"},
	"agents/nova":   {"config/crd", "hwsim", "kubesim", "sim"},
	"agents/ha":     {"hwsim", "kubesim", "sim"},
	"operator":      {"config/crd", "kubesim", "sim"},
	"internal/tidy": {"scenarios", "testbed"},
}

// floors reads the table of ARCHITECTURE.md: each room and what it may import.
// The table is the law; there is no second copy of it here.
func floors(t *testing.T) map[string][]string {
	t.Helper()
	_, table, found := strings.Cut(read(t, "ARCHITECTURE.md"), "| room | what lives there | may import |\n")
	if !found {
		t.Fatal("ARCHITECTURE.md has no table of floors")
	}
	quoted := regexp.MustCompile("`([a-z/.-]+)`")
	rooms := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			break
		}
		var imports []string
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			imports = append(imports, strings.TrimSuffix(m[1], "/"))
		}
		if strings.Contains(cells[3], "all of the above") {
			imports = slices.Concat(imports, slices.Collect(maps.Keys(rooms)))
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			rooms[strings.TrimSuffix(m[1], "/")] = imports
		}
	}
	return rooms
}

// roomOf is the longest room that holds dir.
func roomOf(rooms map[string][]string, dir string) string {
	best := ""
	for room := range rooms {
		if (dir == room || strings.HasPrefix(dir, room+"/")) && len(room) > len(best) {
			best = room
		}
	}
	return best
}

func TestAFloorImportsOnlyWhatStandsInItsRow(t *testing.T) {
	rooms := floors(t)
	if len(rooms) < 10 {
		t.Fatalf("the table of floors was not understood: %v", rooms)
	}
	for _, s := range sources(t) {
		from := roomOf(rooms, s.dir())
		if from == "" {
			t.Errorf("%s belongs to no floor; give %s a row in ARCHITECTURE.md", s.name, s.dir())
			continue
		}
		allowed := append([]string{from}, rooms[from]...)
		if s.isTest() {
			allowed = append(allowed, alsoInTests[from]...)
		}
		for _, spec := range s.ast.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			imported, ours := strings.CutPrefix(path, module)
			if to := roomOf(rooms, imported); ours && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: the row of %s in ARCHITECTURE.md does not allow it", s.at(spec), imported, from)
			}
		}
	}
}

func TestEachRoomOfTheTableIsThere(t *testing.T) {
	rooms, there := floors(t), map[string]bool{}
	for _, s := range sources(t) {
		there[roomOf(rooms, s.dir())] = true
	}
	for room := range rooms {
		if !there[room] {
			t.Errorf("ARCHITECTURE.md gives %s a row, and there is no Go file in it", room)
		}
	}
}
