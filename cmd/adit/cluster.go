// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	kvmv1alpha1 "github.com/adit-hv/adit/api/kvm/v1alpha1"
)

// requestTimeout bounds what is asked of a cluster: a person waits.
const requestTimeout = 30 * time.Second

// clusterFlags say which cluster is meant, as kubectl's do.
type clusterFlags struct {
	kubeconfig, context string
}

func (f *clusterFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "the kubeconfig; $KUBECONFIG or ~/.kube/config when left out")
	c.Flags().StringVar(&f.context, "context", "", "the context in it; its current one when left out")
}

// config says how to reach the cluster.
func (f clusterFlags) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context}).ClientConfig()
}

// client speaks with the cluster, past all caches.
func (f clusterFlags) client() (client.Client, error) {
	config, err := f.config()
	if err != nil {
		return nil, fmt.Errorf("no cluster to speak with: %w; give --kubeconfig, or --run to read from a run in the simulator", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kvmv1.AddToScheme, kvmv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config.Timeout = requestTimeout
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("speak with %s: %w", config.Host, err)
	}
	return api, nil
}
