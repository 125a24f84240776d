// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/adit-hv/adit/internal/controlplane"
	"github.com/adit-hv/adit/live"
	"github.com/adit-hv/adit/scenarios"
	"github.com/adit-hv/adit/sim"
	"github.com/adit-hv/adit/testbed"
)

// upFlags are the flags of adit up.
type upFlags struct {
	hosts, vms int
	zones      int
	noHA       bool
	speed      float64
	seed       uint64
	socket     string
	verbose    bool
}

// The most that one machine is asked to keep up.
const (
	mostHosts = 1000
	mostVMs   = 20000
)

func newUp() *cobra.Command {
	f := upFlags{}
	c := &cobra.Command{
		Use:   "up [FILE|NAME]",
		Short: "Keep a fleet running, to play with",
		Long: `Start a Kubernetes control plane, the operator, the HA service and a fleet of
simulated hosts with their agents, and keep all of it running until Ctrl-C or
adit down. kubectl works on it as on any cluster:

  adit up --hosts 12 --vms 60
  export KUBECONFIG=...                     as adit up prints it
  kubectl get hypervisors
  kubectl apply -f eviction.yaml            drains a host

and in another terminal things go wrong:

  adit fault host.power-off on=node-a003    see adit fault --help
  adit do maintenance.start on=node-b001    see adit do --help
  adit heal

With the name of a scenario or its file the fleet and the VMs are that
scenario's; its timeline is left to you. Nothing stays behind, however it ends.`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return up(ctx, f, args, c.OutOrStdout())
		},
	}
	c.Flags().IntVar(&f.hosts, "hosts", 6, "how many hosts")
	c.Flags().IntVar(&f.vms, "vms", 30, "how many VMs")
	c.Flags().IntVar(&f.zones, "zones", 3, "how many zones the hosts are spread over")
	c.Flags().BoolVar(&f.noHA, "no-ha", false, "leave high availability out")
	c.Flags().Float64Var(&f.speed, "speed", 1, "how much faster than the wall clock the fleet's time passes")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "what the hosts' chance is drawn from")
	c.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "print what happens on the hosts, and what goes wrong in a controller")
	addSocket(c, &f.socket)
	return c
}

// fleet is what is to be kept up.
func (f upFlags) fleet(args []string) (testbed.Spec, error) {
	switch {
	case f.speed <= 0 || f.speed > maxSpeed:
		return testbed.Spec{}, fmt.Errorf("--speed %v: give a number above 0 and up to %v; 1 is the wall clock's", f.speed, maxSpeed)
	case len(args) == 1:
		found, err := load(args)
		if err != nil {
			return testbed.Spec{}, err
		}
		if len(found) != 1 {
			return testbed.Spec{}, fmt.Errorf("%s is %d scenarios; name one", args[0], len(found))
		}
		return found[0].Spec, nil
	case f.hosts < 1 || f.hosts > mostHosts:
		return testbed.Spec{}, fmt.Errorf("--hosts %d: give 1 to %d", f.hosts, mostHosts)
	case f.vms < 0 || f.vms > mostVMs:
		return testbed.Spec{}, fmt.Errorf("--vms %d: give 0 to %d", f.vms, mostVMs)
	case f.zones < 1 || f.zones > min(f.hosts, 26):
		return testbed.Spec{}, fmt.Errorf("--zones %d: give 1 to %d, since each has a host", f.zones, min(f.hosts, 26))
	}
	s, err := scenarios.Parse("adit up", []byte(f.document()), nil)
	if err != nil {
		return testbed.Spec{}, err
	}
	return s.Spec, nil
}

// document is the fleet in a scenario's words.
func (f upFlags) document() string {
	text := "about: a fleet to play with\nfor: 1h\nexpect: [{end: 'true'}]\nfleet:\n"
	for zone := range f.zones {
		count := f.hosts / f.zones
		if zone < f.hosts%f.zones {
			count++
		}
		letter := string(rune('a' + zone))
		name := "node-" + letter
		if f.zones == 1 {
			name = "node"
		}
		text += fmt.Sprintf("- {name: %s, count: %d, zone: %s, rack: r-%s}\n", name, count, letter, letter)
	}
	if f.vms > 0 {
		text += fmt.Sprintf("workload:\n- {name: vm, count: %d, cpus: 2, memory: 4Gi, dirtyRate: 20Mi, workingSet: 256Mi}\n", f.vms)
	}
	if !f.noHA {
		text += "ha: {}\n"
	}
	return text
}

// forever is longer than anybody keeps a fleet up.
const forever = time.Duration(math.MaxInt64) / 2

func up(ctx context.Context, f upFlags, args []string, out io.Writer) (err error) {
	spec, err := f.fleet(args)
	if err != nil {
		return err
	}
	door, err := listen(f.socket)
	if err != nil {
		return err
	}
	defer door.Close()
	began := time.Now()
	fmt.Fprintln(out, "Starting a control plane ...")
	plane, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	if err := launchCollector(ctx, plane); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	runtime, err := live.New(ctx, live.Options{Config: plane.Config(), Speed: f.speed})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Starting %d hosts ...\n", len(spec.HostNames()))
	o := testbed.Options{Seed: f.seed, Runtime: runtime}
	if f.verbose {
		o.OnNote = func(n sim.Note) { fmt.Fprintln(out, n) }
	}
	w, err := testbed.New(spec, o)
	if err != nil {
		return err
	}
	defer w.Close()
	door.serve(&fleet{spec: spec, world: w, inside: runtime.Do, end: end})
	fmt.Fprintf(out, `Up after %.1f s: %d hosts, %d VMs to come. In another terminal:

  export KUBECONFIG=%s
  kubectl get hypervisors
  adit fault host.power-off on=%s

Ctrl-C or adit down ends it.
`, time.Since(began).Seconds(), len(spec.HostNames()), vmsOf(spec), plane.Kubeconfig(), spec.HostNames()[0])
	w.Run(forever)
	fmt.Fprintln(out, "Going down ...")
	return nil
}

func vmsOf(s testbed.Spec) (n int) {
	for _, g := range s.VMs {
		n += g.Count
	}
	return n
}
