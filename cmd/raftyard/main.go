// Command raftyard runs a node of a raftyard cluster and talks to one.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/raftyard/raftyard/cmd/raftyard/internal/cli"
)

// secondSignal is how long after the first a signal counts as another one. Some
// wrappers pass one on twice.
const secondSignal = 500 * time.Millisecond

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup has it ignored
		signal.Notify(signals, syscall.SIGHUP) // the terminal is gone
	}
	go func() {
		<-signals // ends what runs in its own way
		first := time.Now()
		cancel(cli.ErrInterrupted)
		for range signals {
			if time.Since(first) > secondSignal { // whoever asks twice does not want to wait
				os.Exit(cli.ExitInterrupted)
			}
		}
	}()
	os.Exit(cli.Run(ctx, cli.OS(), os.Args[1:]))
}
