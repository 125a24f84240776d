// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
)

func TestOneSchemeKnowsAllKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kvmv1.AddToScheme, v1alpha1.AddToScheme, kubevirt.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for want, object := range map[string]runtime.Object{
		"kvm.cloud.sap/v1, Kind=Hypervisor":                    &kvmv1.Hypervisor{},
		"kvm.cloud.sap/v1, Kind=HypervisorList":                &kvmv1.HypervisorList{},
		"kvm.cloud.sap/v1, Kind=Eviction":                      &kvmv1.Eviction{},
		"kvm.cloud.sap/v1, Kind=EvictionList":                  &kvmv1.EvictionList{},
		"kvm.cloud.sap/v1alpha1, Kind=Migration":               &v1alpha1.Migration{},
		"kvm.cloud.sap/v1alpha1, Kind=MigrationList":           &v1alpha1.MigrationList{},
		"kubevirt.io/v1, Kind=VirtualMachineInstance":          &kubevirtv1.VirtualMachineInstance{},
		"kubevirt.io/v1, Kind=VirtualMachineInstanceMigration": &kubevirtv1.VirtualMachineInstanceMigration{},
	} {
		kinds, _, err := scheme.ObjectKinds(object)
		if err != nil || len(kinds) != 1 || kinds[0].String() != want {
			t.Errorf("got %v, %v; want %s", kinds, err, want)
		}
	}
}

func TestTransferredLabelsAreSortedAndTheCallersOwn(t *testing.T) {
	labels := kvmv1.TransferredLabels()
	if !slices.IsSorted(labels) || len(labels) != 9 {
		t.Errorf("got %q", labels)
	}
	labels[0] = "changed"
	if kvmv1.TransferredLabels()[0] == "changed" {
		t.Error("a change of one caller's copy is seen by the next")
	}
}
