// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The exit codes, which programs rely on.
const (
	exitPass     = 0
	exitFailed   = 1
	exitBadInput = 2

	exitInterrupted = 130 // as shells have it: 128 and SIGINT's number
)

// errInterrupted says that somebody ended it before all was played.
var errInterrupted = errors.New("interrupted")

// errFailed says that runs were played and did not pass; everything there is
// to say has been printed.
var errFailed = errors.New("failed")

// version is set by the linker; see the Makefile.
var version = ""

func execute(t *testing.T, args []string, stdout, stderr io.Writer) int {
	root := newRoot(t, stdout, stderr)
	root.SetArgs(args)
	switch err := root.Execute(); {
	case err == nil:
		return exitPass
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	default:
		for _, line := range strings.Split(err.Error(), "\n") {
			fmt.Fprintln(stderr, "adit:", line)
		}
		return exitBadInput
	}
}

func newRoot(t *testing.T, stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "adit",
		Short: "Rehearse a KVM cloud",
		Long: `adit plays scenarios of a KVM fleet (hosts that die, daemons that hang,
migrations that do not converge, drains) through the real operator and the real
agents, in a deterministic simulator. The same seed gives the same run, bit for
bit, on any machine.

Begin with:  adit run                    the built-in suite
             adit scenario list          what is in it
             adit scenario show NAME     one of them, as a start for your own
             adit explore                scenarios that nobody wrote
             adit up                     a fleet that stays, for kubectl and you`,
		Version:       versionText(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("adit {{.Version}}\n")
	root.AddCommand(newRun(t), newExplore(t), newUp(), newFault(), newDo(), newHeal(), newDown(), newHA(t), newScenario(), newVersion())
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		text, _, number := strings.Cut(err.Error(), ": strconv.")
		if number {
			text += ": it is a whole number, not below 0"
		}
		return fmt.Errorf("%s; see %s --help", text, c.CommandPath())
	})
	root.SetOut(stdout) // before the completions, which keep it
	root.SetErr(stderr)
	root.InitDefaultCompletionCmd("completion")
	for _, c := range root.Commands() {
		if c.HasSubCommands() { // what it does not know is no cause to be content
			c.Args, c.RunE = cobra.NoArgs, func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "adit", versionText())
			return err
		},
	}
}

// versionText is the version the binary was built with, or what Go knows of it.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
