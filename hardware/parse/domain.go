// SPDX-License-Identifier: Apache-2.0

package parse

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/adit-hv/adit/hardware"
)

// OwnerNamespace is the XML namespace of our metadata. Elements of other
// namespaces are somebody else's, whatever they are called.
const OwnerNamespace = "https://kvm.cloud.sap/adit/1"

// Domain reads libvirt's domain XML as far as a DomainSpec goes. Owner is nil
// for a domain that carries none of our metadata.
func Domain(doc []byte) (hardware.DomainSpec, error) {
	// libvirtxml reads sizes as numbers and would take blanks around them,
	// which libvirt refuses.
	var raw struct {
		XMLName  xml.Name `xml:"domain"`
		Name     string   `xml:"name"`
		UUID     string   `xml:"uuid"`
		Memory   sized    `xml:"memory"`
		Current  *sized   `xml:"currentMemory"`
		Metadata struct {
			Owner *owner `xml:"https://kvm.cloud.sap/adit/1 vm"`
		} `xml:"metadata"`
	}
	if err := decode(doc, &raw); err != nil {
		return hardware.DomainSpec{}, fmt.Errorf("domain XML: %w", err)
	}
	s := hardware.DomainSpec{UUID: strings.ToLower(raw.UUID), Name: raw.Name}
	if s.Name == "" {
		return s, fmt.Errorf("domain XML: name is missing")
	}
	fail := func(err error) (hardware.DomainSpec, error) {
		return s, fmt.Errorf("domain XML of %s: %w", s.Name, err)
	}
	var err error
	if s.MemoryKiB, err = Memory(raw.Memory.Text, raw.Memory.Unit); err != nil {
		return fail(err)
	}
	if raw.Current != nil {
		if _, err := Memory(raw.Current.Text, raw.Current.Unit); err != nil {
			return fail(fmt.Errorf("currentMemory: %w", err))
		}
	}
	if o := raw.Metadata.Owner; o != nil {
		s.Owner = &hardware.Owner{Namespace: o.Namespace, Name: o.Name, UID: o.UID, Protected: o.Protected == "true"}
		if s.Owner.Generation, err = strconv.ParseInt(o.RunToken, 10, 64); err != nil {
			return fail(fmt.Errorf("metadata vm: run-token %q is no number", o.RunToken))
		}
	}
	var d libvirtxml.Domain
	if err := decode(doc, &d); err != nil {
		return fail(err)
	}
	devices(&s, d)
	return s, nil
}

type sized struct {
	Text string `xml:",chardata"`
	Unit string `xml:"unit,attr"`
}

type owner struct {
	Namespace string `xml:"namespace,attr"`
	Name      string `xml:"name,attr"`
	UID       string `xml:"uid,attr"`
	RunToken  string `xml:"run-token,attr"`
	Protected string `xml:"protected,attr"` // "true"; a domain from before there was such a thing has none
}

func devices(s *hardware.DomainSpec, d libvirtxml.Domain) {
	if d.VCPU != nil {
		s.VCPUs = int(d.VCPU.Value)
	}
	if d.OS != nil && d.OS.Type != nil {
		s.Machine = d.OS.Type.Machine
	}
	if d.OS != nil && d.OS.Firmware != "" {
		s.Firmware = d.OS.Firmware
	}
	if d.CPU != nil {
		s.CPU.Mode = d.CPU.Mode
		if d.CPU.Model != nil {
			s.CPU.Model = d.CPU.Model.Value
		}
	}
	s.OnCrash = d.OnCrash
	if d.Devices == nil {
		return
	}
	for _, disk := range d.Devices.Disks {
		out := hardware.Disk{Serial: disk.Serial, ReadOnly: disk.ReadOnly != nil, Shared: disk.Shareable != nil, Volume: volume(disk.Source)}
		if disk.Target != nil {
			out.Target, out.Bus = disk.Target.Dev, disk.Target.Bus
		}
		s.Disks = append(s.Disks, out)
	}
	for _, nic := range d.Devices.Interfaces {
		s.Interfaces = append(s.Interfaces, networkInterface(nic))
	}
	for _, c := range d.Devices.Channels {
		if c.Target != nil && c.Target.VirtIO != nil && c.Target.VirtIO.Name == "org.qemu.guest_agent.0" {
			s.GuestAgent = true
		}
	}
	s.SerialConsole = len(d.Devices.Serials) > 0 || len(d.Devices.Consoles) > 0
	s.Graphics = len(d.Devices.Graphics) > 0
	for _, w := range d.Devices.Watchdogs {
		s.Watchdog = w.Action
	}
}

// volume names a disk's source: a pool's volume as POOL/NAME, anything else by
// its path or image.
func volume(s *libvirtxml.DomainDiskSource) string {
	switch {
	case s == nil:
		return ""
	case s.Volume != nil:
		return s.Volume.Pool + "/" + s.Volume.Volume
	case s.Block != nil:
		return s.Block.Dev
	case s.File != nil:
		return s.File.File
	case s.Network != nil:
		return s.Network.Name
	}
	return ""
}

func networkInterface(nic libvirtxml.DomainInterface) hardware.Interface {
	var out hardware.Interface
	if nic.MAC != nil {
		out.MAC = strings.ToLower(nic.MAC.Address)
	}
	if nic.Model != nil {
		out.Model = nic.Model.Type
	}
	if nic.Source != nil && nic.Source.Bridge != nil {
		out.Bridge = nic.Source.Bridge.Bridge
	}
	if p := nic.VirtualPort; p != nil && p.Params != nil {
		switch {
		case p.Params.OpenVSwitch != nil:
			out.Port = p.Params.OpenVSwitch.InterfaceID
		case p.Params.Any != nil:
			out.Port = p.Params.Any.InterfaceID
		}
	}
	return out
}
