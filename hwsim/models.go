// SPDX-License-Identifier: Apache-2.0

package hwsim

import (
	"maps"
	"slices"
	"time"
)

// model is a kind of machine: what its firmware says, what is in it, how long
// it boots.
type model struct {
	vendor, product          string
	firmwareVendor, firmware string
	firmwareDate             string
	serial                   string // how serials look; "" is a placeholder
	cpuVendor, cpu           string
	features                 []string
	cells, cpus              int
	memoryGiB                uint64
	bootMin, bootMax         time.Duration // POST with that much memory, and the system
}

// The features that tell the simulated generations apart; a real list has ten
// times as many.
var (
	cascadelake = []string{"aes", "avx", "avx2", "avx512bw", "avx512f", "avx512vl", "avx512vnni", "invpcid", "pdpe1gb", "rdseed", "vmx", "xsaves"}
	icelake     = append([]string{"avx512vbmi", "gfni", "sha-ni", "vaes", "vpclmulqdq"}, cascadelake...)
	sapphire    = append([]string{"amx-bf16", "amx-int8", "amx-tile", "avx512-bf16", "avx512-fp16", "serialize"}, icelake...)
	genoa       = []string{"aes", "avx", "avx2", "avx512bw", "avx512f", "avx512vl", "gfni", "invpcid", "pdpe1gb", "rdseed", "sha-ni", "svm", "vaes", "xsaves"}
)

// models are machines as hypervisor fleets have them. Boot times are what POST
// with memory training takes on such boards plus half a minute for the system.
var models = map[string]model{
	"r640": {
		vendor: "Dell Inc.", product: "PowerEdge R640", firmwareVendor: "Dell Inc.", firmware: "2.21.2", firmwareDate: "02/19/2024", serial: "%X",
		cpuVendor: "Intel", cpu: "Cascadelake-Server", features: cascadelake, cells: 2, cpus: 80, memoryGiB: 768,
		bootMin: 150 * time.Second, bootMax: 240 * time.Second,
	},
	"r860": {
		vendor: "Dell Inc.", product: "PowerEdge R860", firmwareVendor: "Dell Inc.", firmware: "2.3.5", firmwareDate: "09/12/2024", serial: "%X",
		cpuVendor: "Intel", cpu: "SapphireRapids", features: sapphire, cells: 4, cpus: 240, memoryGiB: 4096,
		bootMin: 240 * time.Second, bootMax: 400 * time.Second,
	},
	"dl560-gen11": {
		vendor: "HPE", product: "ProLiant DL560 Gen11", firmwareVendor: "HPE", firmware: "2.22", firmwareDate: "06/19/2024", serial: "CZ2%X",
		cpuVendor: "Intel", cpu: "SapphireRapids", features: sapphire, cells: 4, cpus: 192, memoryGiB: 3072,
		bootMin: 220 * time.Second, bootMax: 360 * time.Second,
	},
	"sr650": {
		vendor: "Lenovo", product: "ThinkSystem SR650 V2", firmwareVendor: "Lenovo", firmware: "AFE132M-3.11", firmwareDate: "11/07/2023", serial: "J30%X",
		cpuVendor: "Intel", cpu: "Icelake-Server", features: icelake, cells: 2, cpus: 128, memoryGiB: 1024,
		bootMin: 160 * time.Second, bootMax: 260 * time.Second,
	},
	"r7625": {
		vendor: "Dell Inc.", product: "PowerEdge R7625", firmwareVendor: "Dell Inc.", firmware: "1.8.3", firmwareDate: "04/02/2024", serial: "%X",
		cpuVendor: "AMD", cpu: "EPYC-Genoa", features: genoa, cells: 2, cpus: 256, memoryGiB: 1536,
		bootMin: 180 * time.Second, bootMax: 300 * time.Second,
	},
	"whitebox": {
		vendor: "To Be Filled By O.E.M.", product: "To Be Filled By O.E.M.", firmwareVendor: "American Megatrends Inc.", firmware: "P1.40", firmwareDate: "08/26/2021",
		cpuVendor: "AMD", cpu: "EPYC", features: []string{"aes", "avx", "avx2", "invpcid", "pdpe1gb", "rdseed", "sha-ni", "svm"}, cells: 1, cpus: 32, memoryGiB: 128,
		bootMin: 40 * time.Second, bootMax: 70 * time.Second,
	},
	"lab": {
		vendor: "QEMU", product: "Standard PC (Q35 + ICH9, 2009)", firmwareVendor: "SeaBIOS", firmware: "1.16.2-debian-1.16.2-1", firmwareDate: "04/01/2014",
		cpuVendor: "Intel", cpu: "Cascadelake-Server", features: cascadelake, cells: 2, cpus: 16, memoryGiB: 64,
		bootMin: 15 * time.Second, bootMax: 25 * time.Second,
	},
}

// defaultModel is the machine of a HostSpec that names none.
const defaultModel = "r860"

// Models returns the names of the known host models, sorted.
func Models() []string { return slices.Sorted(maps.Keys(models)) }

// sortedFeatures is the model's feature list as capabilities have it.
func (m model) sortedFeatures() []string {
	f := slices.Clone(m.features)
	slices.Sort(f)
	return f
}
