// SPDX-License-Identifier: Apache-2.0

// Command crdgen writes the CustomResourceDefinitions of those resources of
// kubevirt.io that Adit serves into config/crd. The schema is what controller-gen
// makes of KubeVirt's own Go types; those carry no word on names, columns and
// subresources, which KubeVirt's virt-operator keeps in code
// (pkg/virt-operator/resource/generate/components/crds.go), as we do here. It is
// run by `go generate ./api` and is in no binary.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// looks lists the resources and how each looks from outside.
var looks = map[string]func(*apiextensionsv1.CustomResourceDefinitionNames, *apiextensionsv1.CustomResourceDefinitionVersion){
	// Without a status subresource, as in KubeVirt: a label and the status it
	// mirrors (nodeName) are written in one patch.
	"virtualmachineinstances.kubevirt.io": func(names *apiextensionsv1.CustomResourceDefinitionNames, version *apiextensionsv1.CustomResourceDefinitionVersion) {
		names.ShortNames = []string{"vmi", "vmis"}
		version.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
			{Name: "Phase", Type: "string", JSONPath: ".status.phase"},
			{Name: "IP", Type: "string", JSONPath: ".status.interfaces[0].ipAddress"},
			{Name: "NodeName", Type: "string", JSONPath: ".status.nodeName"},
			{Name: "Ready", Type: "string", JSONPath: ".status.conditions[?(@.type=='Ready')].status"},
			{Name: "Live-Migratable", Type: "string", JSONPath: ".status.conditions[?(@.type=='LiveMigratable')].status", Priority: 1},
			{Name: "Paused", Type: "string", JSONPath: ".status.conditions[?(@.type=='Paused')].status", Priority: 1},
		}
	},
	"virtualmachineinstancemigrations.kubevirt.io": func(names *apiextensionsv1.CustomResourceDefinitionNames, version *apiextensionsv1.CustomResourceDefinitionVersion) {
		names.ShortNames = []string{"vmim", "vmims"}
		version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
		version.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Phase", Type: "string", JSONPath: ".status.phase"},
			{Name: "VMI", Type: "string", JSONPath: ".spec.vmiName"},
		}
	},
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: crdgen <go.mod of the tools> <folder to write to>")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "crdgen:", err)
		os.Exit(1)
	}
}

func run(toolsModule, folder string) error {
	// KubeVirt's descriptions would make two thirds of the files, and kubectl
	// apply keeps a second copy in an annotation limited to 256 KiB.
	generate := exec.Command("go", "tool", "-modfile="+toolsModule, "controller-gen",
		"crd:maxDescLen=0,allowDangerousTypes=true", "paths=kubevirt.io/api/core/v1", "output:crd:stdout")
	generate.Stderr = os.Stderr
	text, err := generate.Output()
	if err != nil {
		return fmt.Errorf("run %s: %w", generate, err)
	}
	written := 0
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(doc, crd); err != nil {
			return fmt.Errorf("read controller-gen's output: %w", err)
		}
		look, ours := looks[crd.Name]
		if !ours {
			continue
		}
		look(&crd.Spec.Names, &crd.Spec.Versions[0])
		crd.Spec.Names.Categories = []string{"all"}
		if err := write(folder, crd); err != nil {
			return err
		}
		written++
	}
	if written != len(looks) {
		return fmt.Errorf("wrote %d of %d definitions: has KubeVirt renamed a type?", written, len(looks))
	}
	return nil
}

// write names the file as controller-gen does and leaves out the status, which
// is not ours to apply.
func write(folder string, crd *apiextensionsv1.CustomResourceDefinition) error {
	text, err := yaml.Marshal(struct {
		APIVersion string                                       `json:"apiVersion"`
		Kind       string                                       `json:"kind"`
		Metadata   map[string]any                               `json:"metadata"`
		Spec       apiextensionsv1.CustomResourceDefinitionSpec `json:"spec"`
	}{
		crd.APIVersion, crd.Kind,
		map[string]any{"name": crd.Name, "annotations": crd.Annotations},
		crd.Spec,
	})
	if err != nil {
		return err
	}
	file := filepath.Join(folder, crd.Spec.Group+"_"+crd.Spec.Names.Plural+".yaml")
	return os.WriteFile(file, append([]byte("---\n"), text...), 0o644)
}
