// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/operator/ha"
)

// haFlags say where a fleet's API is: in a kubeconfig, or in a run.
type haFlags struct {
	cluster clusterFlags
	run     string
	seed    uint64
	at      time.Duration
}

func newHA(t *testing.T) *cobra.Command {
	c := &cobra.Command{
		Use:   "ha",
		Short: "Read what high availability decided, and decide what only a person can",
		Long: `Read back what the HA service decided about a host and why, and tell it what only
a person can know. Without --run it speaks with the cluster of your kubeconfig.

  adit ha explain node017                    why is it in this state, what is missing
  adit ha history node017                    what was decided about it, and when
  adit ha confirm node017 --reason "pulled out of the rack" --for 1h
  adit ha pause                              nothing new begins; what began ends safely
  adit ha resume
  adit ha dry-run on                         decide and say, and do nothing; dry-run off ends it

  adit ha history node001 --run rack-loses-power --seed 3
                                             the same of a run in the simulator

A host that is silent is not therefore dead, so that its VMs are started elsewhere
only after a proof. When none can be had, explain says what failed, and confirm is
how you become the proof. docs/ha.md has the rules.`,
	}
	c.AddCommand(newHAExplain(t), newHAHistory(t), newHAConfirm(), newHAPause(true), newHAPause(false), newHADryRun())
	return c
}

// oneHost takes the name of one host.
func oneHost(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("name one host, as %s node017", command)
		}
		return nil
	}
}

func newHAExplain(t *testing.T) *cobra.Command {
	var f haFlags
	c := &cobra.Command{
		Use:   "explain HOST",
		Short: "Say why a host is in its state, and what can be done",
		Long: `Say on one page in which state a host is and why: its conditions, its run lease,
what was asked of its management controller, the proof that there is or is not,
which of its VMs run elsewhere and why the others do not.`,
		Example: "  adit ha explain node017\n  adit ha explain node001 --run bmc-lies --at 7m",
		Args:    oneHost("adit ha explain"),
		RunE: func(c *cobra.Command, args []string) error {
			return f.read(t, args[0], func(h *kvmv1.Hypervisor, all []v1alpha1.Evacuation, now time.Time) {
				ha.Explain(c.OutOrStdout(), h, all, now)
			})
		},
	}
	f.add(c)
	return c
}

func newHAHistory(t *testing.T) *cobra.Command {
	var f haFlags
	c := &cobra.Command{
		Use:   "history HOST",
		Short: "Print what was decided about a host, the oldest first",
		Long: `Print each decision about a host with its time and its reason, the oldest first. It
is kept in the host's Evacuations (kubectl get evac), the last ten of them.`,
		Example: "  adit ha history node017\n  adit ha history node001 --run rack-loses-power --seed 3",
		Args:    oneHost("adit ha history"),
		RunE: func(c *cobra.Command, args []string) error {
			return f.read(t, args[0], func(h *kvmv1.Hypervisor, all []v1alpha1.Evacuation, _ time.Time) {
				ha.History(c.OutOrStdout(), h.Name, all)
			})
		},
	}
	f.add(c)
	return c
}

func (f *haFlags) add(c *cobra.Command) {
	f.cluster.add(c)
	c.Flags().StringVar(&f.run, "run", "", "play this scenario, a file or a built-in one's name, and read from its fleet")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "the seed of that run")
	c.Flags().DurationVar(&f.at, "at", 0, "the moment of that run, as 7m30s; its end when left out")
	_ = c.RegisterFlagCompletionFunc("run", completeScenarios)
}

// read finds a host and what was decided about it.
func (f *haFlags) read(t *testing.T, host string, show func(*kvmv1.Hypervisor, []v1alpha1.Evacuation, time.Time)) error {
	if f.run != "" {
		return f.readRun(t, host, show)
	}
	if f.at != 0 || f.seed != 1 {
		return errors.New("--seed and --at are of a run; name it with --run")
	}
	api, err := f.cluster.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	h, all, err := lookUp(ctx, api, host)
	if err != nil {
		return err
	}
	show(h, all, time.Now())
	return nil
}

