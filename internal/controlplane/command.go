// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// command returns a program's arguments, and what tells that it serves.
func (c *ControlPlane) command(name string) (args []string, ready func(context.Context) bool) {
	in := func(file string) string { return filepath.Join(c.folder, file) }
	asAdmin := []string{
		"--kubeconfig=" + c.Kubeconfig(), "--leader-elect=false", "--secure-port=0", "--profiling=false",
		// With the default of 20 a second a thousand Nodes' Pods take minutes.
		"--kube-api-qps=500", "--kube-api-burst=1000",
	}
	switch name {
	case Etcd:
		return []string{
			"--data-dir=" + in(Etcd), "--listen-client-urls=" + c.etcd, "--advertise-client-urls=" + c.etcd,
			"--listen-peer-urls=http://127.0.0.1:0", // It has no peers.
			"--unsafe-no-fsync=true",                // The data lives as long as the process.
			"--log-level=error",
		}, serves(&http.Client{Timeout: time.Second}, c.etcd+"/health")
	case APIServer:
		host, port, _ := net.SplitHostPort(c.address)
		return []string{
			"--etcd-servers=" + c.etcd, "--bind-address=" + host, "--secure-port=" + port,
			"--tls-cert-file=" + in("apiserver.crt"), "--tls-private-key-file=" + in("apiserver.key"), "--client-ca-file=" + in("ca.crt"),
			"--authorization-mode=RBAC", "--allow-privileged=true", "--profiling=false",
			"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + in("sa.key"), "--service-account-signing-key-file=" + in("sa.key"),
		}, c.answers
	case ControllerManager:
		return append(asAdmin, "--service-account-private-key-file="+in("sa.key"), "--root-ca-file="+in("ca.crt")), c.hasDefaultServiceAccount
	default:
		return asAdmin, nil // It has no port and leaves no sign of its own.
	}
}

func (c *ControlPlane) answers(ctx context.Context) bool {
	client, err := rest.HTTPClientFor(c.Config())
	return err == nil && serves(client, "https://"+c.address+"/readyz")(ctx)
}

// hasDefaultServiceAccount tells that the controller manager works: it makes one.
func (c *ControlPlane) hasDefaultServiceAccount(ctx context.Context) bool {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return false
	}
	_, err = client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	return err == nil
}

// Assets finds the folder of the programs: KUBEBUILDER_ASSETS, as other tools
// of the field have it, else bin/k8s of this repository, seen from the current
// folder upwards, else k8s beside the running program.
func Assets() (string, error) {
	if folder := os.Getenv("KUBEBUILDER_ASSETS"); folder != "" {
		return folder, complete(folder)
	}
	var candidates []string
	if wd, err := os.Getwd(); err == nil {
		for ; wd != filepath.Dir(wd); wd = filepath.Dir(wd) {
			candidates = append(candidates, filepath.Join(wd, "bin", "k8s"))
		}
	}
	if self, err := os.Executable(); err == nil {
		candidates = append(candidates, filepath.Join(filepath.Dir(self), "k8s"))
	}
	for _, folder := range candidates {
		if complete(folder) == nil {
			return folder, nil
		}
	}
	return "", errMissing
}
