// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
)

func TestAllAreWhatClientsExpect(t *testing.T) {
	crds, err := All()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, crd := range crds {
		version := crd.Spec.Versions[0]
		subresources := "no subresource"
		if version.Subresources != nil && version.Subresources.Status != nil {
			subresources = "status"
		}
		got = append(got, strings.Join([]string{
			crd.Name, version.Name, string(crd.Spec.Scope), crd.Spec.Names.Kind, crd.Spec.Names.Singular,
			strings.Join(crd.Spec.Names.ShortNames, ","), strings.Join(crd.Spec.Names.Categories, ","), subresources,
		}, " | "))
		if len(crd.Spec.Versions) != 1 || !version.Served || !version.Storage {
			t.Errorf("%s must have one version, served and stored", crd.Name)
		}
	}
	want := []string{
		"evacuations.kvm.cloud.sap | v1alpha1 | Cluster | Evacuation | evacuation | evac |  | status",
		"evictions.kvm.cloud.sap | v1 | Cluster | Eviction | eviction | evi |  | status",
		"hypervisors.kvm.cloud.sap | v1 | Cluster | Hypervisor | hypervisor | hv |  | status",
		"migrations.kvm.cloud.sap | v1alpha1 | Namespaced | Migration | migration |  |  | status",
		"virtualmachineinstancemigrations.kubevirt.io | v1 | Namespaced | VirtualMachineInstanceMigration | virtualmachineinstancemigration | vmim,vmims | all | status",
		"virtualmachineinstances.kubevirt.io | v1 | Namespaced | VirtualMachineInstance | virtualmachineinstance | vmi,vmis | all | no subresource",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAllWouldBeInstalled asks the API server's own validation: structural, with
// defaults that fit, rules that compile and are cheap enough.
func TestAllWouldBeInstalled(t *testing.T) {
	crds, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		t.Run(crd.Name, func(t *testing.T) {
			apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
			apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
			internal := &apiextensions.CustomResourceDefinition{}
			if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
				t.Fatal(err)
			}
			internal.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
			for _, err := range crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal) {
				t.Error(err)
			}
		})
	}
}

func TestAllGivesEachCallerItsOwn(t *testing.T) {
	first, err := All()
	if err != nil {
		t.Fatal(err)
	}
	first[0].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{}
	second, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if reflect.DeepEqual(first[0], second[0]) {
		t.Error("a change of one caller's copy is seen by the next")
	}
}
