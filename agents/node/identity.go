// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
)

// AnnotationIdentity holds, on a Hypervisor, the identity of the machine it was
// registered for. The node agent writes it once. A person who removes it says
// that the machine there now is the right one.
const AnnotationIdentity = "kvm.cloud.sap/identity"

// identity is what tells machines apart; unknown fields are empty. Any one of
// them can lie: images are cloned with their machine id, boards are swapped,
// and some vendors give all boards one UUID. The host's name is no part of it.
type identity struct {
	MachineID   string `json:"machineID,omitempty"`
	ProductUUID string `json:"productUUID,omitempty"`
	Serial      string `json:"serial,omitempty"`
}

func identityOf(i hardware.Identity) identity {
	return identity{MachineID: i.MachineID, ProductUUID: i.ProductUUID, Serial: i.Serial}
}

func (i identity) unknown() bool { return i == identity{} }

// text is the annotation's value.
func (i identity) text() string {
	b, err := json.Marshal(i)
	if err != nil {
		panic(err) // three strings
	}
	return string(b)
}

// parseIdentity returns the zero identity when there is none, or none that can
// be read.
func parseIdentity(text string) identity {
	var i identity
	if json.Unmarshal([]byte(text), &i) != nil {
		return identity{}
	}
	return i
}

// over returns the identity with what it does not know taken from recorded.
func (i identity) over(recorded identity) identity {
	return identity{
		MachineID:   cmp.Or(i.MachineID, recorded.MachineID),
		ProductUUID: cmp.Or(i.ProductUUID, recorded.ProductUUID),
		Serial:      cmp.Or(i.Serial, recorded.Serial),
	}
}

// adds reports whether the identity says anything that recorded does not.
func (i identity) adds(recorded identity) bool { return i.over(recorded) != recorded }

type identityField struct {
	name  string
	value string
}

// fields are those that are known, in a fixed order.
func (i identity) fields() []identityField {
	all := []identityField{
		{"machine-id", i.MachineID},
		{"product UUID", i.ProductUUID},
		{"serial", i.Serial},
	}
	return slices.DeleteFunc(all, func(f identityField) bool { return f.value == "" })
}

// twin is another living Hypervisor that has registered fields of this machine.
type twin struct {
	name   string
	fields []string // their names, as in identityField
	vms    []string // names of its instances
}

// takes reports whether the machine counts as the twin's: its system disk is
// the same, or all of its hardware is. One field of hardware alone is weak.
func (t twin) takes() bool {
	return slices.Contains(t.fields, "machine-id") || len(t.fields) > 1
}

type identityView struct {
	host     string // name of the Hypervisor
	hostname string // what the machine calls itself
	now      identity
	recorded identity // zero: not registered
	twins    []twin   // looked for only when now adds to recorded

	instances    []kvmv1.Instance // as last reported
	domains      []hardware.Domain
	domainsKnown bool
}

// standing is what an agent may do under a Hypervisor's name.
type standing struct {
	write     bool // report at all
	register  bool // the present identity becomes the recorded one
	condition metav1.Condition
}

