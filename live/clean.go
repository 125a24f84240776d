// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/config/crd"
	"github.com/adit-hv/adit/config/rbac"
	"github.com/adit-hv/adit/testbed"
)

// IsFree says whether a world may be put into a cluster: none of the definitions
// and namespaces that it brings are there, and no Node is a hypervisor. What was
// there would be taken for the world's own, and go with it.
func IsFree(ctx context.Context, config *rest.Config) error {
	api, ours, err := belongings(config)
	if err != nil {
		return err
	}
	for _, o := range ours {
		switch err := api.Get(ctx, client.ObjectKeyFromObject(o), o); {
		case err == nil:
			return fmt.Errorf("the cluster at %s has a %s already: play on one that holds nothing of Adit", config.Host, named(o))
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("look at the cluster: %w", err)
		}
	}
	var nodes corev1.NodeList
	if err := api.List(ctx, &nodes, client.HasLabels{kvmv1.LabelVirtDriver}, client.Limit(1)); err != nil {
		return fmt.Errorf("look at the cluster: %w", err)
	}
	if len(nodes.Items) > 0 {
		return fmt.Errorf("in the cluster at %s the Node %s is a hypervisor already: play on one that holds nothing of Adit", config.Host, nodes.Items[0].Name)
	}
	return nil
}

// cleanLimit is how long a cluster may take to forget a world.
const cleanLimit = 2 * time.Minute

// Clean takes a world out of a cluster in which IsFree found nothing: the Nodes of
// its hosts, its namespaces and its definitions with all that is in them.
func Clean(ctx context.Context, config *rest.Config) error {
	api, ours, err := belongings(config)
	if err != nil {
		return err
	}
	if err := api.DeleteAllOf(ctx, &corev1.Node{}, client.HasLabels{kvmv1.LabelVirtDriver}); err != nil {
		return fmt.Errorf("delete the Nodes of the simulated hosts: %w", err)
	}
	rights, err := rbac.All()
	if err != nil {
		return err
	}
	for _, o := range slices.Concat(rights, ours) {
		if err := api.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s: %w", named(o), err)
		}
	}
	for _, o := range ours {
		err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, cleanLimit, true, func(ctx context.Context) (bool, error) {
			return apierrors.IsNotFound(api.Get(ctx, client.ObjectKeyFromObject(o), o)), nil
		})
		if err != nil {
			return fmt.Errorf("%s was deleted and is still there: %w", named(o), err)
		}
	}
	return nil
}

// belongings are the objects that all others of a world live in.
func belongings(config *rest.Config) (client.Client, []client.Object, error) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	if err := rbacv1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("reach the cluster at %s: %w", config.Host, err)
	}
	crds, err := crd.All()
	if err != nil {
		return nil, nil, err
	}
	var ours []client.Object
	for _, c := range crds {
		ours = append(ours, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: c.Name}})
	}
	for _, name := range testbed.Namespaces() {
		ours = append(ours, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return api, ours, nil
}

func named(o client.Object) string {
	switch o.(type) {
	case *corev1.Namespace:
		return "namespace " + o.GetName()
	case *apiextensionsv1.CustomResourceDefinition:
		return "definition " + o.GetName()
	}
	return fmt.Sprintf("%T %s", o, o.GetName())
}
