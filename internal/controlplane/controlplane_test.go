// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/adit-hv/adit/internal/controlplane"
)

// victim in the environment makes this test binary a program that starts a
// control plane, says where it is, and waits for its death.
const victim = "ADIT_TEST_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victim) == "" {
		os.Exit(m.Run())
	}
	c, err := controlplane.Start(context.Background(), controlplane.Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(filepath.Dir(c.Kubeconfig()))
	select {}
}

// processesOf finds those whose command line names a folder.
func processesOf(folder string) (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range found {
		text, err := os.ReadFile(path)
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		if err == nil && pid != os.Getpid() && strings.Contains(string(text), folder) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestAControlPlaneServesKeepsAndLeavesNothing(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	c, err := controlplane.Start(ctx, controlplane.Options{Controllers: true})
	g.Expect(err).NotTo(HaveOccurred())
	defer c.Stop()
	folder, admin := filepath.Dir(c.Kubeconfig()), clientFor(t, c.Config())

	version, err := admin.Discovery().ServerVersion()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version.GitVersion).To(MatchRegexp(`^v1\.\d+\.\d+$`), "the programs are stamped")

	t.Log("the admin's kubeconfig works for the stock kubectl")
	assets, err := controlplane.Assets()
	g.Expect(err).NotTo(HaveOccurred())
	out, err := exec.CommandContext(ctx, filepath.Join(assets, "kubectl"), "--kubeconfig", c.Kubeconfig(), "get", "namespaces", "-o", "name").CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	g.Expect(string(out)).To(ContainSubstring("namespace/kube-system"))

	t.Log("somebody without a role may do nothing")
	config, err := c.As("alice", "people")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = clientFor(t, config).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	g.Expect(err.Error()).To(ContainSubstring(`User "alice"`))

	t.Log("what was written outlives a crash of the API server")
	g.Expect(c.Halt(controlplane.APIServer, true)).To(Succeed())
	_, err = admin.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	g.Expect(err).To(HaveOccurred())
	g.Expect(c.Launch(ctx, controlplane.APIServer)).To(Succeed())
	_, err = admin.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(c.Launch(ctx, controlplane.APIServer)).To(MatchError(ContainSubstring("runs already")))
	g.Expect(processesOf(folder)).NotTo(BeEmpty())
	g.Expect(c.Stop()).To(Succeed())
	g.Expect(processesOf(folder)).To(BeEmpty())
	g.Expect(folder).NotTo(BeADirectory())
}

func TestTheDeathOfItsStarterIsItsEnd(t *testing.T) {
	g := NewWithT(t)
	self, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), victim+"=1")
	out, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	folder, err := bufio.NewReader(out).ReadString('\n')
	folder = strings.TrimSpace(folder)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(folder).To(BeADirectory())
	g.Expect(len(processesOf(folder))).To(BeNumerically(">=", 3), "etcd, the API server, and who watches over them")

	g.Expect(cmd.Process.Signal(syscall.SIGKILL)).To(Succeed())
	g.Expect(cmd.Wait()).NotTo(Succeed())
	g.Eventually(func() []int { return processesOf(folder) }).WithTimeout(30 * time.Second).Should(BeEmpty())
	g.Expect(folder).NotTo(BeADirectory())
}

func TestWhatCannotStartSaysWhyAndLeavesNothing(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	_, err := controlplane.Start(ctx, controlplane.Options{Assets: t.TempDir()})
	g.Expect(err).To(MatchError(ContainSubstring("etcd: no such file")))

	t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
	_, err = controlplane.Assets()
	g.Expect(err).To(MatchError(ContainSubstring("make controlplane")))
	t.Setenv("KUBEBUILDER_ASSETS", "")

	t.Setenv("TMPDIR", t.TempDir())
	_, err = controlplane.Start(ctx, controlplane.Options{Args: map[string][]string{controlplane.APIServer: {"--no-such-flag"}}})
	g.Expect(err).To(MatchError(And(ContainSubstring("kube-apiserver ended instead of serving"), ContainSubstring("no-such-flag"))))
	g.Expect(os.ReadDir(os.TempDir())).To(BeEmpty())
}
