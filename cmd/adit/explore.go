// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/adit-hv/adit/scenarios/explore"
)

// exploreFlags are the flags of adit explore.
type exploreFlags struct {
	seeds   string
	span    time.Duration
	folder  string
	resume  bool
	jobs    int
	output  string
	first   bool
	verify  bool
	draw    int64
	shrink  int
	profile string
}

func newExplore(t *testing.T) *cobra.Command {
	var f exploreFlags
	c := &cobra.Command{
		Use:   "explore",
		Short: "Look for what nobody thought of",
		Long: `Play scenarios made of dice: each seed draws a fleet, its VMs, a time of trouble
in which people and faults do what they can, and what stays broken afterwards.
Nothing unsafe may happen meanwhile, and in the end all that can be well must be.

  adit explore                              seeds 1 to 1000
  adit explore --seeds 5000..9999 -j 8      others, eight at a time
  adit explore --for 10m                    as many as there is time for
  adit explore --resume                     on from where it ended
  adit explore --draw 17                    print what seed 17 draws

A seed that fails is shrunk to the least that fails still, which is written into
the folder of --out beside all that was drawn; the command that repeats it is
printed. What was reached, and what never was, is counted there too.

Exit codes: 0, all passed; 1, something did not hold; 2, the input is wrong, and
nothing was run; 130, interrupted.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("draw") {
				return drawn(c.OutOrStdout(), f.draw)
			}
			return explored(t, f, c.Flags().Changed("seeds"), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&f.seeds, "seeds", "1..1000", "the seeds, as 1..1000, or one")
	c.Flags().DurationVar(&f.span, "for", 0, "begin no more seeds after this time, as 10m; without --seeds, the seeds have no end")
	c.Flags().StringVar(&f.folder, "out", "explore-failures", "folder for the books, and for the scenarios that fail")
	c.Flags().BoolVar(&f.resume, "resume", false, "go on with the books of --out")
	c.Flags().IntVarP(&f.jobs, "jobs", "j", runtime.GOMAXPROCS(0), "seeds at once")
	c.Flags().StringVarP(&f.output, "output", "o", "text", "what is printed at the end: text, or json")
	c.Flags().BoolVar(&f.first, "first", false, "end with the first seed that fails")
	c.Flags().BoolVar(&f.verify, "verify", false, "play each seed twice and compare the digests")
	c.Flags().IntVar(&f.shrink, "shrink", 400, "play at most so many runs to shrink one failure; 0 shrinks nothing")
	c.Flags().Int64Var(&f.draw, "draw", 0, "print the scenario of this seed, and play nothing")
	c.Flags().StringVar(&f.profile, "cpuprofile", "", "write a CPU profile to this file")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// drawn prints a seed's scenario.
func drawn(out io.Writer, seed int64) error {
	if seed < 0 {
		return fmt.Errorf("--draw %d is no seed; it is a whole number, not below 0", seed)
	}
	_, err := out.Write(explore.Draw(uint64(seed)))
	return err
}

var seedRange = regexp.MustCompile(`^(\d+)(?:\.\.(\d+))?$`)

// limits reads --seeds.
func (f exploreFlags) limits() (from, to uint64, err error) {
	m := seedRange.FindStringSubmatch(f.seeds)
	if m == nil {
		return 0, 0, fmt.Errorf("--seeds %s are no seeds; write 1..1000, or one number", f.seeds)
	}
	from, err = strconv.ParseUint(m[1], 10, 63)
	to = from
	if err == nil && m[2] != "" {
		to, err = strconv.ParseUint(m[2], 10, 63)
	}
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("--seeds %s do not fit into 63 bits; give smaller ones", f.seeds)
	case to < from:
		return 0, 0, fmt.Errorf("--seeds %s are none; the second number is not below the first", f.seeds)
	case to-from >= maxSeeds:
		return 0, 0, fmt.Errorf("--seeds %s are more than %d, which is more than one program plays; give fewer", f.seeds, maxSeeds)
	}
	return from, to, nil
}

func (f exploreFlags) check() error {
	switch {
	case f.output != "text" && f.output != "json":
		return fmt.Errorf("-o %s is no output; it is text or json", f.output)
	case f.jobs < 1:
		return fmt.Errorf("--jobs %d plays nothing; give at least 1", f.jobs)
	case f.span < 0:
		return fmt.Errorf("--for %v is over; give a time span, as 10m", f.span)
	case f.shrink < 0:
		return fmt.Errorf("--shrink %d is fewer than none; 0 shrinks nothing", f.shrink)
	}
	return nil
}

// books opens or begins the books.
func (f exploreFlags) books(seedsGiven bool) (*explore.Books, error) {
	if f.resume {
		if seedsGiven {
			return nil, errors.New("--resume goes on with the seeds it was begun with; leave out --seeds")
		}
		return explore.OpenBooks(f.state(), versionText())
	}
	from, to, err := f.limits()
	if err != nil {
		return nil, err
	}
	if f.span > 0 && !seedsGiven {
		to = 0
	}
	return explore.NewBooks(versionText(), from, to), nil
}

// state is the file of the books.
func (f exploreFlags) state() string { return filepath.Join(f.folder, "books.json") }

func explored(t *testing.T, f exploreFlags, seedsGiven bool, stdout, stderr io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	books, err := f.books(seedsGiven)
	if err != nil {
		return err
	}
	if err := canReport("--out", f.folder); err != nil {
		return err
	}
	if f.profile != "" {
		file, err := os.Create(f.profile)
		if err != nil {
			return fmt.Errorf("--cpuprofile: %w", err)
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return fmt.Errorf("--cpuprofile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	e := &expedition{flags: f, t: t, books: books, said: newTeller(f, books, stdout, stderr), shrunk: map[string]int{}}
	interrupted, err := e.run(interrupts)
	if err != nil {
		return err
	}
	return e.said.end(books, interrupted)
}
