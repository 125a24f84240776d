// SPDX-License-Identifier: Apache-2.0

package parse_test

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/adit-hv/adit/hardware/parse"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMemoryAgreesWithLibvirtInEveryUnit(t *testing.T) {
	var rows []struct {
		Unit  *string `json:"unit"`
		Value any     `json:"value"`
		KiB   any     `json:"kib"`
	}
	if err := yaml.Unmarshal(read(t, "NA-06_memory_units.yaml"), &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		unit, value := "", strings.ReplaceAll(text(r.Value), `\n`, "\n")
		if r.Unit != nil {
			unit = *r.Unit
		}
		kib, err := parse.Memory(value, unit)
		if r.KiB == "error" {
			if err == nil {
				t.Errorf("%q %s: %d KiB, want an error", value, unit, kib)
			}
			continue
		}
		if err != nil || text(kib) != text(r.KiB) {
			t.Errorf("%q %s: %d KiB, %v; want %v", value, unit, kib, err, r.KiB)
		}
	}
	if _, err := parse.Memory("18446744073709551615", "KiB"); err == nil {
		t.Error("a size beyond 64 bits is taken")
	}
}

func text(v any) string {
	b, _ := yaml.Marshal(v)
	s := strings.TrimSpace(string(b))
	if v, ok := v.(string); ok {
		return v
	}
	return s
}