// decideIdentity compares the machine with the one registered.
//
//	nothing known now              Unknown Unreadable      report
//	not registered, a twin has it  False   RegisteredElse  hold
//	not registered                 True    Confirmed       report
//	same system, same hardware     True    Confirmed       report
//	same system, a part swapped    True    Confirmed       report
//	same system, other hardware    False   Mismatch        hold: the disks were moved
//	other system, same hardware    False   Reimaged        hold when VMs are missing
//	                               True    Confirmed       else report
//	all else                       False   Mismatch        hold
//
// What a confirmed machine says anew of itself is registered.
func decideIdentity(v identityView) standing {
	if v.now.unknown() {
		return standing{write: true, condition: identityCondition(metav1.ConditionUnknown, reasonUnreadable,
			"neither machine-id nor product UUID nor serial can be read; run the agent with access to /etc/machine-id and /sys/class/dmi/id")}
	}
	for _, t := range v.twins {
		if t.takes() {
			return standing{condition: identityCondition(metav1.ConditionFalse, reasonRegistered, registeredElse(v, t))}
		}
	}
	if v.recorded.unknown() {
		return confirmed(v)
	}

	system, hardware := compare(v.recorded, v.now)
	switch {
	case system != differs && hardware.differ == nil, system == same && hardware.same > 0:
		return confirmed(v)
	case system == differs && hardware.differ == nil && hardware.same > 0:
		lost, sure := missing(v)
		if sure && len(lost) == 0 {
			return confirmed(v)
		}
		return standing{condition: identityCondition(metav1.ConditionFalse, reasonReimaged, reimaged(lost, sure))}
	}
	differ := hardware.differ
	if system == differs {
		differ = append([]string{"machine-id"}, differ...)
	}
	return standing{condition: identityCondition(metav1.ConditionFalse, reasonMismatch, fmt.Sprintf(
		"identity unclear: %s changed since this Hypervisor was registered; nothing else is reported. If this machine is %s, remove the annotation %s",
		strings.Join(differ, ", "), v.host, AnnotationIdentity))}
}

type comparison int

const (
	unknown comparison = iota // one side does not say
	same
	differs
)

type hardwareComparison struct {
	same   int
	differ []string
}

func compare(recorded, now identity) (system comparison, hardware hardwareComparison) {
	one := func(a, b string) comparison {
		switch {
		case a == "" || b == "":
			return unknown
		case a == b:
			return same
		}
		return differs
	}
	for _, f := range []struct {
		name  string
		value comparison
	}{
		{"product UUID", one(recorded.ProductUUID, now.ProductUUID)},
		{"serial", one(recorded.Serial, now.Serial)},
	} {
		switch f.value {
		case same:
			hardware.same++
		case differs:
			hardware.differ = append(hardware.differ, f.name)
		}
	}
	return one(recorded.MachineID, now.MachineID), hardware
}

// missing names the VMs that were reported and are no longer there. It is not
// sure while the domains cannot be listed.
func missing(v identityView) (lost []string, sure bool) {
	for _, i := range v.instances {
		if !slices.ContainsFunc(v.domains, func(d hardware.Domain) bool { return d.UUID == i.ID }) {
			lost = append(lost, i.Name)
		}
	}
	return lost, v.domainsKnown || len(v.instances) == 0
}

func confirmed(v identityView) standing {
	message := ""
	if short, _, _ := strings.Cut(v.hostname, "."); v.hostname != "" && v.hostname != v.host && short != v.host {
		message = fmt.Sprintf("the machine is the one registered, but calls itself %q", v.hostname)
	}
	return standing{write: true, register: v.now.adds(v.recorded), condition: identityCondition(metav1.ConditionTrue, reasonConfirmed, message)}
}

func registeredElse(v identityView, t twin) string {
	vms := "no VM"
	if len(t.vms) > 0 {
		vms = "the VMs " + someNames(t.vms)
	}
	return fmt.Sprintf("identity unclear: %s of this machine registered by Hypervisor %s, which holds %s; nothing is reported as %s. Rename the host back, or delete Hypervisor %s if it is gone for good",
		strings.Join(t.fields, " and "), t.name, vms, v.host, t.name)
}

func reimaged(lost []string, sure bool) string {
	message := "the system was installed anew (other machine-id, same hardware)"
	if !sure {
		return message + "; whether its VMs are there is not known until libvirt answers"
	}
	return fmt.Sprintf("%s and %d VMs are gone: %s. Restore or delete them, then remove the annotation %s", message, len(lost), someNames(lost), AnnotationIdentity)
}

// namesShown bounds the names in a message, which has 32 KiB by the API's rule
// and one line by a reader's.
const namesShown = 20

func someNames(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if len(names) <= namesShown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), len(names)-namesShown)
}

func identityCondition(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: ConditionIdentityConfirmed, Status: status, Reason: reason, Message: message}
}
