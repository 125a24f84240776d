// SPDX-License-Identifier: Apache-2.0

// Package rbac carries the service accounts and roles of this folder into Go: what
// each of our programs may do with the API, and nothing else. `kubectl apply -f`
// takes the same files. It owns no meaning and must never know what a program does
// with its rights.
package rbac

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespace is where our programs run and keep their Leases.
const Namespace = "kvm"

//go:embed *.yaml
var files embed.FS

// accounts are the service accounts, by the role of the process.
var accounts = map[string]string{
	"operator":    "adit-operator",
	"operator/ha": "adit-ha-service",
	"agents/node": "adit-node-agent",
	"agents/nova": "adit-nova-agent",
	"agents/ha":   "adit-ha-agent",
}

// User is the name that the API knows a process of that role by.
func User(role string) (string, error) {
	account, ok := accounts[role]
	if !ok {
		return "", fmt.Errorf("there is no service account for the role %q", role)
	}
	return "system:serviceaccount:" + Namespace + ":" + account, nil
}

// All returns the objects of the files, in the order of the files' names and of
// the objects in them. They are the caller's.
func All() ([]client.Object, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var all []client.Object
	for _, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, err
		}
		objects, err := read(scheme, text)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", entry.Name(), err)
		}
		all = append(all, objects...)
	}
	return all, nil
}

func read(scheme *runtime.Scheme, text []byte) (all []client.Object, err error) {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		u := &unstructured.Unstructured{}
		switch err := documents.Decode(u); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case len(u.Object) == 0:
			continue // A document of comments.
		}
		typed, err := scheme.New(u.GroupVersionKind())
		if err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, typed, true); err != nil {
			return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
		all = append(all, typed.(client.Object))
	}
}
