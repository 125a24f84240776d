// SPDX-License-Identifier: Apache-2.0

package parse_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/adit-hv/adit/hardware/parse"
)

// seeds adds all test data whose name contains part.
func seeds(f *testing.F, part string) {
	files, err := filepath.Glob("testdata/*" + part + "*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		if data, err := os.ReadFile(name); err == nil {
			f.Add(data)
		}
	}
}

// oneLine holds an error to a line that a terminal can show.
func oneLine(t *testing.T, err error) {
	if err != nil && strings.ContainsAny(err.Error(), "\n\x00\x1b") {
		t.Errorf("the error is not one line: %q", err)
	}
}

func FuzzCapabilities(f *testing.F) {
	seeds(f, "cap")
	f.Add([]byte("<capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells num='1'><cell id='0'><memory unit='KiB'>-1</memory></cell></cells></topology></host></capabilities>"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		c, err := parse.Capabilities(doc)
		oneLine(t, err)
		if err == nil && c.Arch == "" {
			t.Error("good, and without an architecture")
		}
	})
}

func FuzzDomain(f *testing.F) {
	seeds(f, "domain")
	f.Add([]byte("<domain><name>a</name><memory unit='GiB'>1</memory></domain>"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		s, err := parse.Domain(doc)
		oneLine(t, err)
		if err == nil && s.Name == "" {
			t.Error("good, and without a name")
		}
	})
}

func FuzzOSRelease(f *testing.F) {
	seeds(f, "release")
	f.Add([]byte("ID=\"a\\\"b\"'c' # d\n=\nX=\\"))
	f.Fuzz(func(t *testing.T, file []byte) {
		values, err := parse.OSRelease(file)
		oneLine(t, err)
		if values == nil {
			t.Error("no map")
		}
	})
}

func FuzzDMI(f *testing.F) {
	f.Add("0123456789", "03000200-0400-0500-0006-000700080009", "02/30/99")
	f.Fuzz(func(t *testing.T, serial, uuid, date string) {
		id, s := parse.DMI(map[string]string{"product_serial": serial, "product_uuid": uuid, "bios_date": date})
		if id.Serial != strings.TrimSpace(id.Serial) || len(id.ProductUUID) != 0 && len(id.ProductUUID) != 36 {
			t.Errorf("%q, %q, %v", id.Serial, id.ProductUUID, s.FirmwareDate)
		}
	})
}
