// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
	"github.com/adit-hv/adit/internal/rpc"
	"github.com/adit-hv/adit/operator/ha"
)

// The election's times, controller-runtime's own. operator/ha counts on the first:
// a successor leads only when its predecessor has surely stopped to grant leases.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// run is the service, until ctx is done or it leads no more.
func run(ctx context.Context, f *flags) error {
	config, err := restConfig(f)
	if err != nil {
		return err
	}
	lock, err := candidacy(config, f)
	if err != nil {
		return err
	}
	lease, renew, retry := leaseDuration, renewDeadline, retryPeriod
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme(),
		Metrics:                server.Options{BindAddress: f.metrics},
		HealthProbeBindAddress: f.health,
		PprofBindAddress:       f.pprof,
		LeaderElection:         f.election,
		LeaderElectionID:       election,
		LeaseDuration:          &lease,
		RenewDeadline:          &renew,
		RetryPeriod:            &retry,
		// A rolling update hands over at once: run returns then, and main ends.
		LeaderElectionReleaseOnCancel:       true,
		LeaderElectionResourceLockInterface: lock,
		Cache:                               cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: ha.ByObject()},
		Client:                              client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
	})
	if err != nil {
		return err
	}
	o := ha.Options{
		Clock: clock.RealClock{}, Steady: sinceBoot{}, Namespace: f.namespace, Limits: f.limits,
		Power: newControllers(mgr.GetClient(), mgr.GetAPIReader(), f).Power,
	}
	if f.noBMC {
		o.Power = nil
	}
	if f.election {
		o.Election, o.Identity = election, lock.Identity()
	}
	service, err := ha.Setup(mgr, o)
	if err != nil {
		return err
	}
	listener, err := rpc.Listen(rpc.ServerOptions{Service: service, Log: mgr.GetLogger().WithName("rpc"), Address: f.listen, Files: f.files, Socket: f.socket})
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := mgr.Add(listener); err != nil {
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

// candidacy is this process's part in the election. Its name is its own: a
// process that starts anew on the same machine is another candidate.
func candidacy(config *rest.Config, f *flags) (resourcelock.Interface, error) {
	machine, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	// One request that hangs must not cost the leadership.
	own := rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	own.Timeout = renewDeadline / 2
	coordination, err := coordinationv1.NewForConfig(own)
	if err != nil {
		return nil, err
	}
	name := resourcelock.ResourceLockConfig{Identity: machine + "_" + string(uuid.NewUUID())}
	return resourcelock.New(resourcelock.LeasesResourceLock, f.namespace, election, nil, coordination, name)
}

func restConfig(f *flags) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API: %w", err)
	}
	config.QPS, config.Burst = f.qps, int(2*f.qps)
	config.UserAgent = "adit-ha-service/" + version
	return config, nil
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kvmv1.AddToScheme, kvmv1alpha1.AddToScheme, kubevirt.AddToScheme} {
		utilruntime.Must(add(s))
	}
	return s
}

// sinceBoot is a steady clock that also counts the time a machine slept.
type sinceBoot struct{}

// Elapsed implements wiring.Steady.
func (sinceBoot) Elapsed() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // Linux has it since 2.6.39
	}
	return time.Duration(t.Nano())
}
