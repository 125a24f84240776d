// SPDX-License-Identifier: Apache-2.0

// Package api is the root of the words Adit and the Kubernetes API share: the
// Go types of kvm.cloud.sap (kvm/v1, kvm/v1alpha1) and what we say about the
// types of kubevirt.io (kubevirt). It holds no code of its own, only the orders
// for the generators: `go generate ./api` writes the deepcopy functions and every
// YAML file in config/crd. It must never know a controller, an agent or hardware.
package api

//go:generate go tool -modfile=../tools/go.mod controller-gen object:headerFile=../tools/boilerplate.go.txt paths=./kvm/...
//go:generate go tool -modfile=../tools/go.mod controller-gen crd:allowDangerousTypes=true paths=./kvm/... output:crd:dir=../config/crd
//go:generate go run ./internal/crdgen ../tools/go.mod ../config/crd
