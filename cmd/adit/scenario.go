// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
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
			Use:     "validate FILE...",
			Short:   "Check scenario files without running them",
			Long:    "Check scenario files, or folders of them. The first mistake of each file is named\nwith its line and field, and how to mend it.",
			Example: "  adit scenario validate my.yaml\n  adit scenario validate scenarios/",
			Args: func(_ *cobra.Command, args []string) error {
				if len(args) == 0 {
					return errors.New("name a scenario file or a folder of them, as adit scenario validate my.yaml")
				}
				return nil
			},
			RunE: func(c *cobra.Command, args []string) error {
				list, err := load(args)
				if err != nil {
					return err
				}
				verb := "are"
				if len(list) == 1 {
					verb = "is"
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "%s %s good\n", counted(len(list), "scenario"), verb)
				return err
			},
		},
		&cobra.Command{
			Use:   "list",
			Short: "List the built-in scenarios",
			Long:  "List the built-in scenarios: the name, by which run and show take it, and what happens\nin it.",
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
			Use:     "show NAME",
			Short:   "Print a built-in scenario, as a start for your own",
			Long:    "Print a built-in scenario with all its words, as a start for your own.",
			Example: "  adit scenario show drain-a-host > my.yaml",
			Args: func(_ *cobra.Command, args []string) error {
				if len(args) != 1 {
					return errors.New("name one built-in scenario; adit scenario list names them")
				}
				return nil
			},
			ValidArgsFunction: func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
				names, _ := completeScenarios(c, args, word)
				return names, cobra.ShellCompDirectiveNoFileComp
			},
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
			Long:  "Explain the words a scenario is made of: the actions (do:), the faults (fault:) and the\nvariables of expectations, each with what it takes. The whole format is in\ndocs/scenarios.md.",
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
	var mistakes []error
	for _, name := range names {
		found, err := scenarios.Find(name)
		mistakes = append(mistakes, err)
		list = append(list, found...)
	}
	return list, errors.Join(mistakes...)
}
