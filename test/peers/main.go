// Command peers compares raftyard with other replication libraries: three hosts in one
// process, connections over loopback, synced logs, a state machine in memory, clients in a
// closed loop. Every trial is a process of its own, and contestants take turns.
//
//	go run . -cells 1x64,48x512 -sizes 128 -rounds 3 raftyard dragonboat dragonboat:shards=1
//
// Without arguments all systems run in their known best configurations, which takes hours.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, errUsage) {
			fmt.Fprintln(os.Stderr, "peers:", err)
		}
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 1 && args[0] == childArg {
		return child(ctx)
	}
	f, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	return f.compare(ctx)
}
