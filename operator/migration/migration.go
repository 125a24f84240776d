// SPDX-License-Identifier: Apache-2.0

// Package migration carries VirtualMachineInstanceMigrations from wish to end.
package migration

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/adit-hv/adit/operator/compute"
)

// Options are the limits of migrations. Zero values mean the defaults, which
// are KubeVirt's where it has one.
type Options struct {
	Clock clock.PassiveClock

	PerFleet  int // Migrations at once; 0 is 5.
	PerHost   int // Of them out of one host; 0 is 2.
	PerTarget int // Of them into one host; 0 is 2.

	Bandwidth               *resource.Quantity // Bytes a second for one; nil is no limit.
	CompletionTimeoutPerGiB time.Duration      // 0 is 150 s.
	ProgressTimeout         time.Duration      // 0 is 150 s.
	AllowAutoConverge       bool
	AllowPostCopy           bool
	AllowWorkloadDisruption bool

	UnschedulableTimeout time.Duration // With no host that fits; 0 is 300 s.
	PendingTimeout       time.Duration // For the target to prepare; 0 is 900 s.
	KeepFinished         int           // Finished migrations kept of a VM; 0 is 5.

	Workers int // 0 is 4.
}

// Setup adds the controller to a manager. The fleet is the one compute.Setup
// returned for the same manager.
func Setup(mgr manager.Manager, fleet *compute.Fleet, o Options) error {
	return nil
}
