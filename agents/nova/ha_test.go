// SPDX-License-Identifier: Apache-2.0

package nova_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/agents/permit"
	"github.com/adit-hv/adit/api/kubevirt"
	"github.com/adit-hv/adit/hwsim"
)

// newHAWorld is a world whose hosts need a permit; the test plays the HA agent by
// hand, too.
func newHAWorld(t *testing.T, hosts ...string) *world {
	t.Helper()
	return buildWorld(&world{T: t, ha: true}, hosts...)
}

// grant lets a host run protected VMs, and renews its permit until it is revoked.
func (w *world) grant(host string) {
	w.Helper()
	w.leases[host] = true
	w.renew(host)
}

func (w *world) renew(host string) {
	if !w.leases[host] {
		return
	}
	h := w.fleet.Host(host)
	boot, err := h.Hardware("ha").Boot(w.Context())
	if err == nil {
		p := permit.Permit{Until: boot.Uptime + 20*time.Second, Boot: boot.ID}
		err = h.Hardware("ha").SaveNote(w.Context(), permit.NoteName, p.Encode())
	}
	w.must(err)
	w.s.After(5*time.Second, func() { w.renew(host) })
}

// lapse ends a host's permit and stops its protected VMs.
func (w *world) lapse(host string, orderly bool) {
	w.Helper()
	w.leases[host] = false
	w.run(20 * time.Second)
	hw := w.fleet.Host(host).Hardware("ha")
	domains, err := hw.Domains(w.Context())
	w.must(err)
	var stopped permit.Stopped
	for _, d := range domains {
		if d.Active() && d.Spec.Owner != nil && d.Spec.Owner.Protected {
			stopped.Domains = append(stopped.Domains, d.UUID)
		}
	}
	w.must(hw.SaveNote(w.Context(), permit.StoppedName, stopped.Encode()))
	for _, uuid := range stopped.Domains {
		if orderly {
			w.must(hw.Shutdown(w.Context(), uuid))
		} else {
			w.must(hw.Destroy(w.Context(), uuid))
		}
	}
}

func (w *world) protected(name, host string) *kubevirtv1.VirtualMachineInstance {
	w.Helper()
	v := w.place(name, host)
	w.change(name, func(v *kubevirtv1.VirtualMachineInstance) { v.Labels[kubevirt.LabelProtected] = "true" })
	return v
}

func (w *world) reasonOf(name string) string {
	w.Helper()
	v := w.get(name)
	for _, c := range v.Status.Conditions {
		if c.Type == kubevirtv1.VirtualMachineInstanceReady {
			return strings.TrimSuffix(string(c.Status)+"/"+c.Reason, "/")
		}
	}
	return ""
}

func (w *world) restartAgent(host string) {
	w.agents[host].Crash()
	w.run(time.Second)
	w.agents[host].Start()
}

func TestNoPermitNoStart(t *testing.T) {
	w := newHAWorld(t, "a")
	w.protected("web", "a")
	v := w.place("free", "a")
	w.change("free", func(v *kubevirtv1.VirtualMachineInstance) {
		v.Annotations[kubevirt.AnnotationHighAvailability] = "false"
	})
	w.run(time.Hour)
	w.want("without a permit", w.phase("web"), "Scheduled@a")
	w.want("one that is not protected", w.phase(v.Name), "Running@a")
	if n := strings.Count(strings.Join(w.writes, ","), "web"); n != 1 {
		t.Errorf("%d writes of an hour's wait, want one that says why", n)
	}
	w.grant("a")
	w.run(10 * time.Second)
	w.want("with one", w.phase("web"), "Running@a")
}

// TestLapse takes the permit from a host, which stops its protected VMs, and
// gives it back: they run again, whatever the agent saw of it.
func TestLapse(t *testing.T) {
	for _, orderly := range []bool{true, false} {
		for _, agent := range []string{"lives", "restarts meanwhile", "is away"} {
			t.Run(fmt.Sprintf("orderly %t, agent %s", orderly, agent), func(t *testing.T) {
				w := newHAWorld(t, "a")
				w.grant("a")
				w.protected("web", "a")
				w.run(time.Minute)
				w.want("started", w.phase("web"), "Running@a")
				if agent == "is away" {
					w.agents["a"].Crash()
				}
				w.lapse("a", orderly)
				w.run(20 * time.Second)
				if agent == "restarts meanwhile" {
					w.restartAgent("a")
				}
				w.run(40 * time.Second)
				w.want("stopped", w.domains("a"), "vms_web shut off")
				w.want("and not ended", w.phase("web"), "Running@a")
				w.grant("a")
				if agent == "is away" {
					w.run(time.Minute) // the permit is back before anybody looks
					w.agents["a"].Start()
				}
				w.run(30 * time.Second)
				w.want("runs again", w.domains("a"), "vms_web running")
				w.want("ready", w.reasonOf("web"), "True")
			})
		}
	}
}

func TestAfterABootNothingStartsBeforeThePermit(t *testing.T) {
	w := newHAWorld(t, "a")
	w.grant("a")
	w.protected("web", "a")
	w.run(time.Minute)
	w.leases["a"] = false
	h := w.fleet.Host("a")
	h.OnDown(w.agents["a"].Crash)
	h.OnBoot(w.agents["a"].Start)
	w.must(w.fleet.Inject(hwsim.Fault{Kind: "host.reboot", On: []string{"a"}}))
	w.run(10 * time.Minute)
	w.want("after the boot", w.domains("a"), "vms_web shut off")
	w.want("it has not ended", w.phase("web"), "Running@a")
	w.want("and says why", w.reasonOf("web"), "False/NoRunPermit")
	w.grant("a")
	w.run(15 * time.Second)
	w.want("with the permit", w.domains("a"), "vms_web running")
}

