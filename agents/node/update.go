// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
)

const (
	// updateTries is the schema's default of updateStatus.retry.
	updateTries = 3

	// updateBackoff lies between a failed try and the next.
	updateBackoff = time.Minute

	// updateLook is how often a running update is looked at; a download takes
	// minutes.
	updateLook = 15 * time.Second

	// updateBegins is how long systemd may take from queueing the job to the
	// first sign of it. An idle one takes milliseconds.
	updateBegins = 5 * time.Second

	latest = "latest"
)

type updateView struct {
	now       time.Time
	wanted    string   // spec.version
	reboot    bool     // spec.reboot
	keepVMs   bool     // spec.evacuateOnReboot: no reboot under running VMs
	versions  []string // names of the version that runs; the first is for people
	boot      hardware.Boot
	activeVMs int // -1: not known
	unit      hardware.Unit
	asked     time.Time // when this process asked for the update; zero: it did not

	status    *kvmv1.UpdateStatus
	condition metav1.Condition // as it stands
}

type updatePlan struct {
	status    *kvmv1.UpdateStatus
	condition metav1.Condition // Type "": stays
	start     bool             // StartUpdate
	reboot    bool             // RebootHost
	lookAgain time.Duration
}

// decideUpdate carries an operating system update one step forward.
//
//	wanted version runs            True  Completed
//	installed, not yet rebooted    True  Completed  reboot when allowed and empty
//	installed, rebooted into else  False Stopped    for good
//	under way, unit works          True  Running
//	under way, unit failed         False Stopped    again after a minute, thrice
//	under way, unit ended well     True  Completed
//	not begun, tries left          True  Running    start
//	not begun, none left           False Stopped    until spec.version changes
func decideUpdate(v updateView) updatePlan {
	if v.wanted == "" {
		return v.unwanted()
	}
	s := kvmv1.UpdateStatus{Installed: "unknown", Retry: updateTries}
	if v.status != nil {
		s = *v.status
	}
	// The status does not say which version it is about; our message does.
	if s.InProgress && v.condition.Message != updateRuns(v.wanted) ||
		v.condition.Reason == kvmv1.ReasonStopped && !strings.HasPrefix(v.condition.Message, v.wanted+" update ") {
		s.InProgress, s.Retry = false, updateTries
	}
	switch {
	case v.runs(v.wanted) && v.status == nil:
		return updatePlan{}
	case v.runs(v.wanted):
		s = kvmv1.UpdateStatus{Installed: v.wanted, Retry: updateTries}
		return updatePlan{status: &s, condition: updateCompleted(v.wanted, "")}
	case s.InProgress:
		return v.progress(s)
	case s.Installed == v.wanted:
		return v.installed(s)
	}
	return v.begin(s)
}

// unwanted leaves things as they are; whoever clears spec.version and sets it
// again gets new tries.
func (v updateView) unwanted() updatePlan {
	if v.status == nil || v.status.Retry > 0 {
		return updatePlan{status: v.status}
	}
	s := *v.status
	s.Retry = updateTries
	return updatePlan{status: &s}
}

func (v updateView) runs(version string) bool { return slices.Contains(v.versions, version) }

// thisBoot marks what was installed during the present boot.
func (v updateView) thisBoot() string { return "boot " + v.boot.ID }

func (v updateView) progress(s kvmv1.UpdateStatus) updatePlan {
	u := v.unit
	switch {
	case u.Load == "not-found" || u.Load == "masked" || u.Load == "bad-setting" || u.Load == "error":
		return v.fail(s, fmt.Sprintf("%s is %s", u.Name, u.Load))
	case u.Active == "failed":
		return v.fail(s, u.Result)
	case u.Active == "active" && u.Sub == "exited":
		return v.ended(s)
	case u.Active == "inactive":
		return v.idle(s)
	}
	return v.running(s)
}

// idle judges an update unit that does nothing: it has ended, or not begun, or
// a reboot has cut it short.
func (v updateView) idle(s kvmv1.UpdateStatus) updatePlan {
	switch {
	case !v.asked.IsZero() && v.now.Sub(v.asked) < updateBegins:
		return v.running(s)
	case v.asked.IsZero() && !v.unit.ChangedAt.After(v.now.Add(-v.boot.Uptime)):
		return v.fail(s, "interrupted by a restart")
	case v.unit.Result != "" && v.unit.Result != "success":
		return v.fail(s, v.unit.Result)
	}
	return v.ended(s)
}

