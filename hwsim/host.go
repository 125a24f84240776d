// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"math/rand/v2"
	"time"

	"github.com/adit-hv/adit/hardware"
)

// HostState is what a host as a machine is doing.
type HostState string

// The states of a host.
const (
	HostOff     HostState = "off"
	HostBooting HostState = "booting"
	HostUp      HostState = "up"
	HostHung    HostState = "hung" // its programs stand still, its guests run on
)

// Host is one simulated machine.
type Host struct {
	f    *Fleet
	name string
	spec HostSpec
	rand *rand.Rand

	state HostState
}

// Name, Zone and Rack say which host it is and where it stands.
func (h *Host) Name() string { return h.name }
func (h *Host) Zone() string { return h.spec.Zone }
func (h *Host) Rack() string { return h.spec.Rack }

// State returns what the machine is doing.
func (h *Host) State() HostState { return h.state }

// Hardware returns the host's hardware as a process on it sees it; who names
// the process in the trace and in Options.Step.
//
// On a task of the scheduler each call takes virtual time, and goes on in the
// daemon when the task is killed meanwhile. Outside of tasks, as in plain
// tests, it takes none.
func (h *Host) Hardware(who string) hardware.Host { return &view{h: h, who: who} }

// OnBoot registers fn, called each time the host has booted. A host that is
// added booted does not call it.
func (h *Host) OnBoot(fn func()) {}

// OnDown registers fn, called each time the host lost power or goes down for a
// reboot: its processes end here.
func (h *Host) OnDown(fn func()) {}

// OnHang registers fn, called when the host hangs and when it goes on: its
// processes stand still between.
func (h *Host) OnHang(fn func(hung bool)) {}

// PowerOff cuts the power. Everything on the host ends at once.
func (h *Host) PowerOff() {}

// PowerOn lets the host boot; POST and the system take their time.
func (h *Host) PowerOn() {}

// LinkUp reports whether the host's link (migration, management) works.
func (h *Host) LinkUp(link string) bool { return true }

// AddressOf returns the address of the host on a link.
func (h *Host) AddressOf(link string) string { return "" }

// DefineXML defines a domain from libvirt's XML, as other programs do. It has
// none of our metadata and is foreign.
func (h *Host) DefineXML(doc []byte) error { return nil }

// StartForeign starts a domain outside of any agent, as a person with virsh.
func (h *Host) StartForeign(uuid string) error { return nil }

// SetUnit puts a unit of the host into a state, or installs it.
func (h *Host) SetUnit(u hardware.Unit) {}

// Models returns the names of the known host models, sorted.
func Models() []string { return nil }

func newHost(f *Fleet, spec HostSpec) (*Host, error) {
	return &Host{f: f, name: spec.Name, spec: spec, rand: f.s.Rand("hwsim/" + spec.Name), state: HostUp}, nil
}

var _ time.Duration
