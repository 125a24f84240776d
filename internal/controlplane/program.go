// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

var (
	errMissing   = errors.New("no control plane here: run `make controlplane`, which builds one into bin/k8s, or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver")
	errPortTaken = errors.New("somebody took the port meanwhile")
)

// complete says what a folder of programs lacks.
func complete(folder string) error {
	for _, name := range []string{Etcd, APIServer} {
		if _, err := exec.LookPath(filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("%s has no %s that can be run: run `make controlplane`, or mend KUBEBUILDER_ASSETS", folder, name)
		}
	}
	return nil
}

// patience is how long a program may take to end once it was asked to.
const patience = 20 * time.Second

// program is a process of ours.
type program struct {
	name string
	log  string // The file that has what it printed.
	cmd  *exec.Cmd
	done chan struct{} // Closed when it ended.
}

func launch(path, log string, args []string) (*program, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &program{name: filepath.Base(path), log: log, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// A group of its own: Ctrl-C in a terminal is for us, and we stop in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// await returns when the program is ready, or says why it will not be.
func (p *program) await(ctx context.Context, ready func(context.Context) bool) error {
	if ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ready(ctx) {
		select {
		case <-tick.C:
		case <-p.done:
			last := p.lastWords()
			if bytes.Contains(last, []byte("address already in use")) {
				return fmt.Errorf("%s: %w", p.name, errPortTaken)
			}
			return fmt.Errorf("%s ended instead of serving: %v; its last words:\n%s", p.name, p.cmd.ProcessState, last)
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve after %v: %w; its last words:\n%s", p.name, startLimit, context.Cause(ctx), p.lastWords())
		}
	}
	return nil
}

// lastWords are the end of what the program printed.
func (p *program) lastWords() []byte {
	const much = 2000 // bytes
	text, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(text[max(0, len(text)-much):])
}

// stop asks the program to end, and ends it when it takes too long.
func (p *program) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.kill()
	}
}

// kill ends the program as a crash would.
func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}
