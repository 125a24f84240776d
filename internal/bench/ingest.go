// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/adit-hv/adit/api/kubevirt"
	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/internal/rpc/rpctest"
)

// The load that is promised: so many hosts with so many VMs each report so often.
const (
	ingestHosts    = 1000
	ingestVMs      = 20
	ingestInterval = 5 * time.Second
	ingestFor      = time.Minute // is measured, once all is quiet
)

// ingest measures the HA service as it is run: the binary, with its cache of the
// fleet, its election and its judging, which a thousand agents report to over
// gRPC with mutual TLS. Agents and API are this process, the service is another;
// its time and memory are what the kernel says of it.
func ingest(_ *testing.T, f *figures) error {
	dir, err := os.MkdirTemp("", "ha-ingest")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	a, err := quietFleet()
	if err != nil {
		return err
	}
	server := httptest.NewServer(a)
	defer server.Close()
	authority, err := rpctest.NewAuthority()
	if err != nil {
		return err
	}
	service, address, err := startService(dir, server.URL, authority)
	if err != nil {
		return err
	}
	defer service.end()

	agents := &agents{}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for i := range ingestHosts {
		c, err := agentClient(dir, address, i, authority)
		if err != nil {
			return err
		}
		if i == 0 {
			untilLed(c)
		}
		all.Go(func() {
			defer c.Close()
			agents.report(ctx, c, i)
		})
	}
	if err := untilQuiet(agents, a, service); err != nil {
		return err
	}
	f.add("ha-ingest.until_quiet.cpu", service.cpu().Seconds(), "s")

	agents.forget()
	writes, spent, begun := a.counts(), service.cpu(), time.Now()
	time.Sleep(ingestFor)
	share := (service.cpu() - spent).Seconds() / time.Since(begun).Seconds()
	n, failed, p50, p99 := agents.said()
	f.add("ha-ingest.hosts", ingestHosts, "hosts")
	f.add("ha-ingest.vms", ingestHosts*ingestVMs, "VMs")
	f.add("ha-ingest.reports", float64(n)/ingestFor.Seconds(), "1/s")
	f.add("ha-ingest.failed", failed, "reports")
	f.add("ha-ingest.not_granted", agents.hostsWithout(), "hosts")
	f.add("ha-ingest.answer.p50", p50.Seconds()*1000, "ms")
	f.add("ha-ingest.answer.p99", p99.Seconds()*1000, "ms")
	f.add("ha-ingest.cpu", 100*share, "% of one core")
	now, peak := service.memory()
	f.add("ha-ingest.memory", now, "MiB")
	f.add("ha-ingest.memory.peak", peak, "MiB")
	total := 0
	for resource, n := range a.counts() { // In any order: it is summed up.
		if resource != "leases" { // that of the election
			total += n - writes[resource]
		}
	}
	f.add("ha-ingest.api_writes", total, "writes")
	f.add("ha-ingest.election_writes", a.counts()["leases"]-writes["leases"], "writes")
	return nil
}

