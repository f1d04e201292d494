package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/raftyard/raftyard/test/peers/internal/trial"
)

// childArg is the argument of a process that does one trial: the [trial.Spec] is on its
// standard input, and the [trial.Result] goes to file 3, since a library may write whatever
// it likes to the others.
const childArg = "trial"

// resultFile is where the result goes.
const resultFile = 3

// child does one trial.
func child(ctx context.Context) error {
	var spec trial.Spec
	if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	open := systems()[spec.System]
	if open == nil {
		return fmt.Errorf("there is no system %q", spec.System)
	}
	result, err := trial.Run(ctx, open(), &spec)
	if err != nil {
		return err
	}
	out := os.NewFile(resultFile, "result")
	if out == nil {
		return errors.New("there is no file for the result")
	}
	return errors.Join(json.NewEncoder(out).Encode(result), out.Close())
}

const (
	// ending is how long a child may take to end when it is told to.
	ending = 30 * time.Second
	// maxComplaint bounds what is kept of what a child writes.
	maxComplaint = 4 << 10
)

// runChild does one trial in a process of its own, with data in a directory that is
// removed. One that hangs is ended.
func runChild(ctx context.Context, dir string, spec *trial.Spec) (r *trial.Result, err error) {
	spec.Dir, err = os.MkdirTemp(dir, "peers-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(spec.Dir)) }()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	order, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	results, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, spec.Limit())
	defer cancel()
	complaint := &tail{}
	cmd := exec.CommandContext(ctx, self, childArg) //nolint:gosec // it is this program
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(order), complaint, complaint
	cmd.ExtraFiles = []*os.File{out}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = ending
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, results.Close(), out.Close())
	}
	closed := out.Close() // the child has its own
	data, readErr := io.ReadAll(results)
	ended := cmd.Wait()
	if err := errors.Join(ended, readErr, closed, results.Close()); err != nil {
		return nil, fmt.Errorf("%w: %s", err, complaint)
	}
	r = &trial.Result{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	return r, nil
}

// A tail keeps the end of what is written to it.
type tail struct{ data []byte }

// Write keeps the end of p.
func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if extra := len(t.data) - maxComplaint; extra > 0 {
		t.data = t.data[extra:]
	}
	return len(p), nil
}

// String returns what was kept, in one line.
func (t *tail) String() string {
	return strings.Join(strings.Fields(string(t.data)), " ")
}
