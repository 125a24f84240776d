// SPDX-License-Identifier: Apache-2.0

// Command ha-service is one replica of the HA service: operator/ha on a real
// cluster, with the gRPC server its agents report to and Redfish for the hosts'
// management controllers. It decides nothing by itself: it reads flags, puts the
// parts together and runs them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
)

// version is set by the linker; see the Makefile.
var version = "(devel)"

// slack is how much larger than what is needed the heap may grow, in per cent. At
// rest the service allocates some 1.5 MB a second, so that little slack costs little
// time, and most of what it needs stays as it is for days.
const slack = 20

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(slack)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			fmt.Fprintln(os.Stderr, "ha-service:", line)
		}
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	f := defaults()
	c := &cobra.Command{
		Use:   "ha-service",
		Short: "Fence hosts that die and have their VMs restarted, once",
		Long: `ha-service hears the HA agents of all hosts, judges which hosts are dead, proves it,
and has their protected VMs started elsewhere. Run two or three replicas: one leads,
the others listen and say that they do not. docs/ha.md has the rules by which it
decides, docs/operate.md how to run it.

  ha-service --tls-cert tls.crt --tls-key tls.key --tls-ca ca.crt
  ha-service --listen "" --socket /run/adit/ha.sock      for agents of this machine only
  ha-service power node001                               what its management controller says

Each agent shows a certificate of the authority in --tls-ca that names its host, as a
DNS name or, without any, as the common name; it may report for that host alone.

A host's management controller is found by the annotation kvm.cloud.sap/bmc of its
Hypervisor: the name of a Secret in --namespace with the keys
  address              https://HOST or https://HOST:PORT, where Redfish is spoken
  username, password
  ca.crt               whom to believe; without it the system's authorities
  insecureSkipVerify   "true" believes anybody
  session              "true" logs in once, instead of sending the password each time
A host without one is fenced by the end of its lease, or by a person's word.

To hold it:  adit ha pause, or kubectl -n kvm create configmap ha --from-literal=paused=true
To rehearse: adit ha dry-run on, or kubectl -n kvm create configmap ha --from-literal=dryRun=true`,
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(f.verbosity))))
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(aboveZero(c.Flags()), f.check()); err != nil {
				return err
			}
			return run(c.Context(), f)
		},
	}
	f.common(c.PersistentFlags())
	f.service(c.Flags())
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return fmt.Errorf("%w; see %s --help", err, c.CommandPath()) })
	c.AddCommand(newPower(f))
	return c
}