func TestAStartThatOutlastsItsPermitIsUndone(t *testing.T) {
	w := newHAWorld(t, "a")
	h := w.fleet.Host("a").Hardware("ha")
	boot, err := h.Boot(t.Context())
	w.must(err)
	w.must(h.SaveNote(t.Context(), permit.NoteName, permit.Permit{Until: boot.Uptime + 5*time.Second, Boot: boot.ID}.Encode()))
	started := 0
	w.onCall = func(c hwsim.Call) {
		if c.Name == "Start" && !c.After {
			started++
			w.must(w.fleet.Inject(hwsim.Fault{Kind: "libvirtd.hang", On: []string{"a"}, For: 6 * time.Second}))
		}
	}
	w.protected("web", "a")
	w.run(time.Minute)
	w.want("it is off", w.domains("a"), "vms_web shut off")
	if started != 1 {
		t.Errorf("%d starts, want the one that comes too late", started)
	}
}

// TestCrashLoop kills a protected VM's QEMU again and again: it is started again
// here three times, with patience, though the agent restarts between, and is
// then given up.
func TestCrashLoop(t *testing.T) {
	w := newHAWorld(t, "a")
	w.grant("a")
	w.protected("web", "a")
	w.run(time.Minute)
	kill := func() { w.must(w.fleet.Inject(hwsim.Fault{Kind: "qemu.crash", VM: "vms_web"})) }
	for i, patience := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		kill()
		w.run(patience - 2*time.Second)
		w.want(fmt.Sprint("waits after crash ", i+1), w.domains("a"), "vms_web shut off")
		w.want("and says so", w.reasonOf("web"), "False/Crashed")
		w.run(8 * time.Second)
		w.want(fmt.Sprint("runs after crash ", i+1), w.domains("a"), "vms_web running")
		w.restartAgent("a")
		w.run(20 * time.Second)
	}
	kill()
	w.run(10 * time.Second)
	w.want("given up", w.phase("web"), "Scheduled@a")
	w.want("why", w.reasonOf("web"), "False/RestartsExhausted")
	w.want("nothing is left", w.domains("a"), "")
	w.restartAgent("a")
	w.run(10 * time.Minute)
	w.want("nor comes back", w.domains("a"), "")
	for _, v := range w.fleet.Ledger().Violations() {
		t.Error(v)
	}
}

// TestAVMComesBackFromADeadTarget lets a target die in the instant after the
// switch-over, and the source learns that it runs nothing: placement has the rest.
func TestAVMComesBackFromADeadTarget(t *testing.T) {
	w := newHAWorld(t, "a", "b")
	w.grant("a")
	w.grant("b")
	w.protected("web", "a")
	w.run(30 * time.Second)
	w.agents["b"].CrashAt(1000, 0)
	w.migrate("web", "a", "b")
	for range 60 { // until the guest runs at b and nobody has said so
		w.run(250 * time.Millisecond)
		if w.get("web").Status.MigrationState.TargetNodeAddress != "" && w.agents["b"].Alive() {
			w.agents["b"].Crash()
		}
	}
	w.run(20 * time.Second)
	w.want("moved", w.domains("b"), "vms_web running")
	w.want("and nobody has said so", w.phase("web"), "Running@a")
	w.leases["b"] = false
	w.must(w.fleet.Inject(hwsim.Fault{Kind: "host.power-off", On: []string{"b"}}))
	w.run(2 * time.Minute)
	w.want("unknown is not dead", w.phase("web"), "Running@a")
	w.want("and nothing is started", w.domains("a"), "")
	w.change("web", func(v *kubevirtv1.VirtualMachineInstance) { // as the operator does with the proof
		v.Status.MigrationState.Failed = true
		delete(v.Labels, kubevirt.HostLabel("b"))
		delete(v.Labels, kubevirt.LabelMigrationTargetNodeName)
	})
	w.run(time.Minute)
	w.want("it ran under this token elsewhere: given up", w.phase("web"), "Scheduled@a")
	w.want("why", w.reasonOf("web"), "False/DomainLost")
	w.want("and not started here", w.domains("a"), "")
	for _, v := range w.fleet.Ledger().Violations() {
		t.Error(v)
	}
}

// TestAStartUnderALaterPermitThanTheReadIsNone holds the agent up between its read
// of the VM and the start, for longer than the permit lasted that it began with:
// another host has been given the VM, and this one a new permit.
func TestAStartUnderALaterPermitThanTheReadIsNone(t *testing.T) {
	w := newHAWorld(t, "a")
	w.grant("a")
	held, starts := false, 0
	w.onCall = func(c hwsim.Call) {
		if c.Name == "Define" && !c.After && !held {
			held = true
			w.must(w.fleet.Inject(hwsim.Fault{Kind: "libvirtd.hang", On: []string{"a"}, For: 22 * time.Second}))
		}
		if c.Name == "Start" && !c.After {
			starts++
			if w.get("web").Annotations[kubevirt.AnnotationRunToken] != "1" {
				t.Error("started though the VM is another host's by now")
			}
		}
	}
	w.protected("web", "a")
	w.run(10 * time.Second)
	if !held {
		t.Fatal("it was never defined")
	}
	w.change("web", func(v *kubevirtv1.VirtualMachineInstance) { // as placement does
		v.Annotations[kubevirt.AnnotationRunToken] = "2"
		v.Status.NodeName, v.Labels[kubevirt.LabelNodeName] = "b", "b"
		v.Labels[kubevirt.HostLabel("b")] = ""
		delete(v.Labels, kubevirt.HostLabel("a"))
	})
	w.run(10 * time.Minute)
	w.want("nothing runs or is left", w.domains("a"), "")
	if starts != 0 {
		t.Errorf("%d starts", starts)
	}
}
