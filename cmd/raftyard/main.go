// Command raftyard runs a node of a raftyard cluster and talks to one.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/raftyard/raftyard/cmd/raftyard/internal/cli"
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals // ends what runs in its own way
		cancel(cli.ErrInterrupted)
		<-signals // whoever asks twice does not want to wait
		os.Exit(cli.ExitInterrupted)
	}()
	os.Exit(cli.Run(ctx, cli.OS(), os.Args[1:]))
}
