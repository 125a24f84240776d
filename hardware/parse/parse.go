// SPDX-License-Identifier: Apache-2.0

// Package parse reads what hosts and libvirt write: os-release files, DMI
// strings, memory units, capabilities and domain XML, the odd ones included.
//
// Everything in it is a pure function of its input, shared by all that
// implement package hardware. An error names the line or the field and what
// would be right. It must never open a file or a connection.
package parse

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// memoryUnits are libvirt's size suffixes (virScaleInteger), in bytes. Its
// letters alone and with "iB" are binary, with "B" decimal; case does not
// matter.
var memoryUnits = func() map[string]uint64 {
	units := map[string]uint64{"b": 1, "bytes": 1}
	binary, decimal := uint64(1), uint64(1)
	for _, letter := range []string{"k", "m", "g", "t", "p", "e"} {
		binary *= 1024
		decimal *= 1000
		units[letter], units[letter+"ib"], units[letter+"b"] = binary, binary, decimal
	}
	return units
}()

// Memory returns a size in KiB, rounded up, as libvirt reads it from an
// element's text and its unit attribute; without one the unit is KiB.
func Memory(value, unit string) (kib uint64, err error) {
	scale := uint64(1024)
	if unit != "" {
		var ok bool
		if scale, ok = memoryUnits[strings.ToLower(unit)]; !ok {
			return 0, fmt.Errorf("memory unit %q: not known to libvirt; write b, KiB, MiB, GiB or TiB", unit)
		}
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory %q: must be a whole number with nothing around it", value)
	}
	if n > (math.MaxUint64-1023)/scale {
		return 0, fmt.Errorf("memory %s %s: more than 64 bits of bytes", value, unit)
	}
	return (n*scale + 1023) / 1024, nil
}
