// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
)

// sexton is a small process that outlives us: when we end without having
// stopped, by a crash or kill -9, it ends the programs and removes their folder.
// It learns of our end by the end of its standard input, which the kernel
// closes for us whatever happens.
type sexton struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// Each line that it reads is the list of all processes that are to be ended.
const sextonScript = `
while read -r line; do pids=$line; done
[ -z "$pids" ] || kill -9 $pids
rm -rf "$1"
sleep 1 # One of them may have been writing.
rm -rf "$1"
`

func hire(folder string) (*sexton, error) {
	s := &sexton{cmd: exec.Command("/bin/sh", "-c", sextonScript, "adit-sexton", folder)}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for it.
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return s, s.cmd.Start()
}

// mind tells it which programs run now.
func (s *sexton) mind(programs []*program) {
	if s == nil {
		return
	}
	var pids []string
	for _, p := range programs {
		pids = append(pids, fmt.Sprint(p.cmd.Process.Pid))
	}
	_, _ = fmt.Fprintln(s.stdin, strings.Join(pids, " "))
}

// dismiss ends its service, when there is nothing left to do.
func (s *sexton) dismiss() {
	if s == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.stdin.Close()
	_ = s.cmd.Wait()
}
