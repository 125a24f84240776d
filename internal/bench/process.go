// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/adit-hv/adit/internal/rpc/rpctest"
)

// process is the service while it runs.
type process struct {
	cmd   *exec.Cmd
	ended chan error
	said  *bytes.Buffer
}

func startService(dir, url string, authority *rpctest.Authority) (*process, string, error) {
	binary := filepath.Join(dir, "ha-service")
	if out, err := exec.Command("go", "build", "-o", binary, "./cmd/ha-service").CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("build ha-service: %w\n%s", err, out)
	}
	files, err := authority.Write(dir, rpctest.Leaf{CommonName: "ha-service"})
	if err != nil {
		return nil, "", err
	}
	config := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}", url)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, "", err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	address := free.Addr().String()
	free.Close()
	p := &process{ended: make(chan error, 1), said: &bytes.Buffer{}}
	p.cmd = exec.Command(binary, "--kubeconfig", config, "--listen", address, "--metrics", "0", "--health", "0",
		"--tls-cert", files.Certificate, "--tls-key", files.Key, "--tls-ca", files.Authority)
	p.cmd.Stderr = p.said
	if err := p.cmd.Start(); err != nil {
		return nil, "", err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	for range 100 {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return p, address, conn.Close()
		}
		select {
		case err := <-p.ended:
			return nil, "", fmt.Errorf("ha-service ended: %w\n%s", err, p.said)
		case <-time.After(100 * time.Millisecond):
		}
	}
	p.end()
	return nil, "", fmt.Errorf("ha-service does not listen\n%s", p.said)
}

func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
	}
}

// cpu is the processor time it has used (proc(5), stat, in hundredths of a
// second).
func (p *process) cpu() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory is what it has, and the most it has had, in MiB.
func (p *process) memory() (now, peak float64) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(words[1], 64)
		switch words[0] {
		case "VmRSS:":
			now = kib / 1024
		case "VmHWM:":
			peak = kib / 1024
		}
	}
	return now, peak
}
