package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/internal/config"
)

// TestExitCodes pins the exit codes: scripts rely on them.
func TestExitCodes(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want int
	}{
		{"done", nil, 0},
		{"failed", errors.New("odd"), 1},
		{"refused", &client.Problem{Code: "no_leader", Outcome: client.OutcomeNotApplied}, 1},
		{"usage", usageError{errors.New("no such flag")}, 2},
		{"configuration", &config.Error{}, 2},
		{"nobody there", &client.UnreachableError{}, 3},
		{"no answer to a read", fmt.Errorf("get: %w", context.DeadlineExceeded), 3},
		{"unknown", &client.UnknownError{Err: errors.New("EOF")}, 4},
		{"no answer to a write", &client.UnknownError{Err: context.DeadlineExceeded}, 4},
		{"decided", &client.Problem{
			Code: client.CodeNotReached, Outcome: client.OutcomeUnknown,
		}, 4},
		{"unknown to the node", &client.Problem{Outcome: client.OutcomeUnknown}, 4},
		{"disk failed", fmt.Errorf("%w: sync", errDiskFailed), 70},
		{"interrupted", ErrInterrupted, 130},
		{"interrupted write", interrupted(&client.UnknownError{Err: context.Canceled}), 130},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := exitCode(tt.err); got != tt.want {
				t.Errorf("exitCode(%v) = %d, want %d", tt.err, got, tt.want)
			}
			if !strings.Contains(exitCodesTopic().Long, fmt.Sprintf("%5d  ", tt.want)) {
				t.Errorf("raftyard help exit-codes does not list %d", tt.want)
			}
		})
	}
}

// run runs a command in this process.
func run(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Run(ctx, Env{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		LookupEnv: func(string) (string, bool) { return "", false },
	}, args)
	return code, out.String(), errs.String()
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrInterrupted)
	code, _, stderr := run(ctx, "kv", "put", "1", "k", "v", "--addr", "127.0.0.1:1")
	if code != ExitInterrupted || stderr != "raftyard: interrupted: nothing has been changed\n" {
		t.Errorf("an interrupted put = %d %q, want 130", code, stderr)
	}
}

// TestEveryCommandHasAnExample: help without one is half a help.
func TestEveryCommandHasAnExample(t *testing.T) {
	a := &app{env: OS()}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%s has no description", cmd.CommandPath())
		}
		if len(cmd.Commands()) == 0 && cmd.RunE != nil && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(a.root())
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "with space": "with space", "": `""`, "a\nb": `"a\nb"`,
		"\xff": `"\xff"`, "ключ": "ключ", `quote"`: `"quote\""`,
	} {
		if got := printable([]byte(in)); got != want {
			t.Errorf("printable(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for in, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 29: "1.5 GiB", 1<<63 - 1: "8.0 EiB",
	} {
		if got := size(in); got != want {
			t.Errorf("size(%d) = %s, want %s", in, got, want)
		}
	}
}

func TestProgramName(t *testing.T) {
	if got := programName("/tmp/go-build123/b001/exe/raftyard"); got != "go run ./cmd/raftyard" {
		t.Errorf("under go run the program is called %q", got)
	}
	if got := programName("bin/raftyard"); got != "bin/raftyard" {
		t.Errorf("an installed program is called %q", got)
	}
}
