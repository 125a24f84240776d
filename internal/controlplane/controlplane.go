// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real Kubernetes control plane on this machine:
// etcd, kube-apiserver and, if asked for, kube-controller-manager and
// kube-scheduler, as processes on loopback with all they write in one temporary
// folder. It owns the processes, their certificates and that folder, and leaves
// none of them behind, however the process that started them ends. It must
// never know what the API holds.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The programs of a control plane, by the names of their files.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// startLimit is how long a program may take until it serves: some seconds on a
// quiet machine, more than a minute on one that builds at the same time.
const startLimit = 2 * time.Minute

// portTries is how often other ports are tried when somebody took the ones that
// were free a moment ago.
const portTries = 3

// Options say what to start. The zero value is an API server with its etcd.
type Options struct {
	// Assets is the folder of the programs; empty: where Assets finds them.
	Assets string
	// Controllers also starts kube-controller-manager and kube-scheduler.
	Controllers bool
	// Args are more arguments, by program. They follow ours, and win.
	Args map[string][]string
}

// ControlPlane is a running one. Its methods may be called by any goroutine.
type ControlPlane struct {
	options Options
	folder  string
	issuer  *issuer
	etcd    string // URL
	address string // HOST:PORT of the API server
	admin   *rest.Config
	sexton  *sexton

	mu      sync.Mutex
	running []*program // in the order of their start
}

// Start starts a control plane and returns when it serves. The caller stops it.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	if o.Assets == "" {
		assets, err := Assets()
		if err != nil {
			return nil, err
		}
		o.Assets = assets
	}
	folder, err := os.MkdirTemp("", "adit-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	c := &ControlPlane{options: o, folder: folder}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) (err error) {
	if c.sexton, err = hire(c.folder); err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	if c.issuer, err = newIssuer(c.folder); err != nil {
		return fmt.Errorf("control plane: certificates: %w", err)
	}
	for try := 1; ; try++ {
		err = c.serve(ctx)
		if !errors.Is(err, errPortTaken) || try == portTries {
			break
		}
		c.stopAll()
		_ = os.RemoveAll(filepath.Join(c.folder, Etcd)) // It remembers its address.
	}
	if err != nil || !c.options.Controllers {
		return err
	}
	for _, name := range []string{ControllerManager, Scheduler} {
		if err := c.Launch(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// serve brings etcd and the API server up on ports that are free now.
func (c *ControlPlane) serve(ctx context.Context) error {
	ports, err := freePorts(2)
	if err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	c.etcd, c.address = "http://127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	if c.admin, err = c.As("admin", "system:masters"); err != nil {
		return err
	}
	if err := clientcmd.WriteToFile(kubeconfig(c.admin), c.Kubeconfig()); err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	for _, name := range []string{Etcd, APIServer} {
		if err := c.Launch(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// Launch starts a program that does not run, with more arguments if there are
// any, and returns when it serves.
func (c *ControlPlane) Launch(ctx context.Context, name string, more ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.find(name) >= 0 {
		return fmt.Errorf("control plane: %s runs already", name)
	}
	args, ready := c.command(name)
	p, err := launch(filepath.Join(c.options.Assets, name), filepath.Join(c.folder, name+".log"),
		slices.Concat(args, c.options.Args[name], more))
	if err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	c.running = append(c.running, p)
	c.sexton.mind(c.running)
	if err := p.await(ctx, ready); err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	return nil
}

// Halt stops a program: politely, or as a crash would, at once.
func (c *ControlPlane) Halt(name string, crash bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.find(name)
	if i < 0 {
		return fmt.Errorf("control plane: %s does not run", name)
	}
	if crash {
		c.running[i].kill()
	} else {
		c.running[i].stop()
	}
	c.running = slices.Delete(c.running, i, i+1)
	c.sexton.mind(c.running)
	return nil
}

// find returns the index of a program that runs, or -1.
func (c *ControlPlane) find(name string) int {
	return slices.IndexFunc(c.running, func(p *program) bool { return p.name == name })
}

// Stop ends the programs, the last one first and one after the other (an API
// server whose etcd is gone takes minutes to end), and removes their folder.
func (c *ControlPlane) Stop() error {
	c.stopAll()
	err := os.RemoveAll(c.folder)
	c.sexton.dismiss()
	return err
}

func (c *ControlPlane) stopAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range slices.Backward(c.running) {
		p.stop()
	}
	c.running = nil
	c.sexton.mind(nil)
}

// Config returns the configuration of a client that may do everything and is
// not throttled. It is the caller's to change.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Kubeconfig is the path of a file that says the same for kubectl.
func (c *ControlPlane) Kubeconfig() string { return filepath.Join(c.folder, "kubeconfig") }

// Log is the path of what a program printed.
func (c *ControlPlane) Log(name string) string { return filepath.Join(c.folder, name+".log") }

// As returns the configuration of a client that is somebody else: a user of
// these groups, known by its certificate.
func (c *ControlPlane) As(user string, groups ...string) (*rest.Config, error) {
	cert, key, err := c.issuer.client(user, groups)
	if err != nil {
		return nil, fmt.Errorf("control plane: certificate of %s: %w", user, err)
	}
	return &rest.Config{
		Host:            "https://" + c.address,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.issuer.caPEM(), CertData: cert, KeyData: key},
		QPS:             -1,
	}, nil
}

// WriteKubeconfig writes a file by which a client of the field, kubectl for one, is
// a user of these groups.
func (c *ControlPlane) WriteKubeconfig(path, user string, groups ...string) error {
	config, err := c.As(user, groups...)
	if err != nil {
		return err
	}
	return clientcmd.WriteToFile(kubeconfig(config), path)
}

func kubeconfig(config *rest.Config) clientcmdapi.Config {
	const name = "adit"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	return *k
}

// freePorts returns n loopback ports that nobody listens on at this moment.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // Held until all are found, so that they differ.
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

// serves asks a URL whether the server behind it is ready.
func serves(client *http.Client, url string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
}
