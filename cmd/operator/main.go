// SPDX-License-Identifier: Apache-2.0

// Command operator is one replica of the operator on a real cluster. It decides
// nothing by itself: it reads flags, puts the controllers together and runs them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/operator"
)

// version is set by the linker; see the Makefile.
var version = "(devel)"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			fmt.Fprintln(os.Stderr, "operator:", line)
		}
		os.Exit(1)
	}
}

// flags are those of the operator.
type flags struct {
	kubeconfig, namespace string
	qps                   float32
	verbosity             int
	election              bool
	metrics, health       string
	minActive, bandwidth  string
	o                     operator.Options
}

// leaseName is the Lease by which the replicas elect a leader.
const leaseName = "operator"

func newRoot() *cobra.Command {
	f := &flags{namespace: "kvm", qps: 100, election: true, metrics: ":8080", health: ":8081", minActive: "1"}
	c := &cobra.Command{
		Use:   "operator",
		Short: "Take hosts in and out of service, place VMs on them and move VMs between them",
		Long: `operator makes a Hypervisor of each Node that has the label ` + kvmv1.LabelVirtDriver + `,
takes hosts out of service when maintenance is asked for, empties them, places VMs
and moves them. Run two replicas: one leads, the other waits.

  kubectl apply -f config/crd -f config/rbac      what it works with, and what it may do
  operator                                        in a pod, as the account adit-operator
  operator --kubeconfig ~/.kube/config --leader-election=false --metrics 0 --health 0

docs/operate.md says how to work with it.`,
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(f.verbosity))))
			if err := f.check(); err != nil {
				return err
			}
			return run(c.Context(), f)
		},
	}
	f.add(c.Flags())
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return fmt.Errorf("%w; see %s --help", err, c.CommandPath()) })
	return c
}

func (f *flags) add(s *pflag.FlagSet) {
	s.SortFlags = false
	s.StringVar(&f.kubeconfig, "kubeconfig", "", "file with the way to the API; else $KUBECONFIG, else that of the pod")
	s.StringVarP(&f.namespace, "namespace", "n", f.namespace, "of the agents' Leases and the election")
	s.BoolVar(&f.election, "leader-election", f.election, "false: this is the only replica")
	s.StringVar(&f.metrics, "metrics", f.metrics, `address for Prometheus; "0" is none`)
	s.StringVar(&f.health, "health", f.health, `address for /healthz and /readyz; "0" is none`)
	s.Float32Var(&f.qps, "kube-qps", f.qps, "requests to the API a second; twice as many at once")
	s.IntVarP(&f.verbosity, "verbosity", "v", 0, "1 also says why nothing is done")

	o, m := &f.o, &f.o.Migration
	s.StringVar(&f.minActive, "min-active", f.minActive, "hosts that stay in service whatever maintenance is asked for: a number, or a percentage as 80%")
	s.StringSliceVar(&o.TransferLabels, "transfer-label", nil, "a further label that a Hypervisor takes over from its Node; may be repeated")
	s.IntVar(&o.Parallel, "eviction-parallel", 2, "VMs of one host on the move at once, where the Eviction does not say")
	s.IntVar(&o.RestartsPerTarget, "restarts-per-target", 10, "VMs of dead hosts that may be about to start on one host")
	s.BoolVar(&o.AllowYield, "allow-yield", false, "stop VMs marked to yield for evacuated ones of a higher class that fit nowhere")
	s.IntVar(&m.PerFleet, "migrations", 5, "live migrations at once, in all")
	s.IntVar(&m.PerHost, "migrations-per-host", 2, "of them out of one host")
	s.IntVar(&m.PerTarget, "migrations-per-target", 2, "of them into one host")
	s.StringVar(&f.bandwidth, "migration-bandwidth", "", "bytes a second for one migration, as 500Mi; without it no limit")
	s.DurationVar(&m.CompletionTimeoutPerGiB, "migration-timeout-per-gib", 150*time.Second, "how long a migration may take for each GiB of memory")
	s.DurationVar(&m.ProgressTimeout, "migration-progress-timeout", 150*time.Second, "after so long without progress a migration is given up")
	s.DurationVar(&m.UnschedulableTimeout, "unschedulable-timeout", 300*time.Second, "how long a migration waits for a host that fits")
	s.BoolVar(&m.AllowAutoConverge, "auto-converge", false, "slow a guest down that writes faster than can be sent")
	s.BoolVar(&m.AllowPostCopy, "post-copy", false, "switch a migration over before all memory is there, when it takes too long")
	s.BoolVar(&m.AllowWorkloadDisruption, "allow-workload-disruption", false, "pause a guest whose migration would not end otherwise")
}

// check reads what pflag cannot, and refuses what would be taken for a default.
func (f *flags) check() error {
	least := intstr.Parse(f.minActive)
	if _, err := intstr.GetScaledValueFromIntOrPercent(&least, 100, true); err != nil || strings.HasPrefix(f.minActive, "-") {
		return fmt.Errorf("--min-active %s: give a number of hosts, or a percentage as 80%%", f.minActive)
	}
	f.o.MinActive = &least
	if f.bandwidth != "" {
		q, err := resource.ParseQuantity(f.bandwidth)
		if err != nil || q.Sign() <= 0 {
			return fmt.Errorf("--migration-bandwidth %s: give bytes a second, as 500Mi", f.bandwidth)
		}
		f.o.Migration.Bandwidth = &q
	}
	m := f.o.Migration
	for name, n := range map[string]int{
		"eviction-parallel": f.o.Parallel, "restarts-per-target": f.o.RestartsPerTarget,
		"migrations": m.PerFleet, "migrations-per-host": m.PerHost, "migrations-per-target": m.PerTarget,
	} {
		if n < 1 {
			return fmt.Errorf("--%s %d: it has to be above 0", name, n)
		}
	}
	for name, d := range map[string]time.Duration{
		"migration-timeout-per-gib": m.CompletionTimeoutPerGiB, "migration-progress-timeout": m.ProgressTimeout, "unschedulable-timeout": m.UnschedulableTimeout,
	} {
		if d <= 0 {
			return fmt.Errorf("--%s %v: it has to be above 0", name, d)
		}
	}
	return nil
}

// run is the operator, until ctx is done or it leads no more.
func run(ctx context.Context, f *flags) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("find the API: %w", err)
	}
	config.QPS, config.Burst = f.qps, int(2*f.qps)
	config.UserAgent = "adit-operator/" + version
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kvmv1.AddToScheme, kvmv1alpha1.AddToScheme, kubevirt.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 server.Options{BindAddress: f.metrics},
		HealthProbeBindAddress:  f.health,
		LeaderElection:          f.election,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: f.namespace,
		// A rolling update hands over at once: run returns then, and main ends.
		LeaderElectionReleaseOnCancel: true,
		Cache:                         cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	})
	if err != nil {
		return err
	}
	f.o.Clock, f.o.Namespace = clock.RealClock{}, f.namespace
	if err := operator.Setup(mgr, f.o); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
