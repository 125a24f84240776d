// SPDX-License-Identifier: Apache-2.0

package v1

// Condition types of a Hypervisor, in order of a host's life. The comment names
// the writer; a condition has one.
const (
	ConditionReady              = "Ready"              // Ready controller.
	ConditionOnboarding         = "Onboarding"         // Onboarding controller.
	ConditionTraitsUpdated      = "TraitsUpdated"      // Traits controller.
	ConditionAggregatesUpdated  = "AggregatesUpdated"  // Aggregates controller.
	ConditionHaEnabled          = "HaEnabled"          // HA service.
	ConditionHostAlive          = "HostAlive"          // HA service.
	ConditionTainted            = "Tainted"            // Taint controller.
	ConditionHypervisorDisabled = "HypervisorDisabled" // Maintenance controller.
	ConditionEvicting           = "Evicting"           // Maintenance controller. On an Eviction: eviction controller.
	ConditionTerminating        = "Terminating"        // Hypervisor controller. On a Node: Gardener.
	ConditionAgentPodsEvicted   = "AgentPodsEvicted"   // Hypervisor controller.
	ConditionOffboarded         = "Offboarded"         // Offboarding controller.

	ConditionLibVirtConnection       = "LibVirtConnection"       // Node agent.
	ConditionOperatingSystemUpdate   = "OperatingSystemUpdate"   // Node agent.
	ConditionTLSCertificateInstalled = "TLSCertificateInstalled" // Node agent.

	// The node agent writes one condition for each systemd unit it watches,
	// named as the unit.
	ConditionLibvirtdUnit    = "libvirtd.service"
	ConditionOpenvswitchUnit = "openvswitch-switch.service"
)

// Condition types of an Eviction, besides ConditionEvicting.
const (
	ConditionPreflightChecksSucceeded = "PreflightChecksSucceeded"
	// ConditionMigratingInstance is news of the latest VM. Its status is always
	// False on the wire; the reason tells success from failure.
	ConditionMigratingInstance = "MigratingInstance"
	// ConditionHypervisorReEnabled is old: read by clients, written by nobody.
	ConditionHypervisorReEnabled = "HypervisorReEnabled"
)

// Reasons that several condition types share.
const (
	ReasonSucceeded = "Succeeded"
	ReasonFailed    = "Failed"
	ReasonRunning   = "Running"
	ReasonStopped   = "Stopped"
)

// Reasons of ConditionReady, in order of precedence.
const (
	ReasonOffboarded  = "Offboarded" // Also of ConditionOffboarded.
	ReasonTerminating = "Terminating"
	ReasonOnboarding  = "Onboarding"
	ReasonEvicting    = "Evicting"
	ReasonEvicted     = "Evicted" // Also of ConditionHaEnabled.
	ReasonMaintenance = "Maintenance"
	ReasonReady       = "Ready" // Also of ConditionTLSCertificateInstalled.
)

// Reasons of ConditionHostAlive. True is a host that is heard; Unknown one that
// is not, which does not mean that it is dead; False one that is proven to run
// nothing.
const (
	ReasonOnline      = "Online"      // True.
	ReasonSuspect     = "Suspect"     // Unknown: silent for some reports.
	ReasonIsolated    = "Isolated"    // Unknown: silent, yet its storage heartbeat or a peer shows that it lives.
	ReasonUnreachable = "Unreachable" // Unknown: silent for everybody.
	ReasonHeld        = "Held"        // Unknown: a brake holds; the message says which, and what to do.
	ReasonFencing     = "Fencing"     // Unknown: proof is being sought.
	ReasonUnproven    = "Unproven"    // Unknown: there is no more proof to be had without a person.
	ReasonFenced      = "Fenced"      // False.
	ReasonEvacuating  = "Evacuating"  // False.
	ReasonHostEmpty   = "Evacuated"   // False.
	ReasonRecovering  = "Recovering"  // Unknown: heard again and being looked at.
)

// Reasons of ConditionHaEnabled, besides ReasonSucceeded, ReasonEvicted,
// ReasonOnboarding and ReasonFailed.
const (
	ReasonPaused = "Paused" // The whole service is held by a person.
	ReasonDryRun = "DryRun" // It only says what it would do.
)

// Reasons of ConditionOnboarding, besides ReasonSucceeded.
const (
	ReasonInitial  = "Initial"
	ReasonTesting  = "Testing"
	ReasonHandover = "Handover"
	ReasonAborted  = "Aborted"
)

// Reasons of ConditionOffboarded, besides ReasonOffboarded.
const ReasonOffboarding = "Offboarding"

// Reasons of ConditionTainted.
const (
	ReasonKubectl   = "Kubectl"
	ReasonNoKubectl = "NoKubectl"
)

// Reasons of ConditionAggregatesUpdated, besides ReasonSucceeded, ReasonFailed
// and ReasonTerminating.
const (
	ReasonTestAggregates     = "TestAggregates"
	ReasonWaitingForTraits   = "WaitingForTraits"
	ReasonEvictionInProgress = "EvictionInProgress"
)

// Reasons of ConditionAgentPodsEvicted.
const (
	ReasonNoAgentPods      = "NoAgentPods"
	ReasonAgentPodsRunning = "AgentPodsRunning"
)

// Reasons of ConditionLibVirtConnection.
const (
	ReasonConnected                = "Connected"
	ReasonConnectFailed            = "ConnectFailed"
	ReasonLibVirtServiceNotRunning = "LibVirtServiceNotRunning"
	ReasonProcessFailed            = "ProcessFailed"
)

// Reasons of ConditionOperatingSystemUpdate, besides ReasonRunning and
// ReasonStopped.
const ReasonCompleted = "Completed"

// Reasons of ConditionTLSCertificateInstalled, besides ReasonReady.
const (
	ReasonInstalling                    = "Installing"
	ReasonFailedToUpdateTLSCertificate  = "FailedToUpdateTLSCertificate"
	ReasonFailedToStartUpdateTLSService = "FailedToStartUpdateTLSService"
)
