// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/hardware"
	"github.com/adit-hv/adit/sim"
)

// Do carries out an action. What the API refuses is no error of the scenario:
// it is noted, as a person would read it, and returned.
func (w *World) Do(a Action) error {
	w.Scheduler.Note(sim.Note{Component: "user", What: "do", Object: a.text})
	w.watch.changed()
	if err := w.do(a); err != nil {
		w.Scheduler.Note(sim.Note{Component: "user", What: "refused", Object: a.text, Detail: err.Error()})
		w.watch.mark("refused", a.text+": "+err.Error(), "")
		return err
	}
	w.watch.mark("action", a.text, strings.Join(w.hosts(a.args["on"]), ","))
	return nil
}

func (w *World) do(a Action) error {
	hosts := w.hosts(a.args["on"])
	vms := pick(a.args["vm"], w.vmOrder)
	switch a.verb {
	case "vm.create":
		g := w.spec.VMs[slices.IndexFunc(w.spec.VMs, func(g VMGroup) bool { return g.Name == a.args["group"] })]
		for range a.number("count", 1) {
			w.createVM(g)
		}
	case "vm.delete":
		return each(vms, func(vm string) error { return w.user.Delete(context.Background(), vmi(vm)) })
	case "vm.power":
		return each(vms, func(vm string) error {
			return w.patch(vmi(vm), func(o client.Object) {
				annotations := o.GetAnnotations()
				if annotations == nil {
					annotations = map[string]string{}
				}
				annotations[kubevirt.AnnotationPowerState] = a.args["state"]
				o.SetAnnotations(annotations)
			})
		})
	case "vm.policy":
		return each(vms, func(vm string) error {
			return w.patch(vmi(vm), func(o client.Object) {
				annotations := o.GetAnnotations()
				if annotations == nil {
					annotations = map[string]string{}
				}
				a.policy().annotate(annotations)
				o.SetAnnotations(annotations)
			})
		})
	case "ha.confirm":
		return each(hosts, func(host string) error { return w.confirm(host, a) })
	case "ha.pause", "ha.resume":
		return w.hold(settingPaused, a.verb == "ha.pause")
	case "ha.dry-run":
		return w.hold(settingDryRun, a.args["enabled"] == "true")
	case "host.ha":
		return each(hosts, func(host string) error {
			return w.patch(&kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: host}}, func(o client.Object) {
				o.(*kvmv1.Hypervisor).Spec.HighAvailability = a.args["enabled"] == "true"
			})
		})
	case "vm.migrate":
		return each(vms, func(vm string) error { return w.user.Create(context.Background(), w.vmim(vm, a)) })
	case "migration.cancel":
		return w.cancelMigrations(vms)
	case "maintenance.start":
		mode := kvmv1.MaintenanceManual
		if a.args["mode"] != "" {
			mode = kvmv1.Maintenance(a.args["mode"])
		}
		reason := a.args["reason"]
		if reason == "" {
			reason = "planned work"
		}
		return each(hosts, func(host string) error {
			return w.patch(&kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: host}}, func(o client.Object) {
				spec := &o.(*kvmv1.Hypervisor).Spec
				spec.Maintenance, spec.MaintenanceReason = mode, reason
			})
		})
	case "maintenance.end":
		return each(hosts, func(host string) error {
			return w.patch(&kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: host}}, func(o client.Object) {
				spec := &o.(*kvmv1.Hypervisor).Spec
				spec.Maintenance, spec.MaintenanceReason = kvmv1.MaintenanceUnset, ""
			})
		})
	case "evict":
		return each(hosts, func(host string) error { return w.user.Create(context.Background(), evictionOf(host, a)) })
	case "evict.cancel":
		return each(hosts, func(host string) error {
			return w.user.Delete(context.Background(), &kvmv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: host}})
		})
	case "domain.run":
		return each(hosts, func(host string) error { return w.runForeign(host, a) })
	case "host.update":
		return each(hosts, func(host string) error {
			return w.patch(&kvmv1.Hypervisor{ObjectMeta: metav1.ObjectMeta{Name: host}}, func(o client.Object) {
				spec := &o.(*kvmv1.Hypervisor).Spec
				spec.Version, spec.Reboot = a.args["version"], a.args["reboot"] == "true"
			})
		})
	case "host.power-on":
		for _, host := range hosts {
			w.Fleet.Host(host).PowerOn()
		}
	case "host.identity":
		for _, host := range hosts {
			w.Fleet.Host(host).SetIdentity(func(id *hardware.Identity) {
				set(&id.Hostname, a.args["hostname"])
				set(&id.MachineID, a.args["machineID"])
				set(&id.Serial, a.args["serial"])
				set(&id.ProductUUID, a.args["uuid"])
			})
		}
	case "node.label":
		return each(hosts, func(host string) error {
			return w.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host}}, func(o client.Object) {
				if value, ok := a.args["value"]; ok {
					o.GetLabels()[a.args["key"]] = value
				} else {
					delete(o.GetLabels(), a.args["key"])
				}
			})
		})
	case "node.delete":
		return each(hosts, func(host string) error {
			return w.user.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host}})
		})
	}
	return nil
}

