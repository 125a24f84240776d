// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/adit-hv/adit/testbed"
)

// door is where a fleet that is kept up takes orders: HTTP on a Unix socket that
// only its owner may open.
type door struct {
	path string
	net.Listener
	server http.Server
}

func addSocket(c *cobra.Command, socket *string) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("adit-%d.sock", os.Getuid()))
	c.Flags().StringVar(socket, "socket", path, "where the fleet takes orders; another one for each fleet")
}

// listen opens the door. One whose owner has died is nobody's.
func listen(path string) (*door, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("a fleet is up at %s already: end it with adit down, or give this one another --socket", path)
	} else if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		_ = os.Remove(path)
	}
	l, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("--socket: %w", err)
	}
	return &door{path: path, Listener: l}, nil
}

// fleet is one that is kept up.
type fleet struct {
	spec   testbed.Spec
	world  *testbed.World
	inside func(func()) // calls a function between two events of the world
	end    context.CancelFunc
}

func (d *door) serve(f *fleet) {
	mux := http.NewServeMux()
	answer := func(path string, do func(text string) error) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
			if err == nil {
				err = do(string(text))
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		})
	}
	answer("/fault", f.fault)
	answer("/do", f.do)
	answer("/heal", func(string) error {
		f.inside(f.world.Heal)
		return nil
	})
	answer("/down", func(string) error {
		f.end()
		return nil
	})
	d.server.Handler = mux
	go func() { _ = d.server.Serve(d.Listener) }() // It ends with the door.
}

// Close shuts the door behind the last who came in.
func (d *door) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := d.server.Shutdown(ctx)
	return errors.Join(err, os.RemoveAll(d.path), d.closeListener())
}

func (d *door) closeListener() error {
	if err := d.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (f *fleet) fault(text string) error {
	fault, err := testbed.ParseFault(text)
	if err != nil {
		return err
	}
	if fault.OfSimulatedAPI() {
		return fmt.Errorf("%s: a real API server does not take it; it is the simulator's", fault.Verb())
	}
	if err := fault.Check(f.spec); err != nil {
		return err
	}
	f.inside(func() { err = f.world.Inject(fault) })
	return err
}

func (f *fleet) do(text string) error {
	action, err := testbed.ParseAction(text)
	if err != nil {
		return err
	}
	if err := action.Check(f.spec); err != nil {
		return err
	}
	f.inside(func() { err = f.world.Do(action) })
	return err
}

// order sends an order to the fleet that is up.
func order(ctx context.Context, socket, path, text string) error {
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://adit"+path, strings.NewReader(text))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("no fleet is up at %s: start one with adit up", socket)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(said)))
	}
	return err
}

func newFault() *cobra.Command {
	return ordering("fault", "FAULT [KEY=VALUE]...", "/fault", "Let something go wrong in the fleet that is up",
		"The faults are those of scenarios; for=5m ends one by itself, adit heal ends all:", testbed.FaultHelp(),
		"  adit fault host.power-off on=node-a001\n  adit fault net.cut on=node-b001 link=management for=2m\n  adit fault qemu.crash vm=vm-3")
}

func newDo() *cobra.Command {
	return ordering("do", "ACTION [KEY=VALUE]...", "/do", "Do in the fleet that is up what a person would",
		"The actions are those of scenarios:", testbed.ActionHelp(),
		"  adit do maintenance.start on=node-a001 reason=firmware\n  adit do vm.migrate vm=vm-3 to=node-b001")
}

// ordering is a command that sends its words.
func ordering(name, use, path, short, intro string, words [][2]string, examples string) *cobra.Command {
	var socket string
	table, verbs := "", []string{}
	for _, w := range words {
		table += fmt.Sprintf("  %s\n      %s\n", w[0], w[1])
		verb, _, _ := strings.Cut(w[0], " ")
		verbs = append(verbs, verb+"\t"+w[1])
	}
	c := &cobra.Command{
		Use: name + " " + use, Short: short, Example: examples,
		Long: short + ", see adit up. " + intro + "\n\n" + strings.TrimRight(table, "\n"),
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return verbs, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			words := make([]string, len(args))
			for i, a := range args {
				if words[i] = a; strings.Contains(a, " ") {
					words[i] = `"` + a + `"` // The shell has taken the quotes away.
				}
			}
			return order(c.Context(), socket, path, strings.Join(words, " "))
		},
	}
	addSocket(c, &socket)
	return c
}

func newHeal() *cobra.Command {
	return plain("heal", "/heal", "End all faults in the fleet that is up")
}

func newDown() *cobra.Command {
	return plain("down", "/down", "End the fleet that is up")
}

func plain(name, path, short string) *cobra.Command {
	var socket string
	c := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		return order(c.Context(), socket, path, "")
	}}
	addSocket(c, &socket)
	return c
}
