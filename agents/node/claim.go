// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// claims let one Hypervisor have a machine: for each field of an identity there
// is a Lease, named by a hash of the field, that its first Hypervisor holds and
// never renews. Creating an object is atomic, so that of two cloned hosts only
// one registers, and nobody lists a fleet to find a twin. A claim ends with its
// Hypervisor, which owns it.
type claims struct {
	client    client.Client
	reader    client.Reader
	namespace string
	host      string
}

// claimName hashes the value: machine ids are not for everybody's eyes
// (machine-id(5)), and serials have characters that names cannot have.
func claimName(f identityField) string {
	sum := sha256.Sum256([]byte(f.name + "=" + f.value))
	return fmt.Sprintf("identity-%x", sum[:10])
}

// twins returns the other living Hypervisors that hold fields of an identity,
// sorted by name.
func (c *claims) twins(ctx context.Context, i identity) ([]twin, error) {
	var twins []twin
	for _, f := range i.fields() {
		_, holder, err := c.holder(ctx, f)
		if err != nil {
			return nil, err
		}
		if holder == nil {
			continue
		}
		at := slices.IndexFunc(twins, func(t twin) bool { return t.name == holder.Name })
		if at < 0 {
			at = len(twins)
			t := twin{name: holder.Name}
			for _, vm := range holder.Status.Instances {
				t.vms = append(t.vms, vm.Name)
			}
			twins = append(twins, t)
		}
		twins[at].fields = append(twins[at].fields, f.name)
	}
	slices.SortFunc(twins, func(a, b twin) int { return cmp.Compare(a.name, b.name) })
	return twins, nil
}

// holder returns the claim on a field, and the other Hypervisor that has it;
// each may be nil.
func (c *claims) holder(ctx context.Context, f identityField) (*coordinationv1.Lease, *kvmv1.Hypervisor, error) {
	var lease coordinationv1.Lease
	if err := c.reader.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: claimName(f)}, &lease); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	name := ptr.Deref(lease.Spec.HolderIdentity, "")
	if name == c.host || name == "" {
		return &lease, nil, nil
	}
	var hv kvmv1.Hypervisor
	if err := c.reader.Get(ctx, client.ObjectKey{Name: name}, &hv); err != nil {
		return &lease, nil, client.IgnoreNotFound(err)
	}
	return &lease, &hv, nil
}

// take claims the fields of an identity that no other living Hypervisor has,
// apart from the known ones. A lost race is a conflict: look again.
func (c *claims) take(ctx context.Context, hv *kvmv1.Hypervisor, i identity, known []twin) error {
	for _, f := range i.fields() {
		lease, other, err := c.holder(ctx, f)
		if err != nil {
			return fmt.Errorf("read claim on %s: %w", f.name, err)
		}
		if other != nil {
			if slices.ContainsFunc(known, func(t twin) bool { return t.name == other.Name && slices.Contains(t.fields, f.name) }) {
				continue // one weak field, or decide would have refused
			}
			return apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, fmt.Errorf("held by %s", other.Name))
		}
		if err := c.write(ctx, lease, f, hv); err != nil {
			return fmt.Errorf("claim %s: %w", f.name, err)
		}
	}
	return nil
}

func (c *claims) write(ctx context.Context, lease *coordinationv1.Lease, f identityField, hv *kvmv1.Hypervisor) error {
	owner := []metav1.OwnerReference{{APIVersion: kvmv1.GroupVersion.String(), Kind: "Hypervisor", Name: hv.Name, UID: hv.UID}}
	if lease == nil {
		lease = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: claimName(f), OwnerReferences: owner},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &c.host},
		}
		err := c.client.Create(ctx, lease)
		if apierrors.IsAlreadyExists(err) {
			return apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, err)
		}
		return err
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") == c.host && len(lease.OwnerReferences) == 1 && lease.OwnerReferences[0].UID == hv.UID {
		return nil
	}
	lease.OwnerReferences = owner
	lease.Spec.HolderIdentity = &c.host
	return c.client.Update(ctx, lease)
}