func set(field *string, value string) {
	if value != "" {
		*field = value
	}
}

// each does one thing for all of names; what is not there (any more) is left
// out, as it would be by a person with a shell loop.
func each(names []string, do func(string) error) error {
	if len(names) == 0 {
		return fmt.Errorf("there is none of that name now")
	}
	for _, n := range names {
		if err := do(n); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s: %w", n, err)
		}
	}
	return nil
}

func (w *World) patch(o client.Object, change func(client.Object)) error {
	if err := w.user.Get(context.Background(), client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	before := o.DeepCopyObject().(client.Object)
	change(o)
	return w.user.Patch(context.Background(), o, client.MergeFrom(before))
}

func vmi(name string) *kubevirtv1.VirtualMachineInstance {
	return &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
}

func (w *World) vmim(vm string, a Action) *kubevirtv1.VirtualMachineInstanceMigration {
	w.created["migration/"+vm]++
	m := &kubevirtv1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: fmt.Sprintf("%s-by-user-%d", vm, w.created["migration/"+vm])},
		Spec:       kubevirtv1.VirtualMachineInstanceMigrationSpec{VMIName: vm},
	}
	if to := a.args["to"]; to != "" {
		if hosts := w.hosts(to); len(hosts) > 0 {
			to = hosts[0]
		}
		m.Spec.AddedNodeSelector = map[string]string{corev1.LabelHostname: to}
	}
	if p := a.args["priority"]; p != "" {
		priority := kubevirtv1.MigrationPriority(p)
		m.Spec.Priority = &priority
	}
	return m
}

func (w *World) cancelMigrations(vms []string) error {
	var list kubevirtv1.VirtualMachineInstanceMigrationList
	if err := w.user.List(context.Background(), &list, client.InNamespace(Namespace)); err != nil {
		return err
	}
	slices.SortFunc(list.Items, func(a, b kubevirtv1.VirtualMachineInstanceMigration) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		m := &list.Items[i]
		if slices.Contains(vms, m.Spec.VMIName) && !m.IsFinal() {
			if err := w.user.Delete(context.Background(), m); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}

func evictionOf(host string, a Action) *kvmv1.Eviction {
	reason := a.args["reason"]
	if reason == "" {
		reason = "asked for"
	}
	e := &kvmv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: host},
		Spec:       kvmv1.EvictionSpec{Hypervisor: host, Reason: reason, DryRun: a.args["dryRun"] == "true"},
	}
	if a.args["parallel"] != "" {
		parallel := int32(a.number("parallel", 1))
		e.Spec.Parallel = &parallel
	}
	return e
}

// runForeign starts a domain without our metadata, as somebody with virsh does.
func (w *World) runForeign(host string, a Action) error {
	w.created["foreign"]++
	uuid := fmt.Sprintf("f0e1d2c3-0000-4000-8000-%012d", w.created["foreign"])
	hw := w.Fleet.Host(host).Hardware("virsh")
	spec := hardware.DomainSpec{UUID: uuid, Name: a.args["name"], MemoryKiB: uint64(a.number("memory", 1024)) * 1024, VCPUs: a.number("cpus", 1)}
	if err := hw.Define(context.Background(), spec); err != nil {
		return err
	}
	return hw.Start(context.Background(), uuid, hardware.StartOptions{})
}
