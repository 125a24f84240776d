// SPDX-License-Identifier: Apache-2.0

// Package sabotage breaks the programs on purpose, to show that explorations
// would find it: a checker that cannot fail says nothing.
//
// It owns the list of sabotages. Where one strikes, the program asks On. Built
// as usual, On is false and costs nothing; built with the tag sabotage, it is
// true of the one that the environment variable ADIT_SABOTAGE names. No program
// that is shipped is built with that tag.
package sabotage

// Name is one way of doing it wrong.
type Name string

// The sabotages.
const (
	NoProof      Name = "no-proof"
	OneRead      Name = "one-read"
	NoRunToken   Name = "no-run-token"
	TimeoutIsOff Name = "timeout-is-off"
	Amnesia      Name = "amnesia"
	NoStormGuard Name = "no-storm-guard"
)

// Variable is the environment variable that names the one that is on.
const Variable = "ADIT_SABOTAGE"

// All are the sabotages with what is done wrong.
var All = []struct {
	Name Name
	What string
}{
	{NoProof, "hosts are evacuated without proof"},
	{OneRead, "one read of a management controller is trusted"},
	{NoRunToken, "a VM that is placed anew keeps its run token"},
	{TimeoutIsOff, "a power-off that timed out is taken for done"},
	{Amnesia, "a new leader forgets what was written down"},
	{NoStormGuard, "the storm guard is ignored"},
}
