// SPDX-License-Identifier: Apache-2.0

// Command adit rehearses a KVM cloud: it plays scenarios of a fleet through the
// real operator and agents, in the simulator, and reports what happened.
//
// It reads its flags and files and writes to standard output and the report's
// folder. Exit codes: 0 all passed; 1 an expectation or invariant did not hold;
// 2 bad input.
package main

import (
	"flag"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// main runs the tool inside a test: only a test can open the synctest bubbles
// in which runs live, and any program can be a test's binary.
func main() {
	tuneMemory()
	// Controllers log under our managers, and client-go as it likes; what a person
	// is to see of it is in the trace.
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	testing.Init()
	if err := flag.CommandLine.Parse(nil); err != nil { // ours are not the testing package's flags
		os.Exit(exitBadInput)
	}
	any := func(_, _ string) (bool, error) { return true, nil }
	testing.Main(any, []testing.InternalTest{{Name: "adit", F: func(t *testing.T) {
		os.Exit(execute(t, os.Args[1:], os.Stdout, os.Stderr))
	}}}, nil, nil)
}