// lookUp reads a host and its Evacuations.
func lookUp(ctx context.Context, api client.Client, host string) (*kvmv1.Hypervisor, []v1alpha1.Evacuation, error) {
	h := &kvmv1.Hypervisor{}
	if err := api.Get(ctx, client.ObjectKey{Name: host}, h); err != nil {
		return nil, nil, hostError(host, err)
	}
	var list v1alpha1.EvacuationList
	if err := api.List(ctx, &list); err != nil {
		return nil, nil, fmt.Errorf("list Evacuations: %w", err)
	}
	var all []v1alpha1.Evacuation
	for _, e := range list.Items {
		if e.Spec.Hypervisor == host {
			all = append(all, e)
		}
	}
	return h, all, nil
}

func hostError(host string, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no Hypervisor %s; kubectl get hypervisors names them", host)
	}
	return fmt.Errorf("read Hypervisor %s: %w", host, err)
}

// maxConfirmation is how long a person's word may count: whoever knows that a
// host is dead knows it again tomorrow.
const maxConfirmation = 24 * time.Hour

// word is a person's word that a host runs nothing.
type word struct {
	who, reason string
	valid       time.Duration
}

func newHAConfirm() *cobra.Command {
	var cluster clusterFlags
	var w word
	c := &cobra.Command{
		Use:   "confirm HOST --reason WHY --for TIME",
		Short: "Confirm that a host runs nothing, so that its VMs may start elsewhere",
		Long: `Confirm that a host runs nothing and cannot come back unseen: it is switched off at
its plug, or out of the rack. Your word is taken as proof, and the host's protected
VMs are started elsewhere at once, past all brakes but the pause.

IF YOU ARE WRONG, VMs RUN TWICE AND DESTROY THEIR DISKS. A host that does not answer
is not therefore dead. Go and look.

The word is kept as annotation ` + v1alpha1.AnnotationConfirmFenced + ` with your name, and
counts for nothing after TIME. A host that reports is not taken as dead.`,
		Example: "  adit ha confirm node017 --reason \"pulled out of the rack, ticket 4711\" --for 1h",
		Args:    oneHost("adit ha confirm"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := w.check(); err != nil {
				return err
			}
			api, err := cluster.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
			defer cancel()
			return confirm(ctx, api, args[0], w, time.Now(), c.OutOrStdout())
		},
	}
	cluster.add(c)
	c.Flags().StringVar(&w.reason, "reason", "", "how you know (needed)")
	c.Flags().DurationVar(&w.valid, "for", 0, "how long your word counts, up to 24h (needed)")
	c.Flags().StringVar(&w.who, "who", "", "your name; the user's when left out")
	return c
}

// check refuses what could not be read back, and finds the name.
func (w *word) check() error {
	if w.who == "" {
		if u, err := user.Current(); err == nil {
			w.who = u.Username
		}
	}
	switch {
	case strings.TrimSpace(w.reason) == "":
		return errors.New("give --reason: how do you know that the host runs nothing? It is kept and read by others")
	case w.valid <= 0 || w.valid > maxConfirmation:
		return fmt.Errorf("give --for, how long your word counts: more than nothing and up to %v, as --for 1h", maxConfirmation)
	case w.valid < time.Minute:
		return errors.New("--for is below a minute: the service may not see it in time")
	case strings.TrimSpace(w.who) == "":
		return errors.New("give --who: whose word is it?")
	case strings.ContainsAny(w.who+w.reason, "\n\r") || strings.Contains(w.who, " until "):
		return errors.New("--who and --reason are one line each")
	}
	return nil
}

// confirm writes a person's word on a host's Hypervisor.
func confirm(ctx context.Context, api client.Client, host string, w word, now time.Time, out io.Writer) error {
	h := &kvmv1.Hypervisor{}
	if err := api.Get(ctx, client.ObjectKey{Name: host}, h); err != nil {
		return hostError(host, err)
	}
	state := meta.FindStatusCondition(h.Status.Conditions, kvmv1.ConditionHostAlive)
	if state != nil && state.Status == metav1.ConditionTrue {
		return fmt.Errorf("host %s is %s: %s; it is not dead, and your word would be for nothing", host, state.Reason, state.Message)
	}
	before := h.DeepCopy()
	if h.Annotations == nil {
		h.Annotations = map[string]string{}
	}
	until := now.Add(w.valid).UTC().Format(time.RFC3339)
	h.Annotations[v1alpha1.AnnotationConfirmFenced] = fmt.Sprintf("%s until %s: %s", w.who, until, w.reason)
	// The lock: whoever confirms has seen this state and no later one.
	if err := api.Patch(ctx, h, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		if apierrors.IsConflict(err) {
			return fmt.Errorf("host %s changed just now; look again with adit ha explain %s, and confirm again if it still holds", host, host)
		}
		return fmt.Errorf("confirm %s: %w", host, err)
	}
	was := "nothing is said of it yet"
	if state != nil {
		was = state.Reason
	}
	_, err := fmt.Fprintf(out, "Confirmed that %s (%s) runs nothing, until %s.\nSee what becomes of its VMs: adit ha explain %s\n", host, was, until, host)
	return err
}

