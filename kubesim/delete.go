// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// delete removes an object, or marks it while finalizers hold it.
func (c *Cluster) delete(rq *request, k *kind, key types.NamespacedName, o *client.DeleteOptions) error {
	st, err := c.find(k, key)
	if err != nil {
		return err
	}
	have := metaOf(st.obj)
	if p := o.Preconditions; p != nil {
		want := &metav1.ObjectMeta{}
		if p.UID != nil {
			want.UID = *p.UID
		}
		if p.ResourceVersion != nil {
			want.ResourceVersion = *p.ResourceVersion
		}
		if err := c.precondition(k, have, want); err != nil {
			return err
		}
	}
	finalizers := propagation(have.Finalizers, o.PropagationPolicy)
	if rq.dry {
		return nil
	}
	if len(finalizers) == 0 && !k.isNamespace() {
		c.commit(rq, k, key, st, nil, nil)
		return nil
	}
	if have.DeletionTimestamp != nil && slices.Equal(finalizers, have.Finalizers) {
		return nil
	}
	n := k.shallow(st.obj)
	m := metaOf(n)
	m.Finalizers = finalizers
	if m.DeletionTimestamp == nil {
		now, grace := metav1.NewTime(c.s.Now().Truncate(time.Second)), int64(0)
		m.DeletionTimestamp, m.DeletionGracePeriodSeconds = &now, &grace
		if m.Generation > 0 {
			m.Generation++ // being deleted is news for its controller
		}
	}
	if ns, ok := n.(*corev1.Namespace); ok {
		ns.Status.Phase = corev1.NamespaceTerminating
	}
	c.commit(rq, k, key, st, n, st.tree)
	return nil
}

// shallow copies an object's struct; what hangs on it stays shared.
func (k *facts) shallow(o client.Object) client.Object {
	n := k.new()
	reflect.ValueOf(n).Elem().Set(reflect.ValueOf(o).Elem())
	return n
}

func propagation(have []string, policy *metav1.DeletionPropagation) []string {
	if policy == nil {
		return have
	}
	kept := slices.DeleteFunc(slices.Clone(have), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch *policy {
	case metav1.DeletePropagationOrphan:
		kept = append(kept, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		kept = append(kept, metav1.FinalizerDeleteDependents)
	}
	return kept
}

// checkNamespace: a namespaced object needs a namespace that is there to stay.
func (c *Cluster) checkNamespace(rq *request, k *kind, key types.NamespacedName) error {
	if !k.namespaced {
		return nil
	}
	if key.Namespace == "" {
		return apierrors.NewBadRequest("an empty namespace may not be set during creation")
	}
	if c.namespaces == nil {
		return nil // the scheme has no Namespaces
	}
	st := c.namespaces.objects[types.NamespacedName{Name: key.Namespace}]
	switch {
	case st == nil && c.o.NamespacesOnDemand:
		if !rq.dry {
			_, err := c.create(&request{by: "kube-apiserver", manager: "kube-apiserver", verb: "create"}, c.namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}})
			return err
		}
	case st == nil:
		return apierrors.NewNotFound(c.namespaces.gr, key.Namespace)
	case st.obj.GetDeletionTimestamp() != nil:
		err := apierrors.NewForbidden(k.gr, key.Name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", key.Namespace))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", key.Namespace), Field: "metadata.namespace"})
		return err
	}
	return nil
}
