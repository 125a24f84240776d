// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestEachAccountIsThereAndBoundToItsOwnRoles(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	accountsThere, roles := map[string]bool{}, map[string]bool{}
	for _, o := range all {
		switch o := o.(type) {
		case *corev1.ServiceAccount:
			accountsThere[o.Name] = o.Namespace == Namespace
		case *rbacv1.ClusterRole, *rbacv1.Role:
			roles[o.GetNamespace()+"/"+o.GetName()] = true
		}
	}
	for role, account := range accounts {
		if !accountsThere[account] {
			t.Errorf("%s has no service account %s in %s", role, account, Namespace)
		}
	}
	bind := func(o string, ref rbacv1.RoleRef, namespace string, subjects []rbacv1.Subject) {
		if !roles[namespace+"/"+ref.Name] || len(subjects) != 1 || subjects[0].Name != ref.Name || !accountsThere[subjects[0].Name] {
			t.Errorf("%s binds %v to %s: a role is bound to the account of its name", o, subjects, ref.Name)
		}
	}
	for _, o := range all {
		switch o := o.(type) {
		case *rbacv1.ClusterRoleBinding:
			bind(o.Name, o.RoleRef, "", o.Subjects)
		case *rbacv1.RoleBinding:
			bind(o.Name, o.RoleRef, o.Namespace, o.Subjects)
		}
	}
}

// TestNoRightIsForAnything: who holds a star holds the cluster.
func TestNoRightIsForAnything(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		var rules []rbacv1.PolicyRule
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			rules = o.Rules
		case *rbacv1.Role:
			rules = o.Rules
		}
		for _, r := range rules {
			if slices.ContainsFunc(slices.Concat(r.APIGroups, r.Resources, r.Verbs), func(s string) bool { return strings.Contains(s, "*") }) {
				t.Errorf("%s: %v", o.GetName(), r)
			}
			if slices.Contains(r.Resources, "secrets") && o.GetNamespace() != Namespace {
				t.Errorf("%s reads Secrets outside of %s", o.GetName(), Namespace)
			}
		}
	}
}