// quietFleet is an API with the hosts and their VMs, all of them well.
func quietFleet() (*api, error) {
	a := newAPI(
		kind{"kvm.cloud.sap", "v1", "hypervisors", "Hypervisor", false},
		kind{"kvm.cloud.sap", "v1alpha1", "evacuations", "Evacuation", false},
		kind{"kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance", true},
		kind{"coordination.k8s.io", "v1", "leases", "Lease", true},
		kind{"events.k8s.io", "v1", "events", "Event", true},
		kind{"", "v1", "configmaps", "ConfigMap", true},
		kind{"", "v1", "events", "Event", true},
		kind{"", "v1", "secrets", "Secret", true},
	)
	for i := range ingestHosts {
		if err := a.seed("kvm.cloud.sap/v1/hypervisors", hostName(i), quietHost(i)); err != nil {
			return nil, err
		}
		if err := a.seed("v1/secrets", "kvm/"+hostName(i), quietSecret(i)); err != nil {
			return nil, err
		}
		for j := range ingestVMs {
			v := quietVM(i, j)
			if err := a.seed("kubevirt.io/v1/virtualmachineinstances", v.Namespace+"/"+v.Name, v); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

func hostName(i int) string  { return fmt.Sprintf("node%04d", i) }
func uuidOf(i, j int) string { return fmt.Sprintf("00000000-0000-4000-8000-%06d%06d", i, j) }

func quietHost(i int) *kvmv1.Hypervisor {
	h := &kvmv1.Hypervisor{
		TypeMeta: metav1.TypeMeta{APIVersion: "kvm.cloud.sap/v1", Kind: "Hypervisor"},
		ObjectMeta: metav1.ObjectMeta{
			Name: hostName(i), UID: types.UID(uuidOf(i, 999)), CreationTimestamp: metav1.Now(),
			Labels:      map[string]string{kvmv1.LabelZone: fmt.Sprintf("zone-%d", i%3), kvmv1.LabelBuildingBlock: fmt.Sprintf("bb%03d", i/20)},
			Annotations: map[string]string{kvmv1.AnnotationBMC: hostName(i), "kvm.cloud.sap/identity": fmt.Sprintf(`{"productUUID":%q,"serial":"SN%04d"}`, uuidOf(i, 999), i)},
		},
		Spec: kvmv1.HypervisorSpec{HighAvailability: true}, // nobody onboards here
	}
	for j := range ingestVMs {
		h.Status.Instances = append(h.Status.Instances, kvmv1.Instance{ID: uuidOf(i, j), Name: fmt.Sprintf("vm-%d", j), Active: true})
	}
	h.Status.NumInstances = ingestVMs
	return h
}

// quietSecret leads to a management controller that nobody will ask.
func quietSecret(i int) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kvm", Name: hostName(i), UID: types.UID(uuidOf(i, 998))},
		Data:       map[string][]byte{"address": []byte("https://192.0.2.1"), "username": []byte("ha"), "password": []byte("secret")},
	}
}

// quietVM is a VM as people write them, and as its agent reports it.
func quietVM(i, j int) *kubevirtv1.VirtualMachineInstance {
	memory := resource.MustParse("4Gi")
	v := &kubevirtv1.VirtualMachineInstance{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("project-%03d", i%100), Name: fmt.Sprintf("vm-%04d-%02d", i, j), UID: types.UID(uuidOf(i, j)), CreationTimestamp: metav1.Now(),
			Labels:      map[string]string{kubevirt.LabelProtected: "true", "app": "shop", "tier": "backend", kubevirtv1.NodeNameLabel: hostName(i)},
			Annotations: map[string]string{kubevirt.AnnotationRunToken: "1"},
			Finalizers:  []string{"kvm.cloud.sap/vmi"},
		},
	}
	v.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: &memory}
	v.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 2, Sockets: 1, Threads: 1}
	for d := range 2 {
		name := fmt.Sprintf("disk%d", d)
		v.Spec.Domain.Devices.Disks = append(v.Spec.Domain.Devices.Disks, kubevirtv1.Disk{Name: name, Serial: name, DiskDevice: kubevirtv1.DiskDevice{Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusVirtio}}})
		v.Spec.Volumes = append(v.Spec.Volumes, kubevirtv1.Volume{Name: name, VolumeSource: kubevirtv1.VolumeSource{PersistentVolumeClaim: &kubevirtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.Name + "-" + name}}}})
	}
	v.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "default", MacAddress: "52:54:00:00:00:01", InterfaceBindingMethod: kubevirtv1.InterfaceBindingMethod{Bridge: &kubevirtv1.InterfaceBridge{}}}}
	v.Spec.Networks = []kubevirtv1.Network{*kubevirtv1.DefaultPodNetwork()}
	v.Status.Phase, v.Status.NodeName = kubevirtv1.Running, hostName(i)
	for _, c := range []string{"Ready", "LiveMigratable", "AgentConnected", "PodScheduled", "Synchronized"} {
		v.Status.Conditions = append(v.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{Type: kubevirtv1.VirtualMachineInstanceConditionType(c), Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	v.Status.Interfaces = []kubevirtv1.VirtualMachineInstanceNetworkInterface{{Name: "default", MAC: "52:54:00:00:00:01", IP: "10.0.0.1", IPs: []string{"10.0.0.1"}}}
	return v
}

// untilQuiet waits until all hosts have been granted their lease and nothing has
// been written for three rounds.
func untilQuiet(agents *agents, a *api, service *process) error {
	last, since := 0, time.Now()
	for begun := time.Now(); time.Since(begun) < 5*time.Minute; time.Sleep(time.Second) {
		select {
		case err := <-service.ended:
			service.ended <- err
			return fmt.Errorf("ha-service ended: %w\n%s", err, service.said)
		default:
		}
		now := 0
		for resource, n := range a.counts() { // In any order: it is summed up.
			if resource != "leases" {
				now += n
			}
		}
		if now != last || agents.hostsWithout() > 0 || agents.reports.Load() < ingestHosts {
			last, since = now, time.Now()
		}
		if time.Since(since) >= 3*ingestInterval {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("never quiet: %d hosts without a lease, %d writes, %d reports failed; a lease was refused because %q", agents.hostsWithout(), last, agents.failed.Load(), agents.refused), agents.error, errors.New(service.said.String()))
}
