// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"bytes"
	"context"
	"encoding/json"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// browser finds a Chromium, or skips the test and says what that means.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("NOT RUN: no Chromium is installed, so nobody has looked whether the page works in a browser; install the package chromium")
	return ""
}

// probed is what testdata/probe.js saw.
type probed struct {
	Errors   []string `json:"errors"`
	List     bool     `json:"list"`
	Run      bool     `json:"run"`
	Rows     int      `json:"rows"`
	Filtered int      `json:"filtered"`
	Sideways bool     `json:"sideways"`
	Colours  int      `json:"colours"`
	Mini     int      `json:"mini"`
	After    int      `json:"after"`
	Tips     []string `json:"tips"`
	Hash     string   `json:"hash"`

	Recoveries int `json:"recoveries"` // rows of their tables
	Decisions  int `json:"decisions"`
}

// open loads a page with the probe in it.
func open(t *testing.T, chromium string, page []byte, hash, window string) probed {
	t.Helper()
	probe, err := os.ReadFile("testdata/probe.js")
	if err != nil {
		t.Fatal(err)
	}
	page = bytes.Replace(page, []byte("<head>"), []byte(`<head><script>window.probeErrors = []; addEventListener("error", (e) => probeErrors.push(e.message)); addEventListener("securitypolicyviolation", (e) => probeErrors.push("fetches " + e.blockedURI))</script>`), 1)
	page = bytes.Replace(page, []byte("</body>"), []byte("<script>"+string(probe)+"</script></body>"), 1)
	dir := t.TempDir()
	file := filepath.Join(dir, "index.html")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
		"--no-first-run", "--enable-logging=stderr", "--user-data-dir="+filepath.Join(dir, "profile"), "--window-size="+window, "--virtual-time-budget=4000", "--dump-dom", "file://"+file+hash)
	// The browser's children can outlive it and hold its pipes.
	cmd.WaitDelay = 5 * time.Second
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, log.String())
	}
	for l := range strings.Lines(log.String()) {
		if strings.Contains(l, "CONSOLE") {
			t.Errorf("console: %s", l)
		}
	}
	found := regexp.MustCompile(`(?s)id="probe">PROBE(.*)END</pre>`).FindStringSubmatch(out.String())
	if found == nil {
		t.Fatalf("the probe said nothing\n%s", log.String())
	}
	var p probed
	if err := json.Unmarshal([]byte(html.UnescapeString(found[1])), &p); err != nil {
		t.Fatal(err)
	}
	for _, e := range p.Errors {
		t.Errorf("error in the page: %s", e)
	}
	if p.Sideways {
		t.Error("the page scrolls sideways")
	}
	return p
}

func TestPageWorksInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN: a browser takes seconds, and -short was asked for")
	}
	chromium := browser(t)
	page := []byte(render(t, Page, sample()))

	t.Run("the list can be filtered and sorted", func(t *testing.T) {
		p := open(t, chromium, page, "", "1600,1400")
		if !p.List || p.Run || p.Rows != 4 || p.Filtered != 0 {
			t.Errorf("saw %+v", p)
		}
	})
	for name, c := range map[string]struct{ hash, window string }{
		"a drain":               {"#/drain-under-faults/2/sim", "1600,1400"},
		"a drain, dark, narrow": {"?theme=dark#/drain-under-faults/1/sim", "800,1000"},
		"a part of a drain":     {"#/drain-under-faults/2/sim?t=200-400", "1600,1400"},
		"a fleet":               {"#/rack-loss/1/sim", "1600,1400"},
	} {
		t.Run(name+" is drawn and answers", func(t *testing.T) {
			p := open(t, chromium, page, c.hash, c.window)
			if p.List || !p.Run || p.Colours < 30 || p.Mini < 5 || p.After < 20 {
				t.Errorf("saw %+v", p)
			}
			if !slices.ContainsFunc(p.Tips, func(tip string) bool { return strings.Contains(tip, "zone") }) {
				t.Errorf("pointing at hosts tells %q", p.Tips)
			}
			if name == "a fleet" && (p.Recoveries < 100 || p.Decisions < 20) {
				t.Errorf("%d VMs that ran again and %d decisions are listed", p.Recoveries, p.Decisions)
			}
			if strings.Contains(name, "drain") {
				for _, words := range []string{"state host from – to lasted group UUID", "result mode from – to took switch-over", "on from – to lasted", "kind at"} {
					if !slices.ContainsFunc(p.Tips, func(tip string) bool { return strings.HasPrefix(tip, words) }) {
						t.Errorf("nothing tells %q; there is %q", words, p.Tips)
					}
				}
			}
		})
	}
	t.Run("runs that are rows only say so", func(t *testing.T) {
		if p := open(t, chromium, page, "#/api-brownout/7/sim", "1600,1400"); !p.Run || p.Colours != 0 {
			t.Errorf("saw %+v", p)
		}
	})
	t.Run("a link to no run shows the list", func(t *testing.T) {
		if p := open(t, chromium, page, "#/nothing%ZZ/1", "1600,1400"); !p.List {
			t.Errorf("saw %+v", p)
		}
	})
	t.Run("an empty suite opens", func(t *testing.T) {
		if p := open(t, chromium, []byte(render(t, Page, Suite{})), "", "1600,1400"); !p.List {
			t.Errorf("saw %+v", p)
		}
	})
	t.Run("more than can be drawn is counted", func(t *testing.T) {
		s := Suite{Records: []Record{restless(100_000)}}
		if p := open(t, chromium, []byte(render(t, Page, s)), "#/restless/1/sim", "1600,1400"); p.Colours < 3 {
			t.Errorf("saw %+v", p)
		}
	})
}
