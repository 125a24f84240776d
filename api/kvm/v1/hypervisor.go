// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Hypervisor is a host that runs VMs. It is named as its Kubernetes Node.
//
// The default table answers "what runs where, on what"; all that CobaltCore's
// table shows besides comes with `-o wide`.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=hv
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.metadata.labels.kubernetes\.metal\.cloud\.sap/name`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.operatingSystem.prettyVersion`
// +kubebuilder:printcolumn:name="Instances",type=integer,JSONPath=`.status.numInstances`
// +kubebuilder:printcolumn:name="Hardware",type=string,JSONPath=`.status.operatingSystem.hardwareModel`
// +kubebuilder:printcolumn:name="Kernel",type=string,JSONPath=`.status.operatingSystem.kernelRelease`
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.metadata.labels.topology\.kubernetes\.io/zone`,priority=1
// +kubebuilder:printcolumn:name="Building Block",type=string,JSONPath=`.metadata.labels.kubernetes\.metal\.cloud\.sap/bb`,priority=1
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.metadata.labels.worker\.garden\.sapcloud\.io/group`,priority=1
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,priority=1
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Taint",type=string,JSONPath=`.status.conditions[?(@.type=="Tainted")].message`,priority=1
// +kubebuilder:printcolumn:name="Lifecycle",type=boolean,JSONPath=`.spec.lifecycleEnabled`,priority=1
// +kubebuilder:printcolumn:name="High Availability",type=boolean,JSONPath=`.spec.highAvailability`,priority=1
// +kubebuilder:printcolumn:name="Skip Tests",type=boolean,JSONPath=`.spec.skipTests`,priority=1
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.status.internalIp`,priority=1
// +kubebuilder:printcolumn:name="Onboarding",type=string,JSONPath=`.status.conditions[?(@.type=="Onboarding")].reason`,priority=1
// +kubebuilder:printcolumn:name="Service ID",type=string,JSONPath=`.status.serviceId`,priority=1
// +kubebuilder:printcolumn:name="Hypervisor ID",type=string,JSONPath=`.status.hypervisorId`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Hypervisor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HypervisorSpec   `json:"spec,omitempty"`
	Status HypervisorStatus `json:"status,omitempty"`
}

// HypervisorList is a list of Hypervisors.
//
// +kubebuilder:object:root=true
type HypervisorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Hypervisor `json:"items"`
}

// HypervisorSpec is what people and controllers want of a host.
//
// Beware in Go: a bool is always sent, so the schema's defaults never reach an
// object created from a HypervisorSpec literal. Start from DefaultHypervisorSpec.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.maintenance) || oldSelf.maintenance != 'termination' || self.maintenance == 'ha' || self == oldSelf",message="spec is immutable when maintenance is 'termination'; can only change maintenance to 'ha'"
// +kubebuilder:validation:XValidation:rule="!has(self.maintenance) || self.maintenance != 'manual' || (has(self.maintenanceReason) && self.maintenanceReason.size() > 0)",message="maintenanceReason must be non-empty when maintenance is 'manual'"
type HypervisorSpec struct {
	// Version is the operating system version the host should run; `latest`
	// takes the newest there is. Empty leaves the host as it is.
	// +optional
	Version string `json:"version,omitempty"`

	// Reboot lets the host reboot once an update is installed.
	// +kubebuilder:default=false
	Reboot bool `json:"reboot"`

	// EvacuateOnReboot holds up a shutdown of the host until its VMs have left.
	// +kubebuilder:default=true
	EvacuateOnReboot bool `json:"evacuateOnReboot"`

	// LifecycleEnabled lets the operator onboard, change and offboard the host.
	// +kubebuilder:default=true
	LifecycleEnabled bool `json:"lifecycleEnabled"`

	// SkipTests onboards the host without the test VM.
	// +kubebuilder:default=false
	SkipTests bool `json:"skipTests"`

	// CustomTraits are the host's CUSTOM_ traits in Placement.
	// +kubebuilder:default={}
	CustomTraits []string `json:"customTraits"`

	// Aggregates are the names of the host aggregates the host belongs to.
	// +kubebuilder:default={}
	Aggregates []string `json:"aggregates"`

	// Groups are the scheduling groups the host belongs to. Read by the
	// scheduler only. Not checked for doubles: the rule would cost too much.
	// +optional
	Groups []Group `json:"groups,omitempty"`

	// AllowedProjects are the UUIDs of the only projects whose VMs may run
	// here; empty allows all. Read by the scheduler only.
	// +kubebuilder:default={}
	AllowedProjects []string `json:"allowedProjects"`

	// HighAvailability puts the host under the HA service's care.
	// +kubebuilder:default=true
	HighAvailability bool `json:"highAvailability"`

	// CreateCertManagerCertificate lets the node agent itself ask for the
	// certificate of the host's libvirt.
	// +kubebuilder:default=false
	CreateCertManagerCertificate bool `json:"createCertManagerCertificate"`

	// InstallCertificate lets the node agent install that certificate.
	// +kubebuilder:default=true
	InstallCertificate bool `json:"installCertificate"`

	// Maintenance takes the host out of service: `manual` by a person, `auto`
	// by the maintenance controller, `ha` by the HA service (the host is dead),
	// `termination` for good.
	// +optional
	Maintenance Maintenance `json:"maintenance,omitempty"`

	// MaintenanceReason says why; needed when maintenance is `manual`.
	// +optional
	MaintenanceReason string `json:"maintenanceReason,omitempty"`

	// Overcommit multiplies the capacity of a resource (`cpu`, `memory`); a
	// resource not named has 1.0.
	// +kubebuilder:validation:XValidation:rule="self.all(k, self[k] >= 1.0)",message="overcommit ratios must be >= 1.0"
	// +optional
	Overcommit map[ResourceName]float64 `json:"overcommit,omitempty"`
}

// DefaultHypervisorSpec is the spec the API server makes of an empty one.
func DefaultHypervisorSpec() HypervisorSpec {
	return HypervisorSpec{
		EvacuateOnReboot:   true,
		LifecycleEnabled:   true,
		CustomTraits:       []string{},
		Aggregates:         []string{},
		AllowedProjects:    []string{},
		HighAvailability:   true,
		InstallCertificate: true,
	}
}

// Maintenance says who took a host out of service.
//
// +kubebuilder:validation:Enum="";manual;auto;ha;termination
type Maintenance string

const (
	MaintenanceUnset       Maintenance = ""
	MaintenanceManual      Maintenance = "manual"
	MaintenanceAuto        Maintenance = "auto"
	MaintenanceHA          Maintenance = "ha"
	MaintenanceTermination Maintenance = "termination"
)

// ResourceName is a key of capacity, allocation and overcommit.
type ResourceName string

const (
	ResourceCPU    ResourceName = "cpu"
	ResourceMemory ResourceName = "memory"
)

// Group is one scheduling group: a trait or an aggregate, never both.
//
// +kubebuilder:validation:XValidation:rule="has(self.trait) != has(self.aggregate)",message="exactly one group type must be set"
type Group struct {
	// +optional
	Trait *TraitGroup `json:"trait,omitempty"`
	// +optional
	Aggregate *AggregateGroup `json:"aggregate,omitempty"`
}

// TraitGroup is the group of the hosts with a trait.
type TraitGroup struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// AggregateGroup is the group of the hosts of an aggregate.
type AggregateGroup struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`
	UUID string `json:"uuid"`
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
}

