// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
)

// updating is a host that goes through an update, as the agent sees it.
type updating struct {
	v updateView
}

func newUpdating() *updating {
	return &updating{updateView{
		now: noon, wanted: "1934.0", versions: []string{"1933.0"},
		boot: hardware.Boot{ID: "b1", Uptime: time.Hour},
		unit: hardware.Unit{Name: "systemd-sysupdate@1934.0.service", Load: "loaded", Active: "inactive", Sub: "dead", Oneshot: true},
	}}
}

// look is one reconcile: it decides and lets the status be what was decided.
func (u *updating) look() updatePlan {
	p := decideUpdate(u.v)
	u.v.status = p.status
	if p.condition.Type != "" {
		if u.v.condition.Status != p.condition.Status {
			p.condition.LastTransitionTime = metav1.NewTime(u.v.now)
		} else {
			p.condition.LastTransitionTime = u.v.condition.LastTransitionTime
		}
		u.v.condition = p.condition
	}
	if p.start {
		u.v.asked = u.v.now
	}
	return p
}

func (u *updating) unit(active, sub, result string) {
	u.v.unit.Active, u.v.unit.Sub, u.v.unit.Result = active, sub, result
	u.v.unit.ChangedAt = u.v.now
}

func (u *updating) wait(d time.Duration) {
	u.v.now = u.v.now.Add(d)
	u.v.boot.Uptime += d
}

func (u *updating) rebooted(version string) {
	u.v.boot, u.v.asked, u.v.versions = hardware.Boot{ID: u.v.boot.ID + "+", Uptime: time.Minute}, time.Time{}, []string{version}
	u.v.unit.Active, u.v.unit.Sub, u.v.unit.ChangedAt = "inactive", "dead", time.Time{}
}

func (u *updating) expect(t *testing.T, reason, says string) {
	t.Helper()
	if c := u.v.condition; c.Reason != reason || !strings.Contains(c.Message, says) {
		t.Fatalf("%s %q, want %s %q", c.Reason, c.Message, reason, says)
	}
}

func TestAnUpdateThatWorks(t *testing.T) {
	u := newUpdating()
	u.v.reboot = true
	if p := u.look(); !p.start {
		t.Fatal("the first look did not start it")
	}
	u.expect(t, "Running", "Operating system update to 1934.0 is running")
	if p := u.look(); p.start || !p.status.InProgress {
		t.Fatal("started twice, or taken for done before systemd began")
	}
	u.wait(10 * time.Second)
	u.unit("activating", "start", "success")
	for range 20 {
		u.wait(updateLook)
		if p := u.look(); p.start || !p.status.InProgress {
			t.Fatal("a oneshot unit that works was not taken for running")
		}
	}
	u.unit("inactive", "dead", "success")
	if p := u.look(); p.reboot || p.status.Installed != "1934.0" || p.status.InProgress {
		t.Fatalf("%+v", p)
	}
	u.expect(t, "Completed", "Operating system update 1934.0 is installed; boot b1 runs 1933.0 until the host reboots")
	if p := u.look(); !p.reboot {
		t.Fatal("did not reboot")
	}
	u.rebooted("1934.0")
	if p := u.look(); p.start || p.reboot {
		t.Fatal("goes on after it is done")
	}
	if u.v.condition.Message != "Operating system update 1934.0 is installed" {
		t.Fatal(u.v.condition.Message)
	}
}

func TestAnUpdateThatFailsIsTriedThrice(t *testing.T) {
	u := newUpdating()
	starts := 0
	for range 100 {
		if p := u.look(); p.start {
			starts++
			u.wait(10 * time.Second)
			u.unit("failed", "failed", "exit-code")
			continue
		}
		u.wait(updateLook)
	}
	if starts != 3 || u.v.status.Retry != 0 || u.v.status.InProgress {
		t.Fatalf("%d starts, %+v", starts, u.v.status)
	}
	u.expect(t, "Stopped", "1934.0 update has failed: exit-code; no try is left")

	u.v.wanted = "1935.0"
	if p := u.look(); !p.start || p.status.Retry != 3 {
		t.Fatalf("another version did not get tries of its own: %+v", p)
	}
}

func TestClearingTheVersionGivesNewTries(t *testing.T) {
	u := newUpdating()
	u.v.status = &kvmv1.UpdateStatus{Installed: "unknown", Retry: 0}
	u.v.condition = updateStopped("1934.0 update has failed; no try is left")
	u.v.wanted = ""
	u.look()
	u.v.wanted = "1934.0"
	if p := u.look(); !p.start {
		t.Fatalf("%+v", p)
	}
}

