package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/raftyard/raftyard/test/peers/internal/compare"
	"github.com/raftyard/raftyard/test/peers/internal/trial"
)

// errUsage: it was said already what is wrong.
var errUsage = errors.New("wrong usage")

// options are what the command was called with.
type options struct {
	plan    compare.Plan
	dir     string // of the data
	out     string // of the results; empty: only standard output
	command string
}

// parse reads the arguments.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{command: "peers " + strings.Join(args, " ")}
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		// Nobody is left to tell when standard error is closed.
		_, _ = fmt.Fprintf(stderr, "usage: peers [flags] [system[:option=value,...]...]\n")
		flags.PrintDefaults()
	}
	base := &o.plan.Base
	cells := flags.String("cells",
		"1x1,1x64,1x512,1x2048,48x512,48x4096,1000x64,1000x512,1000x4096",
		"groups x clients of writes")
	reads := flags.String("reads", "1x512,48x512,1000x512", "groups x clients of reads")
	idle := flags.String("idle", "1,1000", "numbers of groups that do nothing")
	sizes := flags.String("sizes", "16,128,1024", "bytes in a command")
	ops := flags.String("ops", strings.Join(trial.Ops(), ","), "what to measure")
	flags.IntVar(&o.plan.Rounds, "rounds", 3, "how often each contestant has its turn in a cell")
	flags.DurationVar(&base.Warmup, "warmup", 3*time.Second, "load before the measured time")
	flags.DurationVar(&base.Duration, "duration", 5*time.Second, "measured time")
	flags.DurationVar(&base.Tick, "tick", 100*time.Millisecond, "time between heartbeats")
	flags.IntVar(&base.ElectionTicks, "election", 10, "ticks until an election")
	flags.Uint64Var(&base.SnapshotEvery, "snapshot", 10_000,
		"entries between snapshots of a group; 0: none, raftyard its default")
	flags.IntVar(&base.Hosts, "hosts", 3, "hosts in each process")
	flags.StringVar(&o.dir, "dir", os.TempDir(),
		"where data goes; it must be on the disk to measure")
	flags.StringVar(&o.out, "out", "", "directory for table.txt, table.md and results.json")
	if err := flags.Parse(args); err != nil {
		return nil, errUsage
	}
	err := errors.Join(o.addCells(*ops, *cells, *sizes), o.addReads(*ops, *reads),
		o.addIdle(*ops, *idle), o.addContestants(flags.Args()), o.check(*ops))
	if err != nil {
		return nil, err
	}
	o.plan.MaxGroups = maxGroups()
	return o, nil
}

func list(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
}

// check reports numbers that make no sense.
func (o *options) check(ops string) error {
	for _, op := range list(ops) {
		if !slices.Contains(trial.Ops(), op) {
			return fmt.Errorf("-ops has %q, want some of %q", op, trial.Ops())
		}
	}
	base := &o.plan.Base
	switch {
	case o.plan.Rounds < 1:
		return fmt.Errorf("-rounds is %d, want at least 1", o.plan.Rounds)
	case base.Duration <= 0 || base.Warmup < 0:
		return fmt.Errorf("-duration is %v and -warmup %v, want more than 0 and 0 or more",
			base.Duration, base.Warmup)
	case base.Tick < time.Millisecond || base.ElectionTicks < 3:
		return fmt.Errorf("-tick is %v and -election %d, want at least 1ms and 3",
			base.Tick, base.ElectionTicks)
	case base.Hosts < 1:
		return fmt.Errorf("-hosts is %d, want at least 1", base.Hosts)
	}
	return nil
}

func (o *options) addCells(ops, cells, sizes string) error {
	if !slices.Contains(list(ops), trial.Write) {
		return nil
	}
	for _, text := range list(sizes) {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 {
			return fmt.Errorf("-sizes has %q, want numbers of bytes", text)
		}
		for _, pair := range list(cells) {
			groups, clients, err := compare.ParsePair(pair)
			if err != nil {
				return err
			}
			o.plan.Cells = append(o.plan.Cells, compare.Cell{
				Op: trial.Write, Groups: groups, Clients: clients, Size: size,
			})
		}
	}
	return nil
}

func (o *options) addReads(ops, reads string) error {
	if !slices.Contains(list(ops), trial.Read) {
		return nil
	}
	for _, pair := range list(reads) {
		groups, clients, err := compare.ParsePair(pair)
		if err != nil {
			return err
		}
		o.plan.Cells = append(o.plan.Cells, compare.Cell{
			Op: trial.Read, Groups: groups, Clients: clients,
		})
	}
	return nil
}

func (o *options) addIdle(ops, idle string) error {
	if !slices.Contains(list(ops), trial.Idle) {
		return nil
	}
	for _, text := range list(idle) {
		groups, err := strconv.Atoi(text)
		if err != nil || groups < 1 {
			return fmt.Errorf("-idle has %q, want numbers of groups", text)
		}
		o.plan.Cells = append(o.plan.Cells, compare.Cell{Op: trial.Idle, Groups: groups})
	}
	return nil
}

func (o *options) addContestants(args []string) error {
	if len(args) == 0 {
		args = bestKnown()
	}
	for _, arg := range args {
		c, err := compare.ParseContestant(arg)
		if err != nil {
			return err
		}
		if systems()[c.System] == nil {
			return fmt.Errorf("there is no system %q", c.System)
		}
		o.plan.Contestants = append(o.plan.Contestants, c)
	}
	return nil
}