// HypervisorStatus is what is known of a host. Each field has one writer: the
// node agent, unless it names another.
type HypervisorStatus struct {
	// LibVirtVersion is the version of the libvirt library, as "9.0.0".
	// +kubebuilder:default=unknown
	// +optional
	LibVirtVersion string `json:"libVirtVersion,omitempty"`

	// HypervisorVersion is the version of what libvirt drives (QEMU, Cloud
	// Hypervisor), as "9.0.0".
	// +kubebuilder:default=unknown
	// +optional
	HypervisorVersion string `json:"hypervisorVersion,omitempty"`

	// OperatingSystem describes the system, the machine and its firmware.
	// +optional
	OperatingSystem OperatingSystem `json:"operatingSystem,omitzero"`

	// UpdateStatus is how far the wanted operating system version has come.
	// +optional
	UpdateStatus *UpdateStatus `json:"updateStatus,omitempty"`

	// Instances are the VMs libvirt knows here, running or not.
	// +optional
	Instances []Instance `json:"instances,omitempty"`

	// Capabilities are the host's own.
	// +optional
	Capabilities Capabilities `json:"capabilities,omitzero"`

	// DomainCapabilities are what a VM can be given here.
	// +optional
	DomainCapabilities DomainCapabilities `json:"domainCapabilities,omitzero"`

	// Allocation is what the VMs here have been promised, running or not.
	// +optional
	Allocation map[ResourceName]resource.Quantity `json:"allocation,omitempty"`

	// Capacity is what the host has.
	// +optional
	Capacity map[ResourceName]resource.Quantity `json:"capacity,omitempty"`

	// EffectiveCapacity is the capacity times spec.overcommit, rounded down.
	// +optional
	EffectiveCapacity map[ResourceName]resource.Quantity `json:"effectiveCapacity,omitempty"`

	// Cells are the same by NUMA cell, in order of their ids.
	// +optional
	Cells []Cell `json:"cells,omitempty"`

	// NumInstances is the number of VMs libvirt knows here, running or not.
	// +kubebuilder:default=0
	NumInstances int `json:"numInstances"`

	// HypervisorID is the UUID of the compute service's hypervisor, and of its
	// resource provider. Written by onboarding.
	// +optional
	HypervisorID string `json:"hypervisorId,omitempty"`

	// ServiceID is the UUID of the compute service's service. Written by
	// onboarding.
	// +optional
	ServiceID string `json:"serviceId,omitempty"`

	// Traits are all traits of the host, custom or not. Written by the traits
	// controller.
	// +optional
	Traits []string `json:"traits,omitempty"`

	// Aggregates are the aggregates the host is in. Written by the aggregates
	// controller.
	// +optional
	Aggregates []Aggregate `json:"aggregates,omitempty"`

	// InternalIP is the Node's internal address. Written by the hypervisor
	// controller.
	// +optional
	InternalIP string `json:"internalIp,omitempty"`

	// Evicted says that no VM is left on a host in maintenance. Written by the
	// maintenance controller.
	// +optional
	Evicted bool `json:"evicted,omitempty"`

	// Conditions are written each by its own controller or agent.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// SpecHash is part of the wire format and written by nobody.
	// +optional
	SpecHash string `json:"specHash,omitempty"`
}

