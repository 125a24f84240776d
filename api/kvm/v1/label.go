// SPDX-License-Identifier: Apache-2.0

package v1

// Labels read on a Node.
const (
	// LabelVirtDriver, whatever its value, makes a Node a hypervisor.
	LabelVirtDriver = "nova.openstack.cloud.sap/virt-driver"
	// LabelNodeHypervisorLifecycle, whatever its value, enables the lifecycle;
	// the value LifecycleSkipTests skips the test VM as well.
	LabelNodeHypervisorLifecycle = "cobaltcore.cloud.sap/node-hypervisor-lifecycle"
	LifecycleSkipTests           = "skip-tests"
)

// Annotations read on a Node: comma-separated lists.
const (
	AnnotationAggregates   = "nova.openstack.cloud.sap/aggregates"
	AnnotationCustomTraits = "nova.openstack.cloud.sap/custom-traits"
)

// AnnotationBMC, on a Hypervisor, names the Secret in the HA service's namespace
// that says where the host's management controller is and how to enter it. People
// set it.
const AnnotationBMC = "kvm.cloud.sap/bmc"

// Labels a Hypervisor takes over from its Node, and an Eviction from its
// Hypervisor.
const (
	LabelHostname      = "kubernetes.io/hostname"
	LabelBuildingBlock = "kubernetes.metal.cloud.sap/bb"
	LabelCluster       = "kubernetes.metal.cloud.sap/cluster"
	// LabelMetalName is the host's name as people say it; `kubectl get
	// hypervisors` prints it as NODE, and a Migration as origin or destination.
	LabelMetalName   = "kubernetes.metal.cloud.sap/name"
	LabelMetalType   = "kubernetes.metal.cloud.sap/type"
	LabelWorkerGroup = "worker.garden.sapcloud.io/group"
	LabelWorkerPool  = "worker.gardener.cloud/pool"
	LabelRegion      = "topology.kubernetes.io/region"
	LabelZone        = "topology.kubernetes.io/zone"
)

// TransferredLabels are the labels a Hypervisor takes over from its Node and an
// Eviction from its Hypervisor, sorted. The caller owns the slice.
func TransferredLabels() []string {
	return []string{
		LabelHostname,
		LabelBuildingBlock,
		LabelCluster,
		LabelMetalName,
		LabelMetalType,
		LabelRegion,
		LabelZone,
		LabelWorkerGroup,
		LabelWorkerPool,
	}
}

const (
	// TaintOffboarding, with effect NoExecute, drives the agents' pods off a
	// Node whose host is empty and going for good.
	TaintOffboarding = "kvm.cloud.sap/offboarding"

	// TaintCriticalComponentsNotReady, with effect NoSchedule, is Gardener's;
	// the node agent tolerates it.
	TaintCriticalComponentsNotReady = "node.gardener.cloud/critical-components-not-ready"

	// LabelCriticalComponent with value "true" marks the pods for which
	// Gardener keeps that taint.
	LabelCriticalComponent = "node.gardener.cloud/critical-component"

	// LabelMaintenanceController marks the Deployment, the pod and the
	// disruption budget in MaintenanceNamespace that hold up Gardener's drain;
	// its value, and their name, is MaintenancePrefix and the Node's name.
	LabelMaintenanceController = "cobaltcore-maintenance-controller"
	MaintenanceNamespace       = "kube-system"
	MaintenancePrefix          = "maint-"
)