func newHAPause(paused bool) *cobra.Command {
	var settings haSettings
	c := &cobra.Command{
		Use:   "resume",
		Short: "Let the HA service go on",
		Long:  "Let the HA service go on after adit ha pause: hosts that are silent are fenced again,\nonce they have been seen to be so.",
		Args:  cobra.NoArgs,
	}
	if paused {
		c.Use, c.Short = "pause", "Hold the HA service: nothing new begins"
		c.Long = "Hold the HA service, before work on the network, say: it begins to fence nobody, not\neven when a person confirms, and asks no VM to leave its host. What began ends safely,\nand hosts keep their run leases. It is kept in the ConfigMap " + ha.ConfigName + " until adit ha resume."
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		said := "The HA service goes on.\n"
		if paused {
			said = "The HA service is held: no host is fenced until adit ha resume.\n"
		}
		return settings.write(map[string]string{"paused": fmt.Sprint(paused)}, said, c.OutOrStdout())
	}
	settings.add(c)
	return c
}

func newHADryRun() *cobra.Command {
	var settings haSettings
	c := &cobra.Command{
		Use:   "dry-run on|off",
		Short: "Have the HA service rehearse: it says what it would do, and does nothing",
		Long: `Have the HA service rehearse, before you trust it with a fleet, say: it hears all hosts
and judges them, and says what it would do in the Events and the condition HostAlive of
their Hypervisors, where adit ha explain HOST reads it. It does nothing of that. Hosts
need no run lease meanwhile, and their watchdogs are disarmed. What began before ends
safely. It is kept in the ConfigMap ` + ha.ConfigName + ` until adit ha dry-run off.`,
		Example:   "  adit ha dry-run on\n  adit ha dry-run off",
		ValidArgs: []string{"on", "off"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] != "on" && args[0] != "off" {
				return errors.New("say on or off, as adit ha dry-run on")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			on, said := args[0] == "on", "The HA service is in earnest.\n"
			if on {
				said = "The HA service rehearses: it says what it would do and does nothing, until adit ha dry-run off.\n"
			}
			return settings.write(map[string]string{"dryRun": fmt.Sprint(on)}, said, c.OutOrStdout())
		},
	}
	settings.add(c)
	return c
}

// haSettings is the ConfigMap by which people hold the service.
type haSettings struct {
	cluster   clusterFlags
	namespace string
}

func (s *haSettings) add(c *cobra.Command) {
	s.cluster.add(c)
	c.Flags().StringVarP(&s.namespace, "namespace", "n", "kvm", "where the HA service runs")
}

// write changes settings, and says what that means.
func (s *haSettings) write(values map[string]string, said string, out io.Writer) error {
	api, err := s.cluster.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	if err := set(ctx, api, s.namespace, values); err != nil {
		return err
	}
	_, err = io.WriteString(out, said)
	return err
}

// set changes some of the settings and leaves the others as they are.
func set(ctx context.Context, api client.Client, namespace string, values map[string]string) error {
	settings := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: namespace, Name: ha.ConfigName}
	err := api.Get(ctx, key, settings)
	if apierrors.IsNotFound(err) {
		settings.Namespace, settings.Name, settings.Data = key.Namespace, key.Name, values
		err = api.Create(ctx, settings)
	} else if err == nil {
		before := settings.DeepCopy()
		if settings.Data == nil {
			settings.Data = map[string]string{}
		}
		maps.Copy(settings.Data, values)
		err = api.Patch(ctx, settings, client.MergeFrom(before))
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", key, err)
	}
	return nil
}
