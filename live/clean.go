// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// An API server that is told to forget a kind before it serves it may fail to
	// list its objects, and then tries again more and more seldom.
	for _, o := range ours {
		if !until(ctx, func() bool { return gone(ctx, api, o) || served(ctx, api, o) }) {
			return fmt.Errorf("%s is there and not served%s", named(o), conditions(o))
		}
	}
	for _, o := range slices.Concat(rights, ours) {
		if err := api.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s: %w", named(o), err)
		}
	}
	for _, o := range ours {
		if !until(ctx, func() bool { release(ctx, api, o); return gone(ctx, api, o) }) {
			return fmt.Errorf("%s was deleted and is still there%s", named(o), conditions(o))
		}
	}
	return nil
}

// until asks again and again, and says whether it was told yes in time.
func until(ctx context.Context, ask func() bool) bool {
	return wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, cleanLimit, true, func(context.Context) (bool, error) {
		return ask(), nil
	}) == nil
}

func gone(ctx context.Context, api client.Client, o client.Object) bool {
	return apierrors.IsNotFound(api.Get(ctx, client.ObjectKeyFromObject(o), o))
}

// served says whether the objects that o defines, if it is a definition, can be
// asked for.
func served(ctx context.Context, api client.Client, o client.Object) bool {
	list := objectsOf(o)
	return list == nil || api.List(ctx, list, client.Limit(1)) == nil
}

// release takes the finalizers off all objects that o defines: those who would
// have are gone with the world.
func release(ctx context.Context, api client.Client, o client.Object) {
	list := objectsOf(o)
	if list == nil || api.List(ctx, list) != nil {
		return // No more served: there are none.
	}
	for i := range list.Items {
		if o := &list.Items[i]; len(o.Finalizers) > 0 {
			before := o.DeepCopy()
			o.Finalizers = nil
			_ = api.Patch(ctx, o, client.MergeFrom(before)) // refused: the next time
		}
	}
}

// objectsOf is an empty list of the kind that o defines, nil if it defines none.
func objectsOf(o client.Object) *metav1.PartialObjectMetadataList {
	d, defines := o.(*apiextensionsv1.CustomResourceDefinition)
	if !defines || len(d.Spec.Versions) == 0 {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: d.Spec.Group, Version: d.Spec.Versions[0].Name, Kind: d.Spec.Names.ListKind})
	return list
}

// conditions are what a definition that does not go says of itself.
func conditions(o client.Object) string {
	var text strings.Builder
	if d, defines := o.(*apiextensionsv1.CustomResourceDefinition); defines {
		for _, c := range d.Status.Conditions {
			fmt.Fprintf(&text, "; %s %s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return text.String()
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
