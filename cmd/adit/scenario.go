// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/testbed"
)

func newScenario() *cobra.Command {
	c := &cobra.Command{Use: "scenario", Short: "List, show and check scenarios"}
	c.AddCommand(
		&cobra.Command{
			Use:   "validate FILE...",
			Short: "Check scenario files without running them",
			Long:  "Check scenario files, or folders of them. The first mistake of each file is named\nwith its line and field, and how to mend it.",
			Args:  cobra.MinimumNArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				list, err := load(args)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "%d scenarios are good\n", len(list))
				return err
			},
		},
		&cobra.Command{
			Use:   "list",
			Short: "List the built-in scenarios",
			Args:  cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				list, err := scenarios.Suite()
				if err != nil {
					return err
				}
				for _, s := range list {
					fmt.Fprintf(c.OutOrStdout(), "%-44s %s\n", s.Name, firstLine(s.About))
				}
				return nil
			},
		},
		&cobra.Command{
			Use:               "show NAME",
			Short:             "Print a built-in scenario, as a start for your own",
			Args:              cobra.ExactArgs(1),
			ValidArgsFunction: completeScenarios,
			RunE: func(c *cobra.Command, args []string) error {
				data, err := scenarios.Source(args[0])
				if err != nil {
					return err
				}
				_, err = c.OutOrStdout().Write(data)
				return err
			},
		},
		&cobra.Command{
			Use:   "words",
			Short: "Explain actions, faults and the variables of expectations",
			Args:  cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				out := c.OutOrStdout()
				fmt.Fprintln(out, "Actions (do:)")
				for _, h := range testbed.ActionHelp() {
					fmt.Fprintf(out, "  %-56s %s\n", h[0], h[1])
				}
				fmt.Fprintln(out, "\nFaults (fault:)")
				for _, h := range testbed.FaultHelp() {
					fmt.Fprintf(out, "  %-56s %s\n", h[0], h[1])
				}
				fmt.Fprintln(out, "\nVariables of expectations: lists "+strings.Join(testbed.ViewLists, ", ")+"; maps by name "+strings.Join(testbed.ViewMaps, ", "))
				for _, h := range testbed.ViewHelp {
					fmt.Fprintf(out, "  %s\n      %s\n", h[0], h[1])
				}
				return nil
			},
		},
	)
	return c
}

func completeScenarios(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	list, err := scenarios.Suite()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, s := range list {
		names = append(names, s.Name+"\t"+firstLine(s.About))
	}
	return names, cobra.ShellCompDirectiveDefault
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// load reads the named scenarios: files, folders or names of built-in ones.
// Without names it is the built-in suite.
func load(names []string) ([]*scenarios.Scenario, error) {
	if len(names) == 0 {
		return scenarios.Suite()
	}
	var list []*scenarios.Scenario
	for _, name := range names {
		found, err := scenarios.Find(name)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}