// OperatingSystem describes what runs on a host and on what machine.
type OperatingSystem struct {
	// Version is the operating system's version (GARDENLINUX_VERSION of
	// os-release).
	// +optional
	Version string `json:"version,omitempty"`
	// VariantID names the edition (VARIANT_ID of os-release).
	// +optional
	VariantID string `json:"variantID,omitempty"`
	// PrettyVersion is the name for people, without quotes (PRETTY_NAME of
	// os-release).
	// +optional
	PrettyVersion string `json:"prettyVersion,omitempty"`
	// KernelName is as `uname -s` says.
	// +optional
	KernelName string `json:"kernelName,omitempty"`
	// KernelRelease is as `uname -r` says.
	// +optional
	KernelRelease string `json:"kernelRelease,omitempty"`
	// KernelVersion is as `uname -v` says.
	// +optional
	KernelVersion string `json:"kernelVersion,omitempty"`
	// KernelCommandLine is /proc/cmdline.
	// +optional
	KernelCommandLine string `json:"kernelCommandLine,omitempty"`
	// +optional
	HardwareVendor string `json:"hardwareVendor,omitempty"`
	// +optional
	HardwareModel string `json:"hardwareModel,omitempty"`
	// +optional
	HardwareSerial string `json:"hardwareSerial,omitempty"`
	// +optional
	FirmwareVersion string `json:"firmwareVersion,omitempty"`
	// +optional
	FirmwareVendor string `json:"firmwareVendor,omitempty"`
	// +optional
	FirmwareDate *metav1.Time `json:"firmwareDate,omitempty"`
	// GardenLinuxCommitID is the commit the image was built of.
	// +optional
	GardenLinuxCommitID string `json:"gardenLinuxCommitID,omitempty"`
	// GardenLinuxFeatures are the features the image was built with.
	// +optional
	GardenLinuxFeatures []string `json:"gardenLinuxFeatures,omitempty"`
}

