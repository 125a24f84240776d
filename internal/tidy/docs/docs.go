// SPDX-License-Identifier: Apache-2.0

// Package docs plays what the pages say: each example of a scenario is read as
// adit reads it, and the tables of actions, faults and variables are complete.
//
// It reads README.md and docs/ and knows the scenarios' reader. It is apart from
// the other laws so that these hold even while that reader does not build.
package docs
