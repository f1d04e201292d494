package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/internal/load"
)

// benchFlags say what raftyard bench does.
type benchFlags struct {
	groups, clients, keys  int
	duration, warmup       spanFlag
	valueSize, readPercent int
	rate                   float64
	keep                   bool
}

func (a *app) benchCommand() *cobra.Command {
	f := benchFlags{duration: spanFlag(10 * time.Second), warmup: spanFlag(2 * time.Second)}
	cmd := &cobra.Command{
		Use:   "bench [GROUP...]",
		Short: "Put load on a cluster, and say how fast it is",
		Long: `Put and get keys of a running cluster, and print throughput and latency. It uses the
GROUPs that are named, or else as many of kind kv as --groups says, or else all; every client
goes round them. All keys are under a prefix of their own and are removed in the end.

Without --rate each client begins an operation when its last one has ended, so that a cluster
which stalls is asked less. With --rate operations are due at fixed times, and latency counts
from then on, also while an operation waits for a client: what a stall would cost those who
want something meanwhile shows. What no client had come to by the end is late, and counts with
the time that it has waited.

Several --addr share the clients among them. Ctrl-C ends it early, with the figures so far.`,
		Example: `  raftyard bench
  raftyard bench 1 2 7 --clients 64 --duration 30s --read-percent 90
  raftyard bench --rate 2000 --value-size 1024 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			var ids []raftyard.GroupID
			for _, arg := range args {
				id, err := groupArg(arg)
				if err != nil {
					return err
				}
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
			return a.bench(cmd.Context(), f, ids)
		},
	}
	f.add(cmd)
	a.flags.add(cmd, a.env)
	return a.completeGroup(cmd)
}

func (f *benchFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.groups, "groups", 0, "how many groups to use; 0 means all of kind kv")
	flags.IntVar(&f.clients, "clients", 16, "how many operations are under way at most")
	flags.Var(&f.duration, "duration", "how long to measure")
	flags.Var(&f.warmup, "warmup", "load before that, which is not measured")
	flags.IntVar(&f.valueSize, "value-size", 128, "bytes in a value")
	flags.IntVar(&f.readPercent, "read-percent", 0, "share of linearizable reads")
	flags.Float64Var(&f.rate, "rate", 0, "operations a second; 0 means as fast as it goes")
	flags.IntVar(&f.keys, "keys", 100, "how many keys to use in each group")
	flags.BoolVar(&f.keep, "keep", false, "leave the keys")
}

// Bounds of the flags.
const (
	maxBenchClients = 10_000
	maxBenchKeys    = 1_000_000
	maxBenchRate    = 1_000_000
)

// check reports what is wrong with the flags.
func (f *benchFlags) check(groups []string) error {
	for _, flag := range []struct {
		name             string
		got, least, most int
	}{
		{"--groups", f.groups, 0, 1 << 30},
		{"--clients", f.clients, 1, maxBenchClients},
		{"--value-size", f.valueSize, 0, maxValueBytes},
		{"--read-percent", f.readPercent, 0, 100},
		{"--keys", f.keys, 1, maxBenchKeys},
	} {
		if flag.got < flag.least || flag.got > flag.most {
			return usageError{fmt.Errorf("%s is %d, want %d to %d",
				flag.name, flag.got, flag.least, flag.most)}
		}
	}
	switch {
	case !(f.rate >= 0 && f.rate <= maxBenchRate): // not a number is neither
		return usageError{fmt.Errorf("--rate is %v, want 0 to %d", f.rate, maxBenchRate)}
	case f.duration == 0:
		return usageError{errors.New("--duration is 0s, want more")}
	case f.groups > 0 && len(groups) > 0:
		return usageError{errors.New("--groups does not go with groups that are named")}
	}
	return nil
}

// cleaning is how long the removal of all keys may take.
const cleaning = 2 * time.Minute

// bench puts load on groups, or on those that the flags say, and shows the result. The
// keys are removed whatever has happened.
func (a *app) bench(ctx context.Context, f benchFlags, groups []raftyard.GroupID) error {
	clients, err := a.benchClients(f.clients)
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range clients {
			c.Close()
		}
	}()
	groups, err = a.benchGroups(ctx, clients[0], f, groups)
	if err != nil {
		return err
	}
	w := newWorkload(f, clients, groups)
	doc, err := a.runBench(ctx, w)
	if !f.keep {
		err = errors.Join(err, a.cleanBench(ctx, w))
	}
	if doc != nil {
		err = errors.Join(err, a.show(doc.view()))
	}
	return err
}

// cleanBench removes the keys, also after ctx has ended.
func (a *app) cleanBench(ctx context.Context, w *workload) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer cancel()
	a.progress("removing the keys")
	err := w.remove(ctx)
	a.progress("")
	if err != nil {
		return fmt.Errorf("keys under %s are left: %w", w.prefix, err)
	}
	return nil
}

// runBench runs the load. There is a document if any operation has ended.
func (a *app) runBench(ctx context.Context, w *workload) (*benchDoc, error) {
	if w.flags.readPercent > 0 {
		a.progress("writing what will be read")
		err := w.fill(ctx)
		a.progress("")
		if err != nil && errors.Is(context.Cause(ctx), ErrInterrupted) {
			return nil, ErrInterrupted
		}
		if err != nil {
			return nil, err
		}
	}
	report, err := load.Run(ctx, load.Config{
		Clients: w.flags.clients, Rate: w.flags.rate,
		Warmup: time.Duration(w.flags.warmup), Duration: time.Duration(w.flags.duration),
		Kinds: kinds, Kind: w.kind, Do: w.do,
		Progress: func(p load.Progress) { a.progress(progressText(p)) },
	})
	a.progress("")
	if err != nil {
		return nil, err
	}
	doc := newBenchDoc(w, report)
	failed := doc.Total.NotApplied + doc.Total.Unknown
	switch {
	case report.Interrupted:
		return doc, ErrInterrupted
	case doc.Total.Applied == 0 && report.Err != nil:
		return doc, fmt.Errorf("no operation was applied: %w", report.Err)
	case doc.Total.Applied == 0:
		return doc, errors.New("no operation has ended in time")
	case failed > 0:
		a.say("%d operations failed, for instance: %v", failed, report.Err)
	}
	if doc.Total.Unknown > 0 && !w.flags.keep {
		a.say("what has an unknown outcome may still happen: look for keys under %s", w.prefix)
	}
	return doc, nil
}

// benchClients returns a client for each address. Each asks another one first, and
// keeps as many connections as it may need.
func (a *app) benchClients(conns int) ([]*client.Client, error) {
	addrs := a.flags.addr
	var clients []*client.Client
	for i := range max(len(addrs), 1) { // newClient complains if there is none
		i = min(i, len(addrs))
		c, err := a.newClient(client.Config{
			Addrs:     slices.Concat(addrs[i:], addrs[:i]),
			Timeout:   time.Duration(a.flags.timeout),
			IdleConns: conns,
		})
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

// kindKV is the kind of group that has keys.
const kindKV = "kv"

// benchGroups returns the groups to use: those that are named, or as the flags say.
func (a *app) benchGroups(
	ctx context.Context, c *client.Client, f benchFlags, named []raftyard.GroupID,
) ([]raftyard.GroupID, error) {
	for _, id := range named {
		g, err := c.Group(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case g.Kind != kindKV:
			return nil, usageError{fmt.Errorf("group %s is of kind %s, want %s",
				id, g.Kind, kindKV)}
		}
	}
	if len(named) > 0 {
		return named, nil
	}
	var ids []raftyard.GroupID
	for g, err := range eachGroup(ctx, c, client.GroupFilter{}) {
		if err != nil {
			return nil, err
		}
		if g.Kind == kindKV {
			ids = append(ids, g.ID)
		}
		if f.groups > 0 && len(ids) == f.groups {
			break
		}
	}
	switch {
	case len(ids) == 0:
		return nil, errors.New("there is no group of kind kv: " +
			"make one with raftyard group create 1 --voters 1,2,3")
	case len(ids) < f.groups:
		return nil, usageError{fmt.Errorf("--groups is %d, there are %d of kind kv",
			f.groups, len(ids))}
	}
	return ids, nil
}
