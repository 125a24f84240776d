// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/adit-hv/adit/testbed"
)

// maxOvercommit is ten times the largest that hosts are run with.
const maxOvercommit = 100

func (b *builder) overcommit(path string, ratios map[string]float64) {
	for _, resource := range slices.Sorted(maps.Keys(ratios)) {
		switch v := ratios[resource]; {
		case resource != "cpu" && resource != "memory":
			b.fail(path, "%q cannot be overcommitted; cpu and memory can", resource)
		case v < 1:
			b.fail(path, "%s: %v is below 1; an overcommit of 1 means none", resource, v)
		case v > maxOvercommit:
			b.fail(path, "%s: %v is more than %d", resource, v, maxOvercommit)
		}
	}
}

// labels holds labels to what an API server takes.
func (b *builder) labels(path string, labels map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.labelKey(path, k)
		b.label(path, labels[k])
	}
}

func (b *builder) labelKey(path, key string) {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		b.fail(path, "%q is no key of a label: %s", shortened(key), briefly(problems[0]))
	}
}

func (b *builder) label(path, value string) {
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		b.fail(path, "%q is no value of a label: %s", shortened(value), briefly(problems[0]))
	}
}

// briefly leaves out Kubernetes' examples and patterns.
func briefly(problem string) string {
	before, _, _ := strings.Cut(problem, " (e.g. ")
	return before
}

// dmiFiles are the files of /sys/class/dmi/id, as the kernel names them
// (drivers/firmware/dmi-id.c).
var dmiFiles = []string{
	"bios_date", "bios_release", "bios_vendor", "bios_version", "board_asset_tag", "board_name", "board_serial", "board_vendor", "board_version",
	"chassis_asset_tag", "chassis_serial", "chassis_type", "chassis_vendor", "chassis_version", "ec_firmware_release",
	"product_family", "product_name", "product_serial", "product_sku", "product_uuid", "product_version", "sys_vendor",
}

func (b *builder) dmi(path string, files map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !slices.Contains(dmiFiles, name) {
			b.fail(path, "%q is no file of /sys/class/dmi/id%s; the files are %s", shortened(name), alike(name, dmiFiles), strings.Join(dmiFiles, ", "))
		}
	}
}

// buildable tries to build a host, first with each captured file alone, so that
// the mistake is named where it is.
func (b *builder) buildable(path string, g testbed.HostGroup, f hostGroup) {
	for _, part := range []struct {
		field, file string
		group       testbed.HostGroup
	}{
		{".capabilities", f.Capabilities, testbed.HostGroup{Name: g.Name, Capabilities: g.Capabilities}},
		{".osRelease", f.OSRelease, testbed.HostGroup{Name: g.Name, OSRelease: g.OSRelease}},
		{"", "", g},
	} {
		if b.err != nil {
			return
		}
		err := testbed.CheckHosts(part.group)
		switch {
		case err != nil && part.file != "":
			b.fail(path+part.field, "%s: %v", part.file, err)
		case err != nil:
			b.fail(path, "%v", err)
		}
	}
}

// hostNames refuses groups whose counted names meet: node with 1001 hosts and
// node1 both have a node1001.
func (b *builder) hostNames(groups []testbed.HostGroup) {
	if b.err != nil {
		return
	}
	owner := map[string]int{}
	for i, g := range groups {
		for _, name := range (testbed.Spec{Hosts: []testbed.HostGroup{g}}).HostNames() {
			if other, taken := owner[name]; taken {
				b.fail(fmt.Sprintf("fleet[%d].name", i), "there would be two hosts called %s, of %s and %s; choose a name that does not end in a digit", name, groups[other].Name, g.Name)
				return
			}
			owner[name] = i
		}
	}
}

// word is what traits and CPU models look like.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// vmWords checks the names by which a group of VMs asks for something.
func (b *builder) vmWords(at func(string) string, g vmGroup, spec testbed.Spec) {
	b.labels(at("labels"), g.Labels)
	if b.err == nil && g.Host != "" && !slices.Contains(spec.HostNames(), g.Host) {
		b.fail(at("host"), "no host is called %s; %s", shortened(g.Host), spec.HostsSaid())
	}
	if g.Apart != "" {
		b.labelKey(at("apart"), g.Apart)
	}
	if problems := validation.IsDNS1123Subdomain(g.Priority); g.Priority != "" && len(problems) > 0 {
		b.fail(at("priority"), "%q is no name of a priority class: %s", shortened(g.Priority), briefly(problems[0]))
	}
	for i, trait := range g.Traits {
		if !word.MatchString(trait) {
			b.fail(fmt.Sprintf("%s[%d]", at("traits"), i), "%q is no trait; a trait is a word, as CUSTOM_GPU", shortened(trait))
		}
	}
	if g.CPUModel != "" && !word.MatchString(g.CPUModel) {
		b.fail(at("cpuModel"), "%q is no CPU model; it is a word, as Icelake-Server-v7", shortened(g.CPUModel))
	}
}

// operatorLimits refuses what an operator would not start with. A number larger
// than any fleet is a slip of the finger.
func (b *builder) operatorLimits(f operatorFields) {
	for _, n := range []struct {
		field     string
		value, to int
	}{
		{"migrations", f.Migrations, 10000}, {"perHost", f.PerHost, 10000}, {"perTarget", f.PerTarget, 10000},
		{"floor", f.Floor, 10000}, {"replicas", f.Replicas, 9},
	} {
		if n.value < 0 || n.value > n.to {
			b.fail("operator."+n.field, "%d; it is 1 to %d, or left out", n.value, n.to)
		}
	}
}
