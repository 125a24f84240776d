// SPDX-License-Identifier: Apache-2.0

// Package api is the root of the words Adit's parts share with each other and
// with the Kubernetes API: the Go types of kvm.cloud.sap (kvm/v1, kvm/v1alpha1),
// what we say about the types of kubevirt.io (kubevirt), and the messages between
// HA agents and HA service (ha/v1). It holds no code of its own, only the orders
// for the generators: `go generate ./api` writes the deepcopy functions, every
// YAML file in config/crd, and the Go code of ha.proto. It must never know a
// controller, an agent or hardware.
package api

//go:generate go tool -modfile=../tools/go.mod controller-gen object:headerFile=../tools/boilerplate.go.txt paths=./kvm/...
//go:generate go tool -modfile=../tools/go.mod controller-gen crd:allowDangerousTypes=true paths=./kvm/... output:crd:dir=../config/crd
//go:generate go run ./internal/crdgen ../tools/go.mod ../config/crd
//go:generate go -C ../tools run ./protogen .. api/ha/v1/ha.proto
