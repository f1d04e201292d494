package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/internal/config"
)

// Exit codes. Scripts rely on them; they do not change.
const (
	ExitOK          = 0
	ExitFailed      = 1   // the request failed or was refused
	ExitUsage       = 2   // wrong usage or configuration
	ExitUnreachable = 3   // no node could be reached
	ExitUnknown     = 4   // the request may or may not have had its effect
	ExitDiskFailed  = 70  // the node stopped itself because its disk failed
	ExitInterrupted = 130 // interrupted
)

var (
	// ErrInterrupted is the cause of the end of a context that a signal has ended.
	ErrInterrupted = errors.New("interrupted")

	// errDiskFailed: the node could not write its log any more.
	errDiskFailed = errors.New("the node has stopped because its disk failed")
)

// usageError is a command that was called in a wrong way.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// exitCode returns the exit code of a command that ended with err.
func exitCode(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrInterrupted):
		return ExitInterrupted
	case errors.Is(err, errDiskFailed):
		return ExitDiskFailed
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return ExitUsage
	}
	if _, ok := errors.AsType[*config.Error](err); ok {
		return ExitUsage
	}
	if !client.NotApplied(err) {
		return ExitUnknown
	}
	if _, ok := errors.AsType[*client.Problem](err); ok {
		return ExitFailed
	}
	if _, ok := errors.AsType[*client.UnreachableError](err); ok {
		return ExitUnreachable
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return ExitUnreachable // a node that does not answer a read in time
	}
	return ExitFailed
}

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `Exit codes of every command:

    0  done
    1  the request failed or was refused
    2  wrong usage or configuration
    3  could not reach the node
    4  outcome unknown: it may or may not have happened, or is decided and not
       reached yet (not_reached)
   70  the node stopped itself because its disk failed
  130  interrupted`,
	}
}
