// SPDX-License-Identifier: Apache-2.0

package parse

import (
	"slices"
	"strings"
	"time"

	"github.com/adit-hv/adit/hardware"
)

// placeholders are what board vendors leave in DMI strings, in lower case.
// They say nothing, and many hosts share them.
var placeholders = []string{
	"", "-", "none", "null", "n/a", "na", "unknown", "undefined", "empty", "invalid",
	"default", "default string", "not specified", "not applicable", "not available", "not present",
	"no asset tag", "no asset information", "o.e.m.", "oem", "oem string", "sample",
	"to be filled by o.e.m.", "to be filled by o.e.m", "to be filled by oem",
	"system manufacturer", "system product name", "system version", "system serial number", "system uuid",
	"base board serial number", "chassis serial number", "serial number", "asset-1234567890", "type1productconfigid",
	"0123456789", "1234567890", "123456789", "0123456789abcdef", "xxxxxxxx", "x.x", "..................",
}

// dummyUUIDs are product UUIDs that boards carry by the thousand.
var dummyUUIDs = []string{
	"00000000-0000-0000-0000-000000000000",
	"ffffffff-ffff-ffff-ffff-ffffffffffff",
	"03000200-0400-0500-0006-000700080009", // AMI's reference firmware, unprogrammed
	"00020003-0004-0005-0006-000700080009", // the same, read in the other byte order
	"12345678-1234-5678-90ab-cddeefaabbcc", // Supermicro's sample
	"fefefefe-fefe-fefe-fefe-fefefefefefe",
}

// DMIString returns a DMI string without blanks around it, or "" when it is a
// placeholder and says nothing.
func DMIString(s string) string {
	s = strings.TrimSpace(strings.Trim(s, "\x00"))
	if slices.Contains(placeholders, strings.ToLower(s)) {
		return ""
	}
	if strings.Trim(s, "0") == "" || strings.Trim(strings.ToLower(s), "f") == "" && len(s) > 3 || strings.Trim(s, ".") == "" {
		return "" // a field filled up, not filled in
	}
	return s
}

// ProductUUID returns DMI's product UUID in lower case, or "" for one that is
// known to identify nothing or is no UUID.
func ProductUUID(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	if len(s) != 36 || slices.Contains(dummyUUIDs, s) {
		return ""
	}
	for i, r := range s {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (r == '-') || !dash && !strings.ContainsRune("0123456789abcdef", r) {
			return ""
		}
	}
	return s
}

// MachineID returns the id in /etc/machine-id, or "" when it is not set up yet
// or none.
func MachineID(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	if len(s) != 32 || strings.Trim(s, "0123456789abcdef") != "" || strings.Trim(s, "0") == "" {
		return ""
	}
	return s
}

// FirmwareDate reads DMI's bios_date, MM/DD/YYYY or with the two digits of
// SMBIOS before 2.3. What is no date gives the zero time: unknown.
func FirmwareDate(s string) time.Time {
	s = strings.TrimSpace(s)
	for _, layout := range []string{"01/02/2006", "01/02/06"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t
		}
	}
	return time.Time{}
}

// DMI reads the files of /sys/class/dmi/id by name. Files that are missing, as
// those that only root may read are for others, leave their fields empty.
func DMI(files map[string]string) (hardware.Identity, hardware.System) {
	return hardware.Identity{
			ProductUUID: ProductUUID(files["product_uuid"]),
			Serial:      DMIString(files["product_serial"]),
		}, hardware.System{
			HardwareVendor:  DMIString(files["sys_vendor"]),
			HardwareModel:   DMIString(files["product_name"]),
			FirmwareVendor:  DMIString(files["bios_vendor"]),
			FirmwareVersion: DMIString(files["bios_version"]),
			FirmwareDate:    FirmwareDate(files["bios_date"]),
		}
}
