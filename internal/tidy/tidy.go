// SPDX-License-Identifier: Apache-2.0

// Package tidy holds the laws of this house as ordinary tests: which room may
// import which, what the deterministic rooms may not call, that packages and
// exported names say what they are for, and that README, Makefile, CI and docs
// speak of the same things. The package docs beside it plays the examples.
//
// It reads the source tree and alone decides nothing: a law is changed here, in
// a commit that says why. It must never need a tool, a network or a git.
package tidy