func TestOSReleaseKeepsNoQuotes(t *testing.T) {
	got, err := parse.OSRelease(read(t, "NA-08_os-release_quotes"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"NAME": "Example Linux CoreOS", "ID": "example", "ID_LIKE": "rhel fedora",
		"VERSION":    `48.84.2 (Long Name "Nick")`,
		"VERSION_ID": "48.84.3", "PRETTY_NAME": "Example $5 `tick` back\\slash",
		"OSTREE_VERSION": "48.84.202107271439-0", "VARIANT_ID": "", "BUILD_ID": "2026.01.07", "INDENTED": "yes",
		"HOME_URL": "https://example.test/?a=b=c&d#frag", "EMPTY_QUOTED": "", "SPLIT": "onetwothree",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOSReleaseNamesTheLineThatIsWrong(t *testing.T) {
	for file, want := range map[string]string{
		"ID=a\nVERSION=\"1\nNAME=b": "line 2: VERSION: the double quote is not closed",
		"ID=a\nwhat is this":        `line 2: "what is this" is not KEY=VALUE`,
		"ID=a b":                    `line 1: ID: blanks before "b": put the value in quotes`,
	} {
		got, err := parse.OSRelease([]byte(file))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", file, err, want)
		}
		if strings.HasPrefix(file, "ID=a\n") && got["ID"] != "a" {
			t.Errorf("%q: the good line is lost", file)
		}
	}
}

func TestDMIPlaceholdersSayNothing(t *testing.T) {
	var in struct {
		Files map[string]string `json:"files"`
	}
	if err := yaml.Unmarshal(read(t, "NA-10_dmi_placeholders.yaml"), &in); err != nil {
		t.Fatal(err)
	}
	id, sys := parse.DMI(in.Files)
	if id.Serial != "" || id.ProductUUID != "" || sys.HardwareVendor != "" || sys.HardwareModel != "" {
		t.Errorf("placeholders are taken for names: %+v %+v", id, sys)
	}
	if sys.FirmwareVendor != "American Megatrends Inc." || sys.FirmwareVersion != "P1.40" {
		t.Errorf("real values are lost: %+v", sys)
	}
	if !sys.FirmwareDate.IsZero() {
		t.Errorf("30 February is %v, want unknown", sys.FirmwareDate)
	}
	unreadable := maps.Clone(in.Files)
	delete(unreadable, "product_serial")
	if id, _ := parse.DMI(unreadable); id.Serial != "" {
		t.Errorf("an unreadable serial is %q", id.Serial)
	}
	for _, s := range []string{"0123456789", "Default string", "Not Specified", "  \n", "000000", "FFFFFFFF", "..."} {
		if got := parse.DMIString(s); got != "" {
			t.Errorf("%q is %q, want unknown", s, got)
		}
	}
	if got := parse.DMIString(" CZ20450TX9\n"); got != "CZ20450TX9" {
		t.Errorf("a serial is %q", got)
	}
	if got := parse.FirmwareDate("10/26/2023\n"); !got.Equal(time.Date(2023, 10, 26, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("a date is %v", got)
	}
}

func TestCapabilitiesWithCellsWithoutMemory(t *testing.T) {
	c, err := parse.Capabilities(read(t, "NA-01_capabilities_cells_without_memory.xml"))
	if err != nil {
		t.Fatal(err)
	}
	var kib uint64
	cpus, withMemory := 0, 0
	for _, cell := range c.Cells {
		kib += cell.MemoryKiB
		cpus += len(cell.CPUs)
		if cell.MemoryKiB > 0 {
			withMemory++
		}
		if len(cell.CPUs) == 0 {
			t.Errorf("cell %d lost its CPUs", cell.ID)
		}
	}
	if kib != 131872248 || cpus != 32 || len(c.Cells) != 4 || withMemory != 2 || c.HypervisorType != "kvm" {
		t.Errorf("%d KiB, %d CPUs, %d cells, %d with memory, type %q", kib, cpus, len(c.Cells), withMemory, c.HypervisorType)
	}
}

func TestBadCapabilitiesNameThePlaceAndTheMend(t *testing.T) {
	for doc, want := range map[string]string{
		"<capabilities>\n<host>\n<cpu></host>": "line 3",
		"<domain/>":                            "capabilities",
		"<capabilities><host/></capabilities>": "host/cpu/arch is missing",
		"<capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells><cell id='2'><memory unit='Gi'>1</memory></cell></cells></topology></host></capabilities>":                                             `cell 2: memory unit "Gi"`,
		"<capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells><cell id='0'><cpus><cpu id='1'/></cpus></cell><cell id='1'><cpus><cpu id='1'/></cpus></cell></cells></topology></host></capabilities>": "CPU 1 is in cell 0 too",
	} {
		if _, err := parse.Capabilities([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", doc, err, want)
		}
	}
}

func TestDomainsOfOthersAreForeign(t *testing.T) {
	for _, name := range []string{"CA-32_domain_foreign_metadata.xml", "CA-32_domain_without_metadata.xml"} {
		d, err := parse.Domain(read(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if d.Owner != nil || d.MemoryKiB != 4194304 || d.VCPUs != 2 || len(d.Disks) != 1 || len(d.Interfaces) != 1 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestDomainMemoryInDecimalUnitsRoundsUp(t *testing.T) {
	d, err := parse.Domain(read(t, "NA-06_domain_memory_MB.xml"))
	if err != nil || d.MemoryKiB != 3906250 {
		t.Errorf("%d KiB, %v", d.MemoryKiB, err)
	}
	_, err = parse.Domain([]byte("<domain><name>odd</name><memory unit='Gi'>4</memory></domain>"))
	if err == nil || !strings.Contains(err.Error(), "odd") || !strings.Contains(err.Error(), `"Gi"`) {
		t.Errorf("an unknown unit: %v", err)
	}
}

func TestDomainKnowsItsOwner(t *testing.T) {
	d, err := parse.Domain([]byte(`<domain><name>a</name><metadata><adit:vm xmlns:adit="` + parse.OwnerNamespace + `" namespace="shop" name="web" uid="u" run-token="7" protected="true"/></metadata><memory>1024</memory></domain>`))
	if err != nil || d.Owner == nil || d.Owner.Name != "web" || d.Owner.Generation != 7 || !d.Owner.Protected {
		t.Errorf("%+v, %v", d.Owner, err)
	}
}
