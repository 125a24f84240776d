// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newPower is the command that tries a management controller before it is needed.
func newPower(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "power HOST",
		Short: "Ask a host's management controller who it is and whether the host is on",
		Long: `Ask a host's management controller who it is and whether the host is on, in the way
the service would. It reads only; nothing is switched. Try it for each host that is
taken into service: a wrong password is found now, or in the night when the host dies.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			config, err := restConfig(f)
			if err != nil {
				return err
			}
			api, err := client.New(config, client.Options{Scheme: scheme()})
			if err != nil {
				return err
			}
			power, err := newControllers(api, api, f).find(c.Context(), args[0])
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			defer leave(power)
			who, err := power.Controller(c.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "machine\tUUID %s, serial number %s\n", who.SystemUUID, who.Serial)
			state, err := power.PowerState(c.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "power\t%s\n", state)
			return nil
		},
	}
}