func (v updateView) running(s kvmv1.UpdateStatus) updatePlan {
	s.InProgress = true
	return updatePlan{status: &s, condition: updateRunning(v.wanted), lookAgain: updateLook}
}

func (v updateView) ended(s kvmv1.UpdateStatus) updatePlan {
	s.InProgress, s.Installed, s.Retry = false, v.wanted, updateTries
	return updatePlan{
		status:    &s,
		condition: updateCompleted(v.wanted, fmt.Sprintf("; %s runs %s until the host reboots", v.thisBoot(), v.version())),
		lookAgain: updateLook,
	}
}

func (v updateView) version() string {
	if len(v.versions) == 0 {
		return "another version"
	}
	return v.versions[0]
}

func (v updateView) installed(s kvmv1.UpdateStatus) updatePlan {
	p := updatePlan{status: &s}
	switch {
	case v.boot.ID == "":
	case strings.Contains(v.condition.Message, v.thisBoot()):
		p.condition, p.reboot = v.rebootDue()
	case v.wanted == latest:
		p.condition = updateCompleted(v.wanted, "")
	default:
		p.condition = updateStopped(fmt.Sprintf("%s update is installed, but the host booted %s; look at its boot entries, then change spec.version", v.wanted, v.version()))
	}
	return p
}

func (v updateView) rebootDue() (c metav1.Condition, reboot bool) {
	runs := fmt.Sprintf("; %s runs %s until the host reboots", v.thisBoot(), v.version())
	switch {
	case !v.reboot:
		return updateCompleted(v.wanted, runs), false
	case v.keepVMs && v.activeVMs < 0:
		return updateCompleted(v.wanted, runs+", which waits until libvirt can tell that no VM runs"), false
	case v.keepVMs && v.activeVMs > 0:
		return updateCompleted(v.wanted, fmt.Sprintf("%s, which waits for %d VMs to leave", runs, v.activeVMs)), false
	}
	return updateCompleted(v.wanted, runs+", which has been asked for"), true
}

func (v updateView) begin(s kvmv1.UpdateStatus) updatePlan {
	if s.Retry <= 0 {
		return updatePlan{status: &s}
	}
	if v.condition.Reason == kvmv1.ReasonStopped {
		if wait := updateBackoff - v.now.Sub(v.condition.LastTransitionTime.Time); wait > 0 && s.Retry < updateTries {
			return updatePlan{status: &s, lookAgain: wait}
		}
	}
	p := v.running(s)
	p.start = v.unit.Active != "activating" && (v.unit.Active != "active" || v.unit.Sub == "exited")
	return p
}

func (v updateView) fail(s kvmv1.UpdateStatus, why string) updatePlan {
	s.InProgress = false
	s.Retry--
	message := fmt.Sprintf("%s update has failed", v.wanted)
	if why != "" {
		message += ": " + why
	}
	if s.Retry > 0 {
		message += fmt.Sprintf("; tries left: %d", s.Retry)
	} else {
		message += "; no try is left: mend the cause, then clear spec.version and set it again"
	}
	return updatePlan{status: &s, condition: updateStopped(message), lookAgain: updateBackoff}
}

// notStarted is the plan after StartUpdate went wrong.
func (v updateView) notStarted(p updatePlan, err error) updatePlan {
	switch hardware.ConsequenceOf(err) {
	case hardware.Refused:
		return v.fail(*p.status, err.Error())
	case hardware.Unavailable:
		s := *p.status
		s.InProgress = false
		return updatePlan{status: &s, condition: updateStopped(fmt.Sprintf("%s update cannot start: %v", v.wanted, err)), lookAgain: updateBackoff}
	}
	return p // it may run: look
}

func updateRuns(version string) string {
	return fmt.Sprintf("Operating system update to %s is running", version)
}

func updateRunning(version string) metav1.Condition {
	return metav1.Condition{Type: kvmv1.ConditionOperatingSystemUpdate, Status: metav1.ConditionTrue, Reason: kvmv1.ReasonRunning, Message: updateRuns(version)}
}

func updateCompleted(version, more string) metav1.Condition {
	return metav1.Condition{
		Type: kvmv1.ConditionOperatingSystemUpdate, Status: metav1.ConditionTrue, Reason: kvmv1.ReasonCompleted,
		Message: fmt.Sprintf("Operating system update %s is installed%s", version, more),
	}
}

func updateStopped(message string) metav1.Condition {
	return metav1.Condition{Type: kvmv1.ConditionOperatingSystemUpdate, Status: metav1.ConditionFalse, Reason: kvmv1.ReasonStopped, Message: message}
}
