// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	kvmv1 "github.com/adit-hv/adit/api/kvm/v1"
)

// screen is what a command has printed so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestAFleetIsKeptUpAndTakesOrders(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN, for -short: a fleet on a real API server")
	}
	g, ctx := NewWithT(t), t.Context()
	f := upFlags{hosts: 3, vms: 3, zones: 3, speed: 5, seed: 1, socket: filepath.Join(t.TempDir(), "s")}
	out, ended := &screen{}, make(chan error, 1)
	go func() { ended <- up(ctx, f, nil, out) }()
	g.Eventually(out.String).WithTimeout(3 * time.Minute).Should(ContainSubstring("Up after"))
	g.Expect(up(ctx, f, nil, out)).To(MatchError(ContainSubstring("a fleet is up at")))

	t.Log("the API is there for other clients")
	kubeconfig := regexp.MustCompile(`KUBECONFIG=(\S+)`).FindStringSubmatch(out.String())[1]
	api, err := clusterFlags{kubeconfig: kubeconfig}.client()
	g.Expect(err).NotTo(HaveOccurred())
	ready := func() (n int) {
		var hosts kvmv1.HypervisorList
		g.Expect(api.List(ctx, &hosts)).To(Succeed())
		for _, h := range hosts.Items {
			if meta.IsStatusConditionTrue(h.Status.Conditions, kvmv1.ConditionReady) {
				n++
			}
		}
		return n
	}
	g.Eventually(ready).WithTimeout(time.Minute).Should(Equal(3))

	t.Log("orders are carried out, and wrong ones are refused with the reason")
	g.Expect(order(ctx, f.socket, "/fault", "host.power-off on=nobody")).To(MatchError(ContainSubstring("the hosts are node-a001")))
	g.Expect(order(ctx, f.socket, "/fault", "api.unavailable")).To(MatchError(ContainSubstring("a real API server does not take it")))
	g.Expect(order(ctx, f.socket, "/do", `maintenance.start on=node-a001 reason="new firmware"`)).To(Succeed())
	g.Eventually(ready).WithTimeout(time.Minute).Should(Equal(2))
	g.Expect(order(ctx, f.socket, "/do", "maintenance.end on=node-a001")).To(Succeed())
	g.Eventually(ready).WithTimeout(time.Minute).Should(Equal(3))
	g.Expect(order(ctx, f.socket, "/fault", "host.power-off on=node-b001")).To(Succeed())
	g.Eventually(ready).WithTimeout(time.Minute).Should(Equal(2))
	g.Expect(order(ctx, f.socket, "/heal", "")).To(Succeed())

	g.Expect(order(ctx, f.socket, "/down", "")).To(Succeed())
	g.Eventually(ended).WithTimeout(time.Minute).Should(Receive(BeNil()))
	g.Expect(filepath.Dir(kubeconfig)).NotTo(BeAnExistingFile())
	g.Expect(f.socket).NotTo(BeAnExistingFile())
	g.Expect(order(ctx, f.socket, "/heal", "")).To(MatchError(ContainSubstring("start one with adit up")))
}

func TestAFleetIsAskedForInNumbersThatCanBe(t *testing.T) {
	good := upFlags{hosts: 7, vms: 2, zones: 3, speed: 1}
	spec, err := good.fleet(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(spec.HostNames(), " "); got != "node-a001 node-a002 node-a003 node-b001 node-b002 node-c001 node-c002" || spec.HA == nil || vmsOf(spec) != 2 {
		t.Errorf("got %s, %d VMs", got, vmsOf(spec))
	}
	if spec, err = good.fleet([]string{"drain-a-host"}); err != nil || len(spec.HostNames()) != 5 {
		t.Errorf("of a scenario: %v, %v", spec.HostNames(), err)
	}
	for want, f := range map[string]upFlags{
		"--hosts 0":    {zones: 1, speed: 1},
		"--vms -1":     {hosts: 1, zones: 1, vms: -1, speed: 1},
		"--zones 3":    {hosts: 2, zones: 3, speed: 1},
		"--speed 0":    {hosts: 1, zones: 1},
		"--hosts 1001": {hosts: 1001, zones: 1, speed: 1},
	} {
		if _, err := f.fleet(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestADoorWhoseOwnerDiedIsOpenedAnew(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	g.Expect(err).NotTo(HaveOccurred())
	l.SetUnlinkOnClose(false)
	g.Expect(l.Close()).To(Succeed())
	g.Expect(path).To(BeAnExistingFile())

	door, err := listen(path)
	g.Expect(err).NotTo(HaveOccurred())
	info, err := os.Stat(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
	g.Expect(door.Close()).To(Succeed())

	g.Expect(os.WriteFile(path, []byte("mine"), 0o600)).To(Succeed())
	_, err = listen(path)
	g.Expect(err).To(MatchError(ContainSubstring("--socket")))
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("mine"), "a file of somebody's is left alone")
}
