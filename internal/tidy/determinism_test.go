// SPDX-License-Identifier: Apache-2.0

package tidy

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// deterministic are the rooms in which a run is a function of its seed.
var deterministic = []string{
	"agents", "api", "config", "hardware", "hwsim", "internal/wiring", "kubesim", "operator", "reports", "scenarios", "sim", "testbed",
}

// banned maps an import path to the names that a deterministic room may not
// use (nil: any), and says what to use instead.
var banned = map[string]struct {
	names   []string
	instead string
}{
	"time":                   {[]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}, "take a clock; wait by returning RequeueAfter"},
	"context":                {[]string{"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"}, "it reads the wall clock; the caller's context carries the deadline"},
	"math/rand":              {nil, "take a *rand.Rand of math/rand/v2 from the scheduler"},
	"crypto/rand":            {nil, "take a *rand.Rand of math/rand/v2 from the scheduler"},
	"math/rand/v2":           {[]string{"Int", "IntN", "Int32", "Int32N", "Int64", "Int64N", "Uint32", "Uint32N", "Uint64", "Uint64N", "UintN", "Uint", "N", "Float32", "Float64", "NormFloat64", "ExpFloat64", "Perm", "Shuffle"}, "take a *rand.Rand from the scheduler"},
	"os":                     {[]string{"Getenv", "LookupEnv", "Environ", "Hostname", "Getpid"}, "configuration is read in cmd/ and handed down"},
	"github.com/google/uuid": {[]string{"New", "NewString", "NewRandom", "NewUUID", "NewV6", "NewV7"}, "it rolls dice; derive it with NewSHA1 or draw it from the scheduler"},
	"k8s.io/utils/clock":     {[]string{"RealClock"}, "take a clock"},
	"sync/atomic":            {nil, "the baton orders everything here; nothing runs beside"},
}

// The names of bans that are no call's.
const (
	goStatement = "go"
	mapOrder    = "map order" // see maporder_test.go
)

type exception struct{ file, ban, reason string }

// exceptions are the files that may do what is banned, each for its reason. One
// that is no longer needed is an error, so that the list stays true.
var exceptions = []exception{
	{"sim/task.go", goStatement, "the one place where tasks get their goroutines; the baton orders them"},
	{"kubesim/goroutines.go", goStatement, "controller-runtime's controllers bring their own workers, which the scheduler adopts one by one"},
	{"kubesim/goroutines.go", "select", "the scheduler stands still until one of the two has come, and the other cannot come with it"},
	{"kubesim/sources.go", "select", "the second case is the end of the process, after which nothing of it counts"},
	{"kubesim/apply.go", mapOrder, "fills a set"},
	{"kubesim/cache.go", mapOrder, "at most one entry is of the kind looked for"},
	{"kubesim/informer.go", mapOrder, "indexes do not know each other"},
	{"scenarios/bubble.go", "time.Sleep", "moves the synctest bubble's clock, which is virtual"},
}

// violation is a banned thing that was found.
type violation struct{ file, ban, at, instead string }

func TestDeterministicRoomsReadNoClockRollNoDiceStartNothing(t *testing.T) {
	var found []violation
	for _, s := range sources(t) {
		if isDeterministic(s) {
			found = append(found, violations(s)...)
		}
	}
	report(t, found, func(e exception) bool { return e.ban != mapOrder })
}

func isDeterministic(s source) bool {
	return !s.isTest() && slices.ContainsFunc(deterministic, func(room string) bool { return strings.HasPrefix(s.name, room+"/") })
}

// report complains of what was found and has no exception, and of exceptions
// among those that concern it for which nothing was found.
func report(t *testing.T, found []violation, concerns func(exception) bool) {
	t.Helper()
	used := map[exception]bool{}
	for _, v := range found {
		i := slices.IndexFunc(exceptions, func(e exception) bool { return e.file == v.file && e.ban == v.ban })
		if i < 0 {
			t.Errorf("%s: %s is banned here: %s", v.at, v.ban, v.instead)
			continue
		}
		used[exceptions[i]] = true
	}
	for _, e := range exceptions {
		if concerns(e) && !used[e] {
			t.Errorf("the exception of %s for %s (%s) is not needed any more; remove it", e.ban, e.file, e.reason)
		}
	}
}

func violations(s source) []violation {
	var found []violation
	add := func(n ast.Node, ban, instead string) {
		found = append(found, violation{s.name, ban, s.at(n), instead})
	}
	names := map[string]string{} // local name → import path
	for _, spec := range s.ast.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if rule, ok := banned[path]; ok && rule.names == nil {
			add(spec, path, rule.instead)
		}
		name := strings.TrimSuffix(path, "/v2")
		name = name[strings.LastIndex(name, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if _, ok := banned[path]; ok && name == "." {
			add(spec, path, "import it by its name, so that its use can be seen")
		}
		names[name] = path
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			add(n, goStatement, "start a task of the scheduler, or return")
		case *ast.SelectStmt:
			add(n, "select", "which ready case wins is random; the scheduler's events have an order")
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok || x.Obj != nil { // x.Obj: a local variable that hides the import
				return true
			}
			if rule, ok := banned[names[x.Name]]; ok && slices.Contains(rule.names, n.Sel.Name) {
				add(n, x.Name+"."+n.Sel.Name, rule.instead)
			}
		}
		return true
	})
	return found
}

func TestTheBanIsSeen(t *testing.T) {
	const bad = `package bad
import (
	clock "time"
	"math/rand"
)
func f() { go f(); _ = clock.Now(); _ = rand.Int(); select {} }
func g(clock interface{ Now() int }) int { return clock.Now() }
`
	var bans []string
	for _, v := range violations(parse(t, "bad.go", bad)) {
		bans = append(bans, v.ban)
	}
	slices.Sort(bans)
	if want := []string{"clock.Now", "go", "math/rand", "select"}; !slices.Equal(bans, want) {
		t.Errorf("found %q, want %q", bans, want)
	}
}