func TestUpdate(t *testing.T) {
	running := func(u *updating) {
		u.v.status = &kvmv1.UpdateStatus{InProgress: true, Installed: "unknown", Retry: 3}
		u.v.condition = updateRunning("1934.0")
	}
	installed := func(u *updating) {
		u.v.status = &kvmv1.UpdateStatus{Installed: "1934.0", Retry: 3}
		u.v.condition = updateCompleted("1934.0", "; boot b1 runs 1933.0 until the host reboots")
	}
	for name, c := range map[string]struct {
		set    func(*updating)
		reason string
		says   string
		start  bool
		reboot bool
	}{
		"nobody wants one":              {func(u *updating) { u.v.wanted = "" }, "", "", false, false},
		"the version runs already":      {func(u *updating) { u.v.versions = []string{"1934.0"} }, "", "", false, false},
		"somebody else started it":      {func(u *updating) { u.unit("activating", "start", "") }, "Running", "is running", false, false},
		"interrupted by a reboot":       {func(u *updating) { running(u); u.rebooted("1933.0") }, "Stopped", "interrupted by a restart; tries left: 2", false, false},
		"ended while the agent was off": {func(u *updating) { running(u); u.unit("inactive", "dead", "success") }, "Completed", "is installed", false, false},
		"failed while it was off":       {func(u *updating) { running(u); u.unit("inactive", "dead", "timeout") }, "Stopped", "timeout", false, false},
		"the unit is not installed":     {func(u *updating) { running(u); u.v.unit.Load = "not-found" }, "Stopped", "systemd-sysupdate@1934.0.service is not-found", false, false},
		"a word nobody knows":           {func(u *updating) { running(u); u.unit("refreshing", "x", "") }, "Running", "is running", false, false},
		"systemd does not answer":       {func(u *updating) { running(u); u.v.unit = hardware.Unit{} }, "Running", "is running", false, false},
		"no reboot is allowed":          {installed, "Completed", "until the host reboots", false, false},
		"VMs run": {func(u *updating) {
			installed(u)
			u.v.reboot, u.v.keepVMs, u.v.activeVMs = true, true, 3
		}, "Completed", "waits for 3 VMs to leave", false, false},
		"nobody can tell whether VMs run": {func(u *updating) {
			installed(u)
			u.v.reboot, u.v.keepVMs, u.v.activeVMs = true, true, -1
		}, "Completed", "waits until libvirt can tell", false, false},
		"VMs run and need not be moved": {func(u *updating) {
			installed(u)
			u.v.reboot, u.v.activeVMs = true, 3
		}, "Completed", "has been asked for", false, true},
		"booted into the old version": {func(u *updating) {
			installed(u)
			u.v.reboot = true
			u.rebooted("1933.0")
		}, "Stopped", "1934.0 update is installed, but the host booted 1933.0", false, false},
		"the boot is not known": {func(u *updating) {
			installed(u)
			u.v.reboot, u.v.boot = true, hardware.Boot{}
		}, "Completed", "is installed", false, false},
		"the latest is installed and booted": {func(u *updating) {
			u.v.wanted = latest
			u.v.status = &kvmv1.UpdateStatus{Installed: latest, Retry: 3}
			u.v.condition = updateCompleted(latest, "; boot b0 runs 1933.0 until the host reboots")
		}, "Completed", "Operating system update latest is installed", false, false},
		"another version is wanted while one is under way": {func(u *updating) { running(u); u.v.wanted = "1935.0" }, "Running", "to 1935.0 is running", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpdating()
			c.set(u)
			p := u.look()
			if u.v.condition.Reason != c.reason || !strings.Contains(u.v.condition.Message, c.says) {
				t.Errorf("%s %q, want %s %q", u.v.condition.Reason, u.v.condition.Message, c.reason, c.says)
			}
			if p.start != c.start || p.reboot != c.reboot {
				t.Errorf("start %t reboot %t, want %t %t", p.start, p.reboot, c.start, c.reboot)
			}
		})
	}
}

func TestAnUpdateThatCannotStart(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		says string
		left int
	}{
		"refused":     {hardware.Fail(hardware.Refused, hardware.ReasonUnsupported, "update", "host", "no such unit"), "1934.0 update has failed", 2},
		"unavailable": {hardware.Fail(hardware.Unavailable, "", "update", "host", "no bus"), "1934.0 update cannot start", 3},
		"unknown":     {errors.New("timed out"), "is running", 3},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpdating()
			p := u.v.notStarted(decideUpdate(u.v), c.err)
			if !strings.Contains(p.condition.Message, c.says) || p.status.Retry != c.left {
				t.Errorf("%q, %d tries left; want %q, %d", p.condition.Message, p.status.Retry, c.says, c.left)
			}
		})
	}
}
