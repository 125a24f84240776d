// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/hardware/parse"
)

const (
	rootPath   = "/redfish/v1/"
	maxSystems = 64 // of one controller: a chassis of the densest kind has 45
)

// link is a reference to another resource.
type link struct {
	ID string `json:"@odata.id"`
}

// root is the service's root.
type root struct {
	Systems link
	Links   struct{ Sessions link }
}

// collection is a list of resources, perhaps the first page of it.
type collection struct {
	Members []link
	Next    string `json:"Members@odata.nextLink"`
}

// system is what we need of a ComputerSystem (DSP0268).
type system struct {
	ID           string `json:"@odata.id"`
	UUID         string
	SerialNumber string
	PowerState   hardware.PowerState
	Actions      struct {
		Reset struct {
			Target     string   `json:"target"`
			Allowable  []string `json:"ResetType@Redfish.AllowableValues"`
			ActionInfo string   `json:"@Redfish.ActionInfo"`
		} `json:"#ComputerSystem.Reset"`
	}
}

// identity is what a system says of itself, without what says nothing.
func (s *system) identity() hardware.Controller {
	return hardware.Controller{SystemUUID: parse.ProductUUID(s.UUID), Serial: parse.DMIString(s.SerialNumber)}
}

// is says whether a system is that machine: by UUID where both are known, else
// by serial number.
func (s *system) is(machine hardware.Controller) bool {
	id := s.identity()
	if id.SystemUUID != "" && machine.SystemUUID != "" {
		return sameUUID(id.SystemUUID, machine.SystemUUID)
	}
	return id.Serial != "" && id.Serial == machine.Serial
}

// sameUUID also holds for one of which controller and firmware disagree about
// the order of its first bytes (SMBIOS, DSP0134 7.2.1: little-endian from version
// 2.6 on, and not said before).
func sameUUID(a, b string) bool { return a != "" && (a == b || swapped(a) == b) }

func swapped(uuid string) string {
	if len(uuid) != 36 {
		return ""
	}
	turn := func(s string) string {
		var out strings.Builder
		for i := len(s); i > 0; i -= 2 {
			out.WriteString(s[i-2 : i])
		}
		return out.String()
	}
	return turn(uuid[:8]) + "-" + turn(uuid[9:13]) + "-" + turn(uuid[14:18]) + uuid[18:]
}

// machine reads our machine's system. Where it was found before it is looked at
// first; it has to be ours still.
func (c *Client) machine(ctx context.Context) (*system, error) {
	c.mu.Lock()
	path := c.path
	c.mu.Unlock()
	if path != "" {
		var s system
		status, err := c.get(ctx, path, &s)
		if err != nil && status != http.StatusNotFound {
			return nil, err
		}
		if err == nil && s.is(c.options.Machine) {
			return &s, nil
		}
	}
	s, all, err := c.find(ctx)
	if err == nil && s == nil {
		err = strangers(c.options.Machine, all)
	}
	return s, err
}

// find reads all systems of the controller, and returns ours, if it is among
// them, and all. One that cannot be read is an error only if ours was not found:
// a dead neighbour in the chassis keeps nobody from being fenced.
func (c *Client) find(ctx context.Context) (*system, []system, error) {
	paths, err := c.systems(ctx)
	if err != nil {
		return nil, nil, err
	}
	var all, ours []system
	var unread error
	for _, path := range paths {
		var s system
		if _, err := c.get(ctx, path, &s); err != nil {
			unread = err
			continue
		}
		s.ID = path
		all = append(all, s)
		if s.is(c.options.Machine) {
			ours = append(ours, s)
		}
	}
	switch {
	case len(ours) > 1:
		return nil, nil, failed(hardware.Refused, "%d of its systems say that they are %s; mend their UUIDs or serial numbers", len(ours), name(c.options.Machine))
	case len(ours) == 1:
		c.mu.Lock()
		c.path = ours[0].ID
		c.mu.Unlock()
		return &ours[0], all, nil
	case unread != nil:
		return nil, nil, unread
	case len(all) == 0:
		return nil, nil, failed(hardware.Unavailable, "it knows no systems")
	}
	return nil, all, nil
}

// systems returns the paths of all systems.
func (c *Client) systems(ctx context.Context) ([]string, error) {
	var r root
	if _, err := c.get(ctx, rootPath, &r); err != nil {
		return nil, err
	}
	if r.Systems.ID == "" {
		return nil, failed(hardware.Unavailable, "the answer to GET %s names no systems", rootPath)
	}
	var paths []string
	for next := r.Systems.ID; next != ""; {
		var page collection
		if _, err := c.get(ctx, next, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Members {
			paths = append(paths, m.ID)
		}
		if len(paths) > maxSystems || len(page.Members) == 0 && page.Next != "" {
			return nil, failed(hardware.Refused, "it lists more than %d systems, or without end", maxSystems)
		}
		next = page.Next
	}
	return paths, nil
}

// strangers is the error of a controller that has not our machine.
func strangers(ours hardware.Controller, all []system) error {
	var names []string
	for _, s := range all {
		names = append(names, name(s.identity()))
	}
	return failed(hardware.Refused, "it is not the controller of %s, but of %s; mend the address or the wiring", name(ours), strings.Join(names, ", "))
}

func name(m hardware.Controller) string {
	var words []string
	if m.SystemUUID != "" {
		words = append(words, "UUID "+m.SystemUUID)
	}
	if m.Serial != "" {
		words = append(words, "serial number "+m.Serial)
	}
	if len(words) == 0 {
		return "a machine without UUID and serial number"
	}
	return strings.Join(words, " with ")
}

// resetType is the first of types that the system allows. One that does not say
// what it allows is asked for the first.
func (c *Client) resetType(ctx context.Context, s *system, types []string) (string, error) {
	reset := s.Actions.Reset
	if reset.Target == "" {
		e := failed(hardware.Refused, "system %s has no action Reset", s.ID)
		e.Reason = hardware.ReasonUnsupported
		return "", e
	}
	allowed := reset.Allowable
	if len(allowed) == 0 && reset.ActionInfo != "" {
		var info struct {
			Parameters []struct {
				Name      string
				Allowable []string `json:"AllowableValues"`
			}
		}
		_, _ = c.get(ctx, reset.ActionInfo, &info) // without it the order is tried
		for _, p := range info.Parameters {
			if p.Name == "ResetType" {
				allowed = p.Allowable
			}
		}
	}
	if len(allowed) == 0 {
		return types[0], nil
	}
	for _, t := range types {
		if slices.Contains(allowed, t) {
			return t, nil
		}
	}
	e := failed(hardware.Refused, "system %s allows only %s, and not %s", s.ID, strings.Join(allowed, ", "), strings.Join(types, " or "))
	e.Reason = hardware.ReasonUnsupported
	return "", e
}