// UpdateStatus is the state of an operating system update.
type UpdateStatus struct {
	// InProgress says that an update runs.
	// +kubebuilder:default=false
	InProgress bool `json:"inProgress"`
	// Installed is the version the last update installed.
	// +kubebuilder:default=unknown
	// +optional
	Installed string `json:"installed,omitempty"`
	// Retry is the number of tries left.
	// +kubebuilder:default=3
	Retry int `json:"retry"`
}

// Instance is a VM as libvirt knows it.
type Instance struct {
	// ID is the domain's UUID.
	ID string `json:"id"`
	// Name is the domain's name.
	Name string `json:"name"`
	// Active says that it runs (or is paused).
	Active bool `json:"active"`
}

// Capabilities are the host's own.
type Capabilities struct {
	// HostCPUArch is the architecture of the host's CPUs.
	// +kubebuilder:default=unknown
	// +optional
	HostCPUArch string `json:"cpuArch,omitempty"`
	// HostMemory is the memory of all NUMA cells.
	// +optional
	HostMemory resource.Quantity `json:"memory,omitzero"`
	// HostCPUs is the number of CPUs of all NUMA cells.
	// +optional
	HostCPUs resource.Quantity `json:"cpus,omitzero"`
}

// DomainCapabilities are what a VM can be given on a host. The lists are flat
// and sorted.
type DomainCapabilities struct {
	// Arch is the architecture a VM sees.
	// +kubebuilder:default=unknown
	// +optional
	Arch string `json:"arch,omitempty"`
	// HypervisorType is `CH` or `QEMU`.
	// +kubebuilder:default=unknown
	// +optional
	HypervisorType string `json:"hypervisorType,omitempty"`
	// SupportedDevices are `<device>` and `<device>/<value>`: video, video/vga.
	// +kubebuilder:default={}
	// +optional
	SupportedDevices []string `json:"supportedDevices,omitempty"`
	// SupportedCPUModes are `mode/<name>` and `mode/<name>/<value>`:
	// mode/host-passthrough, mode/host-passthrough/on.
	// +kubebuilder:default={}
	// +optional
	SupportedCPUModes []string `json:"supportedCpuModes,omitempty"`
	// SupportedFeatures are the names of the features, as sev or hyperv.
	// +kubebuilder:default={}
	// +optional
	SupportedFeatures []string `json:"supportedFeatures,omitempty"`
}

// Cell is a NUMA cell of a host.
type Cell struct {
	CellID uint64 `json:"cellID"`
	// +optional
	Allocation map[ResourceName]resource.Quantity `json:"allocation,omitempty"`
	// +optional
	Capacity map[ResourceName]resource.Quantity `json:"capacity,omitempty"`
	// +optional
	EffectiveCapacity map[ResourceName]resource.Quantity `json:"effectiveCapacity,omitempty"`
}

// Aggregate is a host aggregate a host is in.
type Aggregate struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
}
