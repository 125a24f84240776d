// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
	"github.com/adit-hv/adit/config/rbac"
	"github.com/adit-hv/adit/internal/controlplane"
)

// replica is an operator as a process of its own.
type replica struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	log bytes.Buffer
}

func (r *replica) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *replica) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// TestReplicasServeAsTheirOwnAccount: two replicas on a real API server, with no
// more rights than config/rbac gives them; the one that leads is stopped.
func TestReplicasServeAsTheirOwnAccount(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN, for -short: the operator on a real API server")
	}
	g, ctx := NewWithT(t), t.Context()
	plane, err := controlplane.Start(ctx, controlplane.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(plane.Stop()).To(Succeed()) })
	kubectl(t, plane, "apply", "-f", "../../config/rbac", "-f", "../../config/crd")

	user, err := rbac.User("operator")
	g.Expect(err).NotTo(HaveOccurred())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(plane.WriteKubeconfig(kubeconfig, user, "system:serviceaccounts", "system:authenticated")).To(Succeed())
	binary := filepath.Join(t.TempDir(), "operator")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, ".").CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	var replicas []*replica
	start := func() {
		r := &replica{cmd: exec.Command(binary, "--kubeconfig", kubeconfig, "--metrics", "0", "--health", "0")}
		r.cmd.Stdout, r.cmd.Stderr = r, r
		g.Expect(r.cmd.Start()).To(Succeed())
		t.Cleanup(func() { _ = r.cmd.Process.Kill() })
		replicas = append(replicas, r)
	}
	start()

	scheme := runtime.NewScheme()
	g.Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	g.Expect(kvmv1.AddToScheme(scheme)).To(Succeed())
	api, err := client.New(plane.Config(), client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	hypervisor := func(name string) func() error {
		g.Expect(api.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{kvmv1.LabelVirtDriver: ""}}})).To(Succeed())
		return func() error { return api.Get(ctx, client.ObjectKey{Name: name}, &kvmv1.Hypervisor{}) }
	}
	g.Eventually(hypervisor("first")).WithTimeout(time.Minute).Should(Succeed())

	t.Log("maintenance is taken up, with its writes to Hypervisor, Eviction and status")
	kubectl(t, plane, "patch", "hypervisor", "first", "--type=merge", "-p", `{"spec":{"maintenance":"manual","maintenanceReason":"a look"}}`)
	g.Eventually(func() string { return kubectl(t, plane, "get", "evictions", "-o", "name") }).WithTimeout(time.Minute).Should(ContainSubstring("first"))

	t.Log("the leader goes, and one that came later takes over")
	holder := holderOf(ctx, g, api)
	g.Expect(holder).NotTo(BeEmpty())
	start()
	g.Expect(replicas[0].cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(replicas[0].cmd.Wait()).To(Succeed(), "it was asked to end: %s", replicas[0].said())
	g.Eventually(hypervisor("second")).WithTimeout(time.Minute).Should(Succeed())
	g.Expect(holderOf(ctx, g, api)).NotTo(Equal(holder))
	g.Expect(replicas[1].cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(replicas[1].cmd.Wait()).To(Succeed())
	for _, r := range replicas {
		g.Expect(r.said()).NotTo(ContainSubstring("forbidden"))
	}
}

func holderOf(ctx context.Context, g *WithT, api client.Client) string {
	var lease coordinationv1.Lease
	g.Expect(api.Get(ctx, client.ObjectKey{Namespace: rbac.Namespace, Name: leaseName}, &lease)).To(Succeed())
	return *lease.Spec.HolderIdentity
}

func kubectl(t *testing.T, plane *controlplane.ControlPlane, args ...string) string {
	t.Helper()
	assets, err := controlplane.Assets()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(assets, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+plane.Kubeconfig())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestFlagsThatCannotBeMeantAreRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"--min-active":                 {"--min-active=many"},
		"--min-active -1":              {"--min-active=-1"},
		"--migration-bandwidth 0":      {"--migration-bandwidth=0"},
		"--migrations 0":               {"--migrations=0"},
		"--unschedulable-timeout 0s":   {"--unschedulable-timeout=0s"},
		"see operator --help":          {"--no-such-flag"},
		"invalid argument \"quickly\"": {"--migration-timeout-per-gib=quickly"},
	} {
		c := newRoot()
		c.SetArgs(args)
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}
