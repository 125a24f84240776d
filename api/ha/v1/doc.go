// SPDX-License-Identifier: Apache-2.0

// Package hav1 is what HA agents tell the HA service and what it answers, as
// ha.proto beside it defines them; all other files are generated from it by
// `make generate`. It must never know how a host is judged.
package hav1
